"""The sixteen tasks of the published experiments: what was stated of them, and what they are.

An example is scored by the choice of lowest loss, so a guess at random is right with the share of its choices that are.
The authors' results pool the questions of one number in several subtasks: a pooled example has the choices of all its
questions, and is right when the best of them is. That share is worked out here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from evaluator.errors import DatasetError

ChoicesSource = Literal["task", "authors"]
"""Who says how many choices there are: the task's own file, or, where that was not at hand, the authors' constant."""


class Subtask(NamedTuple):
    """Rows of a task that are numbered together, from 0, each with one right choice."""

    n_rows: int
    n_choices: int
    unlike: Mapping[int, int] = {}  # number within the subtask -> choices, where it has more or fewer


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as the authors state it and as its rows are."""

    n_rows: int
    stated_choices: int  # the authors take a chance of one in so many for every example
    n_choices: int | None = None  # of every example, where this is another number
    subtasks: tuple[Subtask, ...] = ()  # in the order of rows, where examples differ in their chances
    source: ChoicesSource = "task"

    @property
    def stated_chance(self) -> Fraction:
        return Fraction(1, self.stated_choices)

    @property
    def n_sampled(self) -> int:
        """Rows that queries were taken from."""
        return min(self.n_rows, LARGEST_SAMPLE)

    def stated_n(self, shots: int) -> int:
        """Examples the authors' baselines are for; the demonstrations of a task that was not cut are none of them."""
        return self.n_rows - shots if self.n_rows < LARGEST_SAMPLE else LARGEST_SAMPLE

    def stated_tries(self, shots: int) -> int:
        """Prompts the authors' baselines are for: with one shot, no more than the rows of a task that was not cut."""
        return min(self.n_rows, STATED_PROMPTS) if shots == 1 else STATED_PROMPTS


LARGEST_SAMPLE = 200
"""Larger tasks were cut to a sample of this many rows, and demonstrations taken from the rest."""

STATED_PROMPTS = 200

TASKS = {
    "bbq_lite_json": Task(n_rows=16076, stated_choices=3, source="authors"),
    "code_line_description": Task(n_rows=60, stated_choices=4, source="authors"),
    "conceptual_combinations": Task(n_rows=103, stated_choices=4),
    "emoji_movie": Task(n_rows=100, stated_choices=5),
    "formal_fallacies_syllogisms_negation": Task(n_rows=14200, stated_choices=2),
    "hindu_knowledge": Task(
        n_rows=175,
        stated_choices=4,
        subtasks=(Subtask(175, 4, unlike={13: 6} | dict.fromkeys(range(41, 46), 5)),),
    ),
    "known_unknowns": Task(n_rows=46, stated_choices=2),
    "language_identification": Task(n_rows=10000, stated_choices=11),
    # Five, seven, three: the alphabet's order. In no other order do the sampled rows give the example ids found.
    "logical_deduction": Task(
        n_rows=1500, stated_choices=5, subtasks=(Subtask(500, 5), Subtask(700, 7), Subtask(300, 3))
    ),
    "novel_concepts": Task(n_rows=32, stated_choices=5),  # two rows have ten choices, and two of these are right
    "play_dialog_same_or_different": Task(n_rows=3264, stated_choices=2, source="authors"),
    # Yes or no first, then four choices: in no other order do the rows left give the example ids found.
    "strange_stories": Task(n_rows=174, stated_choices=3, subtasks=(Subtask(53, 2), Subtask(121, 4))),
    "strategyqa": Task(n_rows=2289, stated_choices=2),
    "symbol_interpretation": Task(n_rows=990, stated_choices=5, source="authors"),
    "vitaminc_fact_verification": Task(n_rows=54668, stated_choices=3, source="authors"),
    "winowhy": Task(n_rows=2862, stated_choices=5, n_choices=2),  # correct or incorrect: stated as five, are two
}
"""Task -> what is known of it. Stated numbers: `dataset_constants.py` of gyauney/stronger-random-baselines."""


def uniform_chance(name: str) -> Fraction | None:
    """The chance of every example of a task; None where examples differ. Raises DatasetError for an unknown task."""
    task = known_task(name)
    return None if task.subtasks else Fraction(1, task.n_choices or task.stated_choices)


def known_task(name: str) -> Task:
    """Raises DatasetError, naming the known tasks, for any other."""
    if name not in TASKS:
        raise DatasetError(
            f"The task {name!r} is none of the published experiments' sixteen: {', '.join(TASKS)}. "
            "Leave its rows out, or add it to evaluator/reproductions/yauney_mimno_2024/tasks.py."
        )
    return TASKS[name]


def pooled_chances(task: Task, rows: Iterable[int]) -> dict[int, Fraction]:
    """Example id -> chance, from the rows of a task that were asked: the share of right ones among all its choices."""
    pools: dict[int, list[int]] = {}
    for row in rows:
        example, n_choices = _question(task, row)
        pools.setdefault(example, []).append(n_choices)
    return {example: Fraction(len(pool), sum(pool)) for example, pool in sorted(pools.items())}


def _question(task: Task, row: int) -> tuple[int, int]:
    """The number within its subtask, which is the example id, and the choices of one row of a task."""
    start = 0
    for subtask in task.subtasks:
        if start <= row < start + subtask.n_rows:
            return row - start, subtask.unlike.get(row - start, subtask.n_choices)
        start += subtask.n_rows
    raise DatasetError(f"Row {row} lies outside the task, whose rows are 0 to {start - 1}.")
