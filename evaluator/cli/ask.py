"""The command `ask`: typed questions to a service that answers with probabilities."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import FOLDER, NAMES, UserPath, options_of
from evaluator.cli.terminal import draw, echo
from evaluator.decisions.endpoint import EndpointOptions
from evaluator.errors import ConfigError
from evaluator.options import from_options


@click.command()
@click.option("--data", required=True, type=UserPath(dir_okay=False), help="Table of the inputs.")
@click.option("--input-column", type=NAMES, help="Columns of the table that are sent; `text` if left out.")
@click.option("--questions", required=True, type=UserPath(dir_okay=False), help="TOML file of typed questions.")
@options_of(EndpointOptions)
@click.option("--out", required=True, type=FOLDER, help="Folder of the answers and of the run that is made of them.")
@click.option("--yes", is_flag=True, help="Send the rows to another machine without asking first.")
def ask(data: Path, input_column: tuple[str, ...] | None, questions: Path, out: Path, yes: bool, **given: Any) -> None:
    """Ask a decision service typed questions about a table, and measure its answers.

    Answers are stored as they arrive, and the same command goes on where it stopped: none is paid for twice.
    """
    from evaluator.run.report import summary_lines
    from evaluator.runs import ask as asking

    options = from_options(EndpointOptions, given)
    what = asking.plan(data, input_column or None, questions, options, out)
    if not options.is_local:
        echo(what.sentence())
        if not yes and not _confirmed():
            raise ConfigError("Nothing was sent. Add --yes to send the rows without being asked.")
    finished, lines = draw(asking.ask(what))
    for line in [*lines, *(summary_lines(finished.run) if finished else [])]:
        echo(line)
    if finished:
        echo(f"Report: {finished.page}")


def _confirmed() -> bool:
    try:
        return click.confirm("Send them?")
    except click.Abort:  # nobody is there to answer
        return False
