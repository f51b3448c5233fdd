"""The command `compare`: compare the models of several runs."""

from pathlib import Path

import click

from evaluator.cli.options import FOLDER
from evaluator.cli.terminal import draw
from evaluator.errors import ConfigError


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet) and a page.")
@click.option(
    "--margin",
    type=float,
    metavar="0<X<1",
    help="Of accuracy, such as 0.02: also test which models and methods are no worse than others by it, or equivalent.",
)
def compare(runs: tuple[Path, ...], out: Path, margin: float | None) -> None:
    """Compare the models of several runs, output folders of `evaluator run`.

    Writes accuracies and their paired differences, scaling with the number of parameters, rank correlations between
    measures and between models and, for the suite pvi, how far models agree about PVI. The runs must have equal
    prompts: the same shots, queries, label boundary and definitions.
    """
    from evaluator.run.compare import compare as compare_runs

    if margin is not None and not 0 < margin < 1:
        raise ConfigError(f"--margin must be above 0 and below 1, got {margin}.")
    compared = draw(compare_runs(runs, out, margin))
    for note in compared.notes:
        click.echo(f"Note: {note}")
    click.echo(f"Tables: {out / 'tables'}\nPage: {compared.page}")
