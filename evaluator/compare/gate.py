"""Decide by a policy whether a run is at most tolerably worse than a base run: GO, NO-GO or INCONCLUSIVE.

Also write the decision, as lines for a terminal and as JUnit XML.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import polars as pl
from scipy.special import ndtri, stdtrit

from evaluator.compare.differences import ADJUSTED, Shared, estimated_differences
from evaluator.compare.results import comparison_table
from evaluator.compare.runs import ComparedRun
from evaluator.errors import ConfigError
from evaluator.files.toml_files import converted, read_toml
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.redaction import printable
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import POWER, TWO_WAY, Estimate, equivalence_test, holm, worse_test
from evaluator.statistics.selective import first_passing

Outcome = Literal["GO", "NO-GO", "INCONCLUSIVE"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The tolerated loss and where it applies; the fields are the keys of a policy file."""

    metric: str = "accuracy"  # or "true_label_probability"
    margin: float  # largest tolerated loss, in the unit of the metric, between 0 and 1
    alpha: float = 0.05  # level of the tests: probability of a wrong GO, and of a wrong NO-GO; below 0.5
    datasets: tuple[str, ...] = (MEAN_OVER_DATASETS,)  # "mean": the mean over the common datasets
    method: str = "vanilla"
    definition: str = "paper"
    part: str | None = None  # name of a part; None: all parts in which the metric was measured

    def __post_init__(self) -> None:
        if self.metric not in REQUEST_COLUMNS:
            raise ValueError(f"metric must be {' or '.join(REQUEST_COLUMNS)}, got {self.metric!r}")
        if not 0 < self.margin < 1:
            raise ValueError(f"margin must be between 0 and 1, got {self.margin}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be between 0 and 0.5, got {self.alpha}")
        if not self.datasets:
            raise ValueError("datasets must name one or more")


