"""Define the options that several commands share, and make configurations from their values."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from evaluator.config import (
    BASE_ALONE,
    NO_TEMPLATE,
    ChatConfig,
    ChatDemonstrations,
    DataOptions,
    DevicesConfig,
    Dtype,
    LabelBoundary,
    ModelConfig,
    RunConfig,
    ServerConfig,
    ServerKind,
    TableColumns,
)
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS

Decorator = Callable[[Callable[..., None]], Callable[..., None]]
OptionStage = Literal["options", "measure_options"]
"""The field of a Suite that declares options: those of `build` and `run`, or those of `measure`."""

OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)
HUB = "hub"
"""The value of --data that stands for the hub; a folder of that name is given as ./hub."""

ON_HUB = "hub:"
"""Before the name of a labelled dataset on the hub."""


def options(*decorators: Decorator) -> Decorator:
    """Combine options into one decorator, in the order in which --help lists them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


out_option = click.option(
    "--out", required=True, type=OUTPUT_FOLDER, help="Output folder; an interrupted run resumes in it."
)
prompt_options = options(
    click.argument("suites", nargs=-1, required=True, metavar="SUITE..."),
    click.option(
        "--store",
        type=OUTPUT_FOLDER,
        help="Folder of prompts and scores, OUT if left out. Runs that share one score each prompt only once per "
        "model.",
    ),
    click.option(
        "--datasets", metavar="A,B", help="Names that `evaluator datasets` lists; the suite's own if left out."
    ),
    click.option(
        "--data",
        type=click.Path(),  # text, because pathlib turns ./hub into hub
        multiple=True,
        help="A table (CSV, JSON lines, Excel, Parquet, Arrow), a BIG-bench task.json, a folder of either, "
        "hub:OWNER/NAME[/CONFIG[/SPLIT]], or the word hub, which downloads those of --datasets that no file holds.",
    ),
    click.option("--input-column", metavar="A,B", help="Columns of a table in --data: the texts."),
    click.option("--choices-column", help="Column of a table in --data: a list of choices, if each row has its own."),
    click.option(
        "--gold-column", help="Column of a table in --data: the label, or the correct choice's text or number."
    ),
    click.option("--id-column", help="Column of a table in --data: the ids of rows, which are numbered if left out."),
    click.option(
        "--labels",
        metavar="CELL=NAME,...",
        help="Names of the labels in a table in --data: 1=bad,5=great or a TOML file of them; the cells if left out.",
    ),
    click.option("--instruction", help="Text at the start of every prompt about a table in --data."),
    click.option(
        "--template",
        type=click.Path(path_type=Path),
        help="TOML file of the text around examples of a table in --data (docs/own-data.md).",
    ),
    click.option(
        "--training-data",
        type=click.Path(path_type=Path),
        help="Table of the demonstrations; NAME_train next to --data, or rows of --data, if left out.",
    ),
    click.option(
        "--training-rows",
        type=int,
        help="Rows of --data that become demonstrations if there is no table of them; a tenth if left out.",
    ),
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
run_options = options(prompt_options, out_option)
accept_option = click.option(
    "--accept",
    metavar="FINDING,...",
    help="Findings of `evaluator preflight` that do not stop the run: prompts-over-context, ...",
)


class DeviceCount(click.ParamType[Any]):
    """A number of devices, or the word `all`."""

    name = "all|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "all" else click.INT.convert(value, param, ctx)


MODEL_HELP = "A folder, a hub name, `embedded` (a small model that ships), or `random`."
engine_options = options(
    click.option("--engine", help="vllm, transformers, server or fake; vllm where it is installed."),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="PATH",
        help="A LoRA adapter of the model: a folder or a hub name. Given several times, adapters are compared; `none` "
        "is the model itself.",
    ),
    click.option("--dtype", type=click.Choice(get_args(Dtype)), default="auto", show_default=True),
    click.option(
        "--quantization", help="Quantise the weights while they are loaded, as vLLM calls it: fp8. Needs --engine vllm."
    ),
    click.option(
        "--label-boundary",
        type=click.Choice(get_args(LabelBoundary)),
        help="Tokenise prompt and label apart, or merged as one string; the suite's own if left out.",
    ),
    click.option(
        "--chat-template",
        metavar="auto|none|FILE",
        help="Put prompts through a chat template: the model's own, none (if left out), or a Jinja file. Several, as "
        "in none,auto, are compared.",
    ),
    click.option(
        "--chat-demonstrations",
        type=click.Choice(get_args(ChatDemonstrations)),
        help="With --chat-template: demonstrations as turns, a question and its answer each (if left out), or as one "
        "message.",
    ),
    click.option(
        "--system-instruction", help="With --chat-template: the text of the system message; none if left out."
    ),
    click.option("--kv-cache-gib", type=float, help="Memory for the prefix cache; the engine's choice if left out."),
    click.option(
        "--devices",
        type=DeviceCount(),
        metavar="all|N",
        help="GPUs to use; as many as one replica takes if left out. Replicas share the work; each takes as many as "
        "--tensor-parallel times --pipeline-parallel. Without a GPU: into how many parts the cores are split.",
    ),
    click.option(
        "--tensor-parallel",
        type=int,
        metavar="M",
        help="Devices that share each layer of a replica; the fewest whose memory holds the model if left out.",
    ),
    click.option(
        "--pipeline-parallel",
        type=int,
        metavar="P",
        default=DevicesConfig.pipeline_parallel,
        show_default=True,
        help="Groups of such devices that hold consecutive layers of a replica.",
    ),
    click.option(
        "--ray-address", help="A Ray cluster (HOST:PORT, or auto) whose devices to use; this machine's if left out."
    ),
    click.option("--revision", help="Revision of a hub model."),
    click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
    click.option(
        "--server-url",
        multiple=True,
        metavar="URL",
        help="With --engine server: a vLLM or SGLang server of the model; several share the work. A key is read from "
        "the environment variable VLLM_API_KEY.",
    ),
    click.option(
        "--server-kind",
        type=click.Choice(get_args(ServerKind)),
        help="With --engine server: its program; what the server calls itself if left out.",
    ),
    click.option("--served-name", help="With --engine server: the model's name there, if it serves several."),
    click.option(
        "--concurrency",
        type=int,
        default=ServerConfig.concurrency,
        show_default=True,
        help="With --engine server: HTTP requests in flight to each server.",
    ),
)
existing_folder = click.argument("out", metavar="DIR", type=OUTPUT_FOLDER)


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
    for name, suite_fields in _fields_by_option(stage).items():
        if name not in defined:
            helps = dict.fromkeys(field.metadata["help"] for field, _ in suite_fields.values())
            help_text = f"{', '.join(suite_fields)}: {' '.join(helps)}"
            _, hint = next(iter(suite_fields.values()))
            yield click.Option([f"--{name.replace('_', '-')}"], help=help_text, default=None, **_click_type(hint))


