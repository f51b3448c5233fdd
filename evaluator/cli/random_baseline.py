"""The command `random-baseline`: compute the accuracy that random guessing reaches."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import click

from evaluator.cli.options import UserPath
from evaluator.errors import ConfigError

MANY_N = "10,20,50,100,200,500,1000,2000,5000,10000"
MANY_TRIES = "1,10,100,200,1000,10000"
"""Default values of a table or figure: the ranges of the paper's figures."""


@click.command()
@click.option("--n", metavar="N", help="Examples; as many as --choices counts, if left out.")
@click.option("--chance", metavar="P", help="Probability that one guess is right: 0.5, or 1/3.")
@click.option("--choices", metavar="K:N,K:N", help="Instead of --chance: how many examples have how many choices.")
@click.option("--tries", metavar="T", help="Different prompts that a query was tried with; 1 if left out.")
@click.option(
    "--correct", type=float, metavar="C", help="Right answers of the best prompt: adds tails, a verdict and a test."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--table", is_flag=True, help="Print a table; --n, --chance and --tries take several values: 50,100,200.")
@click.option("--plot", type=UserPath(dir_okay=False), help="Draw a figure of the same values: .svg, .html.")
def random_baseline(
    n: str | None,
    chance: str | None,
    choices: str | None,
    tries: str | None,
    correct: float | None,
    as_json: bool,
    table: bool,
    plot: Path | None,
) -> None:
    """Compute the expected accuracy of random guessing, once and at the best of several tries.

    With --correct, also how often guessing is as good, as in
    evaluator random-baseline --n 100 --chance 0.5 --tries 10 --correct 58
    """
    if chance and choices:
        raise ConfigError("--chance and --choices say the same: give one of them.")
    counts = choice_counts(choices) if choices else None
    n = n or (str(sum(counts.values())) if counts else None)
    if not table and plot is None:
        guess = counts or only("--chance", chance)
        print_summary(only("--n", n), guess, only("--tries", tries or "1"), correct, as_json)
        return
    if correct is not None:
        raise ConfigError("--correct belongs to one number of examples and tries, not to a table or figure.")
    sizes, all_tries = numbers("--n", n or MANY_N), numbers("--tries", tries or MANY_TRIES)
    chances = numbers("--chance", chance or "1/2")
    if plot is not None:
        if counts:
            raise ConfigError("A figure runs over numbers of examples, so it takes --chance and not --choices.")
        draw(plot, sizes, chances, all_tries)
        click.echo(f"Figure: {plot}", err=as_json)
    if table:
        print_table(sizes, [counts] if counts else chances, all_tries, as_json)


def print_summary(n: float, chance: float | dict[int, int], tries: float, correct: float | None, as_json: bool) -> None:
    from evaluator.random_baselines.calculator import summarise, summary_text

    summary = summarise(n, chance, tries, correct)
    fields = dataclasses.asdict(summary)
    result = fields.pop("result") or {}
    click.echo(json.dumps(fields | result, indent=2) if as_json else summary_text(summary))


def print_table(
    n: Sequence[float], chances: Sequence[float | dict[int, int]], tries: Sequence[float], as_json: bool
) -> None:
    from evaluator.random_baselines.calculator import baseline_table, table_text

    table = baseline_table(n, chances, tries)
    click.echo(json.dumps(table.to_dicts(), indent=2) if as_json else table_text(table))


def draw(plot: Path, n: Sequence[float], chances: Sequence[float], tries: Sequence[float]) -> None:
    from evaluator.report.random_baseline_figures import write_figure

    write_figure(plot, chances, n, tries)


def numbers(option: str, given: str) -> list[float]:
    """Return the numbers of a comma-separated list; fractions such as 1/3 are allowed. Raises ConfigError."""
    try:
        return [_number(word) for word in given.split(",")]
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{option} takes numbers with commas between them, received {given!r}.") from None


def _number(word: str) -> float:
    numerator, slash, denominator = word.partition("/")
    return float(numerator) / float(denominator) if slash else float(numerator)


def only(option: str, given: str | None) -> float:
    """Return the one number of an option. Raises ConfigError if it has none or several."""
    if given is None:
        raise ConfigError(
            f"{option} is missing: without --table or --plot, --n and --chance (or --choices) are needed."
        )
    values = numbers(option, given)
    if len(values) > 1:
        raise ConfigError(f"{option} takes one number without --table or --plot, received {given!r}.")
    return values[0]


def choice_counts(given: str) -> dict[int, int]:
    """Return from K:N,K:N the number of examples by their number of choices. Raises ConfigError."""
    counts: dict[int, int] = {}
    for pair in given.split(","):
        choices, _, count = pair.partition(":")
        try:
            counts[int(choices)] = counts.get(int(choices), 0) + int(count)
        except ValueError:
            raise ConfigError(f"--choices takes pairs such as 2:50,4:50, received {given!r}.") from None
    return counts
