"""Make click options from fields of dataclasses (evaluator/config.py), and configurations from values of options."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import click

from evaluator.config import (
    DEFINITIONS,
    NO_TEMPLATE,
    ChatConfig,
    DataOptions,
    ModelConfig,
    OptionField,
    RunConfig,
    from_options,
    option_fields,
)
from evaluator.errors import ConfigError, require_known
from evaluator.files.toml_files import read_toml
from evaluator.redaction import control_code

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

OptionStage = Literal["options", "measure_options"]
"""Name of a field of Suite with a dataclass of options: of the commands that build prompts, or of `measure`."""


class UserPath(click.Path):
    """A path in which `~` is the user's home folder, also in words such as --out=~/runs, where shells keep `~`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the pathlib.Path. Raises ConfigError for an empty path or one with control codes.

        An empty path is mostly an unset shell variable.
        """
        name = param.opts[0] if param else "the path"
        if str(value) == "":
            raise ConfigError(f"{name} is empty. Give a path, or . for the current folder.")
        if code := control_code(str(value)):
            raise ConfigError(f"{name} holds the control code {code}: {value!r}. Rename the file or folder.")
        return super().convert(os.path.expanduser(value), param, ctx)


MAY_BE_BLANK = ("--instruction", "--system-instruction")
"""Options whose text may be blank, which replaces a default text by none."""


class Text(click.ParamType[str]):
    """A text that is not blank. A blank text is mostly an unset shell variable."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Return the text. Raises ConfigError for a blank text."""
        if str(value).strip():
            return str(value)
        name = param.opts[0] if param else "the option"
        raise ConfigError(f"{name} is blank, as an unset variable of a shell is. Give a value, or leave it out.")


class Listed(click.ParamType[Any], Generic[T]):
    """A comma-separated list whose words `read` converts; the Python functions also accept a list."""

    def __init__(self, read: Callable[[str], T], kind: str) -> None:
        self.name, self._read, self._kind = "A,B", read, kind

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> tuple[T, ...]:
        """Return the converted words. Raises ConfigError for a blank list or a word that `read` does not accept."""
        words = value if isinstance(value, list | tuple) else [word.strip() for word in str(value).split(",")]
        name = param.opts[0] if param else "the option"
        if not isinstance(value, list | tuple) and not any(words):  # blank: mostly an unset shell variable
            raise ConfigError(f"{name} takes {self._kind}, received {value!r}. Leave the option out for its default.")
        try:
            return tuple(self._read(word) for word in words if word or self._read is not str)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"{name} takes {self._kind}, received {value!r}.") from None


NAMES = Listed(str, "names with commas between them")
NUMBERS = Listed(int, "whole numbers with commas between them")
REALS = Listed(float, "numbers with commas between them")


class NumberOr(click.ParamType[Any]):
    """A whole number, or one fixed word in its place."""

    def __init__(self, word: str) -> None:
        self.name, self._word = f"{word}|N", word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number or the word."""
        return value if value == self._word else click.INT.convert(value, param, ctx)


FILE, FOLDER = UserPath(dir_okay=False), UserPath(file_okay=False)


def require_apart(written: Iterable[Path | None], read: Iterable[Path | None]) -> None:
    """Raise ConfigError if a file that a command writes is also one that it reads, or is named twice.

    Of a run's folder the record and the tables are read.
    """
    from evaluator.run.folders import RUN_FILE  # slow to import

    named = [path for path in read if path]
    files = ([path / RUN_FILE, *path.glob("tables/*")] if path.is_dir() else [path] for path in named)
    taken = {file.resolve() for each in files for file in each}
    for path in filter(None, written):
        if path.resolve() in taken:
            raise ConfigError(f"{path} would be replaced, and the same command reads or writes it. Name another file.")
        taken.add(path.resolve())


force_option = click.option(
    "--force", is_flag=True, help="Replace a finished run in the output folder, even if the new run does not extend it."
)
run_folder = click.argument("out", metavar="DIR", type=FOLDER)


def options_of(kind: type, **more_help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a dataclass to a command, in the order of the fields.

    Args:
        kind: the dataclass. ModelConfig also adds --settings.
        more_help: option -> sentence that this command adds to the option's help.
    """

    def decorate(command: Command) -> Command:
        for name, declared in reversed(option_fields(kind).items()):
            help_text = " ".join(filter(None, (declared.field.metadata["help"], more_help.get(name))))
            command = click.option(declared.flag, help=help_text or None, **_settings(declared))(command)
        return _settings_file(command) if kind is ModelConfig else command

    return decorate