def _fields_by_option(stage: OptionStage) -> dict[str, dict[str, tuple["Field[Any]", Any]]]:
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
        return {"type": click.Path(path_type=Path)}
    if get_origin(plain) is tuple and get_args(plain)[0] is Path:
        return {"type": click.Path(path_type=Path), "multiple": True}
    if get_origin(plain) is tuple:
        return {"metavar": "A,B"}
    return {"type": plain}


def run_config(given: dict[str, Any]) -> RunConfig:
    """Return what to evaluate. Raises ConfigError for options that do not fit each other or the suites."""
    from evaluator.datasets import INSTALLED
    from evaluator.suites import SUITES

    suites = suite_names(given["suites"])
    for name in suites:
        if name not in SUITES:
            raise ConfigError(f"There is no suite {name!r}. There are: {', '.join(SUITES)}.")
    first = SUITES[suites[0]]
    measured = tuple(name for name in DEFINITIONS if any(name in SUITES[suite].definitions for suite in suites))
    default = () if given["data"] else first.default_datasets
    shots = numbers("--shots", given["shots"]) if given["shots"] else None
    with_shots = _fields_by_option("options").get("shots", {})  # suites that take several numbers
    takes_several = not with_shots.keys().isdisjoint(suites)
    if shots and len(shots) > 1 and not takes_several:
        raise ConfigError(
            f"--shots {given['shots']}: {', '.join(suites)} takes one number. Run once for each, or choose among the "
            f"suites that take several: {', '.join(with_shots)}."
        )
    return RunConfig(
        suites=suites,
        datasets=default if given["datasets"] is None else names(given["datasets"], INSTALLED),
        data=data_options(given),
        n_shots=shots[0] if shots and not takes_several else 4,
        n_queries=given["queries"],
        methods=names(given["methods"], first.all_methods) if given["methods"] else first.methods,
        definitions=measured if given["definition"] == "all" else (given["definition"],),
        parts=names(given["parts"], ()) if given["parts"] else None,
        suite_options=suite_options("options", given | {"shots": shots}, suites),
    )


