"""Whether each request of a run was answered right, and how surely."""

from collections.abc import Sequence

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.compare.table import DATASET
from evaluator.errors import ConfigError
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.per_request import measured_groups, require_definition
from evaluator.schemas import PREDICTIONS, PREDICTIONS_KEY

ANSWER_KEY = ["suite", "part", "dataset", "method", "definition"]
QUERY_KEY = [*ANSWER_KEY, "query_id"]
MEASURED = pl.Schema({"query_id": pl.Int64(), "correct": pl.Boolean(), "true_label_prob": pl.Float64()})


def request_results(predictions: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return one row a request and definition of the parts in which accuracy was measured.

    Args:
        predictions: schemas.PREDICTIONS of a run.
        metrics: schemas.METRICS of the run.

    Returns ANSWER_KEY, position, query_id, gold, prompt_id, correct (0 or 1) and true_label_prob, as the metrics of
    that definition take them.
    """
    judged = metrics.filter(metric="accuracy").select("suite", "part").unique()
    rows = predictions.select(PREDICTIONS.names())
    rows = rows.join(judged, on=["suite", "part"], how="semi", maintain_order="left")
    return pl.concat([_results(rows, definition) for definition in sorted(set(metrics["definition"]))])


def _results(predictions: pl.DataFrame, definition: str) -> pl.DataFrame:
    chosen = predictions.filter(definition=require_definition(definition).predictions).sort(PREDICTIONS_KEY)
    # Groups come in the order of the key, requests in the order of positions: row by row the same as `chosen`.
    groups = [group.requests.select(MEASURED.names()) for group in measured_groups(predictions, definition)]
    measured = pl.concat([pl.DataFrame(schema=MEASURED), *groups])
    assert measured["query_id"].equals(chosen["query_id"])
    return chosen.select(
        *(name for name in ANSWER_KEY if name != "definition"),
        pl.lit(definition).alias("definition"),
        *("position", "query_id", "gold", "prompt_id"),
        correct=measured["correct"].cast(pl.Float64),
        true_label_prob=measured["true_label_prob"],
    )


def query_means(answers: pl.DataFrame) -> pl.DataFrame:
    """QUERY_KEY, correct and true_label_prob: means over the requests of a query, so that each query counts once.

    Some methods answer a query once, others once a demonstration set.

    Args:
        answers: as request_results gives them.
    """
    return answers.group_by(QUERY_KEY, maintain_order=True).agg(pl.col("correct", "true_label_prob").mean())


def require_equal_prompts(runs: Sequence[ComparedRun], answers: Sequence[pl.DataFrame]) -> None:
    """Refuse runs that asked different things at the same place. Raises ConfigError.

    Only vanilla prompts are looked at: other methods may choose demonstrations or templates by the model.
    """
    first, *others = [_asked(own) for own in answers]
    for run, own in zip(runs[1:], others, strict=True):
        pairs = first.join(own, on=[*DATASET, "position"], suffix="_b", maintain_order="left")
        other = pairs.filter(pl.any_horizontal(pl.col(c).ne_missing(pl.col(f"{c}_b")) for c in ("prompt_id", "gold")))
        if not other.is_empty():
            suite, part, dataset = other.select(DATASET).row(0)
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} asked different prompts: {other.height:,} of {pairs.height:,} that "
                f"both have, the first in {suite} / {part}, {dataset}. They were built from different data or by "
                "different versions. Build and score one of them again."
            )


def _asked(answers: pl.DataFrame) -> pl.DataFrame:
    """The vanilla requests, which are the same under every definition, once."""
    return answers.filter(method=REFERENCE_METHOD).unique([*DATASET, "position"], keep="first", maintain_order=True)
