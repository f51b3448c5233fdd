"""Compute random baselines of one or many settings (n, chance, tries), as text and as contour lines of figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.random_baselines.max_random import (
    ASSURANCE,
    POWER,
    TAIL_TO_TELL,
    Verdict,
    expected_maximum_of_draws,
    max_random_accuracy,
    max_random_quantile,
    max_random_tail,
    queries_needed,
    verdict,
)
from evaluator.random_baselines.settings import Chance, ChoiceCounts
from evaluator.statistics.selective import proportion_interval

TAIL_LEVELS = (0.01, *(tenths / 10 for tenths in range(1, 10)))
"""Tail probabilities of the contours in figure 7 of Yauney & Mimno 2024: 0.01, and 0.1 to 0.9."""


ROUNDING = 1e-9
"""Floating-point error of n x accuracy, in examples; a number that exceeds an integer by less counts as the integer."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """An accuracy, and the probability that guessing reaches it."""

    correct: int  # number of right answers
    accuracy: float
    standard_tail: float  # probability that one random classifier has at least this accuracy
    log10_standard_tail: float
    max_tail: float  # probability that the best of `tries` random classifiers has at least this accuracy
    log10_max_tail: float
    verdict: Verdict
    better_than_uniform: bool  # whether max_tail is at most TAIL_TO_TELL: a single test, without correction
    accuracy_lower_bound: float  # lower bound of the true accuracy of the best of `tries`, as in max_random.with_tests
    n_needed: int | None  # number of examples that distinguishes this bound from guessing; None: bound not above chance


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The two baselines of a setting, and the result that was compared with them, if any."""

    n: int  # number of examples
    tries: int
    chance: float  # expected accuracy of one random classifier
    max_random: float  # expected accuracy of the best of `tries`
    result: Result | None


def summarise(n: float, chance: float | ChoiceCounts, tries: float, correct: float | None = None) -> Summary:
    """Compute the baselines of one setting, and compare a number of right answers with them.

    Args:
        n, chance, tries: one setting, as in max_random.
        correct: number of right answers, a whole number; None: no comparison.

    Raises BaselineError for arguments that max_random does not accept.
    """
    standard, max_random = (float(max_random_accuracy(n, chance, of)) for of in (1, tries))
    summary = Summary(n=int(n), tries=int(tries), chance=standard, max_random=max_random, result=None)
    if correct is None:
        return summary
    tails, logs = (
        np.asarray(max_random_tail(correct, n, chance, [1, tries], log10=log10)).tolist() for log10 in (False, True)
    )
    accuracy, bound = correct / n, float(proportion_interval(correct, n, (1 - ASSURANCE) / tries)[0])
    result = Result(
        correct=int(correct),
        accuracy=accuracy,
        standard_tail=tails[0],
        log10_standard_tail=logs[0],
        max_tail=tails[1],
        log10_max_tail=logs[1],
        verdict=pl.select(verdict(pl.lit(accuracy), pl.lit(standard), pl.lit(max_random))).item(),
        better_than_uniform=tails[1] <= TAIL_TO_TELL,
        accuracy_lower_bound=bound,
        n_needed=queries_needed(bound, standard, tries, 1),
    )
    return replace(summary, result=result)


def summary_text(summary: Summary) -> str:
    """Format a summary for a terminal: one row a baseline, and the verdict in sentences."""
    result = summary.result
    rows = [["", "accuracy"], ["chance", f"{summary.chance:.5f}"], [_best_of(summary), f"{summary.max_random:.5f}"]]
    if result is not None:
        rows[0] += [f"P(>= {result.correct:,} right)", "log10 P"]
        tails = (result.standard_tail, result.log10_standard_tail), (result.max_tail, result.log10_max_tail)
        for row, (tail, log10_tail) in zip(rows[1:], tails, strict=True):
            row += [_probability(tail, log10_tail), f"{log10_tail:z.4f}"]
        rows.append([f"{result.correct:,} of {summary.n:,} right", f"{result.accuracy:.5f}"])
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join([*lines, "", _sentences(summary, result)] if result is not None else lines)


def _best_of(summary: Summary) -> str:
    return f"best of {summary.tries:,} random classifier{'s' if summary.tries > 1 else ''}"


def _probability(tail: float, log10_tail: float) -> str:
    return f"{tail:.4g}" if log10_tail > -300 else f"10^{log10_tail:.1f}"


def _sentences(summary: Summary, result: Result) -> str:
    told = "better" if result.better_than_uniform else "not better"
    sentence = {
        "below both": "Below both baselines: not better than guessing once.",
        "between": f"Between the baselines: above chance, and not above the {_best_of(summary)}.",
        "above both": f"Above both baselines. The {_best_of(summary)} has as many right\nwith probability "
        f"{_probability(result.max_tail, result.log10_max_tail)}: {told} than uniform guessing at the "
        f"{TAIL_TO_TELL:.0%} level, as a single test.",
    }[result.verdict]
    bound = (
        f"The true accuracy of the best is at least {result.accuracy_lower_bound:.5f} with {ASSURANCE:.0%} confidence"
    )
    if result.n_needed is not None:
        power = f"p <= {TAIL_TO_TELL:g}, with power {POWER:.0%}"
        return f"{sentence}\n{bound}:\n{result.n_needed:,} examples would distinguish that from guessing ({power})."
    if result.verdict == "below both":
        return sentence
    return f"{sentence}\n{bound}, which is not above chance:\nthis result cannot say how many examples would show it."


