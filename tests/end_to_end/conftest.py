"""One run of the model that ships, which several files read."""

from pathlib import Path

import pytest

from tests.command_line import command


@pytest.fixture(scope="session")
def embedded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run through vLLM: StaICC-Normal, ten datasets, 128 queries each; read only."""
    out = tmp_path_factory.mktemp("embedded") / "out"
    command("run", "staicc-normal", "--model", "embedded", "--engine", "vllm", "--queries", 128, "--out", out)
    return out
