"""Define the runs that are disturbed, small runs of every suite and engine, and compare them with undisturbed runs."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.faults.file_events import watch
from benchmarks.faults.forked import Outcome, run
from benchmarks.faults.remembered import run_and_learn
from evaluator.files.whole import file_digest

Stage = Literal["build", "score", "measure", "report", "import"]
STAGES: tuple[Stage, ...] = ("build", "score", "measure", "report")
FAKE = ("--model", "fake", "--engine", "fake")
SMALL = ("--datasets", "sst5", "--queries", "2")
COMPARED = (".parquet", ".arrow")
"""Endings of files that must have the same bytes in every run; other files hold times and command lines."""

VOLATILE = (".lock", ".log", "report.html")
"""Endings of files that are not compared: a run may leave them or not, and the page is compared separately."""


@dataclass(frozen=True)
class Case:
    """A run of one or more suites that trials disturb."""

    name: str
    suite_words: tuple[str, ...]  # arguments of the command, without engine and --out
    engine: tuple[str, ...] = FAKE  # arguments about model and engine
    stages: tuple[Stage, ...] = STAGES
    disturbed: tuple[Stage, ...] = STAGES  # stages in which every change of a file is disturbed

    @property
    def imports_torch(self) -> bool:
        return self.engine != FAKE

    def stage_words(self, stage: Stage, out: Path) -> list[str]:
        """Return the arguments of the command of one stage."""
        words = {
            "build": ["build", *self.suite_words, "--out", str(out)],
            "score": ["score", str(out), *self.engine],
            "measure": ["measure", str(out)],
            "report": ["report", str(out)],
            "import": ["import", *self.suite_words, "--out", str(out)],
        }
        return words[stage]

    def run_words(self, out: Path, *more: object) -> list[str]:
        """Return the arguments of the command that runs all stages."""
        if self.stages == ("import",):
            return [*self.stage_words("import", out), *map(str, more)]
        return ["run", *self.suite_words, *self.engine, "--out", str(out), *map(str, more)]


@dataclass(frozen=True)
class Undisturbed:
    """The result of an undisturbed run of a case."""

    case: Case
    folder: Path  # folder of the finished run
    before: dict[Stage, Path]  # stage -> copy of the folder before it
    n_events: dict[Stage, int]  # stage -> number of changes of files
    cpu_s: float  # processor time of all stages except the report, which takes longer than the others together
    files: dict[str, str]  # result of files_of
    page: bytes


def make_cases(data: Path, server_url: str) -> list[Case]:
    """Write the data of the cases to a folder, and return the cases.

    Args:
        data: the folder, which must not exist.
        server_url: address of a server with the interface of vLLM.
    """
    data.mkdir(parents=True)
    words = ["red", "dark green", "very pale blue", "grey"]
    colours = [
        {"id": f"q{n}", "input": f"Which colour is thing {n}?", "choices": words[: 2 + n % 3], "gold": [n % 2]}
        for n in range(24)
    ]
    answers = [
        {"gold": n % 3, "label_log_likelihoods": [-1.5 - n % 5, -1.7 - n % 3, -2.0], "label_names": words[:3]}
        for n in range(30)
    ]
    _write_lines(data / "colours.jsonl", colours)
    _write_lines(data / "answers.jsonl", answers)
    (data / "candidates.json").write_text(json.dumps({"instructions": ["Choose.", "Answer."]}))
    with (data / "reviews.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([f"It was thing number {n}.", "good" if n % 3 else "bad"] for n in range(40))
    search = ("prompt-search", "--data", str(data / "colours.jsonl"), "--id-column", "id", "--queries", "8")
    served = ("--model", "embedded", "--engine", "server", "--server-url", server_url)
    return [
        Case("normal", ("staicc-normal", *SMALL)),
        Case("second round", ("staicc-normal", *SMALL, "--methods", "vanilla,ppl_icl,contextual_calibration")),
        Case("diagnostics", ("staicc-bias", "staicc-robustness", *SMALL)),
        Case("demonstrations", ("staicc-demonstrations", "staicc-learning-curve", *SMALL)),
        Case("halving", (*search, "--tries", "8", "--shots", "2", "--halving")),
        Case("candidates", (*search, "--shots", "0,1", "--candidates", str(data / "candidates.json"))),
        Case("pvi", ("pvi", "--data", str(data / "reviews.csv"), "--sets", "2", "--queries", "6")),
        Case("imported", (str(data / "answers.jsonl"),), stages=("import",), disturbed=("import",)),
        # Only the score stage differs from that of the fake engine.
        Case("transformers", ("staicc-normal", *SMALL), _embedded("transformers"), disturbed=("score",)),
        Case("server", ("staicc-normal", *SMALL), served, disturbed=("score",)),
    ]


def _write_lines(path: Path, rows: Sequence[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _embedded(engine: str) -> tuple[str, ...]:
    return ("--model", "embedded", "--engine", engine)


def vllm_case() -> Case:
    """Return the case of the embedded model with vLLM."""
    words = ("staicc-normal", "--datasets", "sst5", "--queries", "8")
    return Case("vLLM", words, _embedded("vllm"), disturbed=("score",))


def undisturbed(case: Case, folder: Path) -> Undisturbed:
    """Run a case stage by stage in a folder, and keep a copy of the run before every stage."""
    out = folder / "finished"
    before: dict[Stage, Path] = {}
    n_events: dict[Stage, int] = {}
    cpu_s = 0.0
    for stage in case.stages:
        before[stage] = folder / f"before {stage}"
        if out.exists():
            shutil.copytree(out, before[stage])
        else:
            before[stage].mkdir(parents=True)
        events = folder / "events"
        outcome = run_and_learn(case.stage_words(stage, out), partial(count_events, out, events))
        if outcome.status:
            raise SystemExit(f"{case.name}: {stage} ends with {outcome.status} undisturbed:\n{outcome.output}")
        n_events[stage] = events.stat().st_size
        events.unlink()
        cpu_s += 0.0 if stage == "report" else outcome.cpu_s
    return Undisturbed(case, out, before, n_events, cpu_s, files_of(out), (out / "report.html").read_bytes())


def count_events(folder: Path, events: Path) -> None:
    """Append a byte to the file `events` for every change of a file in `folder`, until this process ends."""
    file = events.open("ab", buffering=0)

    def act(_number: int, _event: str, _path: str) -> None:
        file.write(b".")

    watch(folder, act)


def files_of(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of the files in a folder; "" for files that may differ between runs."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: file_digest(path) if name.endswith(COMPARED) else ""
        for name, path in sorted(files.items())
        if not name.endswith(VOLATILE)
    }


def difference(expected: dict[str, str], out: Path) -> str | None:
    """Describe how the files in a folder differ from the expected files; None if they are equal."""
    found = files_of(out)
    if missing := sorted(expected.keys() - found.keys()):
        return f"{missing[0]} is missing"
    if added := sorted(found.keys() - expected.keys()):
        return f"{added[0]} is left over"
    changed = [name for name, digest in expected.items() if found[name] != digest]
    return f"{changed[0]} has other bytes" if changed else None


def page_difference(expected: Undisturbed, out: Path) -> str | None:
    """Return a fault if the page in a folder differs from the undisturbed page, else None."""
    return None if (out / "report.html").read_bytes() == expected.page else "another page"


def table_difference(expected: dict[str, str], out: Path) -> str | None:
    """Describe how the tables in a folder differ from the expected tables; None if they are equal."""
    found = files_of(out)
    tables = [name for name in expected if name.startswith("tables/")]
    wrong = [name for name in tables if found.get(name) != expected[name]]
    return f"{wrong[0]} is missing or has other bytes" if wrong else None


def message_fault(outcome: Outcome) -> str | None:
    """Return the fault of a failed command, or None: it must print an error message and end with exit code 2."""
    if "Traceback" in outcome.output or "panicked at" in outcome.output:
        return f"traceback: {_end(outcome.output)}"
    if outcome.status != 2:
        return f"exit code {outcome.status}: {_end(outcome.output)}"
    if "Error: " not in outcome.output:
        return f"no message: {_end(outcome.output)}"
    return None


def finished_fault(outcome: Outcome) -> str | None:
    """Return the fault of a command that should have succeeded, or None."""
    if outcome.status:
        return f"exit code {outcome.status}: {_end(outcome.output)}"
    return f"traceback: {_end(outcome.output)}" if "Traceback" in outcome.output else None


def finish(case: Case, from_stage: Stage | None, out: Path, prepare: Callable[[], None] | None = None) -> Outcome:
    """Run a case from a stage (None: the first) to the tables; the page is written only if from_stage is "report".

    One process runs all stages; `prepare` is called in it before the first.
    """
    stages = case.stages[case.stages.index(from_stage) :] if from_stage else case.stages
    wanted = [stage for stage in stages if stage != "report" or from_stage == "report"]
    return run(*(case.stage_words(stage, out) for stage in wanted), prepare=prepare)


def _end(output: str) -> str:
    return " / ".join(output.strip().splitlines()[-3:])[-400:]
