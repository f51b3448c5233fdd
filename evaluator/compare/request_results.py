"""Collect for each request of a run whether it was answered correctly, and its true-label probability."""

from collections.abc import Sequence

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.compare.table import DATASET
from evaluator.errors import ConfigError
from evaluator.methods import METHODS
from evaluator.metrics.per_request import measured_groups, require_definition
from evaluator.schemas import PREDICTIONS, PREDICTIONS_KEY

ANSWER_KEY = ["suite", "part", "dataset", "method", "definition"]
QUERY_KEY = [*ANSWER_KEY, "query_id"]
_CHOOSING = [name for name, method in METHODS.items() if method.prompts.follow_up or method.prompts.differ]
"""Methods whose prompts follow from a model's answers, or from the definition of the run."""

MEASURED = pl.Schema({"query_id": pl.Int64(), "correct": pl.Boolean(), "true_label_prob": pl.Float64()})


def request_results(predictions: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each request and definition of the parts in which accuracy was measured.

    Args:
        predictions: schemas.PREDICTIONS of a run.
        metrics: schemas.METRICS of the run.

    Returns ANSWER_KEY, position, query_id, n_shots, demonstration_set, gold, prompt_id, correct (0 or 1) and
    true_label_prob, as the metrics of that definition define them.
    """
    judged = metrics.filter(metric="accuracy").select("suite", "part").unique()
    rows = predictions.select(PREDICTIONS.names())
    rows = rows.join(judged, on=["suite", "part"], how="semi", maintain_order="left")
    return pl.concat([_results(rows, definition) for definition in sorted(set(metrics["definition"]))])


def _results(predictions: pl.DataFrame, definition: str) -> pl.DataFrame:
    rows = predictions.filter(definition=require_definition(definition).predictions).sort(PREDICTIONS_KEY)
    # Groups are in the order of the key, requests in the order of positions: row by row the same as `rows`.
    groups = (group.requests.select(MEASURED.names()) for group in measured_groups(predictions, definition))
    measured = pl.concat([pl.DataFrame(schema=MEASURED), *groups])
    assert measured["query_id"].equals(rows["query_id"])
    return rows.select(
        *(name for name in ANSWER_KEY if name != "definition"),
        pl.lit(definition).alias("definition"),
        *("position", "query_id", "n_shots", "demonstration_set", "gold", "prompt_id"),
        correct=measured["correct"].cast(pl.Float64),
        true_label_prob=measured["true_label_prob"],
    )


def query_means(answers: pl.DataFrame) -> pl.DataFrame:
    """Average correct and true_label_prob over the requests of each QUERY_KEY, so that each query counts once.

    Some methods have one request a query, others one for each demonstration set.

    Args:
        answers: as returned by request_results.
    """
    return answers.group_by(QUERY_KEY, maintain_order=True).agg(pl.col("correct", "true_label_prob").mean())


def require_equal_prompts(runs: Sequence[ComparedRun], answers: Sequence[pl.DataFrame]) -> None:
    """Raise ConfigError for runs with different prompts or gold labels at the same position of a method.

    Prompts of methods that choose demonstrations or templates by the model's answers are left out.
    """
    first, *others = [_distinct_requests(results) for results in answers]
    for run, requests in zip(runs[1:], others, strict=True):
        pairs = first.join(requests, on=[*DATASET, "method", "position"], suffix="_b", maintain_order="left")
        has_other_prompt = pl.col("prompt_id").ne_missing(pl.col("prompt_id_b")) & ~pl.col("method").is_in(_CHOOSING)
        other = pairs.filter(has_other_prompt | pl.col("gold").ne_missing(pl.col("gold_b")))
        if not other.is_empty():
            suite, part, dataset = other.select(DATASET).row(0)
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} have different prompts: {other.height:,} of {pairs.height:,} that "
                f"both have, the first in {suite} / {part}, {dataset}. They were built from different data or by "
                "different versions. Build and score one of them again."
            )


def _distinct_requests(answers: pl.DataFrame) -> pl.DataFrame:
    """Return the requests of each method, which are the same under every definition, once."""
    return answers.unique([*DATASET, "method", "position"], keep="first", maintain_order=True)
