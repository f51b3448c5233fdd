"""The command `run`: prompts to report."""

from typing import Any

import click

from evaluator.cli.options import MODEL_HELP, SuiteCommand, engine_options, model_config, run_config, run_options


@click.command(cls=SuiteCommand)
@run_options
@click.option(
    "--model", "models", required=True, multiple=True, help=f"{MODEL_HELP} Given several times, models are compared."
)
@engine_options
def run(models: tuple[str, ...], **given: Any) -> None:
    """Build the prompts of SUITE..., score them, measure, and write a report."""
    from evaluator.cli.terminal import draw
    from evaluator.run import pipeline
    from evaluator.run.report import summary_lines

    config, out, data = run_config(given), given["out"], given["store"]
    configs = [model_config(given | {"model": model}) for model in models]
    if len(configs) > 1:
        page = draw(pipeline.run_models(config, configs, out, data=data))
    else:
        page, measured = draw(pipeline.run(config, configs[0], out, data=data))
        for line in summary_lines(measured):
            click.echo(line)
    click.echo(f"Report: {page}")
