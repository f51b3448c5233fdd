"""Definitions `released` and `published` against the StaICC toolkit's own functions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from StaICC.util import functional

from evaluator.metrics import classification_metrics
from evaluator.metrics.classification import BIN_EDGES
from tests.strategies import distributions
from tests.toolkit import plain_summation  # noqa: F401

TOOLKIT = {
    "accuracy": functional.accuracy,
    "true_label_probability": functional.averaged_truelabel_likelihood,
    "macro_f1": functional.macro_F1,
    "expected_calibration_error": functional.expected_calibration_error_1,
}


pytestmark = pytest.mark.usefixtures("plain_summation")


@pytest.fixture(params=["released", "published"])
def definition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "published":  # the check that stands in the toolkit's comments
        monkeypatch.setattr(
            functional, "probability_matrix_check", lambda rows: all(0 <= x <= 1 for row in rows for x in row)
        )
    return request.param


def assert_agrees_with_the_toolkit(probs: list[list[float]], gold: list[int], definition: Any) -> None:
    theirs = {name: metric(gold, probs) for name, metric in TOOLKIT.items()}
    ours = classification_metrics(probs, gold, definition)
    assert {name: ours[name] for name in TOOLKIT} == pytest.approx(theirs, abs=1e-9)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Ten rows or more (the toolkit refuses fewer than its bins): fractions, halves, one-hot rows, confidences on the
    edges of bins, and in some tables numbers that are no probabilities."""
    n_labels, n = draw(st.integers(2, 6)), draw(st.integers(10, 20))
    rest = [0.0] * (n_labels - 2)
    rows = [
        distributions(n_labels),
        st.integers(0, n_labels - 1).map(lambda hot: [float(label == hot) for label in range(n_labels)]),
        st.sampled_from(BIN_EDGES).map(lambda edge: [edge, 1 - edge, *rest]),
        st.just([0.5, 0.5, *rest]),
    ]
    if draw(st.booleans()):
        rows.append(st.lists(st.floats(-30, 30), min_size=n_labels, max_size=n_labels))
    if draw(st.booleans()):
        rows.append(
            st.sampled_from(BIN_EDGES[1:-1]).map(lambda edge: [*np.log([edge, 1 - edge]), *(-50.0 for _ in rest)])
        )
    probs = draw(st.lists(st.one_of(rows), min_size=n, max_size=n))
    return probs, draw(st.lists(st.integers(0, n_labels - 1), min_size=n, max_size=n))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrices())
def test_agrees_with_the_toolkit_on_adversarial_tables(
    definition: Any, table: tuple[list[list[float]], list[int]]
) -> None:
    assert_agrees_with_the_toolkit(*table, definition)


@pytest.mark.parametrize("n_labels", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(1))
def test_agrees_with_the_toolkit_on_whole_datasets(definition: Any, n_labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_labels, 0.3), 1024).tolist()
    assert_agrees_with_the_toolkit(probs, rng.integers(0, n_labels, 1024).tolist(), definition)


def test_agrees_with_the_toolkit_on_raw_log_likelihoods(definition: Any) -> None:
    rng = np.random.default_rng(0)
    log_likelihoods = (-rng.exponential(8, (1024, 5))).tolist()
    assert_agrees_with_the_toolkit(log_likelihoods, rng.integers(0, 5, 1024).tolist(), definition)


def test_bins_have_the_toolkits_edges() -> None:
    assert functional.linspace(0, 1, 11) == BIN_EDGES
