"""Consistencies against hand-worked numbers, NumPy and the StaICC toolkit's own function."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score
from StaICC.util import functional

from evaluator.errors import MetricError
from tests.strategies import distributions
from tests.suites.staicc.diagnostics.part_predictions import Probs, interval, part_predictions, values
from tests.suites.staicc.measured import staicc_metrics
from tests.toolkit import plain_summation  # noqa: F401

pytestmark = pytest.mark.usefixtures("plain_summation")

NO, YES = [0.75, 0.25], [0.25, 0.75]


def shares(preds: npt.NDArray[np.int64]) -> float:
    """Mean share of the most frequent number of each column."""
    return float(np.mean([np.bincount(column).max() / len(column) for column in preds.T]))


def test_six_of_nine_alike_is_two_thirds() -> None:
    # The paper's own example, and a query whose nine answers agree: (6/9 + 1) / 2 = 5/6.
    answers = [[[NO, YES]]] * 6 + [[[YES, YES]]] * 3
    table = staicc_metrics(part_predictions("template", answers, [0, 0]))
    assert values(table)["template_consistency"] == pytest.approx(5 / 6)


def test_demonstration_sets_of_a_query_are_compared_with_each_other() -> None:
    # Query 0: 5 of 8 alike; query 1: 8 of 8. (5/8 + 1) / 2 = 13/16; right are 5 + 0 of 16.
    answers = [[[NO, YES]] * 5 + [[YES, YES]] * 3]
    table = staicc_metrics(part_predictions("sampling", answers, [0, 0]))
    assert values(table) == {"sampling_consistency": 13 / 16, "accuracy_mean_over_demonstration_sets": 5 / 16}


def test_templates_are_compared_behind_one_demonstration_set_at_a_time() -> None:
    # Each demonstration set has its own answer, whatever the template: all agree.
    answers = [[[NO], [YES]]] * 3
    assert values(staicc_metrics(part_predictions("template", answers, [0])))["template_consistency"] == 1.0


def test_spread_of_macro_f1_over_two_connectors_by_hand() -> None:
    # Connector 0: all right, macro-F1 1. Connector 1 answers 0, 1, 1, 1 to gold 0, 0, 1, 1: F1 of label 0 is
    # 2 * 1 * 1/2 / (3/2) = 2/3, of label 1 it is 2 * 2/3 * 1 / (5/3) = 4/5, and macro-F1 (2/3 + 4/5) / 2 = 11/15.
    answers = [[[NO, NO, YES, YES]], [[NO, YES, YES, YES]]]
    found = values(staicc_metrics(part_predictions("connector", answers, [0, 0, 1, 1])))
    assert found["macro_f1_mean_over_connectors"] == pytest.approx(13 / 15)
    # Both are 2/15 from the mean: the variance with n - 1 is 2 * (2/15)^2.
    assert found["macro_f1_sd_over_connectors"] == pytest.approx(2 / 15 * 2**0.5)


def test_the_interval_of_a_spread_is_that_of_a_jackknife_with_scikit_learns_macro_f1() -> None:
    gold, probs = np.arange(40) % 3, random_probs((8, 1, 40), 3, 5)
    preds = probs.argmax(axis=-1)[:, 0]

    def spread(kept: npt.NDArray[np.int64]) -> float:
        scores = [f1_score(gold[kept], pred[kept], average="macro", labels=[0, 1, 2]) for pred in preds]
        return float(np.std(scores, ddof=1))

    without_one = np.array([spread(np.delete(np.arange(40), query)) for query in range(40)])
    reach = stats.t.ppf(0.975, 39) * np.sqrt(39 / 40 * ((without_one - without_one.mean()) ** 2).sum())
    table = staicc_metrics(part_predictions("connector", probs, gold))
    wanted = spread(np.arange(40))
    assert values(table)["macro_f1_sd_over_connectors"] == pytest.approx(wanted)
    assert interval(table, "macro_f1_sd_over_connectors") == pytest.approx((max(wanted - reach, 0), wanted + reach))


def random_probs(shape: tuple[int, int, int], n_labels: int, seed: int) -> Probs:
    """Answers of which some are tied exactly, and some but for the last digit."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_labels, 0.5), shape)
    rest = [0.0] * (n_labels - 2)
    probs[rng.random(shape) < 0.2] = [0.5, 0.5, *rest]
    probs[rng.random(shape) < 0.2] = [0.5 - 2**-54, 0.5, *rest]
    return probs


