"""Read TOML files: data and texts of this package, and users' files such as templates, label names and policies."""

import re
import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evaluator.errors import EvaluatorError, require_known
from evaluator.files.whole import read_bytes, reason

Entry = TypeVar("Entry")


def shipped_toml(package: str, name: str) -> dict[str, Any]:
    """Return the content of assets/NAME.toml in a subpackage of this project."""
    return tomllib.loads(files(package).joinpath(f"assets/{name}.toml").read_text("utf-8"))


def shipped_tables(package: str, name: str, kind: type[Entry]) -> dict[str, Entry]:
    """Return the tables of assets/NAME.toml in a subpackage of this project: name -> dataclass of `kind`, in order."""
    return msgspec.convert(shipped_toml(package, name), dict[str, kind], str_keys=True)  # type: ignore[valid-type]


def read_toml(path: Path, error: type[EvaluatorError], where: str = "") -> dict[str, Any]:
    """Return the tables and values of a TOML file in UTF-8, with or without a byte order mark.

    Args:
        path: the file.
        error: class of the error for a file that cannot be read or is not TOML.
        where: name of the file in the error message; "": its path.
    """
    where = where or str(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
        if re.search(r"(?:[\w'\"-]+[ \t]*\.[ \t]*){51}", text):
            raise error(f"{where} has a key with more than 50 dots, which takes very long to read. Shorten it.")
        return tomllib.loads(text)
    except OSError as failure:
        raise error(f"{where} cannot be read: {reason(failure)}.") from failure
    except ValueError as failure:
        raise error(f"{where} is no TOML in UTF-8: {failure}.") from failure
    except RecursionError as failure:
        raise error(f"{where} is nested too deeply.") from failure


def require_known_keys(content: object, kind: type, error: type[EvaluatorError], where: str) -> None:
    """Raise `error`, naming similar fields, if a table has a key that is not a field of the dataclass `kind`.

    A value that is not a table passes here; converting it to `kind` raises the error.
    """
    keys, allowed = content if isinstance(content, dict) else (), [entry.name for entry in fields(kind)]
    require_known(f"{where}: there is no key", keys, allowed, error, listed="Keys are")


def converted(
    content: object, kind: type[Entry], error: type[EvaluatorError], where: str, hint: str = "", *, strict: bool = True
) -> Entry:
    """Return a table of a file as a dataclass.

    Args:
        content: value of the table.
        kind: the dataclass.
        error: class of the errors.
        where: name of the file and table in messages.
        hint: last sentence of the message about a value that does not fit.
        strict: whether a text such as "3" is refused as a number.

    Raises `error` for a key that is not a field, and for a value that does not fit its field.
    """
    require_known_keys(content, kind, error, where)
    try:
        return msgspec.convert(content, kind, strict=strict)
    except msgspec.ValidationError as fault:
        raise error(f"{where}: {_in_words(str(fault))}. {hint}".rstrip()) from fault


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "array": "a list", "object": "a table"}


def _in_words(fault: str) -> str:
    """Return the fault in a message of msgspec in plain words, without names of Python types."""
    message, _, place = fault.partition(" - at `$.")
    words = re.sub(
        r"`([\w| ]+)`", lambda found: " or ".join(_KINDS.get(kind, kind) for kind in found[1].split(" | ")), message
    )
    expected, is_kind, got = words.removeprefix("Expected ").partition(", got ")
    if not is_kind:
        return re.sub(r"^Object missing required field (`\w+`)", r"the key \1 is missing", fault)
    return f"`{place.removesuffix('`')}` is {expected.removesuffix(' or null')}; found {got}"
