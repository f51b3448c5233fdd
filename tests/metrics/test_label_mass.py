"""Label mass of made-up scores, by hand and against SciPy's intervals of quantiles."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import quantile_test

from evaluator.methods.base import ScoredRequests
from evaluator.metrics.table import label_mass_metrics, quantile_interval
from evaluator.record import PartRecord
from evaluator.report.notes import label_mass_warnings
from evaluator.schemas import METRICS, REQUESTS, SCORES, TOKENS

CONTEXT = [1, 2]


def scored(
    probs: list[list[float]], labels: list[list[int]], *, part: str = "normal", n_sets: int = 1, dataset: str = "a"
) -> ScoredRequests:
    """Requests with these label probabilities over the whole vocabulary; `labels` are the tokens of the label space."""
    rows = [
        {"suite": "suite", "part": part, "dataset": dataset, "position": i, "query_id": i // n_sets, "gold": 0}
        | {"prompt_id": f"{dataset.encode().hex():0>4}{i:028x}", "label_log_likelihoods": [math.log(p) for p in row]}
        | {"last_token_log_probs": [math.log(p / 2) for p in row]}
        for i, row in enumerate(probs)
    ]
    tokens = [
        {
            "prompt_id": row["prompt_id"],
            "token_id": f"t{i}",
            "ask": "labels",
            "context": CONTEXT,
            "continuations": labels,
        }
        for i, row in enumerate(rows)
    ]
    return ScoredRequests(
        rows=pl.LazyFrame(rows, schema={**REQUESTS, **SCORES}),
        tokens=pl.LazyFrame(tokens, schema=TOKENS),
        parts={part: PartRecord("classification", ("paper", "released"))},
    )


def value(table: pl.DataFrame, metric: str, definition: str = "paper", dataset: str = "a") -> float:
    return table.filter(metric=metric, definition=definition, dataset=dataset)["value"].item()


def test_the_mass_is_the_sum_of_the_labels_probabilities_a_query_at_a_time() -> None:
    # Queries have the means (.3 + .5) / 2 = .4 and (.1 + .1) / 2 = .1 over their two requests: the median is .25, and
    # the 5th percentile lies a twentieth of the way from .1 to .4.
    table = label_mass_metrics(
        scored([[0.1, 0.2], [0.25, 0.25], [0.05, 0.05], [0.05, 0.05]], [[5], [6]], n_sets=2), ("paper",)
    )
    assert table.schema == METRICS
    assert value(table, "label_mass_median") == pytest.approx(0.25)
    assert value(table, "label_mass_5th_percentile") == pytest.approx(0.115)
    assert table.select("n_queries", "n_requests", "method").unique().rows() == [(2, 4, "vanilla")]
    assert value(table, "label_mass_median", dataset="mean") == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[5], [6]], 0.9),  # different tokens
        ([[5], [5, 6]], 0.6),  # the second happens only where the first does
        ([[5, 6], [5, 7]], 0.9),  # a common stem is no label
        ([[12], [1, 2]], 0.9),  # tokens, not digits
        ([[1], [12]], 0.9),
    ],
)
def test_a_label_that_begins_with_another_ones_tokens_is_not_counted_twice(
    labels: list[list[int]], expected: float
) -> None:
    table = label_mass_metrics(scored([[0.6, 0.3]], labels), ("paper", "released"))
    assert value(table, "label_mass_median") == pytest.approx(expected)
    # Last tokens right after the prompt differ from each other always: all count.
    assert value(table, "label_mass_median", "released") == pytest.approx(0.45)


def test_prefixes_that_would_add_up_to_more_than_one_stay_a_probability() -> None:
    table = label_mass_metrics(scored([[0.9, 0.8]], [[5], [5, 6]]), ("paper",))
    assert value(table, "label_mass_median") == pytest.approx(0.9)


@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("n", [3, 40, 512])
def test_intervals_are_those_of_scipy_or_the_end_of_the_scale(n: int, share: float) -> None:
    values = np.random.default_rng(n).random(n)
    expected = quantile_test(values, p=share).confidence_interval(0.95)
    low, high = quantile_interval(values, share)
    assert low == (0.0 if math.isnan(expected.low) else expected.low)
    assert high == (1.0 if math.isnan(expected.high) else expected.high)


def test_a_part_whose_labels_are_improbable_is_named_with_the_datasets_the_lowest_first() -> None:
    tables = [
        label_mass_metrics(scored([[mass / 2, mass / 2]], [[5], [6]], dataset=name), ("paper",))
        for name, mass in (("low", 0.02), ("lower", 0.004), ("high", 0.5))
    ]
    accuracy = {"suite": "suite", "part": "normal", "dataset": "low", "method": "vanilla", "metric": "accuracy"}
    metrics = pl.concat([*tables, pl.DataFrame([accuracy], schema=METRICS)])
    (said,) = label_mass_warnings(metrics)
    assert said.startswith("suite / normal: the labels have less than 10% of the model's probability on ")
    assert "on lower (median 0.004), low (median 0.02). " in said
    enough = metrics.filter((pl.col("dataset") == "high") | (pl.col("metric") == "accuracy"))
    assert list(label_mass_warnings(enough)) == []
    assert list(label_mass_warnings(enough.with_columns(value=pl.lit(0.1)))) == []  # not less than 10%
