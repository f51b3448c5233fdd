"""The command `receipt`: score a sample of a run's prompts again, and say how far the numbers drift."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import from_options, options_of, run_folder
from evaluator.cli.terminal import draw
from evaluator.config import ReceiptConfig


@click.command()
@run_folder
@options_of(ReceiptConfig)
def receipt(out: Path, **given: Any) -> None:
    """Score a sample of the prompts in DIR again, in another order, batch size and cache state.

    Prints the drift of log-likelihoods in nats, flipped predictions and changed verdicts, and keeps them in
    DIR/tables/receipt.parquet, DIR/run.json and the report. With --engine or --dtype it measures what these change.
    """
    from evaluator.report.run_record import receipt_lines
    from evaluator.runs.receipt import make_receipt

    name, made = draw(make_receipt(out, from_options(ReceiptConfig, given)))
    for line in receipt_lines(name, made):
        click.echo(line)
