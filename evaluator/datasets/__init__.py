"""The registry of named datasets. Listing them reads no data; datasets/sources.py loads them."""

from dataclasses import dataclass
from typing import Literal

from evaluator.datasets.lu_2023_tables import PUBLISHED_TABLES
from evaluator.datasets.staicc_sources import SOURCES

Needs = Literal["", "a table in --data", "a table in --data, or --data hub"]


@dataclass(frozen=True, kw_only=True)
class NamedDataset:
    """Where a dataset comes from, and what the user must provide to load it."""

    summary: str
    needs: Needs  # empty: nothing

    @property
    def description(self) -> str:
        return f"{self.summary}; needs {self.needs}" if self.needs else self.summary


DATASETS: dict[str, NamedDataset] = {
    **{
        name: NamedDataset(summary=f"StaICC: {', '.join(source.label_names)}", needs="")
        for name, source in SOURCES.items()
    },
    **{
        name: NamedDataset(
            summary=f"Lu et al. 2023: {table.corpus} ({table.file})",
            needs="a table in --data" if isinstance(table.release, str) else "a table in --data, or --data hub",
        )
        for name, table in PUBLISHED_TABLES.items()
    },
}
"""Datasets of StaICC in the benchmark's order, then the datasets of Lu et al. 2023."""

INSTALLED: tuple[str, ...] = tuple(name for name, dataset in DATASETS.items() if not dataset.needs)
"""The datasets that need no file from the user; `--datasets all` stands for them."""
