"""The commands `baselines ...`: published experiments, judged again."""

from pathlib import Path

import click

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def baselines() -> None:
    """Published experiments against random baselines."""


@baselines.command()
@click.option("--data", required=True, type=FOLDER, help="Folder of the released results, as Parquet files.")
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet and CSV) and a page.")
def table(data: Path, out: Path) -> None:
    """Recompute the experiments of Yauney & Mimno 2024, under their rules and under sound ones.

    The results were released on GitHub as gyauney/stronger-random-baselines; without them, an error says which files
    are needed.
    """
    from evaluator.cli.terminal import draw
    from evaluator.reproductions.yauney_mimno_2024.pipeline import PAGE, write_published
    from evaluator.reproductions.yauney_mimno_2024.summary import summary_lines

    tables = draw(write_published(data, out))
    for line in summary_lines(tables):
        click.echo(line)
    click.echo(f"Tables: {out / 'tables'}\nPage: {out / PAGE}")
