"""Run with other numbers of threads and other sizes of shards: the tables keep their bytes."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.faults.cases import Undisturbed, finish, finished_fault, table_difference
from benchmarks.faults.trials import Trial


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
    from evaluator.scores import plan
    from evaluator.store import prompt_store
    from evaluator.tokens import table

    prompt_store.ROWS_PER_SHARD = table.PROMPTS_PER_BATCH = rows
    table.ROWS_PER_SHARD = rows  # type: ignore[attr-defined]  # imported there by name
    plan.STEPS_PER_SHARD = 1


def _run_with(case: Undisturbed, setting: Callable[[], None], out: Path, _rng: Random) -> str | None:
    outcome = finish(case.case, None, out, setting)
    return finished_fault(outcome) or table_difference(case.files, out)
