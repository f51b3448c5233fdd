from pathlib import Path

import pytest

from tests.comparison.run_folders import four_runs


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four models of a million to a billion parameters; nothing may write to them."""
    return four_runs(tmp_path_factory.mktemp("runs"))
