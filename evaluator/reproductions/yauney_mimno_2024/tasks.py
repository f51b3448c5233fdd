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

TASKS = {
    "bbq_lite_json": Task(n_rows=16076, stated_choices=3, source="authors"),
    "code_line_description": Task(n_rows=60, stated_choices=4, source="authors"),
    "conceptual_combinations": Task(n_rows=103, stated_choices=4),
    "emoji_movie": Task(n_rows=100, stated_choices=5),
    "formal_fallacies_syllogisms_negation": Task(n_rows=14200, stated_choices=2),
    "hindu_knowledge": Task(
        n_rows=175,
        stated_choices=4,
        subtasks=(Subtask(175, 4, exceptions={13: 6} | dict.fromkeys(range(41, 46), 5)),),
    ),
    "known_unknowns": Task(n_rows=46, stated_choices=2),
    "language_identification": Task(n_rows=10000, stated_choices=11),
    # Five, seven, three: alphabetical order, the only one in which the sampled rows give the released example ids.
    "logical_deduction": Task(
        n_rows=1500, stated_choices=5, subtasks=(Subtask(500, 5), Subtask(700, 7), Subtask(300, 3))
    ),
    "novel_concepts": Task(n_rows=32, stated_choices=5),  # two rows have ten choices, and two of these are right
    "play_dialog_same_or_different": Task(n_rows=3264, stated_choices=2, source="authors"),
    # Yes or no first, then four choices: the only order in which the other rows give the released example ids.
    "strange_stories": Task(n_rows=174, stated_choices=3, subtasks=(Subtask(53, 2), Subtask(121, 4))),
    "strategyqa": Task(n_rows=2289, stated_choices=2),
    "symbol_interpretation": Task(n_rows=990, stated_choices=5, source="authors"),
    "vitaminc_fact_verification": Task(n_rows=54668, stated_choices=3, source="authors"),
    "winowhy": Task(n_rows=2862, stated_choices=5, n_choices=2),  # correct or incorrect: stated as five, are two
}
"""Name -> task. Stated numbers are from `dataset_constants.py` of gyauney/stronger-random-baselines."""


def uniform_chance(name: str) -> Fraction | None:
    """Return the chance of every example of a task, None where they differ. Raises DatasetError for an unknown task."""
    task = task_named(name)
    return None if task.subtasks else Fraction(1, task.n_choices or task.stated_choices)


def task_named(name: str) -> Task:
    """Return a task by its name. Raises DatasetError, with the names of all tasks, for an unknown one."""
    if name not in TASKS:
        raise DatasetError(
            f"The task {name!r} is none of the published experiments' sixteen: {', '.join(TASKS)}. "
            "Leave its rows out, or add it to evaluator/reproductions/yauney_mimno_2024/tasks.py."
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
