"""The published experiments, recomputed once for all tests."""

import pytest

from evaluator.baselines.published import Published, recompute
from evaluator.baselines.published_data import open_published
from evaluator.progress import finish
from tests.shared_data import shared_data


@pytest.fixture(scope="session")
def published() -> Published:
    return finish(recompute(open_published(shared_data("random_baselines"))))
