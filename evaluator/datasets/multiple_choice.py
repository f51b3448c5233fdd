"""A loaded multiple-choice dataset: examples that may differ in their choices and have one or more correct ones.

A prediction is right if it is any of `correct`, so a uniform guess is right with probability
len(correct) / len(choices).
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.whole import file_digest
from evaluator.templates.choice_template import ChoiceTemplate

CHOICE_EXAMPLES = pl.Schema(
    {
        "example_id": pl.String(),  # unique in a dataset
        "input": pl.String(),
        "choices": pl.List(pl.String()),  # two or more, all different, none blank
        "correct": pl.List(pl.Int64()),  # indices into choices, ascending; one or more
        "shown_choices": pl.List(pl.String()),  # the same choices in the order in which a template lists them
        "row": pl.Int64(),  # in its source, from 0
    }
)


class ChoiceRow(NamedTuple):
    """An unchecked example as it is in its file."""

    row: int  # in its file, from 0
    example_id: str | None
    input: Any  # a text, once it is checked
    choices: Sequence[str | None]
    correct: Sequence[int]  # indices into choices


@dataclass(frozen=True, kw_only=True, eq=False)
class MultipleChoiceDataset:
    """Examples and their template."""

    name: str
    examples: pl.DataFrame  # CHOICE_EXAMPLES
    demonstrations: pl.DataFrame | None = None  # CHOICE_EXAMPLES that are no queries; None: examples left over
    template: ChoiceTemplate
    source: str  # the file, for messages
    notes: tuple[str, ...] = ()  # changes to the data, for the record
    fingerprint: str  # hex; changes with the source's bytes, the columns taken and the template

    @property
    def shown(self) -> pl.DataFrame:
        """CHOICE_EXAMPLES that demonstrations are taken from."""
        return self.examples if self.demonstrations is None else self.demonstrations


AnyDataset = ClassificationDataset | MultipleChoiceDataset


def dataset_of_file(
    path: Path,
    *,
    name: str,
    read_as: object,
    rows: Iterable[ChoiceRow],
    template: ChoiceTemplate,
    notes: Iterable[str] = (),
) -> MultipleChoiceDataset:
    """Return the dataset of a file, its examples checked. Raises DatasetError as choice_examples does.

    Args:
        path: the file.
        name: of the dataset.
        read_as: what determines the rows in addition to the file's bytes, for the fingerprint.
        rows: of the file.
        template: of its examples.
        notes: on changes to the rows.
    """
    examples, changes = choice_examples(rows, str(path))
    identity = repr((file_digest(path), read_as, template))
    return MultipleChoiceDataset(
        name=name,
        examples=examples,
        template=template,
        source=str(path),
        notes=(*changes, *notes),
        fingerprint=short_digest(identity.encode()),
    )


def choice_examples(rows: Iterable[ChoiceRow], source: str) -> tuple[pl.DataFrame, list[str]]:
    """Check examples and return them as CHOICE_EXAMPLES, in their order, with notes on changes.

    A choice that an example repeats with the same correctness counts once, since no score could tell the two apart; a
    note counts such examples.

    Raises DatasetError, naming source and row, for a missing or repeated id, a missing input, fewer than two choices,
    a choice that is missing, blank, or repeated as both right and wrong, and for none or all of them correct.
    """
    examples, n_repeating, rows_by_id = [], 0, dict[str, int]()
    for row in rows:
        where = f"{source}, row {row.row} (from 0)"
        _require_example(row, where, rows_by_id)
        choices, correct = _without_repeats([str(choice) for choice in row.choices], set(row.correct), where)
        n_repeating += len(choices) < len(row.choices)
        examples.append((row.example_id, row.input, choices, correct, _shuffled(str(row.input), choices), row.row))
    if not examples:
        raise DatasetError(f"{source} holds no examples.")
    notes = [f"{n_repeating} examples repeat a choice; it counts once"] if n_repeating else []
    return pl.DataFrame(examples, schema=CHOICE_EXAMPLES, orient="row"), notes


def correct_of_scores(scores: Sequence[float]) -> list[int]:
    """Return the indices of the correct choices by BIG-bench's scores: the highest ones, if above 0.

    So half points for a second-best choice count as wrong, and all choices of the highest score are correct.
    """
    best = max(scores, default=0)
    return [place for place, score in enumerate(scores) if score == best] if best > 0 else []


def _require_example(row: ChoiceRow, where: str, rows_by_id: dict[str, int]) -> None:
    """Check an example and add its id to `rows_by_id`."""
    if not row.example_id:
        raise DatasetError(f"{where}: the example has no id. Give every row one, or name no id column.")
    if row.example_id in rows_by_id:
        raise DatasetError(
            f"{where}: example id {row.example_id!r} is used in row {rows_by_id[row.example_id]} as well. Make ids "
            "different, or name no id column to have rows numbered."
        )
    rows_by_id[row.example_id] = row.row
    if row.input is None:
        raise DatasetError(f"{where}: the input is missing.")
    if not isinstance(row.input, str):
        raise DatasetError(f"{where}: the input must be a text, got {shown(row.input)}.")
    blank = [place for place, choice in enumerate(row.choices) if choice is None or not choice.strip()]
    if blank:
        raise DatasetError(f"{where}: choice {blank[0]} (from 0) of {list(row.choices)} is missing or blank.")
    if not row.correct:
        raise DatasetError(f"{where}: no choice of {list(row.choices)} is correct.")
    outside = [place for place in row.correct if not 0 <= place < len(row.choices)]
    if outside:
        raise DatasetError(
            f"{where}: the correct choice is given as number {outside[0]}, but there are {len(row.choices)} choices, "
            "counted from 0."
        )


def _without_repeats(choices: list[str], correct: set[int], where: str) -> tuple[list[str], list[int]]:
    """Return the different choices, and the places of the correct ones among them."""
    is_correct: dict[str, bool] = {}
    for place, choice in enumerate(choices):
        if is_correct.setdefault(choice, place in correct) != (place in correct):
            raise DatasetError(f"{where}: choice {choice!r} occurs twice, once as correct and once as wrong.")
    if len(is_correct) < 2:
        raise DatasetError(f"{where}: an example needs two choices or more, got {choices}.")
    if all(is_correct.values()):
        raise DatasetError(f"{where}: every one of the choices {choices} is correct, so no answer can be wrong.")
    return list(is_correct), [place for place, correct_choice in enumerate(is_correct.values()) if correct_choice]


def _shuffled(text: str, choices: Sequence[str]) -> list[str]:
    """Return the choices in a pseudo-random order that depends only on the example.

    In BIG-bench the order also depends on the examples before it, because one generator draws all permutations.
    """
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{text}\0{choice}".encode(), digest_size=8).digest())
