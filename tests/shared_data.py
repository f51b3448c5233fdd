"""Where data sets lie that tests use and the repository does not hold."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("EVALUATOR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def shared_data(name: str) -> Path:
    """The folder of one data set; the test is skipped, and says why, where it is absent."""
    folder = FOLDER / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; EVALUATOR_SHARED_DATA names the folder that holds it")
    return folder
