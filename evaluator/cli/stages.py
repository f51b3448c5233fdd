"""Commands that make results, and commands that list names.

`run` runs all stages, `build`, `score`, `measure` and `report` run one stage, and `preflight` checks a run. `ask` sends
questions to a decision service. `import`, `reproduce` and `random-baseline` use no model. `suites`, `datasets`,
`methods` and `engines` list names.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import (
    FILE,
    FOLDER,
    NAMES,
    Listed,
    ListingCommand,
    MeasureCommand,
    SuiteCommand,
    Text,
    force_option,
    model_configs,
    one_model,
    options_of,
    run_config,
    run_folder,
    suite_options,
)
from evaluator.cli.terminal import draw, echo, echo_json
from evaluator.config import ImportColumns, ModelConfig, RunConfig, from_options
from evaluator.decisions.endpoint import EndpointOptions
from evaluator.errors import ConfigError, plural
from evaluator.preflight.devices import Assumptions
from evaluator.reproductions import REPRODUCTIONS

suites = click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
store = click.option(
    "--store",
    type=FOLDER,
    help="Folder of prompts and scores; OUT if left out. Runs that share it score each prompt only once per model.",
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

    config, models = run_config(given), model_configs(given)
    out, data, accept, force = given["out"], given["store"], given["accept"], given["force"]
    finished = draw(pipeline.run(config, models, out, data=data, accept=accept, force=force))
    lines = pipeline.summary_lines(finished.run) if len(finished.runs) == 1 else []
    echo(*lines, f"Report: {finished.page}", *finished.answer.splitlines())


@click.command(cls=SuiteCommand)
@suites
@store
@options_of(RunConfig)
@click.option("--out", type=FOLDER, help="Output folder of the later run, which then finds its prompts there.")
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
    records = draw(check(config, models, assumptions, data=given["store"] or given["out"]))
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
    n_requests, n_prompts = built.manifest.n_requests, built.manifest.n_prompts
    echo(f"{plural(n_requests, 'request')}, {plural(n_prompts, 'distinct prompt')}: {built.folder}")


@click.command()
@run_folder
@options_of(ModelConfig)
@force_option
def score(out: Path, force: bool, **given: Any) -> None:
    """Score the prompts in DIR with a model, except those that it has scored already."""
    from evaluator.report.notes import throughput_line
    from evaluator.run import pipeline

    scores = draw(pipeline.score(out, one_model(given, "score takes"), force=force))
    echo(f"{plural(scores.prompts, 'prompt')} scored, {scores.reused_prompts:,} of them by earlier runs")
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
@click.option("--input-column", type=NAMES, help="Columns of the table to send; `text` if left out.")
@click.option("--questions", required=True, type=FILE, help="TOML file of typed questions.")
@options_of(EndpointOptions)
@click.option("--out", required=True, type=FOLDER, help="Folder for the answers and the run that is made from them.")
@click.option("--yes", is_flag=True, help="Send the rows to another machine without asking for consent.")
def ask(data: Path, input_column: tuple[str, ...] | None, questions: Path, out: Path, yes: bool, **given: Any) -> None:
    """Ask a decision service typed questions about a table, and measure its answers.

    Answers are stored as they arrive, and the same command goes on where it stopped: none is paid for twice.
    """
    from evaluator.run.pipeline import summary_lines
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
    except click.Abort:  # standard input is closed
        return False


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@click.option("--out", required=True, type=FOLDER, help="Folder of the new run.")
@click.option("--model", type=Text(), help="Name of the model that answered; the first file's name if left out.")
@options_of(ImportColumns)
@force_option
def import_answers(files: tuple[Path, ...], out: Path, model: str | None, force: bool, **given: Any) -> None:
    """Measure answers from elsewhere: a run with every metric, baseline, interval and the report.

    A FILE is a table (CSV, JSON lines, Parquet) with a row for each answer, samples_TASK_DATE.jsonl as
    lm-evaluation-harness logs them, whose log-likelihoods are read, or a log of a decision service: requests with
    their replies, or the records of jev-eval, decguard, sys1bench or promptfoo. Of predicted labels
    without probabilities, only accuracy and macro-F1 are measured.
    """
    from evaluator.run.pipeline import summary_lines
    from evaluator.runs.import_answers import import_answers as import_files

    columns = from_options(ImportColumns, given)
    finished = draw(import_files(files, out, columns, model or files[0].stem, force=force))
    echo(*summary_lines(finished.run), f"Report: {finished.page}")


def _reproductions() -> Iterator[tuple[str, str]]:
    for name, load in REPRODUCTIONS.items():
        reproduction = load()
        files = ", ".join(file.name for file in reproduction.files) or "no data"
        yield name, f"{reproduction.title}. Needs {files} ({reproduction.source})."


@click.command(cls=ListingCommand, title="Names", rows=_reproductions)
@click.argument("name", metavar="NAME", type=click.Choice(list(REPRODUCTIONS)))
@click.option("--data", type=FOLDER, help="Folder of the released results, as Parquet files, where NAME needs them.")
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet and CSV) and a page.")
def reproduce(name: str, data: Path | None, out: Path) -> None:
    """Recompute a paper's published tables from the results that its authors released.

    Where files are missing, an error says which columns they must have and where they were released.
    """
    from evaluator.reproductions import base
    from evaluator.run.folders import COMPARISON_FILE, RUN_FILE

    reproduction, page = REPRODUCTIONS[name](), out / base.PAGE
    is_other = page.is_file() and reproduction.heading not in page.read_text("utf-8", "replace")
    if is_other or any((out / held).exists() for held in (RUN_FILE, COMPARISON_FILE)):
        raise ConfigError(f"{out} holds other results, whose page or tables this would replace. Choose another --out.")
    recomputed = draw(base.reproduce(reproduction, data, out))
    lines = reproduction.summary_lines(recomputed)
    echo(*lines, f"Tables: {out / 'tables'}", f"Report: {out / base.PAGE}")


MANY_N = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
MANY_TRIES = (1, 10, 100, 200, 1000, 10000)
"""Default numbers of examples and tries of a table or figure: the ranges of the paper's figures."""


