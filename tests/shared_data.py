"""The folder of published data that the repository does not hold."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("EVALUATOR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def shared_data(name: str) -> Path:
    """Return the folder of one data set; where it is absent, skip the test and say why."""
    folder = FOLDER / name
    if not folder.is_dir():
        pytest.skip(f"published data are absent: no {folder}; EVALUATOR_SHARED_DATA names the folder that holds it")
    return folder
