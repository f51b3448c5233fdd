"""Areas under curves, against hand-worked numbers and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from evaluator.random_baselines.held_out import areas, ranking_curves

TRIALS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda trials: len({outcome for _, outcome in trials}) == 2
)


def test_auroc_is_the_share_of_pairs_in_the_right_order_with_ties_half() -> None:
    # Outcome 1 scores 3 and 2, outcome 0 scores 2 and 1: pairs 3>2, 3>1, 2=2, 2>1 are 3.5 of 4.
    assert areas([3, 2, 2, 1], [1, 1, 0, 0])["auroc"] == pytest.approx(3.5 / 4)


def test_average_precision_weighs_the_precision_at_each_threshold_by_the_recall_gained() -> None:
    # Taken at 3: 1 right of 1, recall 1/2. At 2: 2 right of 3, recall 1. So 1/2 x 1 + 1/2 x 2/3 = 5/6.
    assert areas([3, 2, 2, 1], [1, 1, 0, 0])["aupr"] == pytest.approx(5 / 6)


@given(TRIALS)
def test_areas_are_those_of_scikit_learn(trials: list[tuple[int, bool]]) -> None:
    scores, outcomes = zip(*trials, strict=True)
    assert areas(scores, outcomes)["auroc"] == pytest.approx(roc_auc_score(outcomes, scores))
    assert areas(scores, outcomes)["aupr"] == pytest.approx(average_precision_score(outcomes, scores))


@given(TRIALS, st.randoms(use_true_random=False))
def test_the_order_of_trials_and_the_scale_of_scores_do_not_matter(trials, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = random.sample(trials, len(trials))
    scores, outcomes = zip(*trials, strict=True)
    others, their_outcomes = zip(*shuffled, strict=True)
    assert areas(np.exp(others), their_outcomes)["auroc"] == pytest.approx(areas(scores, outcomes)["auroc"])
    assert areas(np.exp(others), their_outcomes)["aupr"] == pytest.approx(areas(scores, outcomes)["aupr"])


def test_infinite_scores_are_the_first_and_equal_to_one_another() -> None:
    # Two infinite ones, one of each outcome, then a right one: of two pairs one is tied and one is wrong.
    assert areas([np.inf, np.inf, 0.0], [1, 0, 1])["auroc"] == pytest.approx(0.25)


def test_where_all_outcomes_are_the_same_there_is_no_area() -> None:
    assert np.isnan(areas([1, 2], [1, 1])["auroc"])
    assert np.isnan(areas([1, 2], [0, 0])["auroc"])
    assert np.isnan(areas([1, 2], [0, 0])["aupr"])
    assert areas([1, 2], [1, 1])["aupr"] == 1


def test_curves_begin_before_any_trial_is_taken_and_end_when_all_are() -> None:
    curves = ranking_curves([3, 2, 2, 1], [1, 1, 0, 0])
    assert curves.false_positive_rate.tolist() == [0, 0, 0.5, 1]
    assert curves.true_positive_rate.tolist() == [0, 0.5, 1, 1]
    assert curves.precision.tolist() == [1, 1, 2 / 3, 0.5]
