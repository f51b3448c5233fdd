"""Show coverage and thresholds: the lines of `evaluator threshold`, and the section of a run's page."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.metrics.thresholds import Check, Threshold
from evaluator.report.table import Row, count, interval, number, p_text, percent
from evaluator.statistics.selective import Routing

MEASURED = {
    "accuracy": "of them are right",
    "precision": "of them are right",
    "recall": "of the true yes are found",
    "false_positive_rate": "of the true no are called yes",
}


def threshold_lines(
    thresholds: Sequence[Threshold],
    coverage: pl.DataFrame,
    at: Sequence[Threshold] = (),
    checks: Sequence[Check] = (),
    routing: Routing | None = None,
) -> Iterator[str]:
    """Yield what stored answers say, a line each: coverage, thresholds or why there is none, checks, routing."""
    for row in coverage.iter_rows(named=True):
        yield from coverage_lines(row)
    for each in thresholds:
        yield f"{scope_name(each)}: {promise_text(each)}"
    for each in at:
        yield f"{scope_name(each)}: at {each.threshold:.4g}, {use_text(each)}"
    for check in checks:
        yield f"{scope_name(check.promised)}, checked: {check_text(check)}"
    if routing:
        yield from routing_lines(routing)


def coverage_lines(row: Row) -> Iterator[str]:
    """Yield how often the answers to a question are right, and what their probabilities are worth."""
    name = " / ".join(filter(None, (row["question"], row["slice"])))
    groups = "" if row["n_groups"] == row["n"] else f" in {count(row['n_groups'])} groups"
    yield f"{name}: {percent(row['accuracy'])} of {count(row['n'])} answers{groups} are right"
    area, excess = (
        interval(row["aurc_low"], row["aurc_high"]),
        interval(row["excess_aurc_low"], row["excess_aurc_high"]),
    )
    yield (
        f"  area under the risk-coverage curve {number(row['aurc'])} ({area}), "
        f"{number(row['excess_aurc'])} ({excess}) above the best order"
    )
    yield f"  {calibration_text(row)}; {temperature_text(row)}"
    yield f"  {sets_text(row)}"


def calibration_text(row: Row) -> str:
    """Return whether calibration is told apart from chance."""
    p = row["calibration_p_holm"]
    found = "not calibrated" if p <= 0.05 else f"not told from calibrated by {count(row['n'])} answers"
    return (
        f"calibration error {number(row['calibration_error'])}, where a calibrated model shows "
        f"{number(row['calibration_floor'])}: {found} (p {p_text(p)})"
    )


def temperature_text(row: Row) -> str:
    """Return the temperature, and what it means."""
    low, high = row["temperature_low"], row["temperature_high"]
    if low is None:
        return "no temperature fits: too few answers, or all of them are right or wrong"
    meaning = "overconfident" if low > 1 else "underconfident" if high < 1 else "neither over- nor underconfident"
    return f"T = {number(row['temperature'], 2)} ({number(low, 2)} to {number(high, 2)}): {meaning}"


def sets_text(row: Row) -> str:
    """Return what sets of options cover."""
    if not row["set_min_probability"]:
        return "sets that hold the true option with 90%: too few answers, every option is in every set"
    return (
        f"sets of all options with {row['set_min_probability']:.3g} or more hold the true one in 90% of new answers "
        f"({percent(row['set_coverage_low'])} to {percent(row['set_coverage_high'])}), "
        f"{number(row['set_size'], 2)} options each"
    )


def scope_name(threshold: Threshold) -> str:
    """Return what a threshold is for."""
    names = (threshold.question, threshold.option and f"answer {threshold.option!r}", threshold.slice)
    return ", ".join(filter(None, names)) or "all questions"


def promise_text(threshold: Threshold) -> str:
    """Return the promise of a threshold, or why there is none."""
    bound = "at most" if threshold.measure == "false_positive_rate" else "at least"
    promised = f"{bound} {percent(threshold.target)} {MEASURED[threshold.measure]}"
    promised += f", with {percent(1 - (threshold.alpha or 0.0))} assurance"
    if threshold.threshold is not None:
        return f"use answers from {threshold.threshold:.4g}: {promised}; {use_text(threshold)}"
    needed = threshold.rows_needed
    enough = "no number of such rows would do" if needed is None else f"about {count(needed)} rows would do"
    highest = f"; {percent(threshold.largest_target)} could be promised" if threshold.largest_target else ""
    return f"no threshold can be promised from {count(threshold.n)} rows ({promised}): {enough}{highest}"


def use_text(threshold: Threshold) -> str:
    """Return the share that is used and the measure, with their intervals."""
    share, value = (
        interval(threshold.share_low, threshold.share_high),
        interval(threshold.value_low, threshold.value_high),
    )
    return (
        f"{percent(threshold.share)} are used ({share}), "
        f"{number(threshold.value)} ({value}) {MEASURED[threshold.measure]}"
    )


def check_text(check: Check) -> str:
    """Return how a threshold does on a second table."""
    if check.verdict == "no rows":
        return "no answer that it is about"
    verdicts = {"holds": "the promise holds", "broken": "the promise is broken", "open": "neither shown nor refuted"}
    return f"{verdicts[check.verdict]}: {use_text(check.found)}"


def routing_lines(routing: Routing) -> Iterator[str]:
    """Yield what routing from a small model to a large one costs, against one of them alone."""
    asked = {0.0: "never", 2.0: "always"}.get(routing.threshold, f"below {routing.threshold:.4g}")
    yield (
        f"routing: {routing.verdict}. The large model is asked {asked}; on rows that did not choose it, about "
        f"{percent(routing.share_large)} of them; {percent(routing.accuracy)} are right, cost {routing.cost:.4g} a row"
    )
    yield (
        f"  always small {routing.cost_small:.4g} (difference {_signed(routing.versus_small)}), always large "
        f"{routing.cost_large:.4g} ({_signed(routing.versus_large)}), a router that knows who is right "
        f"{routing.cost_oracle:.4g}"
    )


def _signed(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.4g} to {ends[1]:+.4g}"
