"""The commands `score`, `measure` and `report`: each runs one stage on the output folder of an earlier `build`."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.configurations import adapter_names, chat_configs, model_config
from evaluator.cli.options import MODEL_HELP, engine_options, force_option, run_folder
from evaluator.cli.suite_options import MeasureCommand, suite_options
from evaluator.errors import ConfigError


@click.command()
@run_folder
@click.option("--model", required=True, help=MODEL_HELP)
@engine_options
@force_option
def score(**given: Any) -> None:
    """Score the prompts in DIR with a model, except those that it has scored already."""
    from evaluator.cli.terminal import draw
    from evaluator.report.terminal import throughput_line
    from evaluator.run import pipeline

    chat, *more = chat_configs(given)
    if more:
        raise ConfigError(
            f"--chat-template takes one form here, got {given['chat_template']}. `evaluator run` compares several."
        )
    adapter, *others = adapter_names(given, [given["model"]])
    if others:
        raise ConfigError("--adapter takes one adapter here. `evaluator run` compares several.")
    model = model_config(given | {"adapter": adapter}, chat)
    scores = draw(pipeline.score(given["out"], model, force=given["force"]))
    click.echo(f"{scores.prompts:,} prompts scored, {scores.reused_prompts:,} of them by earlier runs")
    if speed := throughput_line(scores):
        click.echo(speed)


@click.command(cls=MeasureCommand)
@run_folder
def measure(out: Path, **given: Any) -> None:
    """Compute predictions, metrics and other tables from the scores in DIR."""
    from evaluator.cli.terminal import draw
    from evaluator.run import pipeline

    tables = draw(pipeline.measure(out, lambda suites: suite_options("measure_options", given, suites)))
    click.echo(f"{', '.join(tables)}: {out / 'tables'}")


@click.command()
@run_folder
def report(out: Path) -> None:
    """Write the report about the tables in DIR."""
    from evaluator.cli.terminal import draw
    from evaluator.run import pipeline

    click.echo(f"Report: {draw(pipeline.report(out))}")