@dataclass(frozen=True, kw_only=True)
class Check:
    """The test of one difference, run minus base, to which a policy applies."""

    suite: str
    part: str
    dataset: str
    outcome: Outcome
    reason: str
    difference: float
    ci_low: float | None  # 95% interval
    ci_high: float | None
    n_queries: int
    p_difference: float  # two-sided, of the hypothesis of no difference
    p_tolerable: float  # one-sided, of the hypothesis that the run is worse by the margin or more
    p_intolerable: float  # one-sided, of the hypothesis that the run is not worse by more than the margin
    p_intolerable_holm: float  # p_intolerable after Holm's correction over the checks
    # Queries that would decide, if the true difference is the observed one; None: decided, or no number decides.
    queries_needed: int | None

    @property
    def name(self) -> str:
        """Return suite, part and dataset, as a title."""
        return f"{self.suite} / {self.part}, {self.dataset}"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The decision about a run."""

    outcome: Outcome
    reason: str
    run: str  # name of the model
    base: str
    policy: Policy
    checks: tuple[Check, ...]


def read_policy(path: Path) -> Policy:
    """Read a policy file, TOML with the fields of Policy. Raises ConfigError, naming file and key."""
    content = read_toml(path, ConfigError, f"--policy {path}")
    return converted(content, Policy, ConfigError, str(path), "docs/gate.md has an example.")


def decide(policy: Policy, runs: Sequence[ComparedRun], results: Sequence[pl.DataFrame], shared: Shared) -> Gate:
    """Test every difference to which the policy applies, and decide.

    GO: every check shows, at level alpha, that the run is not worse by the margin. No correction for several checks is
    needed, because all of them must show it (an intersection-union test). NO-GO: at least one check shows, at level
    alpha after Holm's correction over the checks, that the run is worse by more than the margin. Else INCONCLUSIVE.

    Args:
        policy: tolerated loss, level, and the differences to test.
        runs: the run and its base, in this order.
        results: request_results of run and base.
        shared: as for compare.differences.estimated_differences.

    Raises ConfigError if the runs lack the metric, or a dataset, that the policy names.

    Source: Berger 1982, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, for
    intersection-union tests; statistics.paired names the sources of the tests.
    """
    run, base = runs
    rows = _differences(policy, runs, results, shared)
    adjusted = rows.select(*ADJUSTED, "n_pairs").rows()
    cases = [(Estimate(*estimate), policy.margin, n_pairs) for *estimate, n_pairs in adjusted]
    tested = rows.with_columns(
        p_tolerable=pl.Series([equivalence_test(*case).no_worse for case in cases], dtype=pl.Float64),
        p_intolerable=pl.Series([worse_test(*case) for case in cases], dtype=pl.Float64),
    )
    # A mean over a dataset that has a check itself repeats its test, which counts once and has one corrected p-value.
    place = ["suite", "part"]
    counted = pl.when(~pl.col("is_repeat") | (pl.len().over(place) == 1)).then("p_intolerable")
    tested = tested.with_columns(p_intolerable_holm=holm(counted))
    tested = tested.with_columns(pl.col("p_intolerable_holm").fill_null(pl.col("p_intolerable_holm").max().over(place)))
    checks = tuple(_check(policy, row) for row in tested.to_dicts())
    outcomes = [check.outcome for check in checks]
    outcome: Outcome = "NO-GO" if "NO-GO" in outcomes else "INCONCLUSIVE" if "INCONCLUSIVE" in outcomes else "GO"
    deciding = next(check for check in checks if check.outcome == outcome)
    more = f" ({outcomes.count(outcome)} of {len(checks)} checks are {outcome})" if len(checks) > 1 else ""
    why = f"{deciding.name}: {deciding.reason}{more}"
    return Gate(outcome=outcome, reason=why, run=run.model, base=base.model, policy=policy, checks=checks)


def _differences(
    policy: Policy, runs: Sequence[ComparedRun], results: Sequence[pl.DataFrame], shared: Shared
) -> pl.DataFrame:
    """Return the rows of estimated_differences to which the policy applies, run minus base, sorted."""
    asked = pl.col("method").eq(policy.method) & pl.col("definition").eq(policy.definition)
    if policy.part is not None:
        asked &= pl.col("part") == policy.part
    measured = comparison_table(runs).filter(asked, pl.col("metric").is_in(["accuracy", policy.metric]))
    if policy.metric not in measured["metric"]:
        raise ConfigError(
            f"{runs[0].folder} and {runs[1].folder} have no {policy.metric} in common by the method {policy.method} "
            f"under {policy.definition}{f' in the part {policy.part}' if policy.part else ''}. Name others in the "
            "policy."
        )
    answers = [each.filter(asked) for each in results]
    estimated = estimated_differences([run.model for run in runs], answers, measured, shared)
    rows = estimated.filter(pl.col("model_a") != pl.col("model_b"), metric=policy.metric)
    for name in policy.datasets:
        if name not in set(rows["dataset"]):
            known = ", ".join(rows["dataset"].unique().sort())
            raise ConfigError(f"The policy is about the dataset {name!r}, which the runs do not share: {known}.")
    return rows.filter(pl.col("dataset").is_in(policy.datasets)).sort("suite", "part", "dataset")


def _check(policy: Policy, row: dict[str, Any]) -> Check:
    """Return the check of a row of estimated_differences with the p-values of `decide`."""
    is_go, is_no_go = row["p_tolerable"] <= policy.alpha, row["p_intolerable_holm"] <= policy.alpha
    outcome: Outcome = "GO" if is_go else "NO-GO" if is_no_go else "INCONCLUSIVE"
    # More queries do not shrink the error of the sets.
    needed = queries_needed(policy, row) if outcome == "INCONCLUSIVE" and row["test"] != TWO_WAY else None
    known = {entry.name: row[entry.name] for entry in fields(Check) if entry.name in row}
    reason = _reason(outcome, policy, row, needed)
    return Check(outcome=outcome, reason=reason, p_difference=row["p_value"], queries_needed=needed, **known)


def queries_needed(policy: Policy, row: dict[str, Any]) -> int | None:
    """Return the number of queries that decides with 80% power, if the true difference is the observed difference.

    With m instead of n queries, the plain variance of the mean shrinks by n / m; the variance that the adjustment adds
    shrinks by (n / m)^2, and the difference that it adds by n / m. Both corrections of equivalence_test are included.

    Args:
        policy: margin and level.
        row: row of estimated_differences.

    Returns:
        At least n + 1; None if the observed loss is the margin itself, because then no number of queries decides.
    """
    difference, n, margin = float(row["difference"]), int(row["n_queries"]), policy.margin
    if abs(difference + margin) < 1e-9:
        return None
    side = 1 if difference > -margin else -1  # 1: more queries would show GO; -1: NO-GO
    plain = row["standard_error"] ** 2 if math.isfinite(row["standard_error"]) else 0.0  # infinite for one query
    # Variance and difference that the adjustment of the estimate adds to the plain ones.
    added = row["adjusted_error"] ** 2 - plain
    shrinkage = row["adjusted_difference"] - difference

    def decides(queries: float) -> bool:
        # Standard error and distance from the margin as equivalence_test computes them, with its two corrections.
        more, pairs = n / queries, queries * row["n_pairs"] / n
        error = math.sqrt(max(plain * more + added * more**2, margin * (1 - margin) / pairs))
        distance = side * (margin + difference + shrinkage * more) - 1 / pairs
        # The distance must exceed the critical value by the quantile of the power.
        reach = stdtrit(row["adjusted_freedom"] / more, 1 - policy.alpha) * error
        return bool(distance >= reach + ndtri(POWER) * math.sqrt(plain * more))

    return first_passing(decides, n + 1)


def _reason(outcome: Outcome, policy: Policy, row: dict[str, Any], needed: int | None) -> str:
    margin = f"{policy.margin:g}"
    real = "real" if row["p_value"] <= policy.alpha else "not shown to be real"
    shown = f"a difference of {row['difference']:+.4f}, {real} (p = {row['p_value']:.2g})"
    if outcome == "GO":
        return f"{shown}; a loss of {margin} or more is ruled out (p = {row['p_tolerable']:.2g})"
    if outcome == "NO-GO":
        return f"{shown}; the loss is more than {margin} (p = {row['p_intolerable_holm']:.2g}, corrected)"
    never = "more demonstration sets are needed, too" if row["test"] == TWO_WAY else "no number of queries decides"
    enough = never if needed is None else f"about {needed:,} queries would decide"
    return f"{shown}; {row['n_queries']:,} queries neither show nor rule out a loss of {margin}, {enough}"


def gate_lines(gate: Gate) -> Iterator[str]:
    """Yield the lines of a decision: the outcome, then the reason of the check, or a line for each check."""
    yield f"{gate.outcome}: {gate.run} against {gate.base}, {gate.policy.metric}, margin {gate.policy.margin:g}"
    if len(gate.checks) == 1:
        yield gate.reason
    else:
        yield from (f"  {check.outcome:12}  {check.name}: {check.reason}" for check in gate.checks)


def junit(gate: Gate) -> bytes:
    """Return the checks as JUnit XML: a NO-GO is a failure, and an INCONCLUSIVE is an error.

    Source: the elements that the JUnit readers of Jenkins and GitHub share (testsuites, testsuite, testcase, failure,
    error).
    """
    outcomes = [check.outcome for check in gate.checks]
    counts = {"tests": len(outcomes), "failures": outcomes.count("NO-GO"), "errors": outcomes.count("INCONCLUSIVE")}
    totals = {key: str(count) for key, count in counts.items()}
    root = Element("testsuites", {"name": "evaluator gate", **totals})
    suite = SubElement(root, "testsuite", {"name": f"{gate.run} against {gate.base}", **totals})
    for check in gate.checks:
        about = {"classname": f"{check.suite}.{check.part}", "name": f"{check.dataset}, {gate.policy.metric}"}
        case = SubElement(suite, "testcase", about)
        if check.outcome == "GO":
            SubElement(case, "system-out").text = check.reason
        else:
            kind = "failure" if check.outcome == "NO-GO" else "error"
            SubElement(case, kind, {"type": check.outcome, "message": check.reason})
    indent(root)
    text = printable(str(tostring(root, encoding="unicode")))  # control codes are not allowed in XML
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()
