"""The published experiments, recomputed once for all tests."""

import pytest

from evaluator.progress import finish
from evaluator.reproductions.yauney_mimno_2024.data import read_results
from evaluator.reproductions.yauney_mimno_2024.recompute import Published, recompute
from tests.shared_data import shared_data


@pytest.fixture(scope="session")
def published() -> Published:
    return finish(recompute(read_results(shared_data("random_baselines"))))
