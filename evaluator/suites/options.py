"""Options that a suite adds to the command line: fields of a frozen dataclass, each with its help."""

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any


def option(default: Any, help: str, *, flag: str | None = None) -> Any:
    """A field of an options dataclass.

    Args:
        default: its value where the option is not given.
        help: one sentence for `--help`.
        flag: the option's name on the command line, where it is not that of the field.
    """
    return field(default=default, metadata={"help": help, "flag": flag})


def option_name(each: "Field[Any]") -> str:
    """The name under which the command line hands over this field."""
    return str(each.metadata.get("flag") or each.name)


def option_fields(kind: type | None) -> Mapping[str, "Field[Any]"]:
    """Name on the command line -> field."""
    return {option_name(each): each for each in fields(kind)} if kind else {}
