"""The command as a user types it, run in this process: one of its own takes seconds to start and to import."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest.mock import patch

import pytest

from evaluator.cli.main import main
from tests.shared_engines import close_engines

LOADING_COMMANDS = {"run", "score", "receipt", "coherence"}


class Outputs(NamedTuple):
    out: str
    err: str


def command(*words: object, exits: int = 0) -> str:
    """Run `evaluator *words` and return both outputs."""
    return "".join(command_outputs(*words, exits=exits))


def command_outputs(*words: object, exits: int = 0) -> Outputs:
    """Run `evaluator *words` through its entry point; fails on another exit code, and on errors that are no message."""
    if words[0] in LOADING_COMMANDS and not {"fake", "transformers", "server"} & {*words}:
        close_engines("vllm")  # vLLM holds one cache a process
    out, err = StringIO(), StringIO()
    arguments = patch.object(sys, "argv", ["evaluator", *map(str, words)])
    with arguments, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main()
    outputs = Outputs(out.getvalue(), err.getvalue())
    assert (end.value.code or 0) == exits, "".join(outputs)
    return outputs
