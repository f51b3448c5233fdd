"""Read the ten datasets of StaICC from the data files in the package StaICC; none of its code is imported."""

import importlib.metadata
from pathlib import Path

import polars as pl
import pyarrow as pa

from evaluator.datasets.arrow_cache import cached_table
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.plain_pickle import read_examples
from evaluator.datasets.splits import SplitSizes, split_rows
from evaluator.datasets.staicc_sources import SOURCES, StaiccSource
from evaluator.errors import DatasetError
from evaluator.files.digests import short_digest
from evaluator.templates.orthogonal_array import orthogonal_templates
from evaluator.templates.template import MetaTemplate, Verbalizer

PACKAGE = "StaICC"
VERSION = "0.1.1"
INSTALL = f"Run: pip install {PACKAGE}=={VERSION}"
CONVERTER_VERSION = 1  # increased when the content of cached tables changes
TEXT_FIELDS = ("text",)
SIZES = SplitSizes(calibration=1024, demonstration=4096, test=512)  # Cho & Inoue 2025, appendix B.1, table 5


def load_staicc(name: str) -> ClassificationDataset:
    """Load a dataset of SOURCES with its three splits.

    Raises DatasetError if the package is missing or of another version, or its file is malformed or unsafe.
    """
    source = SOURCES[name]
    table, content_digest = _source_table(name)
    verbalizer = Verbalizer(label_names=source.label_names)
    sizes = SIZES._replace(demonstration=source.n_demonstrations)
    rows = split_rows(name, table.num_rows, sizes)
    templates = _alternative_templates(source)
    # Taken in Arrow, so that of up to 127,600 memory-mapped rows only these few thousand are read.
    calibration, demonstration, test = (
        pl.DataFrame(table.take(drawn)).select(source_row=pl.Series(drawn), texts="texts", gold="gold").cast(EXAMPLES)
        for drawn in rows
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
        # The first of `templates` is the default one.
        fingerprint=short_digest(repr((name, content_digest, sizes, templates, verbalizer)).encode()),
    )


def source_table(name: str) -> pa.Table:
    """Return all rows of a dataset of SOURCES, split or not: `texts` and `gold`. Raises as load_staicc does."""
    return _source_table(name)[0]


def _source_table(name: str) -> tuple[pa.Table, str]:
    """Return the rows and the digest of the file that holds them."""
    source = SOURCES[name]
    path = data_folder() / source.file
    content = _read_bytes(path)
    content_digest = short_digest(content)
    table = cached_table(
        f"{name}-{content_digest}-{len(source.label_names)}labels-v{CONVERTER_VERSION}",
        lambda: read_examples(content, path, text_fields=TEXT_FIELDS, n_labels=len(source.label_names)),
    )
    return table, content_digest


def data_folder() -> Path:
    """Return the folder of the installed package's data files. Raises DatasetError unless VERSION is installed."""
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise DatasetError(
            f"The package {PACKAGE}, which brings the data files, is not installed. {INSTALL}"
        ) from error
    if package.version != VERSION:
        raise DatasetError(f"{PACKAGE} {package.version} is installed, but {VERSION} is needed. {INSTALL}")
    return Path(str(package.locate_file("StaICC/cached_dataset")))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error}. {INSTALL} --force-reinstall --no-deps") from error


def _alternative_templates(source: StaiccSource) -> tuple[MetaTemplate, ...]:
    """Return the nine templates of a dataset, the first of which is its default."""
    default = MetaTemplate(
        input_prefixes=(source.input_prefix,),
        input_affixes=(" ",),
        label_prefix=source.label_prefix,
        label_affix="\n",
    )
    first, second = source.alternative_input_prefixes
    return orthogonal_templates(
        default,
        instructions=source.alternative_instructions,
        input_prefixes=((first,), (second,)),
        label_prefixes=("label: ", "Label: "),
        label_affixes=(" ", "\t"),
    )
