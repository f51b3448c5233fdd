"""The commands that ask no model: `import`, `reproduce` and `random-baseline`.

The commands that list the suites, datasets, methods and engines.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from evaluator.cli.options import FILE, FOLDER, Listed, ListingCommand, Text, force_option, options_of
from evaluator.cli.terminal import draw, echo
from evaluator.config import ImportColumns
from evaluator.errors import ConfigError
from evaluator.options import from_options
from evaluator.reproductions import REPRODUCTIONS


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@click.option("--out", required=True, type=FOLDER, help="Folder of the run that is made.")
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
    from evaluator.run.report import summary_lines
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

    reproduction = REPRODUCTIONS[name]()
    recomputed = draw(base.reproduce(reproduction, data, out))
    lines = reproduction.summary_lines(recomputed)
    echo(*lines, f"Tables: {out / 'tables'}", f"Report: {out / base.PAGE}")


MANY_N = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
MANY_TRIES = (1, 10, 100, 200, 1000, 10000)
"""Default values of a table or figure: the ranges of the paper's figures."""


def _number(word: str) -> float:
    """Return a number or a fraction such as 1/3."""
    numerator, slash, denominator = word.partition("/")
    return float(numerator) / float(denominator) if slash else float(numerator)


def _choice_count(word: str) -> tuple[int, int]:
    """Return K and N of K:N: that many examples N have that many choices K."""
    choices, _, count = word.partition(":")
    return int(choices), int(count)


NUMBERS = Listed(_number, "numbers with commas between them")
COUNTS = Listed(_choice_count, "pairs such as 2:50,4:50")


@click.command()
@click.option("--n", type=NUMBERS, metavar="N", help="Examples; as many as --choices counts, if left out.")
@click.option("--chance", type=NUMBERS, metavar="P", help="Probability that one guess is right: 0.5, or 1/3.")
@click.option(
    "--choices", type=COUNTS, metavar="K:N,K:N", help="Instead of --chance: how many examples have how many choices."
)
@click.option("--tries", type=NUMBERS, metavar="T", help="Different prompts of a query; 1 if left out.")
@click.option(
    "--correct", type=float, metavar="C", help="Right answers of the best prompt: adds tails, a verdict and a test."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--table", is_flag=True, help="Print a table; --n, --chance and --tries take several values: 50,100,200.")
@click.option("--plot", type=FILE, help="Draw a figure of the same values: .svg, .html.")
def random_baseline(as_json: bool, table: bool, plot: Path | None, correct: float | None, **given: Any) -> None:
    """Compute the expected accuracy of random guessing, once and at the best of several tries.

    With --correct, also how often guessing is as good, as in
    evaluator random-baseline --n 100 --chance 0.5 --tries 10 --correct 58
    """
    from evaluator.random_baselines.calculator import baseline_table, summarise, summary_text, table_text
    from evaluator.report.random_baseline_figures import write_figure

    if given["chance"] and given["choices"]:
        raise ConfigError("--chance and --choices say the same: give one of them.")
    counts = Counter[int]()
    for choices, examples in given["choices"] or ():
        counts[choices] += examples
    sizes = given["n"] or ((counts.total(),) if counts else ())
    if not table and plot is None:
        n, best_of = _single("n", sizes), _single("tries", given["tries"] or (1,))
        summary = summarise(n, counts or _single("chance", given["chance"] or ()), best_of, correct)
        fields = asdict(summary)
        fields |= fields.pop("result") or {}
        echo(json.dumps(fields, indent=2) if as_json else summary_text(summary))
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
        echo(json.dumps(rows.to_dicts(), indent=2) if as_json else table_text(rows))


def _single(name: str, values: Sequence[float]) -> float:
    """Return the only value of an option. Raises ConfigError if it has none or several."""
    if not values:
        raise ConfigError(
            f"--{name} is missing: without --table or --plot, --n and --chance (or --choices) are needed."
        )
    if len(values) > 1:
        received = ",".join(map("{:g}".format, values))
        raise ConfigError(f"--{name} takes one number without --table or --plot, received {received!r}.")
    return values[0]


@click.command()
def suites() -> None:
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


COMMANDS = (import_answers, random_baseline, reproduce, suites, datasets, methods, engines)
