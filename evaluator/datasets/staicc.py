"""Read the ten datasets of StaICC from the data files in the package StaICC; its code is not imported.

The files are pickles, which are read without running code: lists, strings and numbers need no globals, and a pickle
that names a global is refused.
"""

import importlib.metadata
import io
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa

from evaluator.arrays import Ints
from evaluator.datasets import SOURCES, StaiccSource
from evaluator.datasets.base import EXAMPLES, ClassificationDataset, cached_table
from evaluator.datasets.lcg import Lcg
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.templates.template import Alternatives, MetaTemplate, Verbalizer, nine_templates

PACKAGE = "StaICC"
VERSION = "0.1.1"
INSTALL = f"Run: pip install {PACKAGE}=={VERSION}"
CONVERTER_VERSION = 1  # to be increased when the content of cached tables changes
TEXT_FIELDS = ("text",)
TABLE = pa.schema([("texts", pa.list_(pa.string())), ("gold", pa.int64())])
"""Schema of the table of all rows of a dataset, in the order of its file."""

_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, which a pickle can hold but UTF-8 cannot


class SplitSizes(NamedTuple):
    """Number of rows of the three splits."""

    calibration: int
    demonstration: int
    test: int


SIZES = SplitSizes(calibration=1024, demonstration=4096, test=512)  # Cho & Inoue 2025, appendix B.1, table 5


def load_staicc(name: str) -> ClassificationDataset:
    """Load a dataset of SOURCES with its three splits.

    Raises DatasetError if the package is missing or has another version, or if its file is malformed or unsafe.
    """
    source = SOURCES[name]
    table, content_digest = source_table(name)
    verbalizer = Verbalizer(label_names=source.label_names)
    sizes = SIZES._replace(demonstration=source.n_demonstrations)
    rows = split_rows(name, table.num_rows, sizes)
    templates = _alternative_templates(source)
    # Arrow's `take` reads only these few thousand of up to 127,600 memory-mapped rows. Row numbers are passed as a
    # Polars series, because a NumPy array would make Arrow import pandas.
    calibration, demonstration, test = (
        pl.DataFrame(table.take(drawn.to_arrow())).select(source_row=drawn, texts="texts", gold="gold").cast(EXAMPLES)
        for drawn in map(pl.Series, rows)
    )
    return ClassificationDataset(
        name=name,
        calibration=calibration,
        demonstration=demonstration,
        test=test,
        text_fields=TEXT_FIELDS,
        template=templates[0],
        verbalizer=verbalizer,
        alternative_templates=templates,
        instructions=source.instructions,
        # `templates` includes the default template, as the first.
        fingerprint=short_digest(repr((name, content_digest, sizes, templates, verbalizer)).encode()),
    )


def source_table(name: str) -> tuple[pa.Table, str]:
    """Return all rows of a dataset of SOURCES as a TABLE, and the digest of its file.

    Raises DatasetError as load_staicc does.
    """
    source = SOURCES[name]
    path = data_folder() / (source.file or f"{name}.dataset")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error}. {INSTALL} --force-reinstall --no-deps") from error
    content_digest, n_labels = short_digest(content), len(source.label_names)
    table = cached_table(
        f"{name}-{content_digest}-{n_labels}labels-v{CONVERTER_VERSION}",
        lambda: read_examples(content, path, text_fields=TEXT_FIELDS, n_labels=n_labels),
    )
    return table, content_digest


def data_folder() -> Path:
    """Return the folder of the data files in the installed package. Raises DatasetError unless VERSION is installed."""
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise DatasetError(
            f"The package {PACKAGE}, which brings the data files, is not installed. {INSTALL}"
        ) from error
    if package.version != VERSION:
        raise DatasetError(f"{PACKAGE} {package.version} is installed, but {VERSION} is needed. {INSTALL}")
    return Path(str(package.locate_file("StaICC/cached_dataset")))


def _alternative_templates(source: StaiccSource) -> tuple[MetaTemplate, ...]:
    """Return the nine templates of a dataset; the first is its default template."""
    default = MetaTemplate(
        input_prefixes=(source.input_prefix,),
        input_affixes=(" ",),
        label_prefix=source.label_prefix,
        label_affix="\n",
    )
    question, other_question = source.alternative_instructions or source.instructions[:2]
    first, second = source.alternative_input_prefixes
    levels = Alternatives(
        instructions=(question, other_question),
        input_prefixes=((first,), (second,)),
        label_prefixes=("label: ", "Label: "),
        label_affixes=(" ", "\t"),
    )
    return nine_templates(default, levels)


def split_rows(dataset: str, n_rows: int, sizes: SplitSizes) -> tuple[Ints, Ints, Ints]:
    """Draw the calibration, demonstration and test splits without replacement, with a new generator.

    Returns the row numbers of the splits, in drawn order. Raises DatasetError if the table has fewer rows than the
    splits need.
    """
    needed = sum(sizes)
    if n_rows < needed:
        raise DatasetError(f"{dataset}: {n_rows} rows, but its splits need {needed} ({sizes}). Ask for smaller splits.")
    calibration, demonstration, test = np.split(Lcg().samples(1, needed, n_rows)[0], np.cumsum(sizes)[:-1])
    return calibration, demonstration, test


class _PlainUnpickler(pickle.Unpickler):
    """Unpickle plain values only. They need no globals, and without globals a pickle cannot run code."""

    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content))
        self._path = path

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise DatasetError(
            f"{self._path}: asks for the global {module_name}.{global_name}, which could run code. Nothing was run. "
            "A dataset file holds lists, strings and numbers only; do not trust this one."
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DatasetError(f"{self._path}: asks for the outside object {pid!r}; do not trust this file.")


def read_examples(content: bytes, path: Path, *, text_fields: Sequence[str], n_labels: int) -> pa.Table:
    """Return a pickled list of (texts, label index) as a TABLE, one row per example.

    Raises DatasetError, naming the file, if the pickle is damaged or names a global; naming also the row, if a row is
    not one string per text field with a label in range(n_labels).
    """
    try:
        rows = _PlainUnpickler(content, path).load()
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetError(
            f"{path}: not a whole pickle ({type(error).__name__}: {error}). Install it again."
        ) from error
    if not isinstance(rows, list):
        raise DatasetError(f"{path}: expected a list of examples, found {type(rows).__name__}.")
    for number, row in enumerate(rows):
        if not _is_example(row, len(text_fields), n_labels):
            raise DatasetError(
                f"{path}, row {number}: expected ([{', '.join(text_fields)}], label) with strings and a label "
                f"from 0 to {n_labels - 1}, found {shown(row)}."
            )
    return pa.table([[texts for texts, _ in rows], [label for _, label in rows]], schema=TABLE)


def _is_example(row: object, n_fields: int, n_labels: int) -> bool:
    match row:
        case tuple((list(texts), int(label))) if not isinstance(label, bool) and len(texts) == n_fields:
            is_text = [isinstance(text, str) and not _SURROGATE.search(text) for text in texts]
            return all(is_text) and 0 <= label < n_labels
    return False
