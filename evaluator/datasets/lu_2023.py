"""The tables of in-context PVI: the seven datasets of Lu et al. 2023 by their files' names, and a user's own tables.

The published datasets are shown as in the paper's prompts (appendix A.2), with numbers as labels. A file is known by
its name without the suffix, and any of SUFFIXES will do. Its labels are put in the order of the prompts' question: the
corpus of Causal Language numbers correlation 3 and direct causation 1, the prompts the other way round; BoolQ's true
comes first. Where the released code asks the queries of Causal Language in other words than its demonstrations
("no claim, (1) correlational, ..."), queries are asked as the demonstrations are.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evaluator.config import LabelledColumns, PviConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.labelled_table import LabelledFile, label_values, load_labelled
from evaluator.datasets.lu_2023_hub import RELEASED, hub_tables
from evaluator.datasets.multiple_choice_table import SUFFIXES
from evaluator.errors import DatasetError
from evaluator.templates.template import MetaTemplate, Verbalizer

USER_TRAINING = "_train"
"""What the name of a user's table of training rows adds to the name of the table itself."""


@dataclass(frozen=True, kw_only=True)
class PviTable:
    """A published dataset: its files, their columns and labels, and the question it is asked with."""

    file: str  # without suffix
    training_file: str  # beside it, where there is one
    texts: tuple[str, ...]  # columns
    label: str = "label"
    options: tuple[str, ...]  # of the question, in the order of the label space
    cells: Mapping[str, int]  # of the label column -> place among the options
    prompts: str  # what the published demonstrations call it

    @property
    def template(self) -> MetaTemplate:
        last = len(self.options) - 1
        listed = [f"({number}) {option}" for number, option in enumerate(self.options)]
        question = f"\nQUESTION: Is this {', '.join(listed[:last])}, or {listed[last]}?\n"
        n_texts = len(self.texts)
        names = ("CONTEXT",) if n_texts == 1 else tuple(f"SENTENCE{number + 1}" for number in range(n_texts))
        return MetaTemplate(
            input_prefixes=tuple(f"{name}: " for name in names),
            input_affixes=(*["\n"] * (n_texts - 1), question),
            label_prefix="ANSWER: ",
            label_affix="\n\n",
        )


_ENTAILMENT = ("contradiction", "entailment", "neutral")
_RTE = ("entailment", "not_entailment")


def _in_order(*cells: str) -> dict[str, int]:
    return {cell: number for number, cell in enumerate(cells)}


_COLA = PviTable(
    file="cola_in_domain_dev",
    training_file="cola_in_domain_train",
    texts=("sentence",),
    options=("unacceptable", "acceptable"),
    cells=_in_order("0", "1"),
    prompts="cola",
)
_SNLI = PviTable(
    file="snli_test",
    training_file="snli_train",
    texts=("sentence1", "sentence2"),
    label="gold_label",
    options=_ENTAILMENT,
    cells=_in_order(*_ENTAILMENT),
    prompts="snli",
)
_HEALTH_ADVICE = PviTable(
    file="health_advice_structured_abstract",
    training_file="health_advice_train",
    texts=("sentence",),
    options=("no advice", "weak advice", "strong advice"),
    cells=_in_order("0", "1", "2"),
    prompts="advice",
)

PUBLISHED = {
    "boolq": PviTable(
        file="boolq_dev",
        training_file="boolq_train",
        texts=("question", "passage"),
        options=("True", "False"),
        cells={"true": 0, "false": 1, "True": 0, "False": 1},  # as Parquet and others write them
        prompts="boolq",
    ),
    "cola": _COLA,
    "multinli": replace(_SNLI, file="multinli_dev_matched", training_file="multinli_train", prompts="multinli"),
    "rte": PviTable(
        file="rte_dev",
        training_file="rte_train",
        texts=("premise", "hypothesis"),
        options=_RTE,
        cells=_in_order(*_RTE),
        prompts="rte",
    ),
    "snli": _SNLI,
    "health_advice": _HEALTH_ADVICE,
    "causal_language": PviTable(
        file="causal_language",
        training_file="causal_language_train",
        texts=("sentence",),
        options=("no relationship", "correlation", "conditional causation", "direct causation"),
        cells=_in_order("0", "3", "2", "1"),
        prompts="pubmed",
    ),
}
"""The datasets of the paper (table 9): what a folder is searched for."""

