"""The command `run`: all stages, from prompts to report."""

from typing import Any

import click

from evaluator.cli.configurations import accepted, configurations
from evaluator.cli.options import MODEL_HELP, accept_option, engine_options, run_options
from evaluator.cli.suite_options import SuiteCommand


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
    out, common = given["out"], {"data": given["store"], "accept": accepted(given), "force": given["force"]}
    if len(models) > 1:
        page = draw(pipeline.run_models(config, models, out, **common))
    else:
        page, measured = draw(pipeline.run(config, models[0], out, **common))
        for line in summary_lines(measured):
            click.echo(line)
    click.echo(f"Report: {page}")