def as_typed(param: click.Parameter, value: Any) -> Any:
    """Return a value of TOML or Python as the text that a user would type; values of flags are kept.

    Converting to text makes click check the type: it would turn the float 1.5 into the integer 1.

    Raises ConfigError for a list if the option takes one value, and for a flag that is not true or false.
    """
    if isinstance(value, list | tuple):
        if not (param.multiple or isinstance(param.type, Listed)):
            raise ConfigError(f"{param.opts[0]} takes one value, received {value!r}.")
        return [str(one) for one in value]
    is_flag = getattr(param, "is_flag", False)
    if is_flag and not isinstance(value, bool):
        raise ConfigError(f"{param.opts[0]} is true or false, received {value!r}.")
    typed = value if is_flag else str(value)
    return [typed] if param.multiple else typed


def _take_settings(context: click.Context, _param: click.Parameter, path: Path | None) -> None:
    """Use the options of a TOML file as defaults of a command.

    Raises ConfigError for a key that is not an option of ModelConfig.
    """
    if path is None:
        return
    content, known = read_toml(path, ConfigError, f"--settings {path}"), option_fields(ModelConfig)
    require_known(f"--settings {path}: there is no option", content, known)
    params = {param.name: param for param in context.command.params}
    typed = {name: as_typed(params[name], value) for name, value in content.items()}
    context.default_map = {**typed, **(context.default_map or {})}  # default_map: options of a call from Python


_settings_file = click.option(
    "--settings",
    type=FILE,
    is_eager=True,
    expose_value=False,
    callback=_take_settings,
    help="TOML file of model options, such as `doctor --tune` writes; options on the command line win.",
)


def _settings(declared: OptionField) -> dict[str, Any]:
    """Return the arguments of click.Option for a field, such as type, metavar and shown default."""
    settings = declared.field.metadata
    shown = {} if settings["shown"] is None else {"default": settings["shown"], "show_default": True}
    return shown | {
        "type": str if declared.flag in MAY_BE_BLANK else _value_type(declared.kind),
        "is_flag": True if declared.kind is bool else None,  # with False, click would accept the option without a value
        "metavar": settings["metavar"],
        "multiple": settings["several"],
        "required": declared.is_required,
    }


def _value_type(kind: Any) -> Any:
    """Return the click type for values of a Python type."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if get_origin(kind) is tuple:
        return {int: NUMBERS, float: REALS}.get(get_args(kind)[0], NAMES)
    if words := [word for one in get_args(kind) if get_origin(one) is Literal for word in get_args(one)]:
        return NumberOr(words[0])
    return {Path: UserPath(), str: Text()}.get(kind, kind)


class ListingCommand(click.Command):
    """A command whose help ends in a list. `rows` is called only when the help is shown, because loading is slow."""

    def __init__(self, *args: Any, title: str, rows: Callable[[], Iterable[tuple[str, str]]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._title, self._rows = title, rows

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of names and descriptions."""
        with formatter.section(self._title):
            formatter.write_dl([*self._rows()])
        super().format_epilog(ctx, formatter)


_NAMED = "evaluator: suites whose options a command has; all if there are none"
"""Key of click's Context.meta."""


