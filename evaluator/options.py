"""Options, each declared once: a field of a frozen dataclass with its help, type and least value.

The field makes the option of commands, with its help and its row in the documentation (cli/options.py), the argument of
Python's functions, and the check of its value.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from evaluator.errors import ConfigError

T = TypeVar("T")


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    name: str | None = None,
    metavar: str | None = None,
    given: Any = None,
    several: bool = False,
    shown: Any = None,
    minimum: int | None = None,
    is_share: bool = False,
    hint: str = "",
) -> Any:
    """Return a field of a dataclass of options.

    Args:
        default: its value if the option is not given, or the type that makes it, such as dict; required without.
        help: a sentence for `--help` and the documentation.
        name: the option's name, if it differs from the name of the field: `training_data` is --training-data.
        metavar: the option's value in `--help`, if the type does not say enough.
        given: type of the option's value, if the field holds what that is read as.
        several: whether the option can be repeated.
        shown: the default on the command line, if `--help` names it.
        minimum: the least number.
        is_share: whether it is a number above 0 and below 1.
        hint: what to do about a smaller number.
    """
    metavar = metavar or ("0<X<1" if is_share else None)
    settings = {"help": help, "name": name, "metavar": metavar, "given": given, "several": several}
    metadata = settings | {"shown": shown, "minimum": minimum, "is_share": is_share, "hint": hint}
    return field(**{"default_factory" if isinstance(default, type) else "default": default}, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A base of dataclasses of options, which checks words, and that numbers are in the range that fields declare."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in [each for each in fields(self) if each.metadata]:
            value, kind, name = getattr(self, entry.name), _without_none(hints[entry.name]), flag(option_name(entry))
            if get_origin(kind) is Literal and value not in (None, *get_args(kind)):
                raise ConfigError(f"{name} is {' or '.join(get_args(kind))}, got {value!r}.")
            if kind is int and isinstance(value, float | str):
                raise ConfigError(f"{name} is a whole number, got {value!r}.")
            if not isinstance(value, int | float):
                continue
            least = entry.metadata["minimum"]
            if least is not None and not least <= value < math.inf:
                hint = f" {entry.metadata['hint']}".rstrip()
                raise ConfigError(f"{name} must be {least} or more, got {value}.{hint}")
            if entry.metadata["is_share"] and not 0 < value < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {value}.")


class OptionField(NamedTuple):
    """A field that declares an option."""

    field: "Field[Any]"
    kind: Any  # type of the option's value, without None
    flag: str  # name on the command line
    is_required: bool  # whether the field has no default


def option_name(entry: "Field[Any]") -> str:
    """Return the name of a field's option, as Python's functions take it."""
    return str(entry.metadata["name"] or entry.name)


def flag(name: str) -> str:
    """Return an option's name on the command line: --training-data for training_data."""
    return f"--{name.replace('_', '-')}"


def option_fields(kind: Any) -> dict[str, OptionField]:
    """Return the options of a dataclass and of dataclasses within it by name, in order; none without a dataclass."""
    found, hints = dict[str, OptionField](), get_type_hints(kind) if kind else {}
    for entry in fields(kind) if kind else ():
        hint = entry.metadata.get("given") or _without_none(hints[entry.name])
        if is_dataclass(hint):
            found |= option_fields(hint)
        elif entry.metadata:
            name, is_required = option_name(entry), entry.default is MISSING and entry.default_factory is MISSING
            found[name] = OptionField(entry, hint, flag(name), is_required)
    return found


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return reduce(or_, kinds) if NoneType in get_args(hint) else hint


def require_address(option_flag: str, url: str, key_variable: str) -> None:
    """Raise ConfigError for an address of a service that is none, or that may hold a secret, which is not shown."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or brackets
        is_address = False
    if not is_address:
        without_secrets = re.sub(r".*@|[?#].*", "", url)
        raise ConfigError(f"{option_flag} takes http://HOST:PORT or https://HOST, got {without_secrets!r}.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"{option_flag} for {parts.hostname} holds more than a host, a port and a path. Set a key in the "
            f"environment variable {key_variable}; it is never written anywhere."
        )


def from_options(kind: type[T], given: Mapping[str, Any], **fixed: Any) -> T:
    """Make a dataclass of options, and those within it, of the values of a command's options.

    Args:
        kind: the dataclass.
        given: option -> value; None: the field's default.
        fixed: field -> value, for those that are not read from one option.
    """
    values, hints = dict[str, Any](), get_type_hints(kind)
    for entry in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(hints[entry.name]):
            values[entry.name] = from_options(hints[entry.name], given)
        elif entry.metadata and (value := given.get(option_name(entry))) is not None:
            values[entry.name] = value
    return kind(**(values | fixed))
