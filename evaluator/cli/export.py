"""The command `export`: write a run in a format that other tools read."""

from pathlib import Path

import click

from evaluator.cli.options import UserPath, run_folder
from evaluator.schemas import DEFINITIONS


class ExportCommand(click.Command):
    """A command whose help lists the formats, which are only then loaded."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each format in one line."""
        from evaluator.exports import FORMATS, TRACKERS

        with formatter.section("Formats"):
            rows = [(name, exported.summary) for name, exported in FORMATS.items()]
            formatter.write_dl([*rows, *((name, tracker.summary) for name, tracker in TRACKERS.items())])
        super().format_epilog(ctx, formatter)


@click.command(cls=ExportCommand)
@run_folder
@click.option("--format", "name", required=True, metavar="NAME", help="One of those below.")
@click.option(
    "--out",
    "target",
    type=UserPath(),
    help="File or, for a format of several files, folder; in DIR/exports if left out.",
)
@click.option(
    "--definition",
    type=click.Choice(["all", *DEFINITIONS]),
    default="all",
    show_default=True,
    help="Only numbers under this definition.",
)
def export(out: Path, name: str, target: Path | None, definition: str) -> None:
    """Write the results of the run in DIR in a format that other tools read.

    Numbers are those of the run's tables, with their 95% intervals; values that are no finite numbers are left out of
    formats that cannot hold them. Answers to single requests are those under the first definition.
    """
    from evaluator.runs.export import export as export_run

    for path in export_run(out, name, target, definition):
        click.echo(path)
