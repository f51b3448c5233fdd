"""The command `verify`: is everything in a run's folder as it was written?"""

import sys
from pathlib import Path

import click

from evaluator.cli.options import run_folder
from evaluator.cli.terminal import draw


@click.command()
@run_folder
@click.option("--repair", is_flag=True, help="Build prompts, measure tables and write the report again where damaged.")
def verify(out: Path, repair: bool) -> None:
    """Check every file of the run in DIR: digests, columns, counts, keys, and that rows fit together.

    Each fault is a line with the command that repairs it, and the exit code is then 2.
    """
    from evaluator.runs.verify import verify as verify_run

    faults = draw(verify_run(out, repair=repair))
    for fault in faults:
        click.echo(f"{fault}")
    if faults:
        sys.exit(2)
    click.echo(f"{out}: every file is as it was written.")
