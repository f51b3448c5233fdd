"""Declare options as fields of frozen dataclasses, with help text, type and lower limit.

The same field defines the option of the command line and its row in the documentation (cli/options.py), the argument of
the Python functions, and the check of the value.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache, reduce
from numbers import Integral
from operator import or_
from pathlib import Path
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
    """Return a dataclass field that declares an option.

    Args:
        default: the default value, or a type that makes it, such as dict; without it the option is required.
        help: a sentence for `--help` and the documentation.
        name: the option's name, if it differs from the field's name: `training_data` is --training-data.
        metavar: placeholder of the value in `--help`; None: made from the type.
        given: type of the command-line value, if the field holds another type that the value is converted to.
        several: whether the option can be repeated.
        shown: the default value that `--help` shows; None: no default is shown.
        minimum: lower limit of a number, itself allowed.
        is_share: whether the value must be above 0 and below 1.
        hint: sentence for the error message about a value below `minimum`.
    """
    metavar = metavar or ("0<X<1" if is_share else None)
    settings = {"help": help, "name": name, "metavar": metavar, "given": given, "several": several}
    metadata = settings | {"shown": shown, "minimum": minimum, "is_share": is_share, "hint": hint}
    return field(**{"default_factory" if isinstance(default, type) else "default": default}, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of dataclasses of options. Checks the values of Literal fields and the ranges of numbers."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in [each for each in fields(self) if each.metadata]:
            hint, value, name = hints[entry.name], getattr(self, entry.name), flag(option_name(entry))
            kind = _without_none(hint)
            if get_origin(kind) is Literal and value not in (None, *get_args(kind)):
                raise ConfigError(f"{name} is {' or '.join(get_args(kind))}, got {value!r}.")
            wanted, what = {int: (Integral, "a whole number"), str: (str | Path, "a text")}.get(kind, (object, ""))
            if not isinstance(value, wanted) and (value is not None or kind is hint):
                raise ConfigError(f"{name} is {what}, got {value!r}.")
            if not isinstance(value, int | float):
                continue
            least = entry.metadata["minimum"]
            if least is not None and not least <= value < math.inf:
                hint = f" {entry.metadata['hint']}".rstrip()
                raise ConfigError(f"{name} must be {least} or more, got {value}.{hint}")
            if entry.metadata["is_share"] and not 0 < value < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {value}.")


class OptionField(NamedTuple):
    """A dataclass field that declares an option."""

    field: "Field[Any]"
    kind: Any  # type of the command-line value, without None
    flag: str  # name on the command line: "--training-data"
    is_required: bool  # whether the field has no default


def option_name(entry: "Field[Any]") -> str:
    """Return the name of a field's option as an argument of the Python functions: "training_data"."""
    return str(entry.metadata["name"] or entry.name)


def flag(name: str) -> str:
    """Return an option's name on the command line: --training-data for training_data."""
    return f"--{name.replace('_', '-')}"


@cache
def option_fields(kind: Any) -> Mapping[str, OptionField]:
    """Return the options of a dataclass and of the dataclasses in its fields, by name, in order.

    `kind` None gives an empty dictionary.
    """
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
    """Raise ConfigError unless `url` is a plain HTTP or HTTPS address without anything that may be a secret.

    User, password, query and fragment are refused, and never repeated in the message.

    Args:
        option_flag: the option that has the address, for messages.
        url: the address.
        key_variable: environment variable for the key, for messages.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or unbalanced brackets of an IPv6 address
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
    """Return a dataclass of options, with the dataclasses in its fields, from the values of a command's options.

    Args:
        kind: the dataclass.
        given: option name -> value; None: the field's default.
        fixed: field name -> value, for fields whose value is not the value of one option.
    """
    values, hints = dict[str, Any](), get_type_hints(kind)
    for entry in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(hints[entry.name]):
            values[entry.name] = from_options(hints[entry.name], given)
        elif entry.metadata and (value := given.get(option_name(entry))) is not None:
            values[entry.name] = value
    return kind(**(values | fixed))
