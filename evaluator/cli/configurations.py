"""Make configurations from the values of options."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evaluator.cli.options import fields_by_option, from_options, suite_options
from evaluator.config import BASE_ALONE, NO_TEMPLATE, ChatConfig, DataOptions, ModelConfig, RunConfig
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS

HUB = "hub"
"""The value of --data that stands for the hub; a folder of that name is given as ./hub."""

ON_HUB = "hub:"
"""Before the name of a labelled dataset on the hub."""


def run_config(given: Mapping[str, Any]) -> RunConfig:
    """Make the configuration of a run. Raises ConfigError for options that do not fit each other or the suites."""
    from evaluator.datasets import INSTALLED
    from evaluator.datasets.sources import holds_published
    from evaluator.suites import SUITE_GROUPS, SUITES, require_suites

    suites = tuple(name for word in given["suites"] for name in SUITE_GROUPS.get(word, (word,)))
    require_suites(suites)
    first, shots, definition = SUITES[suites[0]], given["shots"], given["definition"]
    measured = tuple(name for name in DEFINITIONS if any(name in SUITES[suite].definitions for suite in suites))
    with_shots = fields_by_option("options").get("shots", {})  # suites that take several numbers
    takes_several = not with_shots.keys().isdisjoint(suites)
    if shots and len(shots) > 1 and not takes_several:
        raise ConfigError(
            f"--shots {','.join(map(str, shots))}: {', '.join(suites)} takes one number. Run once for each, or choose "
            f"among the suites that take several: {', '.join(with_shots)}."
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
    """Return the names, where the word `all` stands for `all_names`."""
    return tuple(all_names) if given == ("all",) else given


def data_options(given: Mapping[str, Any]) -> DataOptions:
    """Return where datasets are read from."""
    from evaluator.datasets.user_table import read_labels

    words = given["data"]
    return from_options(
        DataOptions,
        given,
        paths=tuple(Path(word).expanduser() for word in words if word != HUB and not word.startswith(ON_HUB)),
        hub=HUB in words,
        repositories=tuple(word.removeprefix(ON_HUB) for word in words if word.startswith(ON_HUB)),
        labels=read_labels(given["labels"]) if given["labels"] else {},
    )


def model_configs(given: Mapping[str, Any]) -> list[ModelConfig]:
    """Return the models to evaluate, in the order given: each with every adapter, in every form of prompts.

    Raises ConfigError for an adapter that is named twice, and for adapters of several models.
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


def chat_configs(given: Mapping[str, Any]) -> list[ChatConfig | None]:
    """Return the forms in which prompts reach a model, in the order given; None if no option says anything.

    Raises ConfigError for a form that is named twice, and for options of conversations without one.
    """
    forms, settings = given["chat_template"], (given["chat_demonstrations"], given["system_instruction"])
    if forms is None:
        return [None] if settings == (None, None) else [from_options(ChatConfig, given, template=NO_TEMPLATE)]
    if not forms or len(set(forms)) < len(forms):
        raise ConfigError(
            f"--chat-template takes auto, none, a file, or different ones of these, got {','.join(forms)!r}."
        )
    return [
        # Settings are those of the conversations where plain prompts are compared with them.
        ChatConfig() if form == NO_TEMPLATE and len(forms) > 1 else from_options(ChatConfig, given, template=form)
        for form in forms
    ]
