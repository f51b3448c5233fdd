"""Write the terminal output of `evaluator threshold`: coverage, thresholds, checks and routing."""

from collections.abc import Iterator

from evaluator.errors import plural
from evaluator.metrics.thresholds import Threshold, ThresholdReport
from evaluator.report.table import Row, count, interval, limit_text, number, p_text, percent, signed_interval
from evaluator.statistics.selective import Routing

MEASURED = {
    "accuracy": "of them are right",
    "precision": "of them are right",
    "recall": "of the true yes are found",
    "false_positive_rate": "of the true no are called yes",
}
"""Measure of a threshold -> the words that follow its value."""


def threshold_lines(report: ThresholdReport) -> Iterator[str]:
    """Yield the lines of a report: coverage, thresholds or the reason why there is none, checks, and routing."""
    if len(report.parts) > 1:
        part, *others = report.parts
        yield f"Answers of the part {part}; --part chooses another: {', '.join(others)}"
    if report.file.model != report.model:
        yield f"The thresholds were chosen on answers of {report.file.model}; these are of {report.model}"
    for row in report.coverage.iter_rows(named=True):
        yield from _coverage_lines(row)
    for each in report.file.thresholds:
        yield f"{_scope(each)}: {promise_text(each)}"
    for each in report.at:
        yield f"{_scope(each)}: at {limit_text(each.threshold)}, {_use_text(each)}"
    for check in report.checks:
        used = "" if check.verdict == "no rows" else f": {_use_text(check.found)}"
        yield f"{_scope(check.promised)}, checked, {check.verdict}{used}"
    if report.routing:
        yield from _routing_lines(report.routing)


def _coverage_lines(row: Row) -> Iterator[str]:
    name = " / ".join(filter(None, (row["question"], row["slice"])))
    groups = "" if row["n_groups"] == row["n"] else f" in {plural(row['n_groups'], 'group')}"
    yield f"{name}: {percent(row['accuracy'])} of {count(row['n'])} answers{groups} are right"
    area, excess, temperature = (
        f"{number(row[name])} ({interval(row[f'{name}_low'], row[f'{name}_high'])})"
        for name in ("aurc", "excess_aurc", "temperature")
    )
    yield f"  area under the risk-coverage curve {area}, {excess} above the best order"
    p, temperature_p = row["calibration_p_holm"], row["temperature_p_holm"]
    told = "not calibrated" if p <= 0.05 else f"miscalibration is not shown by {plural(row['n'], 'answer')}"
    error, floor = number(row["calibration_error"]), number(row["calibration_floor"])
    yield f"  calibration error {error}, where a calibrated model shows {floor}: {told} (p {p_text(p)})"
    shown = "over- or underconfidence is not shown"
    if temperature_p is not None and temperature_p <= 0.05:
        shown = "overconfident" if row["temperature"] > 1 else "underconfident"
    yield f"  temperature {temperature}: {shown} (p {p_text(temperature_p)})"
    least, coverage = row["set_min_probability"], interval(row["set_coverage_low"], row["set_coverage_high"])
    size, new = f"{number(row['set_size'], 2)} options each", "groups, one answer of each" if groups else "answers"
    yield f"  sets that hold the true option in 90% of new {new} ({coverage}): all from {least:.3g} on, {size}"


def _scope(threshold: Threshold) -> str:
    """Return the question, answer and slice to which a threshold applies, as a text."""
    names = (threshold.question, threshold.option and f"answer {threshold.option!r}", threshold.slice)
    return ", ".join(filter(None, names)) or "all questions"


def promise_text(threshold: Threshold) -> str:
    """Return the promise of a threshold as a text, or the reason why none can be given."""
    bound = "at most" if threshold.measure == "false_positive_rate" else "at least"
    promised = f"{bound} {percent(threshold.target)} {MEASURED[threshold.measure]}"
    promised += f", with {percent(1 - (threshold.alpha or 0.0))} assurance"
    if threshold.threshold is not None:
        return f"use answers from {limit_text(threshold.threshold)}: {promised}; {_use_text(threshold)}"
    needed = threshold.rows_needed
    enough = "no number of such rows would do" if needed is None else f"about {count(needed)} rows would do"
    highest = f"; {percent(threshold.largest_target)} could be promised" if threshold.largest_target else ""
    kind = {"recall": " whose true answer is yes", "false_positive_rate": " whose true answer is no"}
    rows = f"{plural(threshold.n, 'row')}{kind.get(threshold.measure, '')}"
    return f"no threshold can be promised from {rows} ({promised}): {enough}{highest}"


def _use_text(threshold: Threshold) -> str:
    """Return the share of used answers and the value of the measure on them, with intervals, as a text."""
    share = f"{number(threshold.share)} ({interval(threshold.share_low, threshold.share_high)})"
    value = f"{number(threshold.value)} ({interval(threshold.value_low, threshold.value_high)})"
    return f"{share} are used, {value} {MEASURED[threshold.measure]}"


def _routing_lines(routing: Routing) -> Iterator[str]:
    asked = {0.0: "never", 2.0: "always"}.get(routing.threshold, f"below {limit_text(routing.threshold)}")
    shares = f"{percent(routing.share_large)} of rows that did not choose it; {percent(routing.accuracy)} are right"
    yield f"routing: {routing.verdict}. The large model is asked {asked}, for {shares}, at a cost of {routing.cost:.4g}"
    small, large = (signed_interval(*ends) for ends in (routing.versus_small, routing.versus_large))
    alone = f"always small costs {routing.cost_small:.4g} (difference {small})"
    yield f"  {alone}, always large {routing.cost_large:.4g} ({large}), a perfect router {routing.cost_oracle:.4g}"
    right_small, right_large = percent(routing.accuracy_small), percent(routing.accuracy_large)
    yield f"  always small is right in {right_small}, always large in {right_large}"
