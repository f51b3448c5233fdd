"""Say how a user's labelled table is read: its columns, its labels, and the text around its examples."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from evaluator.config import DataOptions
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.labelled_table import LabelledFile, as_number, label_cells
from evaluator.datasets.staicc import load_staicc
from evaluator.datasets.tables import class_names, read_texts, table_in, table_stem
from evaluator.errors import ConfigError, DatasetError, TemplateError, require_known
from evaluator.files.digests import short_digest
from evaluator.files.toml_files import converted, read_toml, require_known_keys
from evaluator.templates.template import Alternatives, MetaTemplate, Verbalizer, nine_templates

TEXT, LABEL = "text", "label"
"""Default columns."""

USER_TRAINING = "_train"
"""A user's table NAME_train holds the training rows of the table NAME."""

_HINT = (
    "Say which hold the texts and the label with --input-column A,B and --gold-column C; if each row has its "
    "own choices, say which column holds them with --choices-column."
)


@dataclass(frozen=True, kw_only=True)
class TableText:
    """A template file. None: made from the names of the columns, or that of a dataset of StaICC."""

    instruction: str | None = None
    input_prefixes: tuple[str, ...] | None = None  # one per input column, as affixes
    input_affixes: tuple[str, ...] | None = None
    label_prefix: str | None = None
    label_affix: str | None = None
    query_prefix: str | None = None
    labels: dict[str, str] = field(default_factory=dict)  # cell of the gold column -> label name
    instructions: tuple[str, ...] = ()  # for methods that choose among several
    alternatives: Alternatives = field(
        default_factory=Alternatives
    )  # levels of the nine templates of staicc-robustness


def user_file(path: Path, data: DataOptions) -> LabelledFile:
    """Return the reader of a user's table; a template that `data` does not state is made from the names of columns.

    Raises DatasetError if the labels cannot be read, and for an id column, which labelled tables do not use;
    TemplateError as read_table_text does, and for a template with another number of fields than input columns.
    """
    columns = data.columns
    if columns.example_id is not None:
        raise DatasetError(
            f"{path}: rows of a table of texts and labels are numbered, so leave out --id-column {columns.example_id}; "
            "only a table with choices in each row uses it."
        )
    texts, label = columns.inputs or (TEXT,), columns.gold or LABEL
    stated = read_table_text(data.template)
    classes = {str(number): name for number, name in enumerate(class_names(path, label))}
    names = data.labels or stated.labels or classes or {name: name for name in _label_values(path, label)}
    distinct = list(dict.fromkeys(names.values()))
    with _naming(data.template or "--instruction"):
        template = table_template(stated, data.instruction, texts, label)
        template.require_fields(texts)
        if hole := re.search(rf"{{\s*({'|'.join(map(re.escape, (*texts, label)))})\s*}}", repr(template)):
            raise TemplateError(f"{hole[0]} is no hole, but text. Drop it: each cell follows its prefix.")
        alternatives = nine_templates(template, stated.alternatives)
    with _naming(path):
        verbalizer = Verbalizer(label_names=tuple(distinct))
    return LabelledFile(
        name=table_stem(path),
        path=path,
        training=training_table(path, data),
        n_training=data.training_rows,
        texts=texts,
        label=label,
        labels={cell: distinct.index(name) for cell, name in names.items()},
        hint=_HINT,
        template=template,
        verbalizer=verbalizer,
        alternative_templates=alternatives,
        instructions=stated.instructions,
    )


def reworded(name: str, data: DataOptions) -> ClassificationDataset:
    """Load a dataset of StaICC with the template and label names that `data` states; what it leaves out stays.

    The nine templates of staicc-robustness follow from a stated template, as those of a user's table do. Labels are
    named by the dataset's own label names. Raises TemplateError for a template that does not fit, and for other names.
    """
    dataset, stated = load_staicc(name), read_table_text(data.template)
    names, own = data.labels or stated.labels, dataset.verbalizer.label_names
    require_known(f"{name} has no label", names, own, TemplateError, listed="It has")
    verbalizer = Verbalizer(label_names=tuple(names.get(label, label) for label in own))
    with _naming(data.template):
        template = _with_stated(dataset.template, stated, data.instruction)
        template.require_fields(dataset.text_fields)
        is_new = template != dataset.template or stated.alternatives != Alternatives()
        templates = nine_templates(template, stated.alternatives) if is_new else dataset.alternative_templates
    instructions = stated.instructions or dataset.instructions
    identity = (dataset.fingerprint, templates, template, verbalizer, instructions)
    return replace(
        dataset,
        template=template,
        verbalizer=verbalizer,
        alternative_templates=templates,
        instructions=instructions,
        notes=(*dataset.notes, "its template or label names are the user's, not the benchmark's"),
        fingerprint=short_digest(repr(identity).encode()),
    )


