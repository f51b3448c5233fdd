"""Processes that begin with vLLM imported: forks of one that imports it once, for tests that start a process each.

Importing it takes ten seconds. That process never computes, so that a fork has all of its own threads.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.forked import end_with_parent

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.engine.vllm_imported"])


class Fork:
    """A process that was begun; a part of subprocess.Popen's methods."""

    def __init__(self, process: BaseProcess) -> None:
        process.start()
        assert process.pid is not None
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


class Ended(NamedTuple):
    """How a process ended; a part of subprocess.CompletedProcess."""

    returncode: int | None
    stdout: str
    stderr: str


def run(program: str | Path, *arguments: object, folder: Path, **variables: str) -> Ended:
    """Run a program, text or file, as `python FILE ARGUMENTS` does, and wait for its end.

    Args:
        program, arguments: what is run, in which vLLM is imported already.
        folder: for the program and what it writes.
        variables: of its environment, in addition to those of this process.
    """
    path = program if isinstance(program, Path) else folder / "program.py"
    if isinstance(program, str):
        path.write_text(program)
    out, err = folder / "program.out", folder / "program.err"
    process = _begun(_run_file, [str(path), *map(str, arguments)], out, err, variables)
    return Ended(process.wait(), out.read_text(), err.read_text())


def serve(words: list[str], log: Path, **variables: str) -> Fork:
    """Begin vLLM's server with these words of its command; it leads a group of processes, and appends to a log."""
    return _begun(_serve, ["vllm", *words], log, log, variables)


Work = Callable[[str], None]


def _begun(work: Work, words: list[str], out: Path, err: Path, variables: dict[str, str]) -> Fork:
    return Fork(_forks.Process(target=_become, args=(work, words, out, err, os.environ | variables, os.getcwd())))


def _become(work: Work, words: list[str], out: Path, err: Path, environment: dict[str, str], folder: str) -> None:
    end_with_parent()
    os.setsid()
    for path, descriptor in ((out, 1), (err, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # TMPDIR may be another
    sys.argv = words
    work(words[0])


def _run_file(program: str) -> None:
    runpy.run_path(program, run_name="__main__")


def fork_workers() -> None:
    """Let vLLM fork this process, which has computed nothing; on a CPU it would start others that import all again."""
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda _method=None: fork  # type: ignore[assignment]


def _serve(_program: str) -> None:
    """Run vLLM's command in this process."""
    import torch._dynamo.config

    fork_workers()
    torch._dynamo.config.disable = True  # the first request would wait until a C++ compiler has built a helper
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)  # which the engine sets for its own process
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
