"""The options that suites declare: in --help of a command, and as the options of each suite."""

from collections.abc import Iterable, Iterator
from dataclasses import Field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from evaluator.cli.user_path import UserPath
from evaluator.errors import ConfigError

OptionStage = Literal["options", "measure_options"]
"""The field of a Suite that declares options: those of `build` and `run`, or those of `measure`."""


class SuiteCommand(click.Command):
    """A command that also has the options of all suites that are registered when it is used."""

    stage: OptionStage = "options"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *params, help_option = super().get_params(ctx)
        return [*params, *suite_parameters(self.stage, {param.name for param in params}), help_option]


class MeasureCommand(SuiteCommand):
    """A command that also has the options of the measures of all suites."""

    stage = "measure_options"


def suite_parameters(stage: OptionStage, defined: set[str | None]) -> Iterator[click.Option]:
    """Yield the options of all suites that the command does not define itself; suites can share an option."""
    for name, suite_fields in fields_by_option(stage).items():
        if name not in defined:
            helps = dict.fromkeys(field.metadata["help"] for field, _ in suite_fields.values())
            help_text = f"{', '.join(suite_fields)}: {' '.join(helps)}"
            _, hint = next(iter(suite_fields.values()))
            yield click.Option([f"--{name.replace('_', '-')}"], help=help_text, default=None, **_click_type(hint))


def fields_by_option(stage: OptionStage) -> dict[str, dict[str, tuple["Field[Any]", Any]]]:
    """Return option name -> suite -> the field that takes its value, and the field's type."""
    from evaluator.suites import SUITES
    from evaluator.suites.options import option_fields

    fields: dict[str, dict[str, tuple[Field[Any], Any]]] = {}
    for suite_name, suite in SUITES.items():
        options_class = getattr(suite, stage)
        hints = get_type_hints(options_class) if options_class else {}
        for name, field in option_fields(options_class).items():
            fields.setdefault(name, {})[suite_name] = (field, hints[field.name])
    return fields


def _click_type(hint: Any) -> dict[str, Any]:
    """Return the arguments of click.Option for a field of this type."""
    plain = next(kind for kind in get_args(hint) if kind is not NoneType) if NoneType in get_args(hint) else hint
    if plain is bool:
        return {"is_flag": True}
    if get_origin(plain) is Literal:
        return {"type": click.Choice(get_args(plain))}
    if plain is Path:
        return {"type": UserPath()}
    if get_origin(plain) is tuple and get_args(plain)[0] is Path:
        return {"type": UserPath(), "multiple": True}
    if get_origin(plain) is tuple:
        return {"metavar": "A,B"}
    return {"type": plain}


def suite_options(stage: OptionStage, given: dict[str, Any], suites: Iterable[str]) -> dict[str, object]:
    """Return the options of each suite that has any. Raises ConfigError for an option that none of the suites has."""
    from evaluator.suites import SUITES

    values: dict[str, dict[str, Any]] = {
        suite: {} for suite in suites if suite in SUITES and getattr(SUITES[suite], stage)
    }
    for name, suite_fields in fields_by_option(stage).items():
        value = given.get(name)
        takers = values.keys() & suite_fields
        # Suites without an option `shots` take one number of shots, from the RunConfig.
        if value is None or value == () or (name == "shots" and not takers):
            continue
        if not takers:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} belongs to {' and '.join(suite_fields)}, not to {', '.join(suites)}.")
        for suite in takers:
            field, _ = suite_fields[suite]
            values[suite][field.name] = value
    return {suite: getattr(SUITES[suite], stage)(**by_field) for suite, by_field in values.items()}
