"""A measured run that lies in memory: hand-made tables in place of an output folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from evaluator.metrics import thresholds
from evaluator.record import MeasuredRecord
from evaluator.schemas import PREDICTIONS, PROMPTS, QUERIES

LEFT_OUT = {"predictions": PREDICTIONS, "queries": QUERIES, **thresholds.TABLES}
"""Tables without rows where a test gives none: most pages are made of few tables."""


@dataclass(frozen=True, kw_only=True)
class MadeRun:
    """A MeasuredRun of these tables."""

    record: MeasuredRecord
    tables: Mapping[str, pl.DataFrame]
    side_tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    prompt_texts: pl.DataFrame = field(
        default_factory=lambda: PROMPTS.to_frame().select("prompt_id", "prompt", "spans")
    )

    def table(self, name: str) -> pl.DataFrame:
        return LEFT_OUT[name].to_frame() if name in LEFT_OUT.keys() - self.tables.keys() else self.tables[name]

    def scan(self, name: str) -> pl.LazyFrame:
        return self.table(name).lazy()

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        assert self.side_tables[name].schema == schema
        return self.side_tables[name]

    def prompts(self, prompt_ids: pl.Series) -> pl.DataFrame:
        return self.prompt_texts.filter(pl.col("prompt_id").is_in(prompt_ids.implode()))

    def but(self, *, record: MeasuredRecord | None = None, **tables: pl.DataFrame) -> "MadeRun":
        """The same run with another record, or other tables."""
        return replace(self, record=self.record if record is None else record, tables={**self.tables, **tables})