def baseline_table(n: Sequence[float], chances: Sequence[float | ChoiceCounts], tries: Sequence[float]) -> pl.DataFrame:
    """Return the expected accuracy of the best of `tries` random classifiers, one row a combination of the arguments.

    Returns:
        chance (expected accuracy of one try: the mean where chances differ), n, tries and max_random, in the order of
        chances, then n, then tries.
    """
    frames = []
    for chance in chances:
        for size in n:
            expected = np.asarray(max_random_accuracy(size, chance, [1, *tries]))
            columns = {"chance": expected[0], "n": int(size), "tries": np.array(tries, dtype=np.int64)}
            frames.append(pl.DataFrame(columns | {"max_random": expected[1:]}))
    return pl.concat(frames)


def table_text(table: pl.DataFrame) -> str:
    """Format a baseline_table for a terminal: one block a chance, with a row for each n and a column for each tries."""
    numbers = [*table["n"], *table["tries"]]
    blocks, width = [], 2 + max(7, *(len(f"{number:,}") for number in numbers))

    def line(*cells: str) -> str:
        return "".join(f"{cell:>{width}}" for cell in cells)

    for (chance,), rows in table.group_by("chance", maintain_order=True):
        tries = rows["tries"].unique(maintain_order=True).to_list()
        lines = [f"chance {chance:.6g}", "", line("n \\ tries", *(f"{tried:,}" for tried in tries))]
        for (n,), rows_of_n in rows.group_by("n", maintain_order=True):
            lines.append(line(f"{n:,}", *(f"{expected:.4f}" for expected in rows_of_n["max_random"])))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def log_spaced(low: float, high: float, size: int) -> Ints:
    """Return up to `size` distinct whole numbers from low to high, evenly spaced on a logarithmic scale."""
    return np.unique(np.rint(np.geomspace(low, high, size)).astype(np.int64))


def expected_curve(
    accuracies: Floats,
    n: int,
    chance: Chance,
    tries: Ints,
    expected: Callable[[Floats, Ints], Floats] = expected_maximum_of_draws,
) -> pl.DataFrame:
    """Return the expected best accuracy among `tries` prompts, and the probability that guessing reaches it.

    Args:
        accuracies: [prompts], from which `tries` prompts are drawn.
        n, chance: number of examples and their chance, for the tails.
        tries: numbers of prompts.
        expected: function that returns the expected maximum of `tries` of the accuracies.

    Returns:
        tries, expected_maximum, standard_tail (for one random classifier), max_tail (for the best of `tries`).

    Source: Yauney & Mimno 2024, figure 3.
    """
    best = expected(accuracies, tries)
    # P(accuracy >= expected) is the tail from the next integer count.
    count = np.ceil(n * best - ROUNDING)
    tails = {name: max_random_tail(count, n, chance, of) for name, of in (("standard_tail", 1), ("max_tail", tries))}
    return pl.DataFrame({"tries": tries, "expected_maximum": best} | tails)


def accuracy_levels(chance: float) -> Floats:
    """Return the accuracies of the contours in figures 2 and 6 of Yauney & Mimno 2024.

    They are chance + 0.025, chance + 0.05, and from there every 0.05 up to 1, with chance rounded to 0.01.
    """
    first = round(chance, 2)
    levels: Floats = np.array([first + 0.025, *np.arange(first + 0.05, 0.995, 0.05)])
    return levels[(levels > chance) & (levels < 1)].round(3)


def accuracy_contours(chance: float, n: Ints, tries: Ints) -> pl.DataFrame:
    """Return the largest n at which the maximum random baseline reaches each of accuracy_levels.

    Args:
        chance: chance of all examples.
        n: numbers of examples, ascending, between which the result is interpolated.
        tries: numbers of tries.

    Returns:
        level, tries, n, inside: one row a level and number of tries. n is interpolated on a logarithmic scale and
        limited to the range of the argument `n`; `inside` says whether it is within that range.
    """
    expected = np.asarray(max_random_accuracy(n[:, None], chance, tries))
    levels = accuracy_levels(chance)
    frames = []
    for n_tries, baseline in zip(tries, expected.T, strict=True):
        # The baseline falls with n; np.interp needs ascending values, hence the signs.
        reached = np.exp(np.interp(-levels, -baseline, np.log(n)))
        inside = (levels < baseline[0]) & (levels > baseline[-1])
        columns = {"level": levels, "tries": np.full(len(levels), n_tries), "n": reached, "inside": inside}
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def tail_contours(chance: float, n: Ints, tries: float) -> pl.DataFrame:
    """Return the lowest accuracy that the best of `tries` random classifiers reaches with probability at most `level`.

    Returns:
        level, n, accuracy: one row a level of TAIL_LEVELS and n. The accuracy is 1 if even n correct answers are more
        probable than `level`.
    """
    levels = np.array(TAIL_LEVELS)
    largest_count = np.asarray(max_random_quantile(1 - levels[:, None], n, chance, tries))
    columns = {"level": levels.repeat(len(n)), "n": np.tile(n, len(levels))}
    return pl.DataFrame(columns | {"accuracy": np.minimum((largest_count + 1) / n, 1).ravel()})
