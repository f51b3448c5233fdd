"""The named datasets, StaICC's and those of Lu et al. 2023: assets/staicc.toml and assets/lu_2023.toml.

Listing them reads no data; datasets/sources.py loads them. The toolkit of StaICC uses the label index in a file as the
index into its label space.

Labels of Lu et al. 2023 are in the order of the options in the prompts' question. So BoolQ's true comes first, and
correlation comes before direct causation, though the corpus of Causal Language gives them the numbers 3 and 1. Its
queries are worded differently from its demonstrations in the released code ("no claim, (1) correlational, ..."); here
both have the wording of the demonstrations.

The hub's copies of Health Advice and Causal Language (medalpaca/medical_meadow_health_advice and _pubmed_causal) are
not used: they hold four fifths of the rows, rewritten as instructions, and the first row of Causal Language has the
answer "correlative" where the corpus has "no relationship".
"""

from dataclasses import dataclass

from evaluator.files.toml_files import shipped_tables


@dataclass(frozen=True, kw_only=True)
class StaiccSource:
    """A data file of the package StaICC and how its examples are shown."""

    input_prefix: str
    label_prefix: str
    label_names: tuple[str, ...]  # in the order of the file's label indices
    instructions: tuple[str, ...]  # five wordings of one question, by GPT-4, from the toolkit's `configs.py`
    # Cho & Inoue 2025, appendix B.1, table 6. The defaults are no instruction and `input_prefix`.
    alternative_instructions: tuple[str, ...] = ()  # two; empty: the first two of `instructions`
    alternative_input_prefixes: tuple[str, str] = ("text: ", "sentence: ")
    n_demonstrations: int = 4096  # size of the demonstration split (appendix B.1, table 5)
    file: str = ""  # empty: the name of the dataset, with the suffix .dataset


SOURCES = shipped_tables("evaluator.datasets", "staicc", StaiccSource)
"""Sources by name, in the benchmark's order."""

PROMPTS_FILE = "prompts.parquet"
"""The published demonstrations, in the folder of the tables."""


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Where a dataset is on the hub, and what its rows of the published table are."""

    repository: str
    config: str
    split: str  # of the queries; the training rows are in the split "train" of the same config
    start: int = 0  # first row of the split
    stop: int | None = None  # row after the last; None: the end of the split
    height: int  # rows with a gold label, as published
    texts: tuple[str, ...]  # columns, in the order of the published table's
    labels: tuple[str, ...]  # cells of the published table, in the order of the hub's numbers
    # SHA-256 of the published rows: cells as UTF-8 text, U+001F between cells of a row and U+001E between rows.
    digest: str


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """The files of a published dataset, their columns and labels, the question of its prompts, and its release."""

    corpus: str  # for display
    file: str  # table of the queries, without suffix
    training_file: str  # in the same folder, without suffix; may be missing
    texts: tuple[str, ...]  # columns
    label: str = "label"  # column
    options: tuple[str, ...]  # of the question, in the order of the label space
    cells: tuple[str, ...] = ()  # of the label column, in the order of the options; empty: the options
    prompts: str  # name of the dataset in PROMPTS_FILE
    release: HubSource | str  # on the hub, else the repository on GitHub and the file in it
    in_paper: bool = True  # table 9 lists it

    @property
    def labels(self) -> dict[str, int]:
        """Return cell of the label column -> index of the option; cells after the last option begin anew."""
        return {cell: number % len(self.options) for number, cell in enumerate(self.cells or self.options)}


PUBLISHED_TABLES = shipped_tables("evaluator.datasets", "lu_2023", PublishedTable)
"""All datasets by name, including datasets that are not in the paper."""

PAPER_TABLES = {name: table for name, table in PUBLISHED_TABLES.items() if table.in_paper}
"""The datasets of the paper; a folder of tables gives these if no dataset is named."""

DATASETS: dict[str, str] = {
    **{name: f"StaICC: {', '.join(source.label_names)}" for name, source in SOURCES.items()},
    **{
        name: f"Lu et al. 2023: {table.corpus} ({table.file}); needs a table in --data"
        + ("" if isinstance(table.release, str) else ", or --data hub")
        for name, table in PUBLISHED_TABLES.items()
    },
}
"""What each named dataset is, and what the user must provide to load it: StaICC's in the benchmark's order, then those
of Lu et al. 2023."""

INSTALLED = tuple(SOURCES)
"""The datasets that need no file from the user; `--datasets all` stands for them."""
