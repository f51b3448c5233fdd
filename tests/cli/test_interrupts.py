"""Ctrl-C, at any place: one message with the command that goes on, whatever a library makes of it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from evaluator.cli import main as command_line
from evaluator.errors import StoreError


@pytest.mark.parametrize("error", [None, TypeError("no data type"), StoreError("half read"), OSError(5, "EIO")])
def test_an_interrupt_that_a_library_turns_into_another_error_is_an_interrupt(monkeypatch, capsys, error):
    def interrupted(**_options: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            if error is None:
                raise
            raise error from None
        raise AssertionError("no interrupt came")

    monkeypatch.setattr(sys, "argv", ["evaluator", "measure", "folder"])
    monkeypatch.setattr(command_line.cli, "main", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 130
    shown = capsys.readouterr().err
    assert "Stopped. What was scored is kept" in shown
    assert "Error" not in shown
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("name", ["doctor", "coherence", "receipt"])
def test_a_command_that_keeps_no_scores_until_it_ends_does_not_say_so(monkeypatch, capsys, name):
    def interrupted(**_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["evaluator", name, "--model", "embedded"])
    monkeypatch.setattr(command_line.cli, "main", interrupted)
    with pytest.raises(SystemExit):
        command_line.main()
    shown = capsys.readouterr().err
    assert shown.endswith(f"Stopped. This begins again:\n  evaluator {name} --model embedded\n")


def test_a_second_interrupt_while_the_first_is_answered_shows_no_traceback(monkeypatch):
    def interrupt(*_arguments: object, **_options: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()

    monkeypatch.setattr(sys, "argv", ["evaluator", "measure", "folder"])
    monkeypatch.setattr(command_line.cli, "main", interrupt)
    monkeypatch.setattr(command_line.click, "echo", interrupt)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 130
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interrupt_within_a_destructor_is_not_lost(monkeypatch, capfd):
    class Interrupted:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

    def interrupt(**_options: object) -> None:
        one = Interrupted()
        del one
        for _ in range(1000):  # what repeats it ends no sleep
            time.sleep(0.01)
        raise AssertionError("no interrupt came")

    monkeypatch.setattr(sys, "argv", ["evaluator", "measure", "folder"])
    monkeypatch.setattr(command_line.cli, "main", interrupt)
    hook = sys.unraisablehook
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 130
    assert sys.unraisablehook is hook
    shown = capfd.readouterr().err
    assert "Stopped. What was scored is kept" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("command", [["-m", "evaluator"], ["-c", "from evaluator.__main__ import main; main()"]])
def test_an_interrupt_while_modules_are_imported_shows_no_traceback(tmp_path, command):
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *command, "suites"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_without_an_interrupt_a_fault_of_this_program_keeps_its_traceback(monkeypatch):
    def faulty(**_options: object) -> int:
        raise TypeError("of this program")

    monkeypatch.setattr(sys, "argv", ["evaluator", "suites"])
    monkeypatch.setattr(command_line.cli, "main", faulty)
    with pytest.raises(TypeError, match="of this program"):
        command_line.main()