@contextmanager
def _naming(path: Path | str | None) -> Iterator[None]:
    """Name the file in errors about its template or its labels."""
    try:
        yield
    except TemplateError as error:
        raise TemplateError(f"{path}: {error}") from error


def table_template(stated: TableText, instruction: str | None, texts: tuple[str, ...], label: str) -> MetaTemplate:
    """Return the stated template; parts that it leaves out are made from the names of the text and label columns."""
    prefixes = stated.input_prefixes or tuple(f"{name}: " for name in texts)
    affixes = ("\n",) * len(prefixes)
    made = MetaTemplate(input_prefixes=prefixes, input_affixes=affixes, label_prefix=f"{label}: ", label_affix="\n\n")
    return _with_stated(made, stated, instruction)


def _with_stated(template: MetaTemplate, stated: TableText, instruction: str | None) -> MetaTemplate:
    """Return a template with the parts that are stated; an instruction is separated as demonstrations are."""
    given = {entry.name: getattr(stated, entry.name) for entry in fields(MetaTemplate)}
    template = replace(template, **{part: text for part, text in given.items() if text not in (None, ())})
    return replace(template, instruction=instruction + template.label_affix) if instruction else template


def training_table(path: Path, data: DataOptions) -> Path | None:
    """Return the table of the training rows of a user's table, or None."""
    return data.training or table_in(path.parent, table_stem(path) + USER_TRAINING)


def _label_values(path: Path, column: str) -> list[str]:
    """Return the labels of a table, sorted: as numbers if all are whole numbers, else as text; 1 and 1.0 are one."""
    cells: list[str] = label_cells(read_texts(path, [column], _HINT), path, column).unique().sort().to_list()
    values = [*{as_number(cell): cell for cell in reversed(cells)}.values()][::-1]
    return sorted(values, key=int) if all(re.fullmatch("[0-9]{1,18}", value) for value in values) else values


def read_table_text(path: Path | None) -> TableText:
    """Read a template file, TOML with the fields of TableText; without a path, return the defaults.

    Raises TemplateError, naming file and key, for what cannot be read, keys that do not exist, values of another type.
    """
    if path is None:
        return TableText()
    content = read_toml(path, TemplateError)
    require_known_keys(content.get("alternatives", {}), Alternatives, TemplateError, str(path))
    return converted(content, TableText, TemplateError, str(path), "Texts are in quotes, lists of them in [ ].")


def read_labels(stated: str) -> dict[str, str]:
    """Read `cell=name,cell=name`, or a TOML file of `cell = "name"`: cells of the gold column -> label names, in order.

    Several cells may have one name. Raises ConfigError.
    """
    if "=" not in stated:
        if not Path(stated).is_file() and Path(stated).suffix != ".toml":
            raise ConfigError(
                f"--labels {stated} is no file. Give CELL=NAME,CELL=NAME, as in 1=bad,5=great, or a TOML file."
            )
        content = read_toml(Path(stated), ConfigError)
        wrong = next((key for key, name in content.items() if not isinstance(name, str)), None)
        if wrong is not None:
            raise ConfigError(f'{stated}: {wrong} must be a text, as in {wrong} = "name", got {content[wrong]!r}.')
        return content
    labels: dict[str, str] = {}
    for pair in stated.split(","):
        cell, separator, name = (part.strip() for part in pair.partition("="))
        if not separator or not cell or not name:
            raise ConfigError(f"--labels {stated}: {pair!r} is no cell=name, as in 1=bad,5=great.")
        if cell in labels:
            raise ConfigError(f"--labels {stated}: the cell {cell!r} has two names. Give it one.")
        labels[cell] = name
    return labels
