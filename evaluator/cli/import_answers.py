"""The command `import`: measure answers that another tool computed."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import FOLDER, UserPath, force_option, from_options, options_of
from evaluator.cli.terminal import draw
from evaluator.config import ImportColumns


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=UserPath(dir_okay=False))
@click.option("--out", required=True, type=FOLDER, help="Folder of the run that is made.")
@click.option("--model", help="Name of the model that answered; the first file's name if left out.")
@options_of(ImportColumns)
@force_option
def import_answers(files: tuple[Path, ...], out: Path, model: str | None, force: bool, **given: Any) -> None:
    """Measure answers from elsewhere: a run with every metric, baseline, interval and the report.

    A FILE is a table (CSV, JSON lines, Parquet) with a row for each answer, or samples_TASK_DATE.jsonl as
    lm-evaluation-harness logs them, whose log-likelihoods are read. Of predicted labels without probabilities, only
    accuracy and macro-F1 are measured.
    """
    from evaluator.run.report import summary_lines
    from evaluator.runs.import_answers import import_answers as import_files

    columns = from_options(ImportColumns, given)
    page, run = draw(import_files(files, out, columns, model or files[0].stem, force=force))
    for line in summary_lines(run):
        click.echo(line)
    click.echo(f"Report: {page}")
