"""Compare many runs with one base: recovery of its accuracy, answers that changed, and divergence of probabilities."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.special import ndtri, rel_entr, stdtrit

from evaluator.arrays import Floats
from evaluator.compare.results import ANSWER_KEY
from evaluator.compare.schema import AGAINST, AGAINST_KEY
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import LEVEL

_TESTS = ["difference", "ci_low", "ci_high", "p_value", "p_holm", "n_tests", "n_queries"]


def against_table(models: Sequence[str], results: Sequence[pl.DataFrame], differences: pl.DataFrame) -> pl.DataFrame:
    """Return how every run differs from the base, the last of them, for each dataset and over all.

    Args:
        models: a name for each run.
        results: request_results of each run, with probabilities.
        differences: schema.DIFFERENCES of the runs against the base.

    Returns schema.AGAINST, sorted by its key.
    """
    rows = []
    for model, answers in zip(models[:-1], results[:-1], strict=True):
        paired = answers.join(results[-1], on=[*ANSWER_KEY, "position"], suffix="_b")
        by_part = paired.partition_by("suite", "part", "method", "definition", as_dict=True, maintain_order=True)
        for part in by_part.values():
            rows += [row | {"model": model} for row in _of_part(part)]
    of_base = differences.filter(metric="accuracy", model_b=models[-1]).rename(
        {"model_a": "model", "method_a": "method"}
    )
    table = pl.DataFrame(rows, infer_schema_length=None).join(of_base.select(*AGAINST_KEY, *_TESTS), on=AGAINST_KEY)
    ends = [_ends(row) for row in table.iter_rows(named=True)]
    names = ("recovery_low", "recovery_high")
    table = table.hstack(pl.DataFrame(ends, schema=dict.fromkeys(names, pl.Float64), orient="row"))
    scaled = table.with_columns(pl.col("recovery", *names) * 100)
    return scaled.select(pl.col(name).cast(dtype) for name, dtype in AGAINST.items()).sort(AGAINST_KEY)


def _of_part(part: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the row of each dataset, and of the mean over these."""
    datasets = part.partition_by("dataset", maintain_order=True)
    found = [(_counts(rows), *_moments(rows, 2), *_moments(rows, 2 / len(datasets))) for rows in datasets]
    key = part.select("suite", "part", "method", "definition").row(0, named=True)
    for rows, (counts, plain, moments, *_) in zip(datasets, found, strict=True):
        yield key | {"dataset": rows["dataset"][0]} | counts | _recovery(plain, moments)
    plain = np.mean([each[3] for each in found], axis=0)
    moments = np.mean([each[4] for each in found], axis=0)
    moments[2:5] /= len(found)  # variances of a mean of independent datasets
    moments[5] *= len(found)
    counts = {name: [each[0][name] for each in found] for name in found[0][0]}
    of_mean = {name: None if None in values else sum(values) for name, values in counts.items()}
    if of_mean["kl_nats"] is not None:
        of_mean["kl_nats"] /= len(found)
    yield key | {"dataset": MEAN_OVER_DATASETS} | of_mean | _recovery(plain, moments)


def _counts(rows: pl.DataFrame) -> dict[str, Any]:
    """Return how many answers changed, and the mean divergence of probabilities in nats, base from run."""
    right, right_before = rows["correct"] == 1, rows["correct_b"] == 1
    counts: dict[str, Any] = {
        "n_lost": int((right_before & ~right).sum()),
        "n_gained": int((right & ~right_before).sum()),
        "n_changed": None,
        "kl_nats": None,
    }
    # Other label names may be in another order: then labels cannot be told by their numbers.
    is_same = rows["gold"].equals(rows["gold_b"]) and rows["label_probs"].list.len().equals(
        rows["label_probs_b"].list.len()
    )
    if is_same:
        counts["n_changed"] = int((rows["pred"] != rows["pred_b"]).sum())
    if is_same and not rows["true_label_prob"].null_count():
        run, base = (np.array(rows[name].to_list()) for name in ("label_probs", "label_probs_b"))
        counts["kl_nats"] = float(rel_entr(base, run).sum(axis=1).mean())
    return counts


def _moments(rows: pl.DataFrame, n_added: float) -> tuple[Floats, Floats]:
    """Return the mean accuracies of run and base; and the adjusted ones, their variances, covariance and freedom.

    As in statistics.paired.adjusted_estimate, `n_added` pairs are added, of which exactly one side is right.
    """
    queries = rows.group_by("query_id", maintain_order=True).agg(pl.col("correct", "correct_b").mean())
    a, b = queries["correct"].to_numpy(), queries["correct_b"].to_numpy()
    n = len(a) + n_added
    means = (np.array([a.sum(), b.sum()]) + n_added / 2) / n
    squares = (np.array([a @ a, b @ b]) + n_added / 2) / n
    variances = np.append(squares - means**2, a @ b / n - means.prod()) / (n - 1)
    return np.array([a.mean(), b.mean()]), np.concatenate([means, variances, [n - 1]])


def _recovery(plain: Floats, moments: Floats) -> dict[str, Any]:
    """Return the ratio of accuracies, and its interval by Fieller's theorem; null where the base may be at 0.

    Source: Fieller 1954, "Some problems in interval estimation", Journal of the Royal Statistical Society B 16.
    """
    a, b, variance_a, variance_b, covariance, freedom = moments
    square = float(stdtrit(freedom, 1 - LEVEL / 2)) ** 2
    lead, middle, last = b**2 - square * variance_b, a * b - square * covariance, a**2 - square * variance_a
    recovery = float(plain[0] / plain[1]) if plain[1] else None
    if recovery is None or lead <= 0:
        return {"recovery": recovery, "low": None, "high": None}
    reach = math.sqrt(max(middle**2 - lead * last, 0.0))
    low, high = float((middle - reach) / lead), float((middle + reach) / lead)
    return {"recovery": recovery, "low": max(min(low, recovery), 0.0), "high": max(high, recovery)}


def _ends(row: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval of recovery, with 1 inside exactly where the p-value is above LEVEL."""
    low, high, recovery, p_value = row["low"], row["high"], row["recovery"], row["p_value"]
    if low is not None and (low <= 1 <= high) == (p_value <= LEVEL):
        near = 1 + (recovery - 1) * (1 - float(ndtri(1 - LEVEL / 2)) / max(-float(ndtri(p_value / 2)), 1e-9))
        low, high = (near, high) if recovery > 1 else (low, near)
    return low, high


def against_lines(table: pl.DataFrame, base: str) -> Iterator[str]:
    """Yield a line for each run: the mean over datasets under each definition and method."""
    rows = table.filter(dataset=MEAN_OVER_DATASETS)
    for row in rows.iter_rows(named=True):
        recovery = "no recovery" if row["recovery"] is None else f"{row['recovery']:.1f}% of the accuracy of {base}"
        ends = "" if row["recovery_low"] is None else f" ({row['recovery_low']:.1f} to {row['recovery_high']:.1f})"
        kl = "" if row["kl_nats"] is None else f", KL {row['kl_nats']:.3g} nats"
        flips = f"{row['n_lost']:,} answers lost, {row['n_gained']:,} gained{kl}"
        place = ", ".join(row[name] for name in ("model", "part", "method", "definition"))
        yield f"{place}: {recovery}{ends}; {flips}; p {row['p_holm']:.3g} after Holm for {row['n_tests']} tests"
