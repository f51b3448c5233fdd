"""A real process that is stopped within a shard loses the answers of one interval, and says what stopped it."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.command_line import command
from tests.end_to_end.processes import start, table_bytes

pytestmark = pytest.mark.usefixtures("without_pages")

SLOW = """
import sys, time
from evaluator.cli.main import main
from evaluator.engine.base import FakeEngine
from evaluator.scores import compute
compute.SECONDS_BETWEEN_KEPT = 0.1
answers = FakeEngine.log_likelihoods
def slow(self, requests):
    for answer in answers(self, requests):
        time.sleep(0.1)
        yield answer
FakeEngine.log_likelihoods = slow
sys.argv = ["evaluator", *sys.argv[1:]]
main()
"""
RUN = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 16, "--model", "fake", "--engine", "fake")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    command(*RUN, "--out", out)
    return out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_stopped_goes_on_within_its_shard(
    whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(*RUN, "--out", tmp_path / "stopped", program=("-c", SLOW))
    while not (found := [*tmp_path.glob("stopped/scores/*/*/*.kept.json")]):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    output = process.communicate()[1]
    kept = len(json.loads(found[0].read_text())["answers"])
    assert kept > 0
    assert process.returncode == (143 if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM:
        assert "Stopped by SIGTERM. What was scored is kept" in output
        assert (
            "ERROR stopped by SIGTERM: the same command goes on from here"
            in (tmp_path / "stopped" / "evaluator.log").read_text()
        )
    command(*RUN, "--out", tmp_path / "stopped")
    assert table_bytes(tmp_path / "stopped") == table_bytes(whole)
    assert not [*tmp_path.glob("stopped/scores/*/*/*.kept.json")]
