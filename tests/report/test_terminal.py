"""The last lines of a run."""

from dataclasses import replace

import polars as pl

from evaluator.metrics.guessing import VERDICTS
from evaluator.record import ThroughputRecord
from evaluator.report.notes import throughput_line, verdict_lines
from evaluator.schemas import METRICS
from tests.report.made_record import made_record

ABOUT: dict[str, object] = {"suite": "s", "part": "p", "method": "vanilla", "metric": "accuracy"}


BOTH, UNIFORM, NEITHER = VERDICTS


def row(dataset: str, verdict: str | None, definition: str = "paper", value: float = 0.5) -> dict[str, object]:
    guesses: dict[str, object] = {"chance": 0.25, "majority": 0.75, "n_tests": 1200} if verdict else {}
    return ABOUT | {"dataset": dataset, "definition": definition, "value": value, "verdict": verdict} | guesses


DATASETS = [row("a", BOTH), row("b", BOTH), row("c", UNIFORM), row("d", NEITHER)]
COUNTED = (
    "better than guessing on 2, better than uniform guessing on 1, not better than uniform guessing on 1 of 4 datasets "
    "(5% level, Holm's correction for 1,200 tests)"
)


def test_a_line_has_the_mean_what_guessing_gets_and_the_verdicts_on_datasets() -> None:
    metrics = pl.DataFrame([*DATASETS, row("mean", BOTH)], schema=METRICS)
    assert verdict_lines(metrics) == [
        f"s / p, vanilla: mean accuracy 0.500, chance 0.250, majority label 0.750; {COUNTED}"
    ]


def test_a_mean_without_what_guessing_gets_is_left_out_of_the_line() -> None:
    metrics = pl.DataFrame([*DATASETS, row("mean", None)], schema=METRICS)
    assert verdict_lines(metrics) == [f"s / p, vanilla: {COUNTED}"]


def test_a_mean_over_datasets_of_other_sizes_has_no_verdict_and_is_in_the_line() -> None:
    metrics = pl.DataFrame([*DATASETS, row("mean", BOTH) | {"verdict": None}], schema=METRICS)
    (line,) = verdict_lines(metrics)
    assert line.startswith("s / p, vanilla: mean accuracy 0.500, chance 0.250, majority label 0.750; better than")


def test_without_vanilla_there_is_a_line_a_method_under_the_first_definition_that_was_measured() -> None:
    rows = [row("a", UNIFORM, "published"), row("a", BOTH, "released")]
    methods = [entry | {"method": method} for method in ("topk", "batch") for entry in rows]
    counted = (
        "accuracy on a 0.500, chance 0.250, majority label 0.750; better than guessing "
        "(5% level, Holm's correction for 1,200 tests)"
    )
    assert verdict_lines(pl.DataFrame(methods, schema=METRICS)) == [
        f"s / p, topk: {counted}",
        f"s / p, batch: {counted}",
    ]


def test_other_methods_stand_in_a_table_with_what_they_are_above_vanilla() -> None:
    means = {"topk": 0.625, "vanilla": 0.5, "hidden_calibration": 0.375}
    rows = [row("mean", BOTH, value=value) | {"method": method} for method, value in means.items()]
    (about_vanilla, *table) = verdict_lines(pl.DataFrame([*DATASETS, *rows], schema=METRICS))
    assert about_vanilla.startswith("s / p, vanilla: mean accuracy 0.500, ")
    assert table == [
        "  method              mean accuracy  minus vanilla",
        "  topk                        0.625         +0.125",
        "  hidden_calibration          0.375         -0.125",
    ]
    _, heading, *_ = verdict_lines(pl.DataFrame([DATASETS[0], *rows], schema=METRICS))
    assert heading == "  method                   accuracy  minus vanilla"  # of one dataset


def test_where_no_accuracy_was_compared_with_guesses_there_is_no_line() -> None:
    assert verdict_lines(pl.DataFrame(schema=METRICS)) == []
    assert verdict_lines(pl.DataFrame([row("a", None)], schema=METRICS)) == []


def test_the_speed_of_scoring_is_a_line() -> None:
    throughput = ThroughputRecord(elapsed_s=8, requests_per_s=30, computed_tokens_per_s=2500)
    scores = replace(made_record().scores, prompt_tokens=2000, cached_tokens=500, throughput=throughput)
    assert throughput_line(scores) == "Scored at 30.0 prompts/s, 2,500 tokens computed/s, 25% of tokens cached"
    alone = replace(scores, throughput=replace(throughput, replica_computed_tokens_per_s=[2500.0]))
    assert throughput_line(alone) == throughput_line(scores)
    replicas = replace(scores, throughput=replace(throughput, replica_computed_tokens_per_s=[1300.0, 1250.0]))
    assert throughput_line(replicas).endswith("cached; 2 replicas, the slowest at 1,250 tokens computed/s")


def test_where_it_is_not_told_what_was_cached_the_speed_is_that_of_prompts() -> None:
    throughput = ThroughputRecord(elapsed_s=8, requests_per_s=30)
    scores = replace(made_record().scores, cached_tokens=None, throughput=throughput)
    assert throughput_line(scores) == "Scored at 30.0 prompts/s"


def test_a_run_that_scored_nothing_itself_has_no_speed() -> None:
    assert throughput_line(made_record().scores) is None
