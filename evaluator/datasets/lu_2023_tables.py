"""The datasets of Lu et al. 2023: the names of their tables, the columns, the labels and the question of their prompts.

Labels are in the order of the options in the prompts' question. So BoolQ's true comes first, and correlation comes
before direct causation, though the corpus of Causal Language gives them the numbers 3 and 1. Its queries are worded
differently from its demonstrations in the released code ("no claim, (1) correlational, ..."); here both have the
wording of the demonstrations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

PROMPTS_FILE = "prompts.parquet"
"""The published demonstrations, in the folder of the tables."""


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """The files of a published dataset, their columns and labels, and the question of its prompts."""

    corpus: str  # for display
    file: str  # table of the queries, without suffix
    training_file: str  # in the same folder, without suffix; may be missing
    texts: tuple[str, ...]  # columns
    label: str = "label"  # column
    options: tuple[str, ...]  # of the question, in the order of the label space
    cells: Mapping[str, int]  # cell of the label column -> index of the option
    prompts: str  # name of the dataset in PROMPTS_FILE


_ENTAILMENT = ("contradiction", "entailment", "neutral")
_RTE = ("entailment", "not_entailment")


def _in_order(*cells: str) -> dict[str, int]:
    return {cell: number for number, cell in enumerate(cells)}


_COLA = PublishedTable(
    corpus="CoLA, in-domain sentences of the development set",
    file="cola_in_domain_dev",
    training_file="cola_in_domain_train",
    texts=("sentence",),
    options=("unacceptable", "acceptable"),
    cells=_in_order("0", "1"),
    prompts="cola",
)
_SNLI = PublishedTable(
    corpus="SNLI, test set",
    file="snli_test",
    training_file="snli_train",
    texts=("sentence1", "sentence2"),
    label="gold_label",
    options=_ENTAILMENT,
    cells=_in_order(*_ENTAILMENT),
    prompts="snli",
)
_HEALTH_ADVICE = PublishedTable(
    corpus="Health Advice, structured abstracts",
    file="health_advice_structured_abstract",
    training_file="health_advice_train",
    texts=("sentence",),
    options=("no advice", "weak advice", "strong advice"),
    cells=_in_order("0", "1", "2"),
    prompts="advice",
)

PAPER_TABLES = {
    "boolq": PublishedTable(
        corpus="BoolQ, development set",
        file="boolq_dev",
        training_file="boolq_train",
        texts=("question", "passage"),
        options=("True", "False"),
        cells={"true": 0, "false": 1, "True": 0, "False": 1},  # Polars writes booleans in small letters
        prompts="boolq",
    ),
    "cola": _COLA,
    "multinli": replace(
        _SNLI,
        corpus="MultiNLI, matched development set",
        file="multinli_dev_matched",
        training_file="multinli_train",
        prompts="multinli",
    ),
    "rte": PublishedTable(
        corpus="RTE, development set",
        file="rte_dev",
        training_file="rte_train",
        texts=("premise", "hypothesis"),
        options=_RTE,
        cells=_in_order(*_RTE),
        prompts="rte",
    ),
    "snli": _SNLI,
    "health_advice": _HEALTH_ADVICE,
    "causal_language": PublishedTable(
        corpus="Causal Language in PubMed",
        file="causal_language",
        training_file="causal_language_train",
        texts=("sentence",),
        options=("no relationship", "correlation", "conditional causation", "direct causation"),
        cells=_in_order("0", "3", "2", "1"),
        prompts="pubmed",
    ),
}
"""The datasets of the paper (table 9); a folder of tables gives these if no dataset is named."""

PUBLISHED_TABLES = PAPER_TABLES | {
    "cola_out_of_domain": replace(
        _COLA, corpus="CoLA, out-of-domain sentences of the development set", file="cola_out_of_domain_dev"
    ),
    "snli_dev": replace(_SNLI, corpus="SNLI, development set", file="snli_dev"),
    "health_advice_unstructured": replace(
        _HEALTH_ADVICE,
        corpus="Health Advice, unstructured abstracts",
        file="health_advice_unstructured_abstract",
    ),
    "health_advice_discussion": replace(
        _HEALTH_ADVICE, corpus="Health Advice, discussion sections", file="health_advice_discussion"
    ),
}
"""All datasets by name, including those that are not in the paper."""

_ADVICE = "junwang4/detecting-health-advice"

ON_GITHUB = {
    "health_advice": f"{_ADVICE}, data/annotations_structured_abstract.csv",
    "health_advice_unstructured": f"{_ADVICE}, data/annotations_unstructured_abstract.csv",
    "health_advice_discussion": f"{_ADVICE}, data/annotations_discussion.csv",
    "causal_language": "junwang4/causal-language-use-in-science, data/pubmed_causal_language_use.csv",
}
"""Where datasets that are not on the hub were released."""