def suite_options(stage: OptionStage, given: dict[str, Any], suites: Iterable[str]) -> dict[str, object]:
    """Return the options of each suite that has any. Raises ConfigError for an option that none of the suites has."""
    from evaluator.suites import SUITES

    values: dict[str, dict[str, Any]] = {suite: {} for suite in suites if getattr(SUITES[suite], stage)}
    for name, suite_fields in _fields_by_option(stage).items():
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


def data_options(given: dict[str, Any]) -> DataOptions:
    """Return where datasets are read from."""
    from evaluator.datasets.table_text import read_labels

    inputs, labels = given["input_column"], given["labels"]
    return DataOptions(
        paths=tuple(Path(word) for word in given["data"] if word != HUB and not word.startswith(ON_HUB)),
        hub=HUB in given["data"],
        repositories=tuple(word.removeprefix(ON_HUB) for word in given["data"] if word.startswith(ON_HUB)),
        columns=TableColumns(
            inputs=names(inputs, ()) if inputs else None,
            choices=given["choices_column"],
            gold=given["gold_column"],
            example_id=given["id_column"],
        ),
        training=given["training_data"],
        training_rows=given["training_rows"],
        labels=read_labels(labels) if labels else {},
        template=given["template"],
        instruction=given["instruction"],
    )


def adapter_names(given: dict[str, Any], models: Sequence[str]) -> list[str | None]:
    """Return the adapters to score a model with, in the order given; None stands for the model itself.

    Raises ConfigError for one that is named twice, and for adapters of several models.
    """
    adapters: tuple[str, ...] = given["adapters"]
    if len(set(adapters)) < len(adapters):
        raise ConfigError(f"--adapter names something twice: {', '.join(adapters)}.")
    if adapters and len(models) > 1:
        raise ConfigError(f"--adapter belongs to one model, and --model names {len(models)}: run once for each.")
    return [None if name == BASE_ALONE else name for name in adapters] or [None]


def model_config(given: dict[str, Any], chat: ChatConfig | None) -> ModelConfig:
    """Return which model to use, how to load it, and the form in which prompts reach it."""
    keys = ("model", "adapter", "engine", "dtype", "quantization", "label_boundary", "kv_cache_gib", "revision")
    server = ServerConfig(
        urls=given["server_url"],
        kind=given["server_kind"],
        served_name=given["served_name"],
        concurrency=given["concurrency"],
    )
    devices = DevicesConfig(
        n=given["devices"], **{key: given[key] for key in ("tensor_parallel", "pipeline_parallel", "ray_address")}
    )
    return ModelConfig(
        **{key: given[key] for key in (*keys, "trust_remote_code")}, server=server, devices=devices, chat=chat
    )


def chat_configs(given: dict[str, Any]) -> list[ChatConfig | None]:
    """Return the forms in which prompts reach a model, in the order given; None if no option says anything.

    Raises ConfigError for a form that is named twice, and for options of conversations without one.
    """
    template = given["chat_template"]
    settings = {
        "demonstrations": given["chat_demonstrations"],
        "system_instruction": given["system_instruction"],
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    if template is None:
        return [ChatConfig(**settings)] if settings else [None]
    forms = names(template, ())
    if not forms or len(set(forms)) < len(forms):
        raise ConfigError(f"--chat-template takes auto, none, a file, or different ones of these, got {template!r}.")
    plain_alone = forms == (NO_TEMPLATE,)
    return [
        ChatConfig(template=form, **({} if form == NO_TEMPLATE and not plain_alone else settings)) for form in forms
    ]


def suite_names(given: Iterable[str]) -> tuple[str, ...]:
    """Return the names of suites, with each group replaced by its members."""
    from evaluator.suites import SUITE_GROUPS

    return tuple(name for word in given for name in SUITE_GROUPS.get(word, (word,)))


def names(given: str, all_names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a comma-separated list; the word `all` stands for `all_names`."""
    return tuple(all_names) if given == "all" else tuple(name.strip() for name in given.split(",") if name.strip())


def numbers(option: str, given: str) -> tuple[int, ...]:
    """Return the numbers of a comma-separated list of whole numbers. Raises ConfigError."""
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas between them, got {given!r}.") from None