class SuiteCommand(click.Command):
    """A command that also has the options of the suites that are registered when the command is used."""

    stage: OptionStage = "options"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words with the options of the named suites or, for --help or an unknown option, of all suites."""
        from evaluator.suites import SUITE_GROUPS, SUITES

        words = [name for word in args for name in SUITE_GROUPS.get(word, (word,))]
        ctx.meta[_NAMED] = [name for name in words if name in SUITES]
        params = self.get_params(ctx)
        given = {word.partition("=")[0] for word in args if word.startswith("--") or word == "-h"}
        known = {flag for param in params for flag in param.opts} - {"--help", "-h"}
        if given - known or {*(ctx.default_map or ())} - {param.name for param in params}:  # default_map: from Python
            ctx.meta[_NAMED] = []
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *params, help_option = super().get_params(ctx)
        found = suite_parameters(self.stage, {param.name for param in params}, ctx.meta.get(_NAMED))
        return [*params, *found, help_option]


class MeasureCommand(SuiteCommand):
    """A command that also has the measure options of all suites."""

    stage = "measure_options"


def suite_parameters(
    stage: OptionStage, defined: set[str | None], suites: Iterable[str] | None
) -> Iterator[click.Option]:
    """Yield the options of suites that the command does not define itself. Suites can share an option.

    Args:
        stage: the field of Suite with the options.
        defined: names of the options that the command defines.
        suites: names of suites; None or empty: all suites.
    """
    for name, by_suite in fields_by_option(stage, suites or None).items():
        if name not in defined:
            first, *_ = every = [*by_suite.values()]
            helps = {suite: declared.field.metadata["help"] for suite, declared in by_suite.items()}
            takers = {text: ", ".join(suite for suite in helps if helps[suite] == text) for text in helps.values()}
            words = dict.fromkeys(word for declared in every for word in _words(declared.kind))
            types = {"type": click.Choice([*words])} if words else {}
            help_text = " ".join(f"{suites}: {text}" for text, suites in takers.items())
            yield click.Option([first.flag], help=help_text, **_settings(first) | types)


def _words(kind: Any) -> tuple[str, ...]:
    """Return the words of a Literal type; () for any other type."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def fields_by_option(stage: OptionStage, suites: Iterable[str] | None = None) -> dict[str, dict[str, OptionField]]:
    """Return option -> suite -> field with the option's value, for the named suites; None: all suites."""
    from evaluator.suites import SUITES

    found: dict[str, dict[str, OptionField]] = {}
    for suite_name in SUITES if suites is None else suites:
        for name, declared in option_fields(getattr(SUITES[suite_name], stage)).items():
            found.setdefault(name, {})[suite_name] = declared
    return found


def suite_options(stage: OptionStage, given: Mapping[str, Any], suites: Iterable[str]) -> dict[str, object]:
    """Return suite -> dataclass with the values of its options, for the suites that have options.

    Raises ConfigError for a given option that none of the suites has, and for a word that the suite does not allow.
    """
    from evaluator.suites import SUITES, imported_suites

    takers = {suite: kind for suite in suites if suite in SUITES and (kind := getattr(SUITES[suite], stage))}
    # Suites that are not imported have no options on this command line, so only imported suites are checked.
    for name, by_suite in fields_by_option(stage, imported_suites()).items():
        value, flag = given.get(name), next(iter(by_suite.values())).flag
        is_given = value is not None and value is not False and value != ()
        # Suites without an option `shots` take one number of shots, from the RunConfig.
        if is_given and takers.keys().isdisjoint(by_suite) and name != "shots":
            raise ConfigError(f"{flag} belongs to {', '.join(by_suite)}, not to {', '.join(suites)}.")
        for suite in takers.keys() & by_suite.keys() if is_given else ():
            words = _words(by_suite[suite].kind)
            if words and value not in words:
                raise ConfigError(f"{flag} of {suite} is {' or '.join(words)}, got {value}.")
    return {suite: from_options(kind, given) for suite, kind in takers.items()}


HUB = "hub"
"""The value of --data that means the Hugging Face hub; a folder of this name is written ./hub."""

ON_HUB = "hub:"
"""Prefix of a value of --data that names a labelled dataset on the hub."""


