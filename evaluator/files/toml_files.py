"""TOML files: data and texts of this package; template files, label names, policies and devices of users."""

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
    """Return the content of assets/NAME.toml in one of our packages."""
    return tomllib.loads(files(package).joinpath(f"assets/{name}.toml").read_text("utf-8"))


def shipped_tables(package: str, name: str, kind: type[Entry]) -> dict[str, Entry]:
    """Return the tables of assets/NAME.toml in one of our packages as records of a dataclass, by name, in order."""
    return msgspec.convert(shipped_toml(package, name), dict[str, kind], str_keys=True)  # type: ignore[valid-type]


def read_toml(path: Path, error: type[EvaluatorError], where: str = "") -> dict[str, Any]:
    """Return the tables and values of a TOML file in UTF-8, with or without a byte order mark.

    Args:
        path: the file.
        error: the kind of error to raise for what cannot be read or is no TOML.
        where: what the error calls the file; its path if left out.
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
    """Raise an error that names the nearest field if a table has a key that is no field of the dataclass `kind`.

    What is no table passes; converting it to `kind` says so.
    """
    keys, allowed = content if isinstance(content, dict) else (), [entry.name for entry in fields(kind)]
    require_known(f"{where}: there is no key", keys, allowed, error, listed="Keys are")


def converted(
    content: object, kind: type[Entry], error: type[EvaluatorError], where: str, hint: str = "", *, strict: bool = True
) -> Entry:
    """Return a table of a file as a record of the dataclass `kind`; `strict`: a text is no number.

    Raises an error that ends in `hint` for a key that is no field, and for a value that does not fit.
    """
    require_known_keys(content, kind, error, where)
    try:
        return msgspec.convert(content, kind, strict=strict)
    except msgspec.ValidationError as fault:
        raise error(f"{where}: {_in_words(str(fault))}. {hint}".rstrip()) from fault


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "array": "a list", "object": "a table"}


def _in_words(fault: str) -> str:
    """Return the fault of a value as a sentence without the names of types in msgspec's message."""
    message, _, place = fault.partition(" - at `$.")
    words = re.sub(
        r"`([\w| ]+)`", lambda found: " or ".join(_KINDS.get(kind, kind) for kind in found[1].split(" | ")), message
    )
    expected, is_kind, got = words.removeprefix("Expected ").partition(", got ")
    if not is_kind:
        return re.sub(r"^Object missing required field (`\w+`)", r"the key \1 is missing", fault)
    return f"`{place.removesuffix('`')}` is {expected.removesuffix(' or null')}; found {got}"
