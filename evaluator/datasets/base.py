"""Define loaded datasets: classification with one label space, multiple choice, and typed questions.

Also cache converted tables: as Arrow files, which are memory mapped, or in any other format.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl
import pyarrow as pa

from evaluator.config import cache_folder
from evaluator.datasets.lcg import SEED
from evaluator.decisions.questions import Question
from evaluator.errors import DatasetError, WriteError
from evaluator.files.whole import write_bytes
from evaluator.schemas import declare
from evaluator.templates.template import ChoiceTemplate, MetaTemplate, Verbalizer

EXAMPLES = declare(
    source_row=pl.Int64(),  # row number in the table from which the splits are drawn
    texts=pl.List(pl.String()),  # one text per text field, in the order of the template's prefixes
    gold=pl.Int64(),  # index into the label space
)


OwnDraw = Literal["balanced", "cover", "first"]
"""How demonstrations of the user's data are chosen: from the labels in turn, every label once, or the first rows."""


class OwnDemonstrations(NamedTuple):
    """How demonstrations of the user's data are drawn."""

    how: OwnDraw = "balanced"
    n_sets: int = 2  # number of demonstration sets per query
    seed: int = SEED


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """The part of a labelled dataset that is known before its rows are read: how its examples become prompts."""

    name: str
    template: MetaTemplate
    verbalizer: Verbalizer
    alternative_templates: tuple[MetaTemplate, ...] = ()  # templates to compare with `template`; may include it
    instructions: tuple[str, ...] = ()  # alternative instructions, for methods that choose among instructions
    notes: tuple[str, ...] = ()  # decisions about the data, for the run record


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationDataset(Labelled):
    """A labelled dataset in three splits. A row number within a split is the id of the query or demonstration."""

    calibration: pl.DataFrame = field(default_factory=EXAMPLES.to_frame)  # EXAMPLES, like the two other splits
    demonstration: pl.DataFrame
    test: pl.DataFrame
    text_fields: tuple[str, ...]  # names of the texts of an example
    own_demonstrations: OwnDemonstrations | None = None  # None: demonstrations are drawn as the StaICC toolkit does
    fingerprint: str  # hex digest; changes with the source's bytes, the splits, the templates and the label names


CHOICE_EXAMPLES = declare(
    example_id=pl.String(),  # unique in a dataset
    input=pl.String(),
    choices=pl.List(pl.String()),  # two or more, all different, none blank
    correct=pl.List(pl.Int64()),  # indices into choices, ascending; one or more
    shown_choices=pl.List(pl.String()),  # the same choices in the order in which a template lists them
    row=pl.Int64(),  # row number in the source, from 0
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MultipleChoiceDataset:
    """Multiple-choice examples and their template."""

    name: str
    examples: pl.DataFrame  # CHOICE_EXAMPLES
    demonstrations: pl.DataFrame | None = None  # CHOICE_EXAMPLES that are not queries; None: other rows of `examples`
    template: ChoiceTemplate
    source: str  # file name, for messages
    notes: tuple[str, ...] = ()  # changes to the data, for the run record
    fingerprint: str  # hex digest; changes with the source's bytes, the columns that are read, and the template

    @property
    def shown(self) -> pl.DataFrame:
        """Return the examples from which demonstrations are drawn: CHOICE_EXAMPLES."""
        return self.examples if self.demonstrations is None else self.demonstrations


DECISION_EXAMPLES = declare(
    row=pl.Int64(),  # row number in the table, from 0
    input=pl.String(),
    options=pl.List(pl.String()),  # all different; the same number of options in every row
    descriptions=pl.List(pl.String()),  # descriptions of the options; "" for an option without one
    gold=pl.Int64(),  # index into options; null where the true option is not known
    soft_gold=pl.List(pl.Float64()),  # probability of each option; null where the table gives no probabilities
)


@dataclass(frozen=True, kw_only=True, eq=False)
class DecisionDataset:
    """A typed question about the rows of a table, with these rows."""

    name: str
    question: Question
    examples: pl.DataFrame  # DECISION_EXAMPLES
    demonstrations: pl.DataFrame  # DECISION_EXAMPLES with a gold option; no row of them is a query
    others: tuple[Question, ...] = ()  # other questions about the same rows
    source: str  # file name, for messages
    notes: tuple[str, ...] = ()
    fingerprint: str  # hex digest; changes with the source's bytes, the columns that are read, and the questions


AnyDataset = ClassificationDataset | MultipleChoiceDataset | DecisionDataset


def query_texts(dataset: AnyDataset) -> Iterator[pl.Series]:
    """Yield the texts of the examples that may be queries, in slices of rows to save memory."""
    texts = dataset.test["texts"] if isinstance(dataset, ClassificationDataset) else dataset.examples["input"]
    return (some.to_series() for some in texts.to_frame().iter_slices())


logger = logging.getLogger(__name__)


def cached_table(key: str, convert: Callable[[], pa.Table]) -> pa.Table:
    """Return the table in the cache under `key`; if there is none, call `convert` and cache its result.

    The key must change with everything that determines the rows. The name of a cached file ends in the SHA-256 digest
    of its bytes, so a damaged file is detected before it is parsed, and the table is converted again. Several processes
    may convert at once: each writes the same bytes, completely or not at all.

    Raises DatasetError if the cache folder cannot be written.
    """
    folder = cache_folder() / "datasets"
    for path in sorted(folder.glob(f"{key}.*.arrow")):
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
        if path.name == _file_name(key, content):
            return pa.ipc.open_file(content).read_all()
        logger.warning("%s has changed since it was written; the dataset is converted again.", path)
    table = convert()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    write_cached(folder / _file_name(key, content), memoryview(content))
    return table


def _file_name(key: str, content: pa.Buffer) -> str:
    return f"{key}.{hashlib.sha256(memoryview(content)).hexdigest()}.arrow"


def write_cached(path: Path, content: bytes | memoryview) -> None:
    """Write a file to the cache, completely or not at all. Raises DatasetError if it cannot be written."""
    try:
        write_bytes(path, content)
    except WriteError as error:
        raise DatasetError(
            f"Cannot keep a converted dataset: {error} Or set EVALUATOR_CACHE to a folder with space."
        ) from error
