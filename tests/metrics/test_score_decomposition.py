"""Parts of Brier score and log loss against hand-worked numbers, published estimators and simulation."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from evaluator.metrics.classification import Measured, per_request_columns
from evaluator.metrics.groups import score_parts

Floats = npt.NDArray[np.float64]


def parts(
    probs: Floats | list[list[float]], gold: list[int] | Floats, query: list[int] | None = None
) -> dict[str, Measured]:
    probs = np.asarray(probs)
    frame = pl.DataFrame(
        {
            "query_id": range(len(gold)) if query is None else query,
            "gold": np.asarray(gold, dtype=np.int64),
            "label_probs": pl.Series(probs, dtype=pl.Array(pl.Float64, probs.shape[1])).cast(pl.List(pl.Float64)),
        }
    )
    return score_parts(per_request_columns(frame, probs.shape[1], "paper", "made"), probs.shape[1])


def values(measured: dict[str, Measured]) -> dict[str, float]:
    return {name: one.value for name, one in measured.items()}


def test_two_queries_of_one_group_by_hand() -> None:
    # Both predict label 0 with .75; the first is right, the second wrong. Distances of (p - true): (-.25, .25) and
    # (.75, -.75). Without bias the group's squared distance is twice the product of the two over n - 1, which is
    # 2 (-.1875 - .1875) / 1 = -.75, over 2 requests -.375. Uncertainty: 2 x (1/4) = 1/2, with n/(n - 1) = 2 it is 1.
    # Brier: (.125 + 1.125) / 2 = .625 = reliability - resolution + uncertainty, so resolution is -.375 + 1 - .625 = 0.
    found = values(parts([[0.75, 0.25], [0.75, 0.25]], [0, 1]))
    assert found["brier_reliability"] == pytest.approx(-0.375)
    assert found["brier_uncertainty"] == pytest.approx(1.0)
    assert found["brier_resolution"] == pytest.approx(0.0, abs=1e-12)
    # Kullback-Leibler, over the group: ln(1/1.5) + ln(1/.5) = ln(4/3). Without the second: ln(1/.75), without the
    # first: ln(1/.25). Pseudo-values 2 x ln(4/3)/2 - ln(4) and ln(4/3) - ln(4/3) = 0; their mean is -ln(3)/2.
    assert found["log_loss_calibration"] == pytest.approx(-math.log(3) / 2)
    # Log loss (ln(4/3) + ln 4) / 2 less that: (ln(16/3) + ln 3) / 2 = ln 4
    assert found["log_loss_refinement"] == pytest.approx(math.log(4))


def test_a_group_of_one_query_counts_as_calibrated() -> None:
    found = values(parts([[0.75, 0.25], [0.25, 0.75]], [1, 1]))
    assert found["brier_reliability"] == found["log_loss_calibration"] == 0.0
    # All of the log loss is left: (ln 4 + ln(4/3)) / 2.
    assert found["log_loss_refinement"] == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)


def test_the_last_bin_of_a_label_and_the_first_bin_of_the_next_are_two_groups() -> None:
    # Of eleven labels a most probable one can have less than .1. Each group has one query and counts as calibrated.
    found = values(parts([[0.95, *[0.005] * 10], [0.0905, 0.095, *[0.0905] * 9]], [1, 0]))
    assert found["brier_reliability"] == found["log_loss_calibration"] == 0.0


def test_forecasts_of_few_values_have_the_parts_of_ferro_and_fricker() -> None:
    # Their reliability: mean over n of (p - o_k)^2 less o_k (1 - o_k) / (n_k - 1) in each group k; uncertainty
    # o (1 - o) n / (n - 1). Both are of one label's probability; over two labels they double.
    rng = np.random.default_rng(0)
    first = rng.choice([0.05, 0.35, 0.65, 0.85], 400)
    gold = (rng.random(400) > first).astype(int)
    reliability = 0.0
    for value in np.unique(first):
        of_group = gold[first == value] == 0
        n, rate = len(of_group), of_group.mean()
        reliability += n / 400 * ((value - rate) ** 2 - rate * (1 - rate) / (n - 1))
    rate = (gold == 0).mean()
    found = values(parts(np.stack([first, 1 - first], axis=1), gold))
    assert found["brier_reliability"] == pytest.approx(2 * reliability, abs=1e-12)
    assert found["brier_uncertainty"] == pytest.approx(2 * rate * (1 - rate) * 400 / 399, abs=1e-12)


def test_parts_add_up_to_their_scores_exactly_whatever_the_probabilities() -> None:
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.full(4, 0.3), 300)
    gold = rng.integers(0, 4, 300)
    found = values(parts(probs, gold, query=[i // 2 for i in range(300)]))
    brier = ((probs - np.eye(4)[gold]) ** 2).sum(axis=1).mean()
    log_loss = -np.log(probs[np.arange(300), gold]).mean()
    of_brier = found["brier_reliability"] - found["brier_resolution"] + found["brier_uncertainty"]
    assert of_brier == pytest.approx(brier, abs=1e-12)
    assert found["log_loss_calibration"] + found["log_loss_refinement"] == pytest.approx(log_loss, abs=1e-12)


def test_tiny_probabilities_beside_large_ones_keep_the_divergence_finite() -> None:
    probs = [[0.8 - 1e-30, 0.2, 1e-30], [0.75, 0.15, 0.1], [0.8 - 1e-30, 0.2, 1e-30]]
    assert all(math.isfinite(one.value) for one in parts(probs, [2, 0, 0]).values())


def test_an_infinite_log_loss_is_all_calibration_and_its_refinement_is_undefined() -> None:
    found = values(parts([[1.0, 0.0]] * 3, [1, 1, 0]))
    assert found["log_loss_calibration"] == math.inf
    assert math.isnan(found["log_loss_refinement"])
    # A confidence of 1 is in the last bin. Distances of (p - true): (1, -1) twice and 0; twice the product of the two
    # over n - 1 is 2 x 2 / 2, over 3 requests 2/3.
    assert found["brier_reliability"] == pytest.approx(2 / 3)


# A model whose true probabilities are known: gold is drawn from them, and what it says is a power of them.
SURE = np.array([0.55, 0.65, 0.75])
N_RUNS, N_QUERIES = 200, 150


def sharpened(true: Floats, sharpness: float) -> Floats:
    said: Floats = true**sharpness / (true**sharpness + (1 - true) ** sharpness)
    return said


@cache
def simulated(sharpness: float) -> list[dict[str, Measured]]:
    rng = np.random.default_rng(5)
    runs = []
    for _ in range(N_RUNS):
        sure = rng.choice(SURE, N_QUERIES)
        true = np.where(rng.random(N_QUERIES) < 0.5, sure, 1 - sure)
        said = sharpened(true, sharpness)
        runs.append(parts(np.stack([said, 1 - said], axis=1), (rng.random(N_QUERIES) > true).astype(np.int64)))
    return runs


@pytest.mark.parametrize("sharpness", [1.0, 3.0])  # calibrated, overconfident
@pytest.mark.parametrize("part", ["brier_reliability", "log_loss_calibration"])
def test_calibration_parts_have_no_bias_and_intervals_that_hold_them(sharpness: float, part: str) -> None:
    said = sharpened(SURE, sharpness)
    divergence = SURE * np.log(SURE / said) + (1 - SURE) * np.log((1 - SURE) / (1 - said))
    truth = float((2 * (said - SURE) ** 2).mean() if part == "brier_reliability" else divergence.mean())
    estimates = [run[part] for run in simulated(sharpness)]
    found = np.array([one.value for one in estimates])
    assert found.mean() == pytest.approx(truth, abs=3 * found.std() / math.sqrt(N_RUNS))
    half_widths = 1.976 * np.array([one.standard_error for one in estimates])  # t of 149 degrees of freedom, 97.5%
    held = np.abs(found - truth) <= half_widths
    assert held.mean() > 0.95 - 3 * math.sqrt(0.95 * 0.05 / N_RUNS)
