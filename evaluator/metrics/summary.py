"""The metrics of a run in a line: what a terminal shows at its end."""

from typing import get_args

import polars as pl

from evaluator.baselines.verdicts import Verdict
from evaluator.schemas import DEFINITIONS, MEAN_OVER_DATASETS


def verdict_lines(metrics: pl.DataFrame) -> list[str]:
    """One line a suite, part and method: its mean accuracy, what guessing gets, and on how many datasets it is better.

    Takes schemas.METRICS; of several definitions the first of schemas.DEFINITIONS that was measured. Where nothing has
    a verdict there is no line.
    """
    judged = metrics.filter(pl.col("metric") == "accuracy", pl.col("verdict").is_not_null())
    measured = next((name for name in DEFINITIONS if name in set(judged["definition"])), None)
    own = judged.filter(definition=measured) if measured else judged
    about = ["suite", "part", "method"]
    return [_line(key, rows) for key, rows in own.group_by(about, maintain_order=True)]


def _line(key: tuple[object, ...], rows: pl.DataFrame) -> str:
    suite, part, method = key
    datasets = rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    found = [(verdict, datasets.filter(verdict=verdict).height) for verdict in reversed(get_args(Verdict))]
    counts = ", ".join(f"{verdict} on {n}" for verdict, n in found)
    means = [
        f"mean accuracy {value:.3f}, chance {chance:.3f}, max random {max_random:.3f}, majority label {majority:.3f}; "
        for value, chance, max_random, majority in rows.filter(dataset=MEAN_OVER_DATASETS)
        .select("value", "chance", "max_random", "majority")
        .iter_rows()
    ]
    total = f"{datasets.height} dataset{'s' * (datasets.height != 1)}"
    return f"{suite} / {part}, {method}: {''.join(means)}{counts} of {total}"
