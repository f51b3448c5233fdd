"""Read what a user states about the text around a table's examples: label names and a template file."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from evaluator.errors import ConfigError, TemplateError
from evaluator.files.whole import read_bytes, reason
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
    content = _toml(path, TemplateError)
    for keys, kind in ((content, TableText), (content.get("alternatives", {}), Alternatives)):
        _require_keys(keys, kind, path)
    try:
        return msgspec.convert(content, TableText)
    except msgspec.ValidationError as error:
        raise TemplateError(f"{path}: {error}. Texts are in quotes, lists of them in [ ].") from error


def read_labels(stated: str) -> dict[str, str]:
    """Read `cell=name,cell=name`, or a TOML file of `cell = "name"`: cells of the gold column -> label names, in order.

    Several cells may have one name. Raises ConfigError.
    """
    if "=" not in stated:
        content = _toml(Path(stated), ConfigError)
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


def _toml(path: Path, error: type[ConfigError] | type[TemplateError]) -> dict[str, Any]:
    try:
        return tomllib.loads(read_bytes(path).decode("utf-8-sig"))
    except OSError as failure:
        raise error(f"{path} cannot be read: {reason(failure)}.") from failure
    except ValueError as failure:
        raise error(f"{path} is no TOML in UTF-8: {failure}.") from failure
    except RecursionError as failure:
        raise error(f"{path} is nested too deeply.") from failure


def _require_keys(content: Mapping[str, Any], kind: type, path: Path) -> None:
    allowed = [entry.name for entry in fields(kind)]
    for key in content if isinstance(content, Mapping) else ():
        if key not in allowed:
            nearest = difflib.get_close_matches(key, allowed, n=1)
            meant = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise TemplateError(f"{path}: there is no key {key!r}.{meant} Keys are: {', '.join(allowed)}.")
