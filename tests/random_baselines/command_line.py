"""The command as a user types it, in this process: one of its own takes half a second to start."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest.mock import patch

import pytest

from evaluator.cli.main import main


class Said(NamedTuple):
    out: str
    err: str


def typed(*words: object, exits: int = 0) -> Said:
    """Both outputs. Fails when the exit code is another; any error that is no message to the user is raised."""
    out, err = StringIO(), StringIO()
    typed_words = patch.object(sys, "argv", ["evaluator", *map(str, words)])
    with typed_words, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code or 0) == exits, out.getvalue() + err.getvalue()
    return Said(out.getvalue(), err.getvalue())
