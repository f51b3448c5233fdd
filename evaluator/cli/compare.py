"""The command `compare`: several runs beside each other."""

from pathlib import Path

import click

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet) and a page.")
def compare(runs: tuple[Path, ...], out: Path) -> None:
    """Compare the models of several runs, output folders of `evaluator run`.

    Accuracies and their paired differences, scaling over numbers of parameters, rank correlations between measures and
    between models and, for the suite pvi, how far models agree about PVI. The runs must have asked the same: equal
    shots, queries, label boundary and definitions.
    """
    from evaluator.cli.terminal import draw
    from evaluator.run.compare import compare as compare_runs

    compared = draw(compare_runs(runs, out))
    for note in compared.notes:
        click.echo(f"Note: {note}")
    click.echo(f"Tables: {out / 'tables'}\nPage: {compared.page}")
