"""The datasets of Lu et al. 2023: their tables, the columns and labels, the question of their prompts, their releases.

Labels are in the order of the options in the prompts' question. So BoolQ's true comes first, and correlation comes
before direct causation, though the corpus of Causal Language gives them the numbers 3 and 1. Its queries are worded
differently from its demonstrations in the released code ("no claim, (1) correlational, ..."); here both have the
wording of the demonstrations.

The hub's copies of Health Advice and Causal Language (medalpaca/medical_meadow_health_advice and _pubmed_causal) are
not used: they hold four fifths of the rows, rewritten as instructions, and the first row of Causal Language has the
answer "correlative" where the corpus has "no relationship".
"""

from dataclasses import dataclass, replace

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

    @property
    def labels(self) -> dict[str, int]:
        """Return cell of the label column -> index of the option; cells after the last option begin anew."""
        return {cell: number % len(self.options) for number, cell in enumerate(self.cells or self.options)}


_ENTAILMENT = ("contradiction", "entailment", "neutral")
_RTE = ("entailment", "not_entailment")
_PAIR = ("premise", "hypothesis")
_NLI = ("entailment", "neutral", "contradiction")
_ADVICE = "junwang4/detecting-health-advice, data/annotations_"

_COLA_ON_HUB = HubSource(
    repository="nyu-mll/glue",
    config="cola",
    split="validation",  # the in-domain sentences, then the out-of-domain ones
    stop=527,
    height=527,
    texts=("sentence",),
    labels=("0", "1"),
    digest="5bd8b702f576f2c0d012de9c5c61ec25f109d9912c1dda142b5c02797e0bd8f8",
)
_SNLI_ON_HUB = HubSource(
    repository="stanfordnlp/snli",
    config="plain_text",
    split="test",
    height=9824,
    texts=_PAIR,
    labels=_NLI,
    digest="85f7ca59c7e4063359b81d7ab42dca7918de74832625f1826ba12d967fc1fdb3",
)

_COLA = PublishedTable(
    corpus="CoLA, in-domain sentences of the development set",
    file="cola_in_domain_dev",
    training_file="cola_in_domain_train",
    texts=("sentence",),
    options=("unacceptable", "acceptable"),
    cells=("0", "1"),
    prompts="cola",
    release=_COLA_ON_HUB,
)
_SNLI = PublishedTable(
    corpus="SNLI, test set",
    file="snli_test",
    training_file="snli_train",
    texts=("sentence1", "sentence2"),
    label="gold_label",
    options=_ENTAILMENT,
    prompts="snli",
    release=_SNLI_ON_HUB,
)
_HEALTH_ADVICE = PublishedTable(
    corpus="Health Advice, structured abstracts",
    file="health_advice_structured_abstract",
    training_file="health_advice_train",
    texts=("sentence",),
    options=("no advice", "weak advice", "strong advice"),
    cells=("0", "1", "2"),
    prompts="advice",
    release=f"{_ADVICE}structured_abstract.csv",
)

PAPER_TABLES = {
    "boolq": PublishedTable(
        corpus="BoolQ, development set",
        file="boolq_dev",
        training_file="boolq_train",
        texts=("question", "passage"),
        options=("True", "False"),
        cells=("true", "false", "True", "False"),  # Polars writes booleans in small letters
        prompts="boolq",
        release=HubSource(
            repository="aps/super_glue",
            config="boolq",
            split="validation",
            height=3270,
            texts=("question", "passage"),
            labels=("false", "true"),
            digest="08dc076b41ca69a9d0a808aa12c7c090b814490c66a059e8c965fb04033939f2",
        ),
    ),
    "cola": _COLA,
    "multinli": replace(
        _SNLI,
        corpus="MultiNLI, matched development set",
        file="multinli_dev_matched",
        training_file="multinli_train",
        prompts="multinli",
        release=HubSource(
            repository="nyu-mll/multi_nli",
            config="default",
            split="validation_matched",
            height=9815,
            texts=_PAIR,
            labels=_NLI,
            digest="2f518855f115746ed2aa72a69253f3a3ebc2fa974704f01d348ee3d4ba8e8467",
        ),
    ),
    "rte": PublishedTable(
        corpus="RTE, development set",
        file="rte_dev",
        training_file="rte_train",
        texts=("premise", "hypothesis"),
        options=_RTE,
        prompts="rte",
        release=HubSource(
            repository="nyu-mll/glue",
            config="rte",
            split="validation",
            height=277,
            texts=("sentence1", "sentence2"),
            labels=_RTE,
            digest="186107406b832f0c0ea446d06df8d07dff64b1852b51cad297a45302c96b74af",
        ),
    ),
    "snli": _SNLI,
    "health_advice": _HEALTH_ADVICE,
    "causal_language": PublishedTable(
        corpus="Causal Language in PubMed",
        file="causal_language",
        training_file="causal_language_train",
        texts=("sentence",),
        options=("no relationship", "correlation", "conditional causation", "direct causation"),
        cells=("0", "3", "2", "1"),
        prompts="pubmed",
        release="junwang4/causal-language-use-in-science, data/pubmed_causal_language_use.csv",
    ),
}
"""The datasets of the paper (table 9); a folder of tables gives these if no dataset is named."""

PUBLISHED_TABLES = PAPER_TABLES | {
    "cola_out_of_domain": replace(
        _COLA,
        corpus="CoLA, out-of-domain sentences of the development set",
        file="cola_out_of_domain_dev",
        release=replace(
            _COLA_ON_HUB,
            start=527,
            stop=None,
            height=516,
            digest="ecc6aa13c7f23136cb89b005b43cf9dc5b228c22f05a4268513a9e2f0e266a2a",
        ),
    ),
    "snli_dev": replace(
        _SNLI,
        corpus="SNLI, development set",
        file="snli_dev",
        release=replace(
            _SNLI_ON_HUB,
            split="validation",
            height=9842,
            digest="c5aee25e11198127d76b29dca63c400156b7c017b9cde27b8d88f1f73d829104",
        ),
    ),
    "health_advice_unstructured": replace(
        _HEALTH_ADVICE,
        corpus="Health Advice, unstructured abstracts",
        file="health_advice_unstructured_abstract",
        release=f"{_ADVICE}unstructured_abstract.csv",
    ),
    "health_advice_discussion": replace(
        _HEALTH_ADVICE,
        corpus="Health Advice, discussion sections",
        file="health_advice_discussion",
        release=f"{_ADVICE}discussion.csv",
    ),
}
"""All datasets by name, including datasets that are not in the paper."""
