"""Options that several commands share, and the configurations that they stand for."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from evaluator.config import DataOptions, Dtype, LabelBoundary, ModelConfig, RunConfig, TableColumns
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)
HUB = "hub"
"""Among what --data names, the hub; a folder of that name is ./hub."""


def options(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order they are shown."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


run_options = options(
    click.argument("suites", nargs=-1, required=True, metavar="SUITE..."),
    click.option("--out", required=True, type=OUTPUT_FOLDER, help="Output folder; an interrupted run resumes in it."),
    click.option(
        "--store",
        type=OUTPUT_FOLDER,
        help="Folder of prompts and scores. Runs that share one ask a model only what none of them has asked. OUT if "
        "left out.",
    ),
    click.option(
        "--datasets", metavar="A,B", help="Names that `evaluator datasets` lists; the suite's own if left out."
    ),
    click.option(
        "--data",
        type=click.Path(),  # a Path would have forgotten whether it was ./hub
        multiple=True,
        help="A table (CSV, JSON lines, Parquet), a BIG-bench task.json, a folder of either, or the word hub, which "
        "downloads those of --datasets that no file holds.",
    ),
    click.option("--input-column", metavar="A,B", help="Of a table in --data: the texts."),
    click.option("--choices-column", help="Of a table in --data: a list of choices, where each row has its own."),
    click.option("--gold-column", help="Of a table in --data: the label, or the correct choice's text or number."),
    click.option("--id-column", help="Of a table in --data; rows are numbered without one."),
    click.option("--parts", metavar="A,B", help="Only these parts of the suites; `evaluator suites` lists them."),
    click.option(
        "--shots", metavar="K", help="Demonstrations in a prompt; 4, or the suite's own. Some suites take several: 1,2."
    ),
    click.option("--queries", type=int, help="Only the first N queries of each dataset."),
    click.option("--methods", metavar="A,B", help="Inference methods, or `all`; the suite's own if left out."),
    click.option(
        "--definition",
        type=click.Choice(["all", *DEFINITIONS]),
        default="all",
        show_default=True,
        help="Whose formulas: the paper's, the released code's, or those behind the published tables.",
    ),
)
MODEL_HELP = "A folder, a hub name, `embedded` (a small model that ships), or `random`."
engine_options = options(
    click.option("--engine", help="vllm, transformers or fake; vllm where it is installed."),
    click.option("--dtype", type=click.Choice(get_args(Dtype)), default="auto", show_default=True),
    click.option(
        "--label-boundary",
        type=click.Choice(get_args(LabelBoundary)),
        help="Tokenise prompt and label apart, or merged as one string; the suite's own if left out.",
    ),
    click.option("--kv-cache-gib", type=float, help="Memory for the prefix cache; the engine's choice if left out."),
    click.option("--revision", help="Revision of a hub model."),
    click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
)
existing_folder = click.argument("out", metavar="DIR", type=OUTPUT_FOLDER)


class SuiteCommand(click.Command):
    """A command that also takes the options of the suites, whichever are registered when it is used."""

    stage: Literal["options", "measure_options"] = "options"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        return [*own[:-1], *suite_parameters(self.stage, {each.name for each in own}), own[-1]]  # --help last


class MeasureCommand(SuiteCommand):
    """As SuiteCommand, with the options of the suites' measures."""

    stage = "measure_options"


def suite_parameters(stage: Literal["options", "measure_options"], taken: set[str | None]) -> Iterator[click.Option]:
    """One option for each name among the suites' options that the command does not have itself."""
    for name, takers in _takers(stage).items():
        if name not in taken:
            help_text = (
                f"{', '.join(takers)}: {' '.join(dict.fromkeys(each.metadata['help'] for each, _ in takers.values()))}"
            )
            _, hint = next(iter(takers.values()))
            yield click.Option([f"--{name.replace('_', '-')}"], help=help_text, default=None, **_click_type(hint))


def _takers(stage: Literal["options", "measure_options"]) -> dict[str, dict[str, tuple["Field[Any]", Any]]]:
    """Name of an option -> suites that take it -> their field and its type."""
    from evaluator.suites import SUITES
    from evaluator.suites.options import option_fields

    takers: dict[str, dict[str, tuple[Field[Any], Any]]] = {}
    for suite, about in SUITES.items():
        kind = getattr(about, stage)
        hints = get_type_hints(kind) if kind else {}
        for name, each in option_fields(kind).items():
            takers.setdefault(name, {})[suite] = (each, hints[each.name])
    return takers


