"""The ten datasets of StaICC, read from the data files that the package StaICC brings; none of its code is imported.

Label spaces and templates are those of the toolkit's code, where the paper's tables differ (of tables 4 and 6: label
spaces, the prefix of rotten_tomatoes, the first alternatives of tweet_eval_emotion); the toolkit maps every file's
label index to the same index of its label space.
"""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from evaluator.datasets.arrow_cache import cached_table
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.plain_pickle import read_examples
from evaluator.datasets.splits import SplitSizes, split_rows
from evaluator.errors import DatasetError
from evaluator.files import short_digest
from evaluator.templates.orthogonal_array import orthogonal_templates
from evaluator.templates.template import MetaTemplate, Verbalizer

PACKAGE = "StaICC"
VERSION = "0.1.1"
INSTALL = f"Run: pip install {PACKAGE}=={VERSION}"
CONVERTER_VERSION = 1  # counts changes to what is kept in the cache
TEXT_FIELDS = ("text",)
SIZES = SplitSizes(calibration=1024, demonstration=4096, test=512)  # Cho & Inoue 2025, appendix B.1, table 5


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A data file of the package and how its examples are shown."""

    file: str
    input_prefix: str
    label_prefix: str
    label_names: tuple[str, ...]  # in the order of the file's label indices
    # Cho & Inoue 2025, appendix B.1, table 6; the default is no instruction, and `input_prefix`:
    alternative_instructions: tuple[str, str]
    alternative_input_prefixes: tuple[str, str]
    sizes: SplitSizes = SIZES

    @property
    def template(self) -> MetaTemplate:
        return MetaTemplate(
            input_prefixes=(self.input_prefix,),
            input_affixes=(" ",),
            label_prefix=self.label_prefix,
            label_affix="\n",
        )

    @property
    def alternative_templates(self) -> tuple[MetaTemplate, ...]:
        first, second = self.alternative_input_prefixes
        return orthogonal_templates(
            self.template,
            instructions=self.alternative_instructions,
            input_prefixes=((first,), (second,)),
            label_prefixes=("label: ", "Label: "),
            label_affixes=(" ", "\t"),
        )


SOURCES = {
    "glue_sst2": _Source(
        file="sst2.dataset",
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("negative", "positive"),
        alternative_instructions=(
            "How would you describe the overall feeling of the movie based on this sentence? ",
            "Please classify the sentiment of the following sentence. ",
        ),
        alternative_input_prefixes=("text: ", "review: "),
    ),
    "rotten_tomatoes": _Source(
        file="rotten_tomatoes.dataset",
        input_prefix="review: ",
        label_prefix="sentiment: ",
        label_names=("negative", "positive"),
        alternative_instructions=(
            "How would you describe the overall feeling of the movie based on this sentence? ",
            "Please classify the sentiment of the following sentence. ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
    "financial_phrasebank": _Source(
        file="financial_phrasebank.dataset",
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("negative", "neutral", "positive"),
        alternative_instructions=(
            "What is the attitude towards the financial news in this sentence? ",
            "What is the emotional response to the financial news in this sentence? ",
        ),
        alternative_input_prefixes=("text: ", "news: "),
        sizes=SIZES._replace(demonstration=512),  # 2,264 rows in all
    ),
    "sst5": _Source(
        file="sst5.dataset",
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("poor", "bad", "neutral", "good", "great"),
        alternative_instructions=(
            "How would you describe the overall feeling of the movie based on this sentence? ",
            "What mood does this sentence convey about the movie? ",
        ),
        alternative_input_prefixes=("text: ", "review: "),
    ),
    "trec": _Source(
        file="trec.dataset",
        input_prefix="question: ",
        label_prefix="target: ",
        label_names=("short", "entity", "description", "person", "location", "number"),
        alternative_instructions=(
            "What is the topic of the question? ",
            "What is the primary focus of this question? ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
    "agnews": _Source(
        file="agnews.dataset",
        input_prefix="news: ",
        label_prefix="topic: ",
        label_names=("world", "sports", "business", "science"),
        alternative_instructions=("What is the topic of the news? ", "What is the news focused on? "),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
    "subjective": _Source(
        file="subjective.dataset",
        input_prefix="review: ",
        label_prefix="subjectiveness: ",
        label_names=("false", "true"),
        alternative_instructions=(
            "Does this sentence reflect a personal opinion? ",
            "Is this sentence expressing a personal opinion or stating a fact? ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
    "tweet_eval_emotion": _Source(
        file="tweet_eval_emotion.dataset",
        input_prefix="tweet: ",
        label_prefix="emotion: ",
        label_names=("anger", "joy", "positive", "sad"),
        alternative_instructions=(
            "What feeling does this sentence convey? ",
            "What emotion does this sentence express? ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
        sizes=SIZES._replace(demonstration=3192),  # 5,052 rows in all; the paper's table gives this to the next one
    ),
    "tweet_eval_hate": _Source(
        file="tweet_eval_hate.dataset",
        input_prefix="tweet: ",
        label_prefix="hate speech: ",
        label_names=("normal", "hate"),
        alternative_instructions=(
            "Does this sentence contain hate speech? ",
            "Is this sentence an example of hate speech? ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
    "hate_speech_18": _Source(
        file="hate_speech_18.dataset",
        input_prefix="tweet: ",
        label_prefix="hate speech: ",
        label_names=("normal", "hate", "skip", "relation"),
        alternative_instructions=(
            "Does this sentence contain hate speech? ",
            "Is this sentence an example of hate speech? ",
        ),
        alternative_input_prefixes=("text: ", "sentence: "),
    ),
}


def load_staicc(name: str) -> ClassificationDataset:
    """Load one of SOURCES with its three splits.

    Raises DatasetError where the package is missing or of another version, or its file is malformed or unsafe.
    """
    source = SOURCES[name]
    table, content_digest = _source_table(name)
    verbalizer = Verbalizer(label_names=source.label_names)
    rows = split_rows(name, table.num_rows, source.sizes)
    # Taken in Arrow: of 127,600 memory-mapped rows only these few thousand are ever read.
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
        template=source.template,
        verbalizer=verbalizer,
        alternative_templates=source.alternative_templates,
        # The first of the alternatives is the template itself.
        fingerprint=short_digest(
            repr((name, content_digest, source.sizes, source.alternative_templates, verbalizer)).encode()
        ),
    )


def source_table(name: str) -> pa.Table:
    """All rows of one of SOURCES, those outside its splits too: `texts` and `gold`. Raises as load_staicc does."""
    return _source_table(name)[0]


def _source_table(name: str) -> tuple[pa.Table, str]:
    """The rows, and the digest of the file they were read from."""
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
    """Where the installed package keeps its data files. Raises DatasetError unless it is installed in VERSION."""
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
