"""Scores of ordered, soft and multiple answers against scikit-learn, SciPy and numbers worked by hand."""

import numpy as np
import polars as pl
import pytest
from scipy.special import rel_entr
from scipy.stats import entropy, sem, spearmanr, t
from sklearn.metrics import cohen_kappa_score, log_loss, mean_absolute_error

from evaluator.errors import MetricError
from evaluator.metrics.graded import ORDERED, multi_label_scores, ordered_scores, soft_scores


def drawn(n: int = 200, k: int = 5, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([0.7] * k, n)
    return probs, (rng.random((n, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(0, k - 1)


def values(table, column: str = "value") -> dict[str, float]:
    return dict(table.select("metric", column).iter_rows())


def test_ordered_scores_are_those_of_scikit_learn_and_scipy():
    probs, gold = drawn()
    found = values(ordered_scores(probs, gold))
    level = probs @ np.arange(5)
    assert found["expected_level"] == pytest.approx(level.mean())
    assert found["mean_absolute_error"] == pytest.approx(mean_absolute_error(gold, level))
    assert found["weighted_kappa"] == pytest.approx(cohen_kappa_score(gold, probs.argmax(axis=1), weights="quadratic"))
    assert found["rank_correlation"] == pytest.approx(spearmanr(level, gold).statistic)


def test_the_ranked_probability_score_by_hand():
    # Cumulative (0.2, 0.7) against (0, 1): (0.2^2 + 0.3^2) / 2.
    found = values(ordered_scores(np.array([[0.2, 0.5, 0.3]] * 3), np.array([1, 1, 1])))
    assert found["ranked_probability_score"] == pytest.approx(0.065)
    assert found["weighted_kappa"] == 0.0  # both sides are constant
    two_levels = values(ordered_scores(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1])))
    assert two_levels["ranked_probability_score"] == pytest.approx((0.2**2 + 0.6**2) / 2)  # Brier's for two levels


def test_guessing_gives_every_row_the_distribution_of_the_gold_answers():
    probs, gold = drawn()
    guess = values(ordered_scores(probs, gold), "guess")
    shares = np.bincount(gold, minlength=5) / 200
    assert guess["expected_level"] == pytest.approx(gold.mean())
    assert (guess["weighted_kappa"], guess["rank_correlation"]) == pytest.approx((0, 0), abs=1e-12)
    same = values(ordered_scores(np.tile(shares, (200, 1)), gold))
    assert guess["ranked_probability_score"] == pytest.approx(same["ranked_probability_score"])


def test_soft_scores_are_those_of_scipy_and_of_hard_labels_scikit_learns():
    probs, gold = drawn()
    votes = np.random.default_rng(1).dirichlet([0.3] * 5, 200)
    votes[0] = [1, 0, 0, 0, 0]
    found = soft_scores(probs, votes)
    assert values(found)["kl_divergence"] == pytest.approx(rel_entr(votes, probs).sum(axis=1).mean())
    assert values(found)["cross_entropy"] == pytest.approx(
        (entropy(votes, axis=1) + entropy(votes, probs, axis=1)).mean()
    )
    assert values(found)["brier_score"] == pytest.approx(((votes - probs) ** 2).sum(axis=1).mean())
    assert values(found, "guess")["cross_entropy"] == pytest.approx(entropy(votes.mean(axis=0)))
    hard = values(soft_scores(probs, np.eye(5)[gold]))
    assert hard["cross_entropy"] == pytest.approx(log_loss(gold, probs))
    assert hard["kl_divergence"] == pytest.approx(hard["cross_entropy"])


def test_probabilities_of_0_leave_soft_scores_finite():
    found = soft_scores(np.array([[1.0, 0.0], [0.99, 0.01]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert values(found)["cross_entropy"] == pytest.approx(-(np.log(0.005) + np.log(0.99)) / 2)
    assert values(soft_scores(np.array([[0.5, 0.5]] * 2), np.array([[1.0, 0.0]] * 2)), "guess")["kl_divergence"] == 0


def test_certain_and_wrong_answers_are_not_better_than_guessing():
    # Each row is 1 for the wrong label: Brier (0 - 1)^2 + (1 - 0)^2 = 2, log loss infinite.
    wrong = values(soft_scores(np.eye(3)[[0, 1, 2]], np.eye(3)[[1, 2, 0]]))
    assert wrong == {"cross_entropy": np.inf, "kl_divergence": np.inf, "brier_score": 2}
    right = values(soft_scores(np.eye(3)[[0, 1, 2]], np.eye(3)[[0, 1, 2]]))
    assert right == {"cross_entropy": 0, "kl_divergence": 0, "brier_score": 0}
    # The Brier score is that of the numbers as they are, whatever stands for a 0 in logarithms.
    rounded = np.array([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0]])
    gold = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert values(soft_scores(rounded, gold))["brier_score"] == pytest.approx((0.5 + 0.32) / 2)


def test_no_interval_is_a_point_or_leaves_the_scale():
    right, yes = np.eye(3)[[0, 1, 2, 0, 1]], np.eye(2)[[0, 1, 0, 1, 1]]
    tables = [
        ordered_scores(right, np.array([0, 1, 2, 0, 1])),
        ordered_scores(right, np.array([0, 1, 2, 0, 2])),
        soft_scores(right, right),
        multi_label_scores(yes, yes > 0, one_true=True),
        multi_label_scores(np.ones((20, 1)), np.arange(20)[:, None] != 3),
    ]
    found = pl.concat(tables).drop_nulls("ci_low")
    assert found.filter(pl.col("ci_high") - pl.col("ci_low") < 0.01).is_empty()
    assert found.filter(~pl.col("value").is_between("ci_low", "ci_high")).is_empty()
    shares = found.filter(pl.col("metric").is_in(["exact_match", "label_accuracy", "single_yes"]))
    assert shares.filter((pl.col("ci_low") < 0) | (pl.col("ci_high") > 1)).is_empty()
    # 19 of 20: Wilson's interval, Student's t with 19 degrees, and the end of the Poisson count 1 on the near side.
    low, high = shares.row(-1, named=True)["ci_low"], shares.row(-1, named=True)["ci_high"]
    assert (low, high) == pytest.approx((0.739, 1 + np.log(0.95) / 20), abs=1e-3)


def test_several_questions_match_exactly_where_all_answers_are_right():
    yes = np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.4], [0.5, 0.0]])
    gold = np.array([[1, 0], [1, 0], [0, 0], [1, 0]], bool)
    found = values(multi_label_scores(yes, gold, one_true=True))
    # 0.5 is no, as in accuracies, where the first of equally probable options is the answer.
    assert found["exact_match"] == 2 / 4
    assert found["label_accuracy"] == 6 / 8
    assert found["expected_labels"] == pytest.approx(3.4 / 4)
    assert found["sum_less_one"] == pytest.approx((0.1 + 0.3 + 0.5 + 0.5) / 4)
    assert found["single_yes"] == 1 / 4
    assert values(multi_label_scores(yes, gold), "guess")["exact_match"] == 3 / 4  # yes, no for every row


def test_intervals_hold_the_truth_and_copies_of_rows_do_not_narrow_them():
    many = drawn(200_000, seed=99)
    truth = {name: score(*many) for name, score in ORDERED.items()}
    held = dict.fromkeys(truth, 0)
    for seed in range(100):
        for name, _, low, high, _ in ordered_scores(*drawn(150, seed=seed)).iter_rows():
            held[name] += low <= truth[name] <= high
    assert min(held.values()) >= 88
    probs, gold = drawn(80)
    groups = np.repeat(np.arange(80), 3)
    copies = ordered_scores(np.repeat(probs, 3, axis=0), np.repeat(gold, 3), groups)
    for name in ("value", "ci_low", "ci_high"):
        assert values(copies, name) == pytest.approx(values(ordered_scores(probs, gold), name))


def test_the_interval_of_a_mean_is_students_over_100_blocks_and_a_single_row_has_none():
    yes = np.random.default_rng(0).random((200, 1))
    found = multi_label_scores(yes, yes > 0.3).row(by_predicate=pl.col("metric") == "expected_labels", named=True)
    means = yes.reshape(2, 100).mean(axis=0)  # rows 100 apart are in one block
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(t.interval(0.95, 99, means.mean(), sem(means)))
    assert set(values(multi_label_scores(yes[:1], yes[:1] > 0.3), "ci_low").values()) == {None}


@pytest.mark.parametrize("gold", [[0, 5], [0], [-1, 0]])
def test_levels_that_do_not_exist_are_refused(gold: list[int]):
    with pytest.raises(MetricError, match="levels from 0 to 2"):
        ordered_scores(np.full((2, 3), 1 / 3), np.array(gold))


def test_rows_are_needed():
    with pytest.raises(MetricError, match="rows of finite numbers"):
        soft_scores(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(MetricError, match="rows of finite numbers"):
        soft_scores(np.array([[np.nan, 1]]), np.array([[0.0, 1.0]]))
    with pytest.raises(MetricError, match="as many gold answers"):
        multi_label_scores(np.full((2, 2), 0.5), np.array([[True], [False]]))


def test_two_answers_have_no_rank_correlation_and_three_say_nothing_of_it():
    probs = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    for n, expected in ((1, (None, None, None)), (2, (None, None, None)), (3, (1.0, -1.0, 1.0))):
        row = ordered_scores(probs[:n], np.arange(n)).filter(metric="rank_correlation").row(0, named=True)
        assert (row["value"], row["ci_low"], row["ci_high"]) == expected


def test_an_interval_ends_at_the_largest_possible_error() -> None:
    # Errors 2, 2 and 1 of three levels: no answer is off by more than 2.
    found = values(ordered_scores(np.eye(3)[[2, 2, 1]], np.array([0, 0, 0])), "ci_high")
    assert found["mean_absolute_error"] == found["expected_level"] == 2.0
