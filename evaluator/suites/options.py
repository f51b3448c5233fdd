"""Define options that a suite adds to the command line: fields of a frozen dataclass, each with its help text."""

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any


def option(default: Any, help: str, *, flag: str | None = None) -> Any:
    """Return a field of an options dataclass.

    Args:
        default: its value if the option is not given.
        help: one sentence for `--help`.
        flag: the option's name on the command line, if it differs from the name of the field.
    """
    return field(default=default, metadata={"help": help, "flag": flag})


def option_fields(kind: type | None) -> Mapping[str, "Field[Any]"]:
    """Return the fields of an options dataclass by their names on the command line; none without a dataclass."""
    return {str(entry.metadata.get("flag") or entry.name): entry for entry in fields(kind)} if kind else {}
