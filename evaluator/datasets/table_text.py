"""Read what a user states about the text around a table's examples: label names and a template file."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evaluator.errors import ConfigError, TemplateError
from evaluator.files.toml_files import read_toml, require_known_keys
from evaluator.templates.alternatives import Alternatives


@dataclass(frozen=True, kw_only=True)
class TableText:
    """A template file. None: made from the names of the columns."""

    instruction: str | None = None
    input_prefixes: tuple[str, ...] | None = None  # one per input column, as affixes
    input_affixes: tuple[str, ...] | None = None
    label_prefix: str | None = None
    label_affix: str | None = None
    query_prefix: str = ""
    labels: dict[str, str] = field(default_factory=dict)  # cell of the gold column -> label name
    instructions: tuple[str, ...] = ()  # for methods that choose among several
    alternatives: Alternatives = field(
        default_factory=Alternatives
    )  # levels of the nine templates of staicc-robustness


def read_table_text(path: Path | None) -> TableText:
    """Read a template file, TOML with the fields of TableText; without a path, return the defaults.

    Raises TemplateError, naming file and key, for what cannot be read, keys that do not exist, values of another type.
    """
    if path is None:
        return TableText()
    content = read_toml(path, TemplateError)
    for keys, kind in ((content, TableText), (content.get("alternatives", {}), Alternatives)):
        require_known_keys(keys, kind, TemplateError, str(path))
    try:
        return msgspec.convert(content, TableText)
    except msgspec.ValidationError as error:
        raise TemplateError(f"{path}: {error}. Texts are in quotes, lists of them in [ ].") from error


def read_labels(stated: str) -> dict[str, str]:
    """Read `cell=name,cell=name`, or a TOML file of `cell = "name"`: cells of the gold column -> label names, in order.

    Several cells may have one name. Raises ConfigError.
    """
    if "=" not in stated:
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
