"""Run on file systems that lack a feature, with servers that return wrong answers, and with names of several lines."""

import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.faults.cases import Undisturbed, difference, files_of, finish, finished_fault, message_fault
from benchmarks.faults.file_events import signal_at, watch
from benchmarks.faults.forked import run
from benchmarks.faults.trials import Trial
from evaluator.arrays import Floats

NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
ROUNDING = 1e-5
"""Largest allowed difference of log-likelihoods that were computed in another batch, in nats."""

CODES = ("\u2028", "\u2029", "\u0085", "\0", "\x01", "\x1b[2J", "\n", "\t", "\u202e", "\uffff")


def place_trials(case: Undisturbed, case_number: int) -> Iterator[Trial]:
    """Yield trials without folder flushes, locks or renaming of open files, and kills of runs that write every answer.

    A case has every third of these kills; three successive cases together have all of them.
    """
    kinds = [("no flush of folders", number, partial(_no_folder_sync, number)) for number in NO_FOLDER_SYNC]
    kinds += [("no locks", number, partial(_no_locks, number)) for number in NO_LOCKS]
    kinds += [("no rename of open files", number, partial(_no_open_rename, number)) for number in (errno.EACCES,)]
    for name, number, prepare in kinds:
        yield Trial("odd file system", f"{case.case.name}, {name}: {os.strerror(number)}", partial(_run, case, prepare))
    if "score" in case.case.disturbed:
        for number in range(1 + case_number % 3, 2 * case.n_events["score"], 3):
            yield Trial("kill with kept answers", f"{case.case.name}, {number}", partial(_kill_keeping, case, number))


def _run(case: Undisturbed, prepare: Callable[[], None], out: Path, _rng: Random) -> str | None:
    return finished_fault(run(case.case.run_words(out), prepare=prepare)) or difference(case.files, out)


def _no_folder_sync(number: int) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    os.fsync = refuse  # type: ignore[assignment]


def _no_locks(number: int) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    fcntl.flock = refuse


def _no_open_rename(number: int) -> None:
    rename = Path.replace

    def refuse(path: Path, target: Any) -> Path:
        if str(path) in {os.path.realpath(opened) for opened in Path("/proc/self/fd").iterdir()}:
            raise OSError(number, os.strerror(number), str(path))
        return rename(path, target)

    Path.replace = refuse  # type: ignore[method-assign, assignment]


def _kill_keeping(case: Undisturbed, number: int, out: Path, _rng: Random) -> str | None:
    """Kill a run that writes every answer to disk, before a change of a file, and finish it.

    A model computes the remaining answers in another batch, whose products are rounded differently.
    """

    def prepare() -> None:
        from evaluator.scores import compute

        compute.SECONDS_BETWEEN_KEPT = -1
        watch(out, signal_at(number, signal.SIGKILL))

    shutil.copytree(case.before["score"], out, dirs_exist_ok=True)
    outcome = run(case.case.stage_words("score", out), prepare=prepare)
    if outcome.status not in (0, -signal.SIGKILL):
        return finished_fault(outcome)
    fault = finished_fault(finish(case.case, "score", out))
    return fault or (_rounded_otherwise(case, out) if case.case.imports_torch else difference(case.files, out))


def _rounded_otherwise(case: Undisturbed, out: Path) -> str | None:
    """Describe how the files in a folder differ from those of a case; differences within ROUNDING do not count."""
    found = files_of(out)
    if found.keys() != case.files.keys():
        return difference(case.files, out)
    for name in found:
        if name.startswith("scores/") and name.endswith(".arrow"):
            one, other = (_log_likelihoods(folder / name) for folder in (case.folder, out))
            if one.shape != other.shape or not np.allclose(one, other, rtol=0, atol=ROUNDING):
                return f"{name} has other numbers"
    return None


def _log_likelihoods(path: Path) -> Floats:
    with pa.ipc.open_file(path, options=pa.ipc.IpcReadOptions(use_threads=False)) as file:
        values: Floats = file.read_all()["log_likelihoods"].combine_chunks().flatten().to_numpy()
    return values


def name_trials() -> Iterator[Trial]:
    """Yield trials that import names of several lines, and that read sheets with a cell far from the others."""
    for code in CODES:
        for place in ("dataset", "label"):
            yield Trial("name of several lines", f"{place}: {code!r}", partial(_name, code, place))
    for cell in ("XFD1048576", "A1048576"):
        yield Trial("sheet with a far cell", cell, partial(_far_cell, cell))


def _name(code: str, place: str, out: Path, _rng: Random) -> str | None:
    labels = [f"a{code}b" if place == "label" else "a", "c"]
    row = {"dataset": f"d{code}" if place == "dataset" else "d", "gold": 0, "label_names": labels}
    rows = [row | {"label_log_likelihoods": [-1.0 - n, -2.0]} for n in range(4)]
    path = out / "answers.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return message_fault(run(["import", path, "--dataset-column", "dataset", "--out", out / "out"]))


def _far_cell(cell: str, out: Path, _rng: Random) -> str | None:
    from tests.datasets.sheets import sheet

    path = out / "table.xlsx"
    rows = [["text", "label"], *([f"text {n}", "ab"[n % 2]] for n in range(24))]
    path.write_bytes(sheet(rows, more=f'<row r="{cell.lstrip("AXFD")}"><c r="{cell}"><v>1</v></c></row>'))
    return message_fault(run(["build", "classify", "--data", path, "--out", out / "out"]))


def _first_tokens(change: Callable[[float], float], body: Any) -> Any:
    from tests.engine.label_server import completion

    answer = completion(body)
    for choice in answer["choices"]:
        if "logprobs" in choice:
            row = choice["logprobs"]["top_logprobs"][0]
            row |= {token: change(number) for token, number in row.items()}
    return answer


def _miscounted(body: Any) -> Any:
    from tests.engine.label_server import completion

    return completion(body) | {"usage": {"prompt_tokens": sum(map(len, body["prompt"])) - 1}}


LIES: dict[str, Callable[[Any], Any]] = {
    "every label is certain": partial(_first_tokens, lambda _number: 0.0),
    "logits": partial(_first_tokens, lambda number: number + 5.0),
    "other tokens counted": _miscounted,
}


def server_trials(case: Undisturbed) -> Iterator[Trial]:
    """Yield trials with servers that return wrong answers, which the run must refuse."""
    for name, lie in LIES.items():
        yield Trial("server that lies", f"{case.case.name}, {name}", partial(_lie, case, lie))


def _lie(case: Undisturbed, lie: Callable[[Any], Any], out: Path, _rng: Random) -> str | None:
    from tests.engine.label_server import LabelServer

    def prepare() -> None:
        from evaluator.engine import server_client

        server_client.FIRST_WAIT_S = 0.001

    server = LabelServer()
    server.answer = lie
    served = ("--model", "embedded", "--engine", "server", "--server-url", server.url)
    outcome = run(["run", *case.case.suite_words, *served, "--out", out], prepare=prepare)
    server.stop()
    return message_fault(outcome)
