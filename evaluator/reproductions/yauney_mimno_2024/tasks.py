"""List the sixteen tasks of the published experiments, with the numbers that the authors state and the actual ones.

The prediction for an example is the choice of lowest loss, so a random guess is right with probability (right choices)
/ (choices). The authors' results pool questions that have the same number in different subtasks: a pooled example has
the choices of all its questions, with one right choice for each question. The probability is computed here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from evaluator.errors import DatasetError
from evaluator.files.toml_files import shipped_tables

ChoicesSource = Literal["task", "authors"]
"""Source of the number of choices: the task's own file, or the authors' constant where that file was not available."""


class Subtask(NamedTuple):
    """A range of rows of a task, numbered from 0, with one right choice each."""

    n_rows: int
    n_choices: int
    exceptions: Mapping[int, int] = {}  # row within the subtask -> number of choices, if it is not n_choices


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, with the numbers that the authors state and the actual ones."""

    n_rows: int
    stated_choices: int  # the authors' chance is 1 / stated_choices for every example
    n_choices: int | None = None  # actual choices of every example, where they differ from the stated ones
    subtasks: tuple[Subtask, ...] = ()  # in the order of rows; empty if all examples have the same chance
    source: ChoicesSource = "task"

    @property
    def stated_chance(self) -> Fraction:
        """Return the authors' chance of guessing an example right."""
        return Fraction(1, self.stated_choices)

    @property
    def n_sampled(self) -> int:
        """Return the number of rows from which queries were taken."""
        return min(self.n_rows, MAX_SAMPLE)

    def stated_n(self, shots: int) -> int:
        """Return the examples in the authors' baselines; in a task that was not sampled, all but demonstrations."""
        return self.n_rows - shots if self.n_rows < MAX_SAMPLE else MAX_SAMPLE

    def stated_tries(self, shots: int) -> int:
        """Return the prompts in the authors' baselines: with one shot, at most one for each row."""
        return min(self.n_rows, STATED_PROMPTS) if shots == 1 else STATED_PROMPTS


MAX_SAMPLE = 200
"""Rows that were sampled of a larger task; demonstrations were taken from the other rows."""

STATED_PROMPTS = 200
"""Prompts of an experiment, as the authors state."""

TASKS = shipped_tables("evaluator.reproductions.yauney_mimno_2024", "tasks", Task)
"""Name -> task, of assets/tasks.toml."""


def uniform_chance(name: str) -> Fraction | None:
    """Return the chance of every example of a task, None where they differ. Raises DatasetError for an unknown task."""
    task = task_named(name)
    return None if task.subtasks else Fraction(1, task.n_choices or task.stated_choices)


def task_named(name: str) -> Task:
    """Return a task by its name. Raises DatasetError, with the names of all tasks, for an unknown one."""
    if name not in TASKS:
        raise DatasetError(
            f"The task {name!r} is none of the published experiments' sixteen: {', '.join(TASKS)}. "
            "Leave its rows out, or add it to assets/tasks.toml of evaluator/reproductions/yauney_mimno_2024."
        )
    return TASKS[name]


def pooled_chances(task: Task, rows: Iterable[int]) -> dict[int, Fraction]:
    """Return example id -> chance, given the rows of a task that are queries: right choices / all choices."""
    pools: dict[int, list[int]] = {}
    for row in rows:
        example, n_choices = _question(task, row)
        pools.setdefault(example, []).append(n_choices)
    return {example: Fraction(len(pool), sum(pool)) for example, pool in sorted(pools.items())}


def _question(task: Task, row: int) -> tuple[int, int]:
    """Return the example id of a row of a task, which is its number within its subtask, and its number of choices."""
    start = 0
    for subtask in task.subtasks:
        if start <= row < start + subtask.n_rows:
            return row - start, subtask.exceptions.get(row - start, subtask.n_choices)
        start += subtask.n_rows
    raise DatasetError(f"Row {row} is outside the task, whose rows are 0 to {start - 1}.")
