"""The command `build`: build prompts without scoring them."""

from typing import Any

import click

from evaluator.cli.configurations import run_config
from evaluator.cli.options import run_options
from evaluator.cli.suite_options import SuiteCommand


@click.command(cls=SuiteCommand)
@run_options
def build(**given: Any) -> None:
    """Build the prompts of SUITE... and write them to Arrow files."""
    from evaluator.cli.terminal import draw
    from evaluator.run import pipeline

    store = draw(pipeline.build(run_config(given), given["out"], data=given["store"], force=given["force"])).store
    click.echo(f"{store.manifest.n_requests:,} requests, {store.manifest.n_prompts:,} distinct prompts: {store.folder}")