def run_config(given: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a run from the values of options.

    Raises ConfigError for options that do not fit each other or the suites.
    """
    from evaluator.datasets import INSTALLED
    from evaluator.datasets.sources import holds_published
    from evaluator.suites import SUITE_GROUPS, SUITES, require_suites

    suites = tuple(name for word in given["suites"] for name in SUITE_GROUPS.get(word, (word,)))
    require_suites(suites)
    chosen = [SUITES[name] for name in suites]
    first, shots, definition = chosen[0], given["shots"], given["definition"]
    measured = tuple(name for name in DEFINITIONS if any(name in suite.definitions for suite in chosen))
    takes_several = "shots" in fields_by_option("options", suites)
    if shots and len(shots) > 1 and not takes_several:
        raise ConfigError(
            f"--shots {','.join(map(str, shots))}: {', '.join(suites)} takes one number. Run once for each, or choose "
            f"among the suites that take several: {', '.join(fields_by_option('options')['shots'])}."
        )
    default = () if given["data"] else first.default_datasets
    is_own = bool(given["data"]) and not given["datasets"]
    if definition is None and is_own and "paper" in measured and not holds_published(given["data"]):
        measured = ("paper",)
    return from_options(
        RunConfig,
        given,
        suites=suites,
        datasets=default if given["datasets"] is None else names_or_all(given["datasets"], INSTALLED),
        data=data_options(given),
        parts=None if given["parts"] == ("all",) else given["parts"] or None,
        n_shots=shots[0] if shots and not takes_several else RunConfig.n_shots,
        shots_by_labels=is_own and not shots and not takes_several,
        methods=names_or_all(given["methods"], first.methods) if given["methods"] else first.methods[:1],
        definitions=measured if definition in ("all", None) else (definition,),
        suite_options=suite_options("options", given, suites),
    )


def names_or_all(given: tuple[str, ...], all_names: Iterable[str]) -> tuple[str, ...]:
    """Return the given names, or `all_names` if the only name is "all"."""
    return tuple(all_names) if given == ("all",) else given


def data_options(given: Mapping[str, Any]) -> DataOptions:
    """Return the sources of datasets from the values of options."""
    from evaluator.datasets.labelled_table import read_labels

    words = given["data"]
    return from_options(
        DataOptions,
        given,
        paths=tuple(Path(os.path.expanduser(word)) for word in words if word != HUB and not word.startswith(ON_HUB)),
        hub=HUB in words,
        repositories=tuple(word.removeprefix(ON_HUB) for word in words if word.startswith(ON_HUB)),
        labels=read_labels(given["labels"]) if given["labels"] else {},
    )


BASE_ALONE = "none"
"""The value of --adapter that means the base model without an adapter."""


def model_configs(given: Mapping[str, Any]) -> list[ModelConfig]:
    """Return a configuration for every combination of model, adapter and chat template, in the given order.

    Raises ConfigError for an adapter that is named twice, and for adapters together with several models.
    """
    names, adapters = given["model"], given["adapter"]
    if len(set(adapters)) < len(adapters):
        raise ConfigError(f"--adapter names something twice: {', '.join(adapters)}.")
    if adapters and len(names) > 1:
        raise ConfigError(f"--adapter belongs to one model, and --model names {len(names)}: run once for each.")
    return [
        from_options(ModelConfig, given, model=name, adapter=None if adapter == BASE_ALONE else adapter, chat=chat)
        for name in names
        for adapter in adapters or [None]
        for chat in chat_configs(given)
    ]


def one_model(given: Mapping[str, Any], what: str) -> ModelConfig:
    """Return the configuration of the only model. Raises ConfigError, beginning with `what`, for several."""
    model, *others = model_configs(given)
    if others:
        raise ConfigError(f"{what} one model: --adapter takes one adapter, and --chat-template takes one form here.")
    return model


def chat_configs(given: Mapping[str, Any]) -> list[ChatConfig | None]:
    """Return the chat configurations of --chat-template, in the given order; [None] if no chat option is given.

    Raises ConfigError for a template that is named twice, and for chat options without a chat template.
    """
    forms, settings = given["chat_template"], (given["chat_demonstrations"], given["system_instruction"])
    if forms is None:
        return [None] if settings == (None, None) else [from_options(ChatConfig, given, template=NO_TEMPLATE)]
    if not forms or len(set(forms)) < len(forms):
        raise ConfigError(
            f"--chat-template takes auto, none, a file, or different ones of these, got {','.join(forms)!r}."
        )
    return [
        # If plain prompts are compared with conversations, the chat options apply only to the conversations.
        ChatConfig() if form == NO_TEMPLATE and len(forms) > 1 else from_options(ChatConfig, given, template=form)
        for form in forms
    ]
