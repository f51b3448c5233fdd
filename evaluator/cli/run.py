"""The command `run`: all stages, from prompts to report."""

from typing import Any

import click

from evaluator.cli.options import (
    MODEL_HELP,
    SuiteCommand,
    accept_option,
    adapter_names,
    chat_configs,
    engine_options,
    model_config,
    names,
    run_config,
    run_options,
)
from evaluator.config import ModelConfig, RunConfig


@click.command(cls=SuiteCommand)
@run_options
@click.option(
    "--model", "models", required=True, multiple=True, help=f"{MODEL_HELP} Given several times, models are compared."
)
@engine_options
@accept_option
def run(**given: Any) -> None:
    """Build the prompts of SUITE..., score them, measure, and write a report."""
    from evaluator.cli.terminal import draw
    from evaluator.run import pipeline
    from evaluator.run.report import summary_lines

    config, models = configurations(given)
    out, data, accept = given["out"], given["store"], accepted(given)
    if len(models) > 1:
        page = draw(pipeline.run_models(config, models, out, data=data, accept=accept))
    else:
        page, measured = draw(pipeline.run(config, models[0], out, data=data, accept=accept))
        for line in summary_lines(measured):
            click.echo(line)
    click.echo(f"Report: {page}")


def configurations(given: dict[str, Any]) -> tuple[RunConfig, list[ModelConfig]]:
    """Return what to evaluate, and the models to evaluate: each with every adapter, in every form of prompts.

    Raises ConfigError for options that do not fit.
    """
    chats = chat_configs(given)
    names = [(name, adapter) for name in given["models"] for adapter in adapter_names(given, given["models"])]
    models = [
        model_config(given | {"model": name, "adapter": adapter}, chat) for name, adapter in names for chat in chats
    ]
    return run_config(given), models


def accepted(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the findings that do not stop a run."""
    return names(given["accept"], ()) if given["accept"] else ()
