"""The command `receipt`: score a sample of a run's prompts again, and say how far the numbers drift."""

from pathlib import Path
from typing import Any, get_args

import click

from evaluator.cli.options import run_folder
from evaluator.config import Dtype, ReceiptConfig


@click.command()
@run_folder
@click.option("--n", "n_prompts", type=int, default=256, show_default=True, help="Prompts to score again.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample, its order and its batches.")
@click.option(
    "--engine",
    type=click.Choice(("vllm", "transformers", "fake")),  # the model is loaded here: a server is no choice
    help="The run's own if left out; the default one after --engine server.",
)
@click.option("--dtype", type=click.Choice(get_args(Dtype)), help="The run's own if left out.")
@click.option("--model", help="Where the model is now; it must have the weights of the run. As recorded if left out.")
@click.option("--adapter", help="Where its LoRA adapter is now. As recorded if left out.")
@click.option("--kv-cache-gib", type=float, help="Memory for the prefix cache; the engine's choice if left out.")
@click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model.")
def receipt(out: Path, **given: Any) -> None:
    """Score a sample of the prompts in DIR again, in another order, batch size and cache state.

    Prints the drift of log-likelihoods in nats, flipped predictions and changed verdicts, and keeps them in
    DIR/tables/receipt.parquet, DIR/run.json and the report. With --engine or --dtype it measures what these change.
    """
    from evaluator.cli.terminal import draw
    from evaluator.report.receipt import receipt_lines
    from evaluator.run.receipt import make_receipt

    name, made = draw(make_receipt(out, ReceiptConfig(**given)))
    for line in receipt_lines(name, made):
        click.echo(line)