@pytest.mark.parametrize("n_labels", [2, 3, 6])
@pytest.mark.parametrize("part", ["template", "sampling"])
def test_consistency_of_the_paper_is_numpys(part: str, n_labels: int) -> None:
    shape = (9, 2, 50) if part == "template" else (1, 8, 50)
    probs = random_probs(shape, n_labels, seed=n_labels)
    found = values(staicc_metrics(part_predictions(part, probs, [0] * 50)))[f"{part}_consistency"]
    varied = shape[0] * shape[1] if part == "sampling" else shape[0]
    assert found == pytest.approx(shares(probs.argmax(axis=-1).reshape(varied, -1)), abs=1e-12)


@pytest.mark.parametrize("n_labels", [2, 3, 6])
@pytest.mark.parametrize(
    ("part", "shape"), [("template", (9, 1, 100)), ("sampling", (1, 8, 128))], ids=["template", "sampling"]
)
def test_released_consistency_is_the_toolkits(part: str, shape: tuple[int, int, int], n_labels: int) -> None:
    probs = random_probs(shape, n_labels, seed=n_labels)
    rows = probs.reshape(-1, n_labels).tolist()
    gold = [0] * shape[2]
    table = staicc_metrics(part_predictions(part, probs, gold, "released"))
    theirs = functional.consistency(None, rows, loop_length=shape[2])
    assert values(table, "released")[f"{part}_consistency"] == pytest.approx(theirs, abs=1e-9)
    assert functional.probability_matrix_check(rows) is False, "this table shows what the toolkit's softmax does"


def test_the_toolkits_softmax_ties_answers_that_a_last_digit_tells_apart() -> None:
    # Softmax of 0.5 and 0.5 - 2^-54 is 1/2 twice, and the first of equals is label 0 rather than 1. It comes where any
    # row of any template misses a sum of 1: here the last.
    answers = [[[[0.5 - 2**-54, 0.5]]], [[NO]], [[[0.75, 0.25 - 2**-40]]]]
    frames = [part_predictions("template", answers, [0], definition) for definition in ("paper", "released")]
    table = staicc_metrics(pl.concat(frames))
    assert values(table)["template_consistency"] == pytest.approx(2 / 3)
    assert values(table, "released")["template_consistency"] == 1.0
    assert functional.consistency(None, [answers[place][0][0] for place in range(3)], loop_length=1) == 1.0


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_released_consistency_is_the_toolkits_on_adversarial_tables(data: st.DataObject) -> None:
    n_labels, n_templates, n_queries = (data.draw(st.integers(2, most)) for most in (5, 4, 4))
    row = distributions(n_labels) | st.lists(st.floats(-30, 30), min_size=n_labels, max_size=n_labels)
    rows = data.draw(st.lists(row, min_size=n_templates * n_queries, max_size=n_templates * n_queries))
    probs = np.reshape(rows, (n_templates, 1, n_queries, n_labels))
    table = staicc_metrics(part_predictions("template", probs, [0] * n_queries, "released"))
    theirs = functional.consistency(None, rows, loop_length=n_queries)
    assert values(table, "released")["template_consistency"] == pytest.approx(theirs, abs=1e-9)


def test_the_interval_of_a_consistency_is_wilsons_for_the_spread_over_queries() -> None:
    # Queries agree by 1, 1, 1 and 2/3 of three: mean 11/12, SE = sd / 2 = (1/6) / 2 = 1/12;
    # n* = (11/144) / (1/144) = 11. That is 11/12 of an answer that does not agree: the upper end is a Poisson count's.
    answers = [[[NO, NO, NO, NO]], [[NO, NO, NO, NO]], [[NO, NO, NO, YES]]]
    table = staicc_metrics(part_predictions("template", answers, [0] * 4))
    t = stats.t.ppf(0.975, 3)
    centre, half = (11 * 11 / 12 + t**2 / 2), t * (11 * 11 / 144 + t**2 / 4) ** 0.5
    poisson = 1 - stats.gamma.ppf(0.05, 11 / 12) / 11
    expected = ((centre - half) / (11 + t**2), max((centre + half) / (11 + t**2), poisson))
    assert interval(table, "template_consistency") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("part", "column"), [("template", "template"), ("gler", "noise_rate"), ("sampling", "demonstration_set")]
)
def test_a_query_that_misses_answers_is_refused(part: str, column: str) -> None:
    shape = (1, 3, 2, 2) if part == "sampling" else (3, 1, 2, 2)
    frame = part_predictions(part, np.full(shape, 0.5), [0, 0])
    last = pl.col(column) == pl.col(column).max()
    broken = frame.filter((pl.col("query_id") != 1) | ~last)
    with pytest.raises(
        MetricError, match=rf"suite, {part}, a, vanilla, paper: every query .* of 6 pairs 5 are present"
    ):
        staicc_metrics(broken)


def test_a_single_template_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(MetricError, match="only one"):
        staicc_metrics(part_predictions("template", [[[NO, YES]]], [0, 0]))
