"""Multiple-choice examples, each with choices of its own: any number of them, of any length, one or more correct.

Which choice is right: any of `correct` is. So a guess at random is right with probability len(correct) / len(choices),
and no equally good answer counts as wrong.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import DatasetError, TemplateError
from evaluator.files import file_digest, short_digest
from evaluator.templates.choice_template import LABEL_SPACE, ChoiceTemplate
from evaluator.templates.template import MetaTemplate

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
    """An example as it was read, before it is checked."""

    row: int  # in its file, from 0
    example_id: str | None
    input: str | None
    choices: Sequence[str | None]
    correct: Sequence[int]  # indices into choices


@dataclass(frozen=True, kw_only=True, eq=False)
class MultipleChoiceDataset:
    """Examples and the template they are shown with."""

    name: str
    examples: pl.DataFrame  # CHOICE_EXAMPLES
    demonstrations: pl.DataFrame | None = None  # CHOICE_EXAMPLES that are only ever shown; None: examples left over
    template: ChoiceTemplate
    source: str  # the file, for messages
    notes: tuple[str, ...] = ()  # what a rule changed in the data, for the record
    fingerprint: str  # hex; changes with the source's bytes, the columns taken and the template

    @property
    def shown(self) -> pl.DataFrame:
        """CHOICE_EXAMPLES that demonstrations are taken from."""
        return self.examples if self.demonstrations is None else self.demonstrations


def dataset_of_file(
    path: Path,
    *,
    name: str,
    read_as: object,
    rows: Iterable[ChoiceRow],
    template: ChoiceTemplate,
    notes: Iterable[str] = (),
) -> MultipleChoiceDataset:
    """The examples of one file, checked. Raises DatasetError as choice_examples does.

    Args:
        path: the file.
        name: of the dataset.
        read_as: what besides the file's bytes decides its rows.
        rows: of the file.
        template: that examples are shown with.
        notes: on what was changed in the rows already.
    """
    examples, own_notes = choice_examples(rows, str(path))
    identity = repr((file_digest(path), read_as, template))
    return MultipleChoiceDataset(
        name=name,
        examples=examples,
        template=template,
        source=str(path),
        notes=(*own_notes, *notes),
        fingerprint=short_digest(identity.encode()),
    )


def choice_examples(rows: Iterable[ChoiceRow], source: str) -> tuple[pl.DataFrame, list[str]]:
    """Checked examples as CHOICE_EXAMPLES in the order they came, and notes on what a rule changed.

    Rule: a choice that an example repeats with the same correctness counts once, since no score could tell the two
    apart; the note says in how many examples that was so.

    Raises DatasetError, naming source and row, for a missing or repeated id, a missing input, fewer than two choices,
    a choice that is missing, blank, or repeated as both right and wrong, and for none or all of them correct.
    """
    kept, repeated, seen = [], 0, dict[str, int]()
    for row in rows:
        where = f"{source}, row {row.row} (from 0)"
        _require_example(row, where, seen)
        choices, correct = _without_repeats([str(choice) for choice in row.choices], set(row.correct), where)
        repeated += len(choices) < len(row.choices)
        kept.append((row.example_id, row.input, choices, correct, _shuffled(str(row.input), choices), row.row))
    if not kept:
        raise DatasetError(f"{source} holds no examples.")
    notes = [f"{repeated} examples repeat a choice; it counts once"] if repeated else []
    return pl.DataFrame(kept, schema=CHOICE_EXAMPLES, orient="row"), notes


def from_classification(dataset: ClassificationDataset) -> MultipleChoiceDataset:
    """A labelled dataset, its label names as the choices of every example: the same text, with the space before a
    label counted to the label. Queries come from the test split, demonstrations from the demonstration split.

    Raises TemplateError where no space stands before a label, or the text around queries is not that of demonstrations.
    """
    template = dataset.template
    _require_alike(dataset.name, template)
    names = list(dataset.verbalizer.label_names)
    has_one_field = len(dataset.text_fields) == 1

    def examples(split: pl.DataFrame) -> pl.DataFrame:
        texts = pl.col("texts")
        return split.select(
            example_id=pl.col("source_row").cast(pl.String),
            input=texts.list.get(0) if has_one_field else template.inputs(texts),
            choices=pl.lit(names),
            correct=pl.concat_list("gold"),
            shown_choices=pl.lit(names),
            row="source_row",
        ).cast(CHOICE_EXAMPLES)

    return MultipleChoiceDataset(
        name=dataset.name,
        examples=examples(dataset.test),
        demonstrations=examples(dataset.demonstration),
        template=ChoiceTemplate(
            instruction=template.instruction.removesuffix(template.label_affix),
            # Several fields are written into the input, with what stands around each of them.
            input_prefix=template.input_prefixes[0] if has_one_field else "",
            output_prefix=(template.input_affixes[0] if has_one_field else "") + template.label_prefix,
            choice_prefix=None,
            separator=template.label_affix,
        ),
        source=dataset.name,
        fingerprint=dataset.fingerprint,
    )


def correct_of_scores(scores: Sequence[float]) -> list[int]:
    """BIG-bench's scores of the choices to the correct ones: those of the highest score, if that is above 0.

    So half points for a second-best choice count as wrong, and several choices of the highest score are all right.
    """
    best = max(scores, default=0)
    return [place for place, score in enumerate(scores) if score == best] if best > 0 else []


def _require_alike(name: str, template: MetaTemplate) -> None:
    spaced = template.label_prefix.endswith(LABEL_SPACE)
    apart = not template.instruction or template.instruction.endswith(template.label_affix)
    if not spaced or not apart or template.query_prefix:
        raise TemplateError(
            f"{name}: prompt-search needs a space before labels, the same text around queries and demonstrations, and "
            f"an instruction that ends as a demonstration does, but the template has the label prefix "
            f"{template.label_prefix!r}, the query prefix {template.query_prefix!r} and the instruction "
            f"{template.instruction!r}."
        )


def _require_example(row: ChoiceRow, where: str, seen: dict[str, int]) -> None:
    if not row.example_id:
        raise DatasetError(f"{where}: the example has no id. Give every row one, or name no id column.")
    if row.example_id in seen:
        raise DatasetError(
            f"{where}: example id {row.example_id!r} stands in row {seen[row.example_id]} as well. Ids tell examples "
            "apart: make them different, or name no id column to have rows numbered."
        )
    seen[row.example_id] = row.row
    if row.input is None:
        raise DatasetError(f"{where}: the input is missing.")
    blank = [place for place, choice in enumerate(row.choices) if choice is None or not choice.strip()]
    if blank:
        raise DatasetError(f"{where}: choice {blank[0]} (from 0) of {list(row.choices)} is missing or blank.")
    if not row.correct:
        raise DatasetError(f"{where}: no choice of {list(row.choices)} is correct.")
    outside = [place for place in row.correct if not 0 <= place < len(row.choices)]
    if outside:
        raise DatasetError(
            f"{where}: the correct choice is said to be number {outside[0]}, but there are {len(row.choices)} choices, "
            "counted from 0."
        )


def _without_repeats(choices: list[str], correct: set[int], where: str) -> tuple[list[str], list[int]]:
    is_right: dict[str, bool] = {}
    for place, choice in enumerate(choices):
        right = place in correct
        if is_right.setdefault(choice, right) != right:
            raise DatasetError(f"{where}: choice {choice!r} stands there twice, once as correct and once as wrong.")
    if len(is_right) < 2:
        raise DatasetError(f"{where}: an example needs two choices or more, got {choices}.")
    if all(is_right.values()):
        raise DatasetError(f"{where}: every one of the choices {choices} is correct, so nothing can be got wrong.")
    return list(is_right), [place for place, right in enumerate(is_right.values()) if right]


def _shuffled(text: str, choices: Sequence[str]) -> list[str]:
    """The choices in an order that looks random and depends on the example alone.

    BIG-bench draws one permutation after the other, so that an example's order there depends on those before it.
    """
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{text}\0{choice}".encode(), digest_size=8).digest())