def _click_type(hint: Any) -> dict[str, Any]:
    """How the command line reads a field of this type."""
    plain = (
        next((each for each in get_args(hint) if each is not NoneType), hint) if NoneType in get_args(hint) else hint
    )
    if plain is bool:
        return {"is_flag": True}
    if get_origin(plain) is Literal:
        return {"type": click.Choice(get_args(plain))}
    if plain is Path:
        return {"type": click.Path(path_type=Path)}
    if get_origin(plain) is tuple and get_args(plain)[0] is Path:
        return {"type": click.Path(path_type=Path), "multiple": True}
    if get_origin(plain) is tuple:
        return {"metavar": "A,B"}
    return {"type": plain}


def run_config(given: dict[str, Any]) -> RunConfig:
    """What to evaluate. Raises ConfigError for options that do not fit each other or the suites."""
    from evaluator.datasets import INSTALLED
    from evaluator.suites import SUITES

    suites = suite_names(given["suites"])
    for name in suites:
        if name not in SUITES:
            raise ConfigError(f"There is no suite {name!r}. There are: {', '.join(SUITES)}.")
    first = SUITES[suites[0]]
    measured = tuple(name for name in DEFINITIONS if any(name in SUITES[suite].definitions for suite in suites))
    installed = INSTALLED
    default = () if given["data"] else first.default_datasets
    shots = numbers("--shots", given["shots"]) if given["shots"] else None
    with_shots = [suite for suite in suites if "shots" in _takers("options") and suite in _takers("options")["shots"]]
    if shots and len(shots) > 1 and not with_shots:
        raise ConfigError(
            f"--shots {given['shots']}: {', '.join(suites)} takes one number. Run once for each, or choose among the "
            f"suites that take several: {', '.join(_takers('options')['shots'])}."
        )
    return RunConfig(
        suites=suites,
        datasets=default if given["datasets"] is None else names(given["datasets"], installed),
        data=data_options(given),
        n_shots=shots[0] if shots and not with_shots else 4,
        n_queries=given["queries"],
        methods=names(given["methods"], first.all_methods) if given["methods"] else first.methods,
        definitions=measured if given["definition"] == "all" else (given["definition"],),
        parts=names(given["parts"], ()) if given["parts"] else None,
        suite_options=suite_options("options", given | {"shots": shots}, suites),
    )


def suite_options(
    stage: Literal["options", "measure_options"], given: dict[str, Any], suites: Iterable[str]
) -> dict[str, object]:
    """The options of each suite that has any. Raises ConfigError for an option that none of the suites takes."""
    from evaluator.suites import SUITES

    values: dict[str, dict[str, Any]] = {suite: {} for suite in suites if getattr(SUITES[suite], stage)}
    for name, takers in _takers(stage).items():
        value = given.get(name)
        if value is None or value == () or (name == "shots" and not values.keys() & takers):
            continue
        if not values.keys() & takers:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} belongs to {' and '.join(takers)}, not to {', '.join(suites)}.")
        for suite in values.keys() & takers:
            values[suite][takers[suite][0].name] = value
    return {suite: getattr(SUITES[suite], stage)(**chosen) for suite, chosen in values.items()}


def data_options(given: dict[str, Any]) -> DataOptions:
    """Where datasets are read from."""
    inputs = given["input_column"]
    return DataOptions(
        paths=tuple(Path(named) for named in given["data"] if named != HUB),
        hub=HUB in given["data"],
        columns=TableColumns(
            inputs=names(inputs, ()) if inputs else None,
            choices=given["choices_column"],
            gold=given["gold_column"],
            example_id=given["id_column"],
        ),
    )


def model_config(given: dict[str, Any]) -> ModelConfig:
    """Which model, and how it is loaded."""
    keys = ("model", "engine", "dtype", "label_boundary", "kv_cache_gib", "revision", "trust_remote_code")
    return ModelConfig(**{key: given[key] for key in keys})


def suite_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names of suites, with every name of a group in the place of the group's."""
    from evaluator.suites import SUITE_GROUPS

    return tuple(name for word in given for name in SUITE_GROUPS.get(word, (word,)))


def names(given: str, known: Iterable[str]) -> tuple[str, ...]:
    """A comma-separated list of names; `all` is every known one."""
    return tuple(known) if given == "all" else tuple(name.strip() for name in given.split(",") if name.strip())


def numbers(option: str, given: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers. Raises ConfigError."""
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas between them, got {given!r}.") from None
