"""Metrics of each noise rate, template and demonstration set, on hand-made predictions."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.metrics import METRICS, classification_metrics
from evaluator.schemas import GROUP_METRICS, GROUP_METRICS_KEY, MEAN_OVER_DATASETS
from tests.suites.staicc.diagnostics.part_predictions import Probs, part_predictions
from tests.suites.staicc.measured import staicc_group_metrics, staicc_metrics

NO, YES = [0.75, 0.25], [0.25, 0.75]
GOLD = np.array([0, 1, 1, 0, 2, 1])
SHAPES = {"gler": (5, 2), "template": (3, 2), "sampling": (1, 4)}


def random_probs(part: str) -> Probs:
    return np.random.default_rng(0).dirichlet([0.5] * 3, (*SHAPES[part], len(GOLD)))


def test_table_has_the_declared_schema_a_row_a_group_and_metric_and_the_mean_over_datasets() -> None:
    frame = pl.concat([part_predictions(part, random_probs(part), GOLD) for part in SHAPES])
    table = staicc_group_metrics(pl.concat([frame, frame.with_columns(dataset=pl.lit("b"))]))
    assert table.schema == GROUP_METRICS
    assert_frame_equal(table, table.sort(GROUP_METRICS_KEY))
    assert table.height == 3 * (5 + 3 + 4) * len(METRICS)  # two datasets and their mean
    assert table.select(GROUP_METRICS_KEY).is_unique().all()


def test_templates_are_measured_over_all_demonstration_sets() -> None:
    # Template 0 has 2 of 4 right, template 1 has 1 of 4.
    frame = part_predictions("template", [[[NO, NO], [NO, NO]], [[YES, NO], [YES, NO]]], [0, 1])
    wrong_once = frame.with_columns(gold=pl.when(template=1, demonstration_set=0, query_id=1).then(0).otherwise("gold"))
    table = staicc_group_metrics(wrong_once).filter(metric="accuracy", dataset="a")
    assert table.select("noise_rate", "template", "demonstration_set", "value", "n_requests").rows() == [
        (None, 0, None, 0.5, 4),
        (None, 1, None, 0.25, 4),
    ]


def test_demonstration_sets_are_measured_one_by_one() -> None:
    table = staicc_group_metrics(part_predictions("sampling", [[[NO, NO], [NO, YES]]], [0, 1]))
    chosen = table.filter(metric="accuracy", dataset="a").select("template", "demonstration_set", "value", "n_requests")
    assert chosen.rows() == [(None, 0, 0.5, 2), (None, 1, 1.0, 2)]


@pytest.mark.parametrize("part", SHAPES)
@pytest.mark.parametrize("metric", METRICS)
def test_each_group_is_measured_as_its_requests_alone_would_be(part: str, metric: str) -> None:
    probs = random_probs(part)
    table = staicc_group_metrics(part_predictions(part, probs, GOLD)).filter(dataset="a", metric=metric)
    groups = probs if part != "sampling" else probs.swapaxes(0, 1)
    expected = [classification_metrics(rows.reshape(-1, 3), np.tile(GOLD, rows.shape[0]))[metric] for rows in groups]
    assert table["value"].to_list() == pytest.approx(expected, abs=1e-12)


def test_released_noise_rates_are_checked_one_by_one_and_templates_together() -> None:
    # Rows of the first noise rate are one-hot and pass the toolkit's check, unless others are looked at as well.
    for part, first in (("gler", pl.col("noise_rate") == 0.0), ("template", pl.col("template") == 0)):
        probs = random_probs(part)
        probs[0] = np.eye(3)[probs[0].argmax(axis=-1)]
        table = staicc_group_metrics(part_predictions(part, probs, GOLD, "released"))
        of_first = table.filter(first, dataset="a", metric="true_label_probability")["value"].item()
        hit = (probs[0].argmax(axis=-1) == GOLD).mean()
        softmaxed = (np.e * hit + 1 - hit) / (np.e + 2)  # e / (e + 2) where right, 1 / (e + 2) elsewhere
        assert of_first == pytest.approx(hit if part == "gler" else softmaxed, abs=1e-9)


def test_the_mean_is_the_plain_mean_over_datasets() -> None:
    one = part_predictions("sampling", [[[NO, NO], [NO, NO]]], [0, 0])  # all right
    other = part_predictions("sampling", [[[NO, NO, NO, NO], [YES, NO, NO, NO]]], [0, 0, 1, 1])
    table = staicc_group_metrics(pl.concat([one, other.with_columns(dataset=pl.lit("b"))]))
    means = table.filter(dataset=MEAN_OVER_DATASETS, metric="accuracy").select(
        "demonstration_set", "value", "n_requests"
    )
    assert means.rows() == [(0, 0.75, 6), (1, 0.625, 6)]


def test_the_mean_accuracy_over_templates_is_the_mean_of_their_own() -> None:
    frame = part_predictions("template", random_probs("template"), GOLD)
    of_groups = staicc_group_metrics(frame).filter(metric="accuracy", dataset="a")["value"]
    total = staicc_metrics(frame).filter(metric="accuracy_mean_over_templates", dataset="a")["value"].item()
    assert total == pytest.approx(of_groups.mean(), abs=1e-12)


def test_a_run_without_such_parts_has_an_empty_table() -> None:
    table = staicc_group_metrics(part_predictions("normal", [[[NO, YES]]], [0, 1]))
    assert table.is_empty()
    assert table.schema == GROUP_METRICS