PVI_TABLES = PUBLISHED | {
    "cola_out_of_domain": replace(_COLA, file="cola_out_of_domain_dev"),
    "snli_dev": replace(_SNLI, file="snli_dev"),
    "health_advice_unstructured": replace(_HEALTH_ADVICE, file="health_advice_unstructured_abstract"),
    "health_advice_discussion": replace(_HEALTH_ADVICE, file="health_advice_discussion"),
}
"""All that are known; those beyond the paper's are read where they are named, as a dataset or as a file."""


def load_pvi_tables(pvi: PviConfig, named: Collection[str]) -> Iterator[ClassificationDataset]:
    """The datasets of the files and folders of `pvi.data`, then those of the hub.

    A folder gives those of PVI_TABLES that are named, or every one of PUBLISHED that it holds where none is. A file
    gives the dataset it is known for, or else a user's own. The hub gives what is named and no path holds.

    Raises DatasetError for a path that is not there, a folder without any, a named dataset that no path holds and the
    hub neither, and as hub_tables and load_labelled do.
    """
    found: set[str] = set()
    for path in pvi.data:
        if not path.exists():
            raise DatasetError(f"{path} is not there. Name a file or a folder with --data.")
        files = _known_files(path, named or PUBLISHED) if path.is_dir() else {_known_name(path): path}
        for name, file in files.items():
            labelled = _known_table(name, file) if name else _user_table(file, pvi.columns)
            yield load_labelled(labelled, ask_all=pvi.source == "published")
        found |= {name for name in files if name}
        if path.is_dir() and not files and not named:
            raise DatasetError(
                f"{path} holds none of the tables {_expected(PUBLISHED)}. A table of your own is named by itself."
            )
    missing = [name for name in named if name not in found]
    if pvi.hub:
        for name in missing:
            yield load_labelled(_hub_table(name), ask_all=pvi.source == "published")
    elif missing:
        raise DatasetError(f"None of the paths in --data holds {_expected(missing)}. Name the folder that does.")


def _known_files(folder: Path, names: Collection[str]) -> dict[str | None, Path]:
    return {name: path for name in names if (path := _file_of(folder, PVI_TABLES[name].file)) is not None}


def _known_name(path: Path) -> str | None:
    return next((name for name, table in PVI_TABLES.items() if table.file == path.stem), None)


def _file_of(folder: Path, stem: str) -> Path | None:
    return next((path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()), None)


def _expected(names: Collection[str]) -> str:
    tables = [(PVI_TABLES[name].file, (*PVI_TABLES[name].texts, PVI_TABLES[name].label)) for name in names]
    return "; ".join(f"{file}{SUFFIXES[-1]} ({', '.join(columns)})" for file, columns in tables)


def _hub_table(name: str) -> LabelledFile:
    table = PVI_TABLES[name]
    if name in RELEASED:
        raise DatasetError(
            f"{name} is not on the hub as it was published. Its authors released it on GitHub ({RELEASED[name]}): put "
            f"that into a folder as {table.file}.csv or {_expected([name])}, and name the folder with --data."
        )
    mend = f"Or put {_expected([name])} into a folder, {table.training_file} beside it, and name that with --data."
    own = LabelledColumns(texts=table.texts, label=table.label)
    found = hub_tables(name, table.file, table.training_file, own, mend)
    return replace(_known_table(name, found.path), notes=found.notes)


def _known_table(name: str, path: Path) -> LabelledFile:
    table = PVI_TABLES[name]
    return LabelledFile(
        name=name,
        path=path,
        training=_file_of(path.parent, table.training_file),
        columns=LabelledColumns(texts=table.texts, label=table.label),
        labels=table.cells,
        mend=f"{_expected([name])} is needed. If this is another table, give its file another name.",
        template=table.template,
        verbalizer=Verbalizer(label_names=_digits(len(table.options))),
    )


def _digits(n_labels: int) -> tuple[str, ...]:
    """Numbers as labels: one token each (Lu et al. 2023, section 3)."""
    return tuple(map(str, range(n_labels)))


def _user_table(path: Path, columns: LabelledColumns) -> LabelledFile:
    """A user's table, shown under the names of its columns and with its own labels."""
    mend = "Say which hold the texts and the label with --input-column A,B and --gold-column C."
    names = label_values(path, columns.label, mend)
    n_texts = len(columns.texts)
    return LabelledFile(
        name=path.stem,
        path=path,
        training=_file_of(path.parent, path.stem + USER_TRAINING),
        columns=columns,
        labels=_in_order(*names),
        mend=mend,
        template=MetaTemplate(
            input_prefixes=tuple(f"{name}: " for name in columns.texts),
            input_affixes=("\n",) * n_texts,
            label_prefix=f"{columns.label}: ",
            label_affix="\n\n",
        ),
        verbalizer=Verbalizer(label_names=tuple(names)),
    )
