"""The commands `run` and `preflight`, those of single stages, `build`, `score`, `measure` and `report`, and `ask`."""

from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import (
    FILE,
    FOLDER,
    NAMES,
    MeasureCommand,
    SuiteCommand,
    force_option,
    model_configs,
    options_of,
    run_config,
    run_folder,
    suite_options,
)
from evaluator.cli.terminal import draw, echo, echo_json
from evaluator.config import ModelConfig, RunConfig
from evaluator.decisions.endpoint import EndpointOptions
from evaluator.errors import ConfigError
from evaluator.options import from_options
from evaluator.preflight.devices import Assumptions

suites = click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
store = click.option(
    "--store",
    type=FOLDER,
    help="Folder of prompts and scores, OUT if left out. Runs that share one score each prompt only once per model.",
)
new_folder = click.option("--out", required=True, type=FOLDER, help="Output folder; an interrupted run resumes in it.")


@click.command(cls=SuiteCommand)
@suites
@store
@options_of(RunConfig)
@new_folder
@options_of(ModelConfig, model="Given several times, models are compared.")
@click.option(
    "--accept",
    metavar="FINDING,...",
    type=NAMES,
    default=(),
    help="Findings of `evaluator preflight` that do not stop the run: prompts-over-context, ...",
)
@force_option
def run(**given: Any) -> None:
    """Build the prompts of SUITE..., score them, measure, and write a report."""
    from evaluator.run import pipeline
    from evaluator.run.report import summary_lines

    config, models = run_config(given), model_configs(given)
    out, data, accept, force = given["out"], given["store"], given["accept"], given["force"]
    finished = draw(pipeline.run(config, models, out, data=data, accept=accept, force=force))
    echo(*(summary_lines(finished.run) if len(finished.runs) == 1 else ()), f"Report: {finished.page}")
    if finished.answer:
        echo(finished.answer)


@click.command(cls=SuiteCommand)
@suites
@store
@options_of(RunConfig)
@click.option("--out", type=FOLDER, help="Folder of the run to come, which then finds its prompts there.")
@options_of(ModelConfig, model="Its weights are not read.")
@options_of(Assumptions)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def preflight(as_json: bool, **given: Any) -> None:
    """Check the prompts of SUITE... and estimate what a run takes; nothing is scored and no weights are read.

    Takes the options of `run`. Findings marked "stop" stop a run, unless its --accept names them.
    """
    from evaluator.preflight.findings import preflight_lines
    from evaluator.run.preflight import preflight as check

    config, models, assumptions = run_config(given), model_configs(given), from_options(Assumptions, given)
    data = given["store"] or given["out"]
    records = [draw(check(config, model, assumptions, data=data)) for model in models]
    if as_json:
        echo_json({"models": records})
        return
    for record in records:
        echo(*preflight_lines(record, assumptions.utilisation))


@click.command(cls=SuiteCommand)
@suites
@store
@options_of(RunConfig)
@new_folder
@force_option
def build(**given: Any) -> None:
    """Build the prompts of SUITE... and write them to Arrow files."""
    from evaluator.run import pipeline

    config, out, data, force = run_config(given), given["out"], given["store"], given["force"]
    built = draw(pipeline.build(config, out, data=data, force=force)).store
    echo(f"{built.manifest.n_requests:,} requests, {built.manifest.n_prompts:,} distinct prompts: {built.folder}")


@click.command()
@run_folder
@options_of(ModelConfig)
@force_option
def score(out: Path, force: bool, **given: Any) -> None:
    """Score the prompts in DIR with a model, except those that it has scored already."""
    from evaluator.report.notes import throughput_line
    from evaluator.run import pipeline

    model, *others = model_configs(given)
    if others:
        raise ConfigError(
            "--model takes one model, --adapter one adapter and --chat-template takes one form here. `evaluator run` "
            "compares several."
        )
    scores = draw(pipeline.score(out, model, force=force))
    echo(f"{scores.prompts:,} prompts scored, {scores.reused_prompts:,} of them by earlier runs")
    if speed := throughput_line(scores):
        echo(speed)


@click.command(cls=MeasureCommand)
@run_folder
def measure(out: Path, **given: Any) -> None:
    """Compute predictions, metrics and other tables from the scores in DIR."""
    from evaluator.run import pipeline

    tables = draw(pipeline.measure(out, lambda names: suite_options("measure_options", given, names)))
    echo(f"{', '.join(tables)}: {out / 'tables'}")


@click.command()
@run_folder
def report(out: Path) -> None:
    """Write the report about the tables in DIR."""
    from evaluator.run import pipeline

    echo(f"Report: {draw(pipeline.report(out))}")


@click.command()
@click.option("--data", required=True, type=FILE, help="Table of the inputs.")
@click.option("--input-column", type=NAMES, help="Columns of the table that are sent; `text` if left out.")
@click.option("--questions", required=True, type=FILE, help="TOML file of typed questions.")
@options_of(EndpointOptions)
@click.option("--out", required=True, type=FOLDER, help="Folder of the answers and of the run that is made of them.")
@click.option("--yes", is_flag=True, help="Send the rows to another machine without asking first.")
def ask(data: Path, input_column: tuple[str, ...] | None, questions: Path, out: Path, yes: bool, **given: Any) -> None:
    """Ask a decision service typed questions about a table, and measure its answers.

    Answers are stored as they arrive, and the same command goes on where it stopped: none is paid for twice.
    """
    from evaluator.run.report import summary_lines
    from evaluator.runs import ask as asking

    options = from_options(EndpointOptions, given)
    what = asking.plan(data, input_column or None, questions, options, out)
    if not options.is_local:
        echo(what.sentence())
        if not yes and not _confirmed():
            raise ConfigError("Nothing was sent. Add --yes to send the rows without being asked.")
    finished, lines = draw(asking.ask(what))
    echo(*lines, *([*summary_lines(finished.run), f"Report: {finished.page}"] if finished else ()))


def _confirmed() -> bool:
    try:
        return click.confirm("Send them?")
    except click.Abort:  # nobody is there to answer
        return False


COMMANDS = (run, preflight, build, score, measure, report, ask)
