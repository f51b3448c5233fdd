"""Make configurations from the values of options."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evaluator.cli.suite_options import fields_by_option, suite_options
from evaluator.config import (
    BASE_ALONE,
    NO_TEMPLATE,
    ChatConfig,
    DataOptions,
    DevicesConfig,
    ModelConfig,
    RunConfig,
    ServerConfig,
    TableColumns,
)
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS

HUB = "hub"
"""The value of --data that stands for the hub; a folder of that name is given as ./hub."""

ON_HUB = "hub:"
"""Before the name of a labelled dataset on the hub."""


def configurations(given: dict[str, Any]) -> tuple[RunConfig, list[ModelConfig]]:
    """Return what to evaluate, and the models to evaluate: each with every adapter, in every form of prompts.

    Raises ConfigError for options that do not fit.
    """
    chats = chat_configs(given)
    models = [
        model_config(given | {"model": name, "adapter": adapter}, chat)
        for name in given["models"]
        for adapter in adapter_names(given, given["models"])
        for chat in chats
    ]
    return run_config(given), models


def accepted(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the findings that do not stop a run."""
    return names(given["accept"]) if given["accept"] else ()


def run_config(given: dict[str, Any]) -> RunConfig:
    """Return what to evaluate. Raises ConfigError for options that do not fit each other or the suites."""
    from evaluator.datasets import INSTALLED
    from evaluator.suites import SUITES, require_suites

    suites = suite_names(given["suites"])
    require_suites(suites)
    first = SUITES[suites[0]]
    measured = tuple(name for name in DEFINITIONS if any(name in SUITES[suite].definitions for suite in suites))
    default = () if given["data"] else first.default_datasets
    shots = numbers("--shots", given["shots"]) if given["shots"] else None
    with_shots = fields_by_option("options").get("shots", {})  # suites that take several numbers
    takes_several = not with_shots.keys().isdisjoint(suites)
    if shots and len(shots) > 1 and not takes_several:
        raise ConfigError(
            f"--shots {given['shots']}: {', '.join(suites)} takes one number. Run once for each, or choose among the "
            f"suites that take several: {', '.join(with_shots)}."
        )
    return RunConfig(
        suites=suites,
        datasets=default if given["datasets"] is None else names_or_all(given["datasets"], INSTALLED),
        data=data_options(given),
        n_shots=shots[0] if shots and not takes_several else 4,
        n_queries=given["queries"],
        methods=names_or_all(given["methods"], first.methods) if given["methods"] else first.methods[:1],
        definitions=measured if given["definition"] == "all" else (given["definition"],),
        parts=names(given["parts"]) if given["parts"] and given["parts"] != "all" else None,
        suite_options=suite_options("options", given | {"shots": shots}, suites),
    )


def data_options(given: dict[str, Any]) -> DataOptions:
    """Return where datasets are read from."""
    from evaluator.datasets.table_text import read_labels

    inputs, labels = given["input_column"], given["labels"]
    return DataOptions(
        paths=tuple(Path(word).expanduser() for word in given["data"] if word != HUB and not word.startswith(ON_HUB)),
        hub=HUB in given["data"],
        repositories=tuple(word.removeprefix(ON_HUB) for word in given["data"] if word.startswith(ON_HUB)),
        columns=TableColumns(
            inputs=names(inputs) if inputs else None,
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
    device_keys = ("tensor_parallel", "pipeline_parallel", "engines_per_device", "ray_address")
    devices = DevicesConfig(n=given["devices"], **{key: given[key] for key in device_keys})
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
    forms = names(template)
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


def names(given: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in given.split(",") if name.strip())


def names_or_all(given: str, all_names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a comma-separated list; the word `all` stands for `all_names`."""
    return tuple(all_names) if given == "all" else names(given)


def numbers(option: str, given: str) -> tuple[int, ...]:
    """Return the numbers of a comma-separated list of whole numbers. Raises ConfigError."""
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas between them, got {given!r}.") from None
