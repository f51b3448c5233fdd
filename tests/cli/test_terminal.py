"""Progress on a terminal and without one."""

import json
import os
import threading
import time
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from evaluator.cli import terminal
from evaluator.progress import Progress


def scoring(done: int) -> Progress:
    return Progress(
        stage="Scoring",
        done=done,
        total=3,
        unit="prompts",
        requests_per_s=20,
        computed_tokens_per_s=4000,
        cached_share=0.25,
        seconds_left=75,
        flop_per_s=1.25e11,
        peak_share=0.4,
        slowest_replica_tokens_per_s=1900,
    )


def stage() -> Iterator[Progress]:
    for done in range(4):
        yield scoring(done)


NUMBERS = (
    "prompts, 20 prompts/s, 4,000 tokens computed/s, 25% cached, 1:15 left, 0.125 TFLOP/s (40% of the peak), "
    "slowest replica 1,900 tokens computed/s"
)


@pytest.mark.parametrize(
    ("done", "total", "rate", "note"),
    [
        (1, 100, 10.0, "prompts, 10 prompts/s, 1:15 left"),
        (1, 101, 9.5, "prompts, 9.5 prompts/s"),  # less than one percent, from which it would be far off
    ],
)
def test_the_time_left_is_shown_from_one_percent_on(done, total, rate, note):
    progress = Progress(stage="s", done=done, total=total, unit="prompts", requests_per_s=rate, seconds_left=75)
    assert terminal._note(progress) == note


@pytest.mark.parametrize(
    ("seconds", "shown"), [(59.4, "0:59"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (36_125, "10:02:05")]
)
def test_a_time_has_hours_from_an_hour_on(seconds, shown):
    assert terminal._clock(seconds) == shown


class Clocked:
    """Lines on a narrow console, with a clock that stands still between the seconds it is set to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self._console = Console(force_terminal=is_terminal, width=60, record=True, file=StringIO())
        self.lines = terminal._Lines(self._console, ends_are_shown=not is_terminal)

    def shown(self) -> list[str]:
        return [line.strip() for line in self._console.export_text().splitlines()]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_every_ten_seconds_has_all_numbers_and_is_not_wrapped(is_terminal, monkeypatch):
    clocked = Clocked(monkeypatch, is_terminal=is_terminal)
    for clocked.now, progress in zip([1, 5, 11.5, 12], stage(), strict=True):
        clocked.lines.show(progress)
    ends = [] if is_terminal else [f"Scoring: 0 of 3 {NUMBERS}"]
    last = [] if is_terminal else [f"Scoring: 3 of 3 {NUMBERS}"]
    assert clocked.shown() == [*ends, f"Scoring: 2 of 3 {NUMBERS}", *last]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_stage_that_says_nothing_is_named_every_ten_seconds_with_the_time_it_took(is_terminal, monkeypatch):
    clocked = Clocked(monkeypatch, is_terminal=is_terminal)
    clocked.lines.repeat()  # before any stage
    clocked.lines.show(Progress(stage="Loading", done=0, total=1, unit="models"))
    for clocked.now in (9, 11, 20, 75):
        clocked.lines.repeat()
    begins = [] if is_terminal else ["Loading: 0 of 1 models"]
    assert clocked.shown() == [*begins, "Loading: 0 of 1 models, 0:11 so far", "Loading: 0 of 1 models, 1:15 so far"]


def test_a_line_that_is_due_has_the_latest_numbers_whoever_prints_it(monkeypatch):
    clocked = Clocked(monkeypatch, is_terminal=True)
    for clocked.now, done in ((0, 0), (5, 1)):
        clocked.lines.show(scoring(done))
    for clocked.now in (11, 25):
        clocked.lines.repeat()
    assert clocked.shown() == [f"Scoring: 1 of 3 {NUMBERS}", f"Scoring: 1 of 3 {NUMBERS}, 0:25 so far"]


def test_lines_are_repeated_while_a_stage_is_at_work(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LINES", 0.02)
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_CHECKS", 0.01)
    shown = []

    def loading() -> Iterator[Progress]:
        yield Progress(stage="Loading", done=0, total=1, unit="models")
        while "".join(shown).count("so far") < 2:
            time.sleep(0.01)
            shown.append(capsys.readouterr().err)

    terminal.draw(loading())
    assert "progress" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_finished_sentence_is_printed_as_it_is(is_terminal, monkeypatch, capsys):
    def said() -> Iterator[Progress]:
        yield scoring(1)
        yield Progress(stage="First results", done=1, total=2, unit="datasets", line="sst5: accuracy 0.412 [of two]")

    if is_terminal:
        monkeypatch.setattr("rich.console.Console", lambda **_: Console(force_terminal=True, width=200, stderr=True))
    terminal.draw(said())
    assert "sst5: accuracy 0.412 [of two]" in capsys.readouterr().err


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo_json({"coverage": [0.5, float("nan"), float("inf")], "option": "é"})
    assert json.loads(written := capsys.readouterr().out) == {"coverage": [0.5, None, None], "option": "é"}
    assert "é" in written


def test_a_name_that_is_no_utf_8_is_written_out_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo_json({"runs": [{"folder": os.fsdecode(b"r\xff")}]})
    assert json.loads(capsys.readouterr().out) == {"runs": [{"folder": "r\\udcff"}]}
