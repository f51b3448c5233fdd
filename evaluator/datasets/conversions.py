"""Convert labelled datasets to multiple choice, and multiple choice with one set of choices to labelled datasets.

Typed questions cannot be converted and raise an error.
"""

import reprlib

import polars as pl

from evaluator.datasets import base
from evaluator.datasets.labelled_table import split_examples
from evaluator.errors import DatasetError, TemplateError
from evaluator.files.digests import short_digest
from evaluator.templates.template import LABEL_SPACE, ChoiceTemplate, MetaTemplate, Verbalizer


def as_multiple_choice(dataset: base.AnyDataset) -> base.MultipleChoiceDataset:
    """Return a labelled dataset as multiple choice, with the label names as the choices of every example.

    Prompts stay the same, except that the space before a label belongs to the label. Queries are the test split.
    Demonstrations are the demonstration split, or other queries if this split is empty. A multiple-choice dataset is
    returned unchanged.

    Raises TemplateError if no space precedes labels, or if queries and demonstrations have different text around them,
    and DatasetError for a typed question.
    """
    if isinstance(dataset, base.MultipleChoiceDataset):
        return dataset
    if isinstance(dataset, base.DecisionDataset):
        raise _typed_question(dataset)
    template = dataset.template
    _require_convertible(dataset.name, template)
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
        ).cast(base.CHOICE_EXAMPLES)

    return base.MultipleChoiceDataset(
        name=dataset.name,
        examples=examples(dataset.test),
        demonstrations=None if dataset.demonstration.is_empty() else examples(dataset.demonstration),
        template=ChoiceTemplate(
            instruction=template.instruction.removesuffix(template.label_affix),
            # Several text fields are joined into one input, with their prefixes and affixes.
            input_prefix=template.input_prefixes[0] if has_one_field else "",
            output_prefix=(template.input_affixes[0] if has_one_field else "") + template.label_prefix,
            choice_prefix=None,
            separator=template.label_affix,
        ),
        source=dataset.name,
        notes=dataset.notes,
        fingerprint=dataset.fingerprint,
    )


def as_classification(dataset: base.AnyDataset, *, query_every_row: bool = False) -> base.ClassificationDataset:
    """Return a multiple-choice dataset as a labelled dataset; the choices that all examples share are the label space.

    Labels, and choices listed in prompts, are in the order of the first example's choices. The examples are split into
    queries and demonstrations like the rows of a labelled table, unless they are split already. A labelled dataset is
    returned unchanged.

    Args:
        dataset: labelled or multiple choice.
        query_every_row: make every example a query and none a demonstration, unless they are split already.

    Raises DatasetError if examples differ in their choices or have several correct choices, for a typed question, and
    as split_examples does.
    """
    if isinstance(dataset, base.ClassificationDataset):
        return dataset
    if isinstance(dataset, base.DecisionDataset):
        raise _typed_question(dataset)
    names = _shared_choices(dataset)
    template, strips_start, strips_end = _meta_template(dataset.template, names)

    def labelled(examples: pl.DataFrame) -> pl.DataFrame:
        text = pl.col("input")
        text = text.str.strip_chars_start() if strips_start else text
        text = text.str.strip_chars_end() if strips_end else text
        correct = pl.col("choices").list.get(pl.col("correct").list.first())
        return examples.select(
            source_row="row",
            texts=pl.concat_list(text),
            gold=correct.replace_strict({name: label for label, name in enumerate(names)}, return_dtype=pl.Int64),
        ).cast(base.EXAMPLES)

    split = split_examples(
        labelled(dataset.examples),
        None if dataset.demonstrations is None else labelled(dataset.demonstrations),
        dataset.source,
        names,
        query_every_row=query_every_row,
    )
    return base.ClassificationDataset(
        name=dataset.name,
        demonstration=split.demonstrations,
        test=split.queries,
        text_fields=("input",),
        template=template,
        verbalizer=Verbalizer(label_names=tuple(names)),
        notes=(*dataset.notes, *split.notes),
        fingerprint=short_digest(repr((dataset.fingerprint, names, template, query_every_row)).encode()),
    )


def as_decision(dataset: base.AnyDataset) -> base.DecisionDataset:
    """Return the dataset if it is a typed question. Raises DatasetError for any other dataset."""
    if isinstance(dataset, base.DecisionDataset):
        return dataset
    raise DatasetError(
        f"{dataset.name} has labels and no typed question. Ask questions about its table with --questions FILE "
        "(docs/decisions.md), or run classify."
    )


def _typed_question(dataset: base.DecisionDataset) -> DatasetError:
    return DatasetError(
        f"{dataset.name} is a typed question, which the suite decide asks. Run decide, or drop --questions."
    )


def _require_convertible(name: str, template: MetaTemplate) -> None:
    has_space = template.label_prefix.endswith(LABEL_SPACE)
    has_separator = not template.instruction or template.instruction.endswith(template.label_affix)
    if not has_space or not has_separator or template.query_prefix:
        raise TemplateError(
            f"{name}: a suite of multiple choice needs a space before labels, the same text around queries and "
            f"demonstrations, and an instruction that ends as a demonstration does, but the template has the label "
            f"prefix {template.label_prefix!r}, the query prefix {template.query_prefix!r} and the instruction "
            f"{template.instruction!r}."
        )


def _shared_choices(dataset: base.MultipleChoiceDataset) -> list[str]:
    """Return the choices that all examples share, in the order of the first example.

    Raises DatasetError if examples differ in their choices or have several correct choices.
    """
    examples = pl.concat([dataset.examples, dataset.shown])
    first: list[str] = examples["choices"][0].to_list()
    differing = examples.filter(pl.col("choices").list.sort() != pl.lit(sorted(first)))
    if not differing.is_empty():
        row, choices = differing.select("row", "choices").row(0)
        raise DatasetError(
            f"{dataset.name}: a suite of classification needs the same choices in all examples, but row "
            f"{examples['row'][0]} (from 0) of {dataset.source} has {reprlib.repr(first)} and row {row} has "
            f"{reprlib.repr(choices)}; use it with a suite of multiple choice."
        )
    ambiguous = examples.filter(pl.col("correct").list.len() > 1)
    if not ambiguous.is_empty():
        raise DatasetError(
            f"{dataset.name}: a suite of classification needs one correct choice in each example, but row "
            f"{ambiguous['row'][0]} (from 0) of {dataset.source} has {ambiguous['correct'][0].len()}; use it with "
            "a suite of multiple choice."
        )
    return first


def _meta_template(template: ChoiceTemplate, names: list[str]) -> tuple[MetaTemplate, bool, bool]:
    """Return a template of a labelled dataset that gives the same prompts, and how to strip the inputs.

    The two truth values say whether to strip white space at the start and at the end of an input. ChoiceTemplate strips
    the rendered example, which changes the input itself only where no text precedes or follows it.
    """
    listed = "" if template.choice_prefix is None else "".join(template.choice_prefix + name for name in names)
    prefix, output_prefix = template.input_prefix.lstrip(), template.output_prefix.rstrip()
    affix = listed if output_prefix else listed.rstrip()
    meta_template = MetaTemplate(
        instruction=template.opening,
        input_prefixes=(prefix,),
        input_affixes=(affix,),
        label_prefix=output_prefix + LABEL_SPACE,
        label_affix=template.separator,
    )
    return meta_template, not prefix, not (affix or output_prefix)
