"""The command `reproduce`: recompute published tables from the results that a paper's authors released."""

from pathlib import Path

import click

from evaluator.cli.options import FOLDER
from evaluator.cli.terminal import draw
from evaluator.reproductions import REPRODUCTIONS


class ReproduceCommand(click.Command):
    """A command whose help lists the reproductions, which are only then loaded."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each reproduction in one line, and the files that it needs."""
        with formatter.section("Names"):
            rows = []
            for name, load in REPRODUCTIONS.items():
                reproduction = load()
                files = ", ".join(file.name for file in reproduction.files)
                rows.append((name, f"{reproduction.title}. Needs {files} ({reproduction.source})."))
            formatter.write_dl(rows)
        super().format_epilog(ctx, formatter)


@click.command(cls=ReproduceCommand)
@click.argument("name", metavar="NAME", type=click.Choice(list(REPRODUCTIONS)))
@click.option("--data", required=True, type=FOLDER, help="Folder of the released results, as Parquet files.")
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet and CSV) and a page.")
def reproduce(name: str, data: Path, out: Path) -> None:
    """Recompute a paper's published tables from the results that its authors released.

    Where files are missing, an error says which columns they must have and where they were released.
    """
    from evaluator.reproductions import base

    reproduction = REPRODUCTIONS[name]()
    recomputed = draw(base.reproduce(reproduction, data, out))
    for line in reproduction.summary_lines(recomputed):
        click.echo(line)
    click.echo(f"Tables: {out / 'tables'}\nReport: {out / base.PAGE}")