def _number(word: str) -> float:
    """Return the value of a number or of a fraction such as "1/3"."""
    numerator, slash, denominator = word.partition("/")
    return float(numerator) / float(denominator) if slash else float(numerator)


def _choice_count(word: str) -> tuple[int, int]:
    """Return K and N from "K:N", which says that N examples have K choices."""
    choices, _, count = word.partition(":")
    return int(choices), int(count)


NUMBERS = Listed(_number, "numbers with commas between them")
COUNTS = Listed(_choice_count, "pairs such as 2:50,4:50")


@click.command()
@click.option("--n", type=NUMBERS, metavar="N", help="Number of examples; if left out, as many as --choices counts.")
@click.option("--chance", type=NUMBERS, metavar="P", help="Probability that one guess is right, such as 0.5 or 1/3.")
@click.option(
    "--choices", type=COUNTS, metavar="K:N,K:N", help="Instead of --chance: how many examples have how many choices."
)
@click.option("--tries", type=NUMBERS, metavar="T", help="Number of different prompts; 1 if left out.")
@click.option(
    "--correct", type=float, metavar="C", help="Right answers of the best prompt: adds tails, a verdict and a test."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--table", is_flag=True, help="Print a table; --n, --chance and --tries take several values: 50,100,200.")
@click.option("--plot", type=FILE, help="Draw a figure of the same values, as .svg or .html.")
def random_baseline(as_json: bool, table: bool, plot: Path | None, correct: float | None, **given: Any) -> None:
    """Compute the expected accuracy of random guessing, once and at the best of several tries.

    With --correct, also how often guessing is as good, as in
    evaluator random-baseline --n 100 --chance 0.5 --tries 10 --correct 58
    """
    from evaluator.random_baselines.calculator import baseline_table, summarise, summary_text, table_text
    from evaluator.report.random_baseline_figures import write_figure

    if given["chance"] and given["choices"]:
        raise ConfigError("--chance and --choices exclude each other: give one of them.")
    counts = Counter[int]()
    for choices, examples in given["choices"] or ():
        counts[choices] += examples
    sizes = given["n"] or ((counts.total(),) if counts else ())
    if not table and plot is None:
        n, best_of = _single("n", sizes), _single("tries", given["tries"] or (1,))
        summary = summarise(n, counts or _single("chance", given["chance"] or ()), best_of, correct)
        fields = asdict(summary)
        fields |= fields.pop("result") or {}
        echo_json(fields) if as_json else echo(summary_text(summary))
        return
    if correct is not None:
        raise ConfigError("--correct belongs to one number of examples and tries, not to a table or figure.")
    sizes, tries, chances = sizes or MANY_N, given["tries"] or MANY_TRIES, given["chance"] or (0.5,)
    if plot is not None:
        if counts:
            raise ConfigError("A figure runs over numbers of examples, so it takes --chance and not --choices.")
        write_figure(plot, chances, sizes, tries)
        echo(f"Figure: {plot}", err=as_json)
    if table:
        rows = baseline_table(sizes, [counts] if counts else chances, tries)
        echo_json(rows.to_dicts()) if as_json else echo(table_text(rows))


def _single(name: str, values: Sequence[float]) -> float:
    """Return the only value of an option. Raises ConfigError if the option has no value or several."""
    if not values:
        raise ConfigError(
            f"--{name} is missing: without --table or --plot, --n and --chance (or --choices) are needed."
        )
    if len(values) > 1:
        received = ",".join(map("{:g}".format, values))
        raise ConfigError(f"--{name} takes one number without --table or --plot, received {received!r}.")
    return values[0]


@click.command("suites")
def list_suites() -> None:
    """List the suites and their parts."""
    from evaluator.suites import SUITE_GROUPS, SUITES

    _show((name, f"{suite.summary} Parts: {', '.join(suite.parts)}.") for name, suite in SUITES.items())
    _show((name, f"stands for {', '.join(members)}") for name, members in SUITE_GROUPS.items())


@click.command()
def datasets() -> None:
    """List the named datasets."""
    from evaluator.datasets import DATASETS

    _show(DATASETS.items())


@click.command()
def methods() -> None:
    """List the inference methods."""
    from evaluator.suites import SUITES, methods_of

    _show((name, method.summary) for name, method in methods_of(SUITES).items())


@click.command()
def engines() -> None:
    """List the engines."""
    from evaluator.engine import ENGINES

    _show((name, engine.summary) for name, engine in ENGINES.items())


def _show(rows: Iterable[tuple[str, str]]) -> None:
    lines = dict(rows)
    width = max(map(len, lines))
    echo(*(f"{name:{width}}  {summary}".rstrip() for name, summary in lines.items()))


COMMANDS = (
    *(run, preflight, build, score, measure, report, ask),
    *(import_answers, random_baseline, reproduce, list_suites, datasets, methods, engines),
)
