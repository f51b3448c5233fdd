"""What the repository does not hold and tests use where it is there: published data, real models, a browser."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

SHARED = Path(__file__).parents[2] / "shared"
FOLDER = Path(os.environ.get("EVALUATOR_SHARED_DATA", SHARED / "data"))
MODELS = Path(os.environ.get("EVALUATOR_SHARED_MODELS", SHARED / "models"))


def shared_data(name: str) -> Path:
    """Return the folder of one data set; where it is absent, skip the test and say why."""
    folder = FOLDER / name
    if not folder.is_dir():
        absent("data", f"published data are absent: no {folder}; EVALUATOR_SHARED_DATA names the folder that holds it")
    return folder


def real_model(name: str) -> Path:
    """Return the folder of a pretrained model; where it is absent, skip the test and say why."""
    folder = MODELS / name
    if not (folder / "config.json").is_file():
        absent("models", f"the model is absent: no {folder}; EVALUATOR_SHARED_MODELS names the folder that holds it")
    return folder


def absent(kind: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where EVALUATOR_REQUIRE (such as browser,data,models) names what is absent."""
    if kind in os.environ.get("EVALUATOR_REQUIRE", "").split(","):
        pytest.fail(f"EVALUATOR_REQUIRE names {kind}, and {reason}")
    pytest.skip(reason)
