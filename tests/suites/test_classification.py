"""The tables of a run of classification, from made-up answers."""

from pathlib import Path

import polars as pl
import pytest

from evaluator.config import DEFINITIONS, Definition, RunConfig
from evaluator.methods import METHODS
from evaluator.methods.base import ScoredRequests
from evaluator.record import PartRecord
from evaluator.store import PromptStore, StoreManifest
from evaluator.suites.base import ScoredRun, classification_tables
from evaluator.suites.staicc.diagnostics import DIAGNOSTICS
from tests.methods.answered import BOTH, answers, table

PARTS = ("normal", "contextual", "domain")
NO_STORE = PromptStore(Path("nowhere"), StoreManifest(n_requests=0, n_prompts=0, requests={}, prompts={}, tables={}))


def measured(*definitions: Definition) -> dict[str, pl.DataFrame]:
    """The tables of two right answers and a wrong one in every part."""
    tables = {}

    def keep(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        tables[name] = rows.collect()
        return tables[name].lazy()

    rows = [table(part, [[-1.0, -2.0], [-1.0, -3.0], [-2.0, -1.0]]) for part in PARTS]
    kinds = {part: PartRecord("classification" if part == "normal" else "diagnostic", BOTH) for part in PARTS}
    run = ScoredRun(
        config=RunConfig(suites=("staicc-normal", "staicc-bias"), datasets=("d",), definitions=definitions),
        store=NO_STORE,
        scored=ScoredRequests(rows=answers(*rows).rows, parts=kinds),
        methods={"vanilla": METHODS["vanilla"]},
        model="m",
        keep=keep,
    )
    return dict(classification_tables(run, DIAGNOSTICS)) | tables


def test_disturbed_parts_have_predictions_and_diagnostics_but_nothing_of_classification():
    tables = measured(*DEFINITIONS)
    assert set(tables["predictions"]["part"]) == set(tables["metrics"]["part"]) == set(PARTS)
    assert set(tables["metrics"].filter(metric="accuracy")["part"]) == {"normal"}
    assert set(tables["reliability"]["part"]) == set(tables["confusion"]["part"]) == {"normal"}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_only_the_requested_definition_is_in_the_metrics(definition: Definition):
    assert measured(definition)["metrics"]["definition"].unique().to_list() == [definition]
