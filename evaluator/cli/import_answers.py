"""The command `import`: measure answers that another tool computed."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.configurations import names
from evaluator.cli.options import FOLDER, force_option
from evaluator.cli.user_path import UserPath


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=UserPath(dir_okay=False))
@click.option("--out", required=True, type=FOLDER, help="Folder of the run that is made.")
@click.option("--model", help="Name of the model that answered; the first file's name if left out.")
@click.option("--gold-column", default="gold", show_default=True, help="The true label: its name or its number.")
@click.option(
    "--score-column",
    metavar="A[,B]",
    help="One column of lists, or one for each label; label_log_likelihoods, label_probs or pred if left out.",
)
@click.option(
    "--numbers",
    type=click.Choice(["log-likelihoods", "probabilities", "labels"]),
    help="What the score column holds: nats over the whole vocabulary, probabilities, or the predicted label alone.",
)
@click.option("--labels", metavar="A,B", help="The labels, in the order of the numbers; a column label_names instead.")
@click.option("--dataset-column", help="Dataset of a row; a column `dataset`, else the file's name.")
@click.option("--id-column", help="Query of a row, which several may share; a column `query_id`, else each its own.")
@click.option("--prompt-column", help="What was asked; a column `prompt`, if there is one.")
@force_option
def import_answers(files: tuple[Path, ...], out: Path, **given: Any) -> None:
    """Measure answers from elsewhere: a run with every metric, baseline, interval and the report.

    A FILE is a table (CSV, JSON lines, Parquet) with a row for each answer, or samples_TASK_DATE.jsonl as
    lm-evaluation-harness logs them, whose log-likelihoods are read. Of predicted labels without probabilities, only
    accuracy and macro-F1 are measured.
    """
    from evaluator.cli.terminal import draw
    from evaluator.imports.base import ImportColumns
    from evaluator.run.import_answers import import_answers as import_files
    from evaluator.run.report import summary_lines

    scores, labels = (names(given[name]) if given[name] else None for name in ("score_column", "labels"))
    columns = ImportColumns(
        gold=given["gold_column"],
        scores=scores,
        numbers=given["numbers"],
        labels=labels,
        dataset=given["dataset_column"],
        query=given["id_column"],
        prompt=given["prompt_column"],
    )
    page, run = draw(import_files(files, out, columns, given["model"] or files[0].stem, force=given["force"]))
    for line in summary_lines(run):
        click.echo(line)
    click.echo(f"Report: {page}")
