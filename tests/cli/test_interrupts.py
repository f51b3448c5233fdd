"""Ctrl-C, at any place: one message with the command that goes on, whatever a library makes of it."""

import os
import signal
import sys

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


def test_without_an_interrupt_a_fault_of_this_program_keeps_its_traceback(monkeypatch):
    def faulty(**_options: object) -> int:
        raise TypeError("of this program")

    monkeypatch.setattr(sys, "argv", ["evaluator", "suites"])
    monkeypatch.setattr(command_line.cli, "main", faulty)
    with pytest.raises(TypeError, match="of this program"):
        command_line.main()
