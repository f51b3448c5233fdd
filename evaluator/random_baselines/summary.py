"""Summarise the baselines of one setting, and a result compared with them, as a record and as text."""

from dataclasses import dataclass

import polars as pl

from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.random_baselines.settings import ChoiceCounts
from evaluator.random_baselines.significance import ASSURANCE, queries_needed
from evaluator.random_baselines.verdicts import POWER, TAIL_TO_TELL, Verdict, verdict
from evaluator.statistics.proportion import lower_confidence_bound


@dataclass(frozen=True, kw_only=True)
class Result:
    """An accuracy, and the probability that guessing reaches it."""

    correct: int
    accuracy: float
    standard_tail: float  # probability that one random classifier reaches it
    log10_standard_tail: float
    max_tail: float  # probability that the best of `tries` reaches it
    log10_max_tail: float
    verdict: Verdict
    better_than_guessing: bool  # max_tail is at most TAIL_TO_TELL: one test, without correction for others
    accuracy_lower_bound: float  # of the true accuracy of the best of `tries`, as in significance.with_tests
    n_needed: (
        int | None
    )  # examples that tell an accuracy of this bound from guessing; None where it is not above chance


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The two baselines of a setting, with a result if one was given."""

    n: int
    tries: int
    chance: float  # expected accuracy of one random classifier
    max_random: float  # expected accuracy of the best of `tries`
    result: Result | None


def summarise(n: float, chance: float | ChoiceCounts, tries: float, correct: float | None = None) -> Summary:
    """Return the baselines, compared with `correct` answers if given. Raises BaselineError."""
    standard, max_random = (float(max_random_accuracy(n, chance, tried)) for tried in (1, tries))
    result = None if correct is None else _result(correct, n, chance, tries, standard, max_random)
    return Summary(n=int(n), tries=int(tries), chance=standard, max_random=max_random, result=result)


def _result(
    correct: float, n: float, chance: float | ChoiceCounts, tries: float, standard: float, max_random: float
) -> Result:
    tails = [float(max_random_tail(correct, n, chance, tried)) for tried in (1, tries)]
    logs = [float(max_random_tail(correct, n, chance, tried, log10=True)) for tried in (1, tries)]
    accuracy = correct / n
    judged: Verdict = pl.select(verdict(pl.lit(accuracy), pl.lit(standard), pl.lit(max_random))).item()
    bound = float(lower_confidence_bound(correct, n, (1 - ASSURANCE) / tries))
    return Result(
        correct=int(correct),
        accuracy=accuracy,
        standard_tail=tails[0],
        log10_standard_tail=logs[0],
        max_tail=tails[1],
        log10_max_tail=logs[1],
        verdict=judged,
        better_than_guessing=tails[1] <= TAIL_TO_TELL,
        accuracy_lower_bound=bound,
        n_needed=queries_needed(bound, standard, tries, 1),
    )


def summary_text(summary: Summary) -> str:
    """Format the summary for a terminal: a row for each baseline, and the verdict in a sentence."""
    result = summary.result
    rows = [["", "accuracy"], ["chance", f"{summary.chance:.5f}"], [_best_of(summary), f"{summary.max_random:.5f}"]]
    if result is not None:
        rows[0] += [f"P(>= {result.correct:,} right)", "log10 P"]
        rows[1] += [_probability(result.standard_tail, result.log10_standard_tail), f"{result.log10_standard_tail:.4f}"]
        rows[2] += [_probability(result.max_tail, result.log10_max_tail), f"{result.log10_max_tail:.4f}"]
        rows.append([f"{result.correct:,} of {summary.n:,} right", f"{result.accuracy:.5f}"])
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join([*lines, "", _sentence(summary, result)] if result is not None else lines)


def _best_of(summary: Summary) -> str:
    return f"best of {summary.tries:,} random classifier{'s' if summary.tries > 1 else ''}"


def _probability(tail: float, log10_tail: float) -> str:
    return f"{tail:.4g}" if log10_tail > -300 else f"10^{log10_tail:.1f}"


def _sentence(summary: Summary, result: Result) -> str:
    often = _probability(result.max_tail, result.log10_max_tail)
    places = {
        "below both": "Below both baselines: not better than guessing once.",
        "between": f"Between the baselines: above chance, and not above the {_best_of(summary)}.",
        "above both": f"Above both baselines. The {_best_of(summary)} has as many right",
    }
    sentences = [places[result.verdict]]
    if result.verdict == "above both":
        told = "better" if result.better_than_guessing else "not better"
        sentences[0] += (
            f"\nwith probability {often}: {told} than guessing at the {TAIL_TO_TELL:.0%} level, as one test."
        )
    bound = (
        f"The true accuracy of the best is at least {result.accuracy_lower_bound:.5f} with {ASSURANCE:.0%} confidence"
    )
    if result.n_needed is not None:
        power = f"p <= {TAIL_TO_TELL:g}, with power {POWER:.0%}"
        sentences.append(f"{bound}:\n{result.n_needed:,} examples would tell that from guessing ({power}).")
    elif result.verdict != "below both":
        sentences.append(
            f"{bound}, which is not above chance:\nthis result does not say how many examples would tell it."
        )
    return "\n".join(sentences)
