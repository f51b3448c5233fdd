"""Define the named datasets, of StaICC (assets/staicc.toml) and of Lu et al. 2023 (assets/lu_2023.toml).

Importing this module reads no data; datasets/sources.py loads the datasets. The StaICC toolkit uses the label index in
a data file as the index into the label space, and so does this module.

Labels of Lu et al. 2023 are in the order of the options in the question of the prompts. So BoolQ's "true" is the first
label, and correlation precedes direct causation, although the Causal Language corpus numbers them 3 and 1. In the
released code, the queries of Causal Language are worded differently from its demonstrations ("no claim, (1)
correlational, ..."); here both have the wording of the demonstrations.

The hub's copies of Health Advice and Causal Language (medalpaca/medical_meadow_health_advice and _pubmed_causal) are
not used: they hold four fifths of the rows, rewritten as instructions, and the first row of Causal Language has the
answer "correlative" where the corpus has "no relationship".
"""

from dataclasses import dataclass

from evaluator.files.toml_files import shipped_tables


@dataclass(frozen=True, kw_only=True)
class StaiccSource:
    """A data file of the package StaICC, and the text around its examples in prompts."""

    input_prefix: str
    label_prefix: str
    label_names: tuple[str, ...]  # in the order of the file's label indices
    instructions: tuple[str, ...]  # five wordings of one question, by GPT-4, from the toolkit's `configs.py`
    # Levels of the nine templates besides the default ones (no instruction, `input_prefix`): Cho & Inoue 2025,
    # appendix B.1, table 6.
    alternative_instructions: tuple[str, ...] = ()  # two instructions; empty: the first two of `instructions`
    alternative_input_prefixes: tuple[str, str] = ("text: ", "sentence: ")
    n_demonstrations: int = 4096  # size of the demonstration split (appendix B.1, table 5)
    file: str = ""  # empty: the name of the dataset, with the suffix .dataset


SOURCES = shipped_tables("evaluator.datasets", "staicc", StaiccSource)
"""Name of a StaICC dataset -> its source, in the order of the benchmark."""

PROMPTS_FILE = "prompts.parquet"
"""File name of the published demonstrations, which are in the same folder as the tables."""


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """The location of a dataset on the Hugging Face hub, and which of its rows form the published table."""

    repository: str
    config: str
    split: str  # split of the queries; the training rows are in the split "train" of the same config
    start: int = 0  # first published row of the split
    stop: int | None = None  # row after the last published row; None: the end of the split
    height: int  # number of published rows with a gold label
    texts: tuple[str, ...]  # text columns on the hub, in the order of the columns of the published table
    labels: tuple[str, ...]  # label cells of the published table, in the order of the label numbers on the hub
    # SHA-256 of the published rows: cells as UTF-8 text, U+001F between cells of a row and U+001E between rows.
    digest: str


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """The files of a dataset of Lu et al. 2023, their columns and labels, the question in its prompts, its release."""

    corpus: str  # name of the corpus, for display
    file: str  # name of the table of queries, without suffix
    training_file: str  # name of the table of training rows in the same folder, without suffix; the file may be missing
    texts: tuple[str, ...]  # names of the text columns
    label: str = "label"  # name of the label column
    options: tuple[str, ...]  # options of the question, in the order of the label space
    cells: tuple[str, ...] = ()  # values of the label column, in the order of the options; empty: the options
    prompts: str  # name of the dataset in PROMPTS_FILE
    release: HubSource | str  # place on the hub; a text: the GitHub repository and the file in it
    in_paper: bool = True  # whether table 9 of the paper lists the dataset

    @property
    def labels(self) -> dict[str, int]:
        """Return value of the label column -> index of the option.

        If there are more values than options, counting restarts at option 0 after the last option.
        """
        return {cell: number % len(self.options) for number, cell in enumerate(self.cells or self.options)}


PUBLISHED_TABLES = shipped_tables("evaluator.datasets", "lu_2023", PublishedTable)
"""Name -> published dataset, including datasets that are not in the paper."""

PAPER_TABLES = {name: table for name, table in PUBLISHED_TABLES.items() if table.in_paper}
"""Datasets of the paper: the datasets that are read from a folder of tables if the user names none."""

DATASETS: dict[str, str] = {
    **{name: f"StaICC: {', '.join(source.label_names)}" for name, source in SOURCES.items()},
    **{
        name: f"Lu et al. 2023: {table.corpus} ({table.file}); needs a table in --data"
        + ("" if isinstance(table.release, str) else ", or --data hub")
        for name, table in PUBLISHED_TABLES.items()
    },
}
"""Name -> description, with what the user must provide to load the dataset. The datasets of StaICC, in the order of the
benchmark, precede the datasets of Lu et al. 2023."""

INSTALLED = tuple(SOURCES)
"""Datasets that need no file from the user; `--datasets all` selects them."""
