"""The commands `pvi ...`: in-context pointwise V-information."""

from pathlib import Path

import click

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def pvi() -> None:
    """In-context pointwise V-information."""


@pvi.command()
@click.option("--data", required=True, type=FOLDER, help="Folder of the released results, as Parquet files.")
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet) and a page.")
def published(data: Path, out: Path) -> None:
    """Recompute the published numbers of Lu et al. 2023, each beside the paper's own.

    The results were released on GitHub as UKPLab/in-context-pvi; without them, an error says which files are needed.
    """
    from evaluator.reproductions.lu_2023.pipeline import PAGE, write_published
    from evaluator.reproductions.lu_2023.summary import summary_lines

    for line in summary_lines(write_published(data, out)):
        click.echo(line)
    click.echo(f"Tables: {out / 'tables'}\nReport: {out / PAGE}")
