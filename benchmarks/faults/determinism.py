"""Run with other numbers of threads and other sizes of shards: the tables keep their bytes."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random

from benchmarks.faults.cases import Undisturbed, finish, finished_fault, table_difference
from benchmarks.faults.trials import Trial

SHARDS = [
    ("evaluator.store", "ROWS_PER_SHARD"),
    ("evaluator.tokens.table", "ROWS_PER_SHARD"),
    ("evaluator.tokens.table", "PROMPTS_PER_BATCH"),
    ("evaluator.tokens.rows", "ROWS_COUNTED"),
]
"""Modules with the number of rows of a shard, or of a part of one."""

PIECES = [
    ("evaluator.prompts.rows", "ROWS_PER_FRAME"),
    ("evaluator.methods.base", "ROWS_PER_FRAME"),
    ("evaluator.suites.in_context_pvi.prompts", "ROWS_PER_FRAME"),
    ("evaluator.suites.prompt_search.prompts", "ROWS_PER_FRAME"),
    ("evaluator.metrics.table", "ROWS_JOINED"),
]
"""Modules with the number of rows of a piece, of which one at a time is in memory."""

STEPS = ("evaluator.scores.plan", "STEPS_PER_SHARD")


def determinism_trials(case: Undisturbed) -> Iterator[Trial]:
    """Yield a run with each setting that must change nothing."""
    settings: dict[str, Callable[[], None]] = {
        **{f"{n} threads": partial(_threads, n) for n in (1, 2, 3, 8)},
        "small shards": small_shards,
        "smallest shards": partial(small_shards, 1),
    }
    for name, setting in settings.items():
        yield Trial("threads and shard sizes", f"{case.case.name}, {name}", partial(_run_with, case, setting))


def _threads(n: int) -> None:
    """Set the number of threads of Polars, which has started none in this process yet."""
    os.environ["POLARS_MAX_THREADS"] = str(n)


def small_shards(rows: int = 7) -> None:
    """Write shards of so many rows, and take fifty times as many wherever rows are handled piece by piece."""
    for module, name in SHARDS:
        setattr(import_module(module), name, rows)
    for module, name in PIECES:
        setattr(import_module(module), name, 50 * rows)
    import_module(STEPS[0]).STEPS_PER_SHARD = 1  # type: ignore[attr-defined]


def _run_with(case: Undisturbed, setting: Callable[[], None], out: Path, _rng: Random) -> str | None:
    outcome = finish(case.case, None, out, setting)
    return finished_fault(outcome) or table_difference(case.files, out)
