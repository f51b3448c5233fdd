"""Run with other numbers of threads and other shard sizes: the tables must keep their bytes."""

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
"""Modules and names of constants that set the number of rows in a shard or in a part of a shard."""

PIECES = [
    ("evaluator.prompts.rows", "ROWS_PER_FRAME"),
    ("evaluator.methods.base", "ROWS_PER_FRAME"),
    ("evaluator.suites.in_context_pvi.prompts", "ROWS_PER_FRAME"),
    ("evaluator.suites.prompt_search.prompts", "ROWS_PER_FRAME"),
    ("evaluator.metrics.table", "ROWS_JOINED"),
]
"""Modules and names of constants that set the number of rows in a piece, of which one at a time is in memory."""

STEPS = ("evaluator.scores.plan", "STEPS_PER_SHARD")


def determinism_trials(case: Undisturbed) -> Iterator[Trial]:
    """Yield one trial per setting that must not change the tables."""
    settings: dict[str, Callable[[], None]] = {
        **{f"{n} threads": partial(_threads, n) for n in (1, 2, 3, 8)},
        "small shards": small_shards,
        "smallest shards": partial(small_shards, 1),
    }
    for name, setting in settings.items():
        yield Trial("threads and shard sizes", f"{case.case.name}, {name}", partial(_run_with, case, setting))


def _threads(n: int) -> None:
    """Set the number of threads of Polars, which has not started threads in this process yet."""
    os.environ["POLARS_MAX_THREADS"] = str(n)


def small_shards(rows: int = 7) -> None:
    """Set the shard size to `rows`, and the size of pieces in memory to 50 * rows."""
    for module, name in SHARDS:
        setattr(import_module(module), name, rows)
    for module, name in PIECES:
        setattr(import_module(module), name, 50 * rows)
    import_module(STEPS[0]).STEPS_PER_SHARD = 1  # type: ignore[attr-defined]


def _run_with(case: Undisturbed, setting: Callable[[], None], out: Path, _rng: Random) -> str | None:
    outcome = finish(case.case, None, out, setting)
    return finished_fault(outcome) or table_difference(case.files, out)
