"""The last lines of a run of StaICC."""

import math

import polars as pl

from evaluator.schemas import METRICS
from evaluator.suites.staicc.diagnostics import diagnostic_lines
from tests.report.made_run import MadeRun


def diagnostic(part: str, metric: str, value: float, definition: str = "paper") -> dict[str, object]:
    about = {"suite": "s", "part": part, "method": "vanilla", "dataset": "mean"}
    return about | {"metric": metric, "definition": definition, "value": value}


def lines(rows: list[dict[str, object]]) -> list[str]:
    return [*diagnostic_lines(MadeRun(record={}, tables={"metrics": pl.DataFrame(rows, schema=METRICS)}))]


def test_diagnostics_have_a_line_each_with_unit_and_direction_in_the_order_of_the_paper() -> None:
    rows = [
        diagnostic("gler", "gler", 0.0625),
        diagnostic("normal", "empirical_bias", math.inf),
        diagnostic("contextual", "contextual_bias", -0.75),
        diagnostic("contextual", "contextual_bias", 0.9, "released"),
    ]
    assert lines(rows) == [
        "Contextual bias       -0.750  nats, more is more bias",
        "Empirical bias           inf  nats, more is more bias",
        "GLER                   0.062  accuracy per unit of noise, above 0 where labels are read",
    ]


def test_the_toolkits_contextual_bias_is_read_the_other_way_round() -> None:
    rows = [diagnostic("contextual", "contextual_bias", 0.9, "released")]
    (line,) = lines(rows)
    assert line.endswith("nats, less is more bias")


def test_a_run_without_disturbed_prompts_has_no_line_of_diagnostics() -> None:
    assert lines([diagnostic("normal", "empirical_bias", 0.5)]) == []
