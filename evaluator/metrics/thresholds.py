"""Measure coverage and calibration of answers with label probabilities, and choose thresholds with a promise.

An answer is used where the largest probability of its options is at least the threshold. Nothing here asks a model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import ThresholdMeasure as Measure
from evaluator.config import ThresholdOptions
from evaluator.config import ThresholdPer as Per
from evaluator.errors import ConfigError, MetricError
from evaluator.methods.vector_scaling import fit_temperature
from evaluator.metrics.per_request import confidence_bin
from evaluator.statistics import selective

YES = ("yes", "true", "1", "positive")
"""Names of the option "yes" of a question with two options, in any case."""

DECIMALS = 9
"""Digits of probabilities that count: the same probability may have been computed in several ways."""

CURVE_POINTS = 60
"""Points of a risk-coverage curve in a table, evenly over the share that is used."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold and its promise; on new answers, the same rule and how it did."""

    question: str | None = None  # dataset; None: all questions
    option: str | None = None  # the answer that it is for; None: any
    slice: str | None = None  # value of the slice column; None: all rows
    measure: Measure = "accuracy"
    target: float | None = None  # None: nothing is promised
    alpha: float | None = None  # probability that the promise fails, of this threshold alone
    threshold: float | None = None  # None: none can be promised
    n: int = 0  # rows that it is about: of recall with the true answer yes, of a false-positive rate with no
    n_groups: int = 0
    n_used: int = 0  # answers that are used; of a measure of "yes", that are yes
    share: float | None = None  # of all rows
    share_low: float | None = None
    share_high: float | None = None
    value: float | None = None  # the measure on these rows
    value_low: float | None = None  # 95% interval
    value_high: float | None = None
    largest_target: float | None = None  # highest accuracy or precision that these rows could promise
    rows_needed: int | None = None  # estimate, where none can be promised; None: no number of rows is enough


def answer_rows(predictions: pl.DataFrame, yes: str | None = None) -> pl.DataFrame:
    """Return a row for each answer with what thresholds are about.

    Args:
        predictions: gold, label_names and label_probs, as in schemas.PREDICTIONS, of one method and definition.
            Optional are dataset, the question; `group`, rows that are not independent, else query_id; and `slice`.
        yes: name of the option yes; None: one of YES, in questions with two options.

    Returns question, group (a number), slice, answer, probability (the largest), correct, gold_prob, yes_prob and
    is_yes (null without an option yes), label_probs and gold, in the order of the rows. Raises MetricError for rows
    whose probabilities are no finite numbers, and where no row is left.
    """
    have, probs = predictions.columns, pl.col("label_probs")
    group = "group" if "group" in have else "query_id" if "query_id" in have else None
    names = pl.col("label_names")
    folded = names.list.eval(pl.element().str.to_lowercase())
    is_yes = folded.list.eval(pl.element().is_in([yes.lower()] if yes else list(YES)))
    place = pl.when(is_yes.list.sum() == 1, pl.lit(yes is not None) | (names.list.len() == 2)).then(
        is_yes.list.arg_max()
    )
    rows = predictions.select(
        question="dataset" if "dataset" in have else pl.lit("answers"),
        group=pl.col(group).rank("dense").cast(pl.Int64) if group else pl.int_range(pl.len()),
        slice=pl.col("slice").cast(pl.String) if "slice" in have else pl.lit(None, pl.String),
        answer=names.list.get(probs.list.arg_max()),
        probability=probs.list.max().round(DECIMALS),
        correct=probs.list.arg_max() == pl.col("gold"),
        gold_prob=probs.list.get(pl.col("gold")).round(DECIMALS),
        yes_prob=probs.list.get(place).round(DECIMALS),
        is_yes=pl.col("gold") == place,
        label_probs="label_probs",
        gold="gold",
    )
    bad = rows.select(~pl.col("probability").is_finite().fill_null(False) | pl.col("gold_prob").is_null()).to_series()
    if bad.any() or not rows.height:
        raise MetricError(
            f"{bad.sum()} of {rows.height} answers have no finite label probabilities or no gold label, the first at "
            f"row {bad.arg_max() or 0}. Thresholds need both in every row."
        )
    return rows


class _Scope(NamedTuple):
    """The rows that one threshold is about."""

    names: dict[str, Any]  # question, option and slice of a Threshold
    rows: pl.DataFrame

    def arrays(self, *columns: str) -> list[Any]:
        return [self.rows[name].to_numpy() for name in columns]

    @property
    def groups(self) -> Ints | None:
        """Return the group of each row; None where every row is its own."""
        groups = self.rows["group"]
        return None if groups.n_unique() == len(groups) else groups.to_numpy()


def _scopes(rows: pl.DataFrame, per: Per, *, by_slice: bool) -> list[_Scope]:
    """Return what thresholds are for: all rows, those of a question, of an answer to it, and of a slice of these."""
    by = [*(["question"] if per != "all" else []), *(["answer"] if per == "class" else [])]
    by += ["slice"] if by_slice else []
    parts = rows.partition_by(by, as_dict=True) if by else {(): rows}
    found = []
    for key, part in sorted(parts.items(), key=lambda item: tuple(map(str, item[0]))):
        given = dict(zip(by, key, strict=True))
        found.append(_Scope({"question": None, "option": given.pop("answer", None), "slice": None} | given, part))
    return found


def choose_thresholds(rows: pl.DataFrame, options: ThresholdOptions) -> list[Threshold]:
    """Return a threshold for each question, answer or slice, or why none can be promised.

    All promises hold together with the probability `options.assurance`: each has an equal part of the rest
    (Bonferroni). With a slice column each slice has its own.

    Args:
        rows: answer_rows.
        options: what is asked for.

    Raises ConfigError for a measure of the answer yes where no question has it.
    """
    scopes = _scopes(rows, options.per, by_slice=options.slice_column is not None)
    if options.measure != "accuracy":
        scopes = [scope for scope in scopes if not scope.rows["yes_prob"].null_count()]
        if not scopes:
            raise ConfigError(
                f"--measure {options.measure} needs questions with two options, one of them {', '.join(YES[:-1])} or "
                f"{YES[-1]}. Name the option that means yes with --yes."
            )
    alpha = (1 - options.assurance) / len(scopes)
    choose = _choose_share if options.measure in ("recall", "false_positive_rate") else _choose_rate
    rule = Threshold(measure=options.measure, target=options.target, alpha=alpha)
    return [choose(scope, replace(rule, **scope.names), options.limit, alpha) for scope in scopes]


def _looks(scope: _Scope, measure: Measure) -> selective.Looks:
    score, right = scope.arrays(*(("probability", "correct") if measure == "accuracy" else ("yes_prob", "is_yes")))
    return selective.looks(score, ~right, scope.groups)


def _choose_rate(scope: _Scope, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Return the threshold whose used answers have few errors."""
    at = _looks(scope, rule.measure)
    chosen = selective.choose(at, limit, alpha)
    found = applied(scope.rows, replace(rule, threshold=float(at.threshold[chosen.look]) if chosen else None))
    found = replace(found, largest_target=selective.largest_target(at, alpha))
    if not chosen:
        return replace(found, rows_needed=selective.n_needed(at, limit, alpha))
    low, high = selective.accuracy_interval(at, chosen)
    return replace(found, value_low=low, value_high=high)


def _choose_share(scope: _Scope, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Return the largest threshold that misses few of the true yes, or the smallest that lets few of the no through."""
    is_recall = rule.measure == "recall"
    of_kind = scope._replace(rows=scope.rows.filter(pl.col("is_yes") == is_recall))
    [scores] = of_kind.arrays("yes_prob")
    values = np.unique(scope.rows["yes_prob"].to_numpy())
    if is_recall:  # a threshold misses what is at most the value before it
        below = np.append(-1.0, values[:-1])
        cut = selective.loosest_cut(-below, -scores, limit, alpha, of_kind.groups)
        cut = None if cut is None else float(values[np.searchsorted(below, -cut)])
    else:
        cut = selective.loosest_cut(values[::-1], scores, limit, alpha, of_kind.groups)
    least = math.ceil(math.log(alpha) / math.log1p(-limit))  # rows of its kind, all on the right side
    needed = math.ceil(least * scope.rows.height / len(scores)) if cut is None and len(scores) else None
    return replace(applied(scope.rows, replace(rule, threshold=cut)), rows_needed=needed)


def applied(rows: pl.DataFrame, rule: Threshold) -> Threshold:
    """Return how a threshold does on rows that it is about: the share that is used, and the measure, with intervals."""
    if rule.measure != "accuracy" and rows["yes_prob"].null_count():
        raise ConfigError(f"A threshold of {rule.measure} is for questions with an option yes. Name it with --yes.")
    score = pl.col("probability" if rule.measure == "accuracy" else "yes_prob")
    scope = _Scope({}, rows.with_columns(used=score >= (math.inf if rule.threshold is None else rule.threshold)))
    within, hits = {
        "accuracy": (pl.col("used"), "correct"),
        "precision": (pl.col("used"), "is_yes"),
        "recall": (pl.col("is_yes"), "used"),
        "false_positive_rate": (~pl.col("is_yes"), "used"),
    }[rule.measure]
    part = _Scope({}, scope.rows.filter(within))
    n = part.rows.height if hits == "used" else rows.height
    rule = replace(rule, n=n, n_groups=rows["group"].n_unique())
    if rule.threshold is None:
        return rule
    [used], [right] = scope.arrays("used"), part.arrays(hits)
    share_low, share_high = selective.share_interval(used, scope.groups)
    value_low, value_high = selective.share_interval(right, part.groups)
    shares = {"n_used": int(used.sum()), "share": float(used.mean()), "share_low": share_low, "share_high": share_high}
    value = float(right.mean()) if len(right) else None
    return replace(rule, value=value, value_low=value_low, value_high=value_high, **shares)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Check:
    """A threshold on a second table: what it promised, and how it does there."""

    promised: Threshold
    found: Threshold
    verdict: Literal["holds", "broken", "open", "no rows"]
    """Whether the interval of the measure is on the right side of the target, on the wrong one, or holds it."""


def check_thresholds(rows: pl.DataFrame, thresholds: Sequence[Threshold]) -> list[Check]:
    """Apply thresholds to the answers of a second table, whose labels were not used to choose them."""
    return [_check(rows.filter(_is_about(each)), each) for each in thresholds if each.threshold is not None]


def _check(rows: pl.DataFrame, promised: Threshold) -> Check:
    found = applied(rows, promised) if rows.height else replace(promised, value=None)
    low, high, target = found.value_low, found.value_high, promised.target
    if found.value is None or low is None or high is None or target is None:
        return Check(promised=promised, found=found, verdict="no rows")
    if promised.measure == "false_positive_rate":
        low, high, target = 1 - high, 1 - low, 1 - target
    return Check(
        promised=promised, found=found, verdict="holds" if low >= target else "broken" if high < target else "open"
    )


def _is_about(threshold: Threshold) -> pl.Expr:
    named = {"question": threshold.question, "answer": threshold.option, "slice": threshold.slice}
    conditions = [pl.col(column).eq_missing(pl.lit(name)) for column, name in named.items() if name is not None]
    return pl.all_horizontal(pl.lit(True), *conditions)


def apply_thresholds(answers: pl.DataFrame, thresholds: Sequence[Threshold], yes: str | None = None) -> pl.DataFrame:
    """Add `threshold` and `is_used` to answers: the threshold that is for the row, and whether the answer is used.

    Rows need no gold label. A row that no threshold is for is not used; where several are, the strictest counts. A
    threshold of a measure of "yes" is compared with the probability of yes.

    Args:
        answers: label_names and label_probs; dataset and slice, where thresholds are for them.
        thresholds: of one file, as choose_thresholds returns.
        yes: name of the option yes.
    """
    named = [each for each in thresholds if each.threshold is not None]
    gold = {} if "gold" in answers.columns else {"gold": pl.lit(0, pl.Int64)}
    limit = pl.max_horizontal(pl.lit(None, pl.Float64), *(pl.when(_is_about(one)).then(one.threshold) for one in named))
    score = pl.col("probability" if {each.measure for each in named} <= {"accuracy"} else "yes_prob")
    rows = answer_rows(answers.with_columns(**gold), yes)
    return answers.hstack(rows.select(threshold=limit, is_used=(score >= limit).fill_null(False)))


def accuracies_at(rows: pl.DataFrame, options: ThresholdOptions) -> list[Threshold]:
    """Return the share that is used and its accuracy at the thresholds `options.at`, which promise nothing."""
    scopes = _scopes(rows, options.per, by_slice=options.slice_column is not None)
    return [applied(scope.rows, Threshold(**scope.names, threshold=each)) for scope in scopes for each in options.at]


def errors_above(rows: pl.DataFrame, threshold: float) -> pl.DataFrame:
    """Return the wrong answers that a threshold uses, the most certain first, with their row from 0."""
    wrong = rows.with_row_index("row").filter(~pl.col("correct"), pl.col("probability") >= threshold)
    return wrong.drop("label_probs", "yes_prob", "is_yes", "group").sort("probability", "row", descending=[True, False])


COVERAGE = pl.Schema(
    {
        "n": pl.Int64(),  # answers
        "n_groups": pl.Int64(),  # groups of answers that are not independent: queries, if no column names others
        "accuracy": pl.Float64(),
        # Area under the risk-coverage curve, and its excess over the area of the best possible order:
        "aurc": pl.Float64(),
        "aurc_low": pl.Float64(),
        "aurc_high": pl.Float64(),
        "excess_aurc": pl.Float64(),
        "excess_aurc_low": pl.Float64(),
        "excess_aurc_high": pl.Float64(),
        "calibration_error": pl.Float64(),  # ECE in ten bins
        "calibration_floor": pl.Float64(),  # what a calibrated model shows on as many answers
        "calibration_p": pl.Float64(),  # probability that a calibrated model shows as much
        "temperature": pl.Float64(),  # above 1: overconfident
        "temperature_low": pl.Float64(),
        "temperature_high": pl.Float64(),
        "set_min_probability": pl.Float64(),  # sets of the options that have it hold the true one with 90%
        "set_coverage": pl.Float64(),  # on these answers
        "set_coverage_low": pl.Float64(),  # 95% range of the true coverage
        "set_coverage_high": pl.Float64(),
        "set_size": pl.Float64(),  # mean number of options in a set
    }
)
"""What coverage says of the answers to a question."""

SET_ALPHA = 0.1
"""Share of conformal sets that may lack the true option."""


def coverage(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of COVERAGE for the answers of one question, or of a slice of them; rows are answer_rows."""
    scope = _Scope({}, rows)
    probability, correct, gold_prob = scope.arrays("probability", "correct", "gold_prob")
    area = selective.risk_coverage_area(probability, ~correct, scope.groups)
    bins = rows.select(confidence_bin(pl.col("probability"), last_bin_closed=True)).to_series().to_numpy()
    calibration = selective.calibration_test(probability, correct, bins, scope.groups)
    temperature = fit_temperature(rows["label_probs"], rows["gold"], scope.groups)
    sets = selective.conformal_sets(gold_prob, SET_ALPHA, scope.groups)
    in_set = rows["label_probs"].list.eval(pl.element() >= sets.min_probability).list.sum()
    covered = float((gold_prob >= sets.min_probability).mean())
    sizes = (rows.height, rows["group"].n_unique(), float(correct.mean()))
    set_values = (sets.min_probability, covered, sets.coverage_low, sets.coverage_high, float(in_set.mean()))  # type: ignore[arg-type]
    return dict(zip(COVERAGE, (*sizes, *area, *calibration, *temperature, *set_values), strict=True))


def by_question(rows: pl.DataFrame, *, by_slice: bool = False) -> pl.DataFrame:
    """Return COVERAGE of each question, or of each slice of it: `question`, `slice`, and the columns.

    Calibration is tested in each; `calibration_p_holm` is corrected for all of them.
    """
    from evaluator.statistics.paired import holm

    scopes = _scopes(rows, "question", by_slice=by_slice)
    found = [
        {"question": scope.names["question"], "slice": scope.names["slice"], **coverage(scope.rows)} for scope in scopes
    ]
    table = pl.DataFrame(found, schema={"question": pl.String(), "slice": pl.String(), **COVERAGE})
    return table.with_columns(calibration_p_holm=holm(pl.col("calibration_p")))


def curve(rows: pl.DataFrame) -> pl.DataFrame:
    """Return CURVE_POINTS of the risk-coverage curve: threshold, n_used, share, accuracy and its 95% interval."""
    scope = _Scope({}, rows)
    at = _looks(scope, "accuracy")
    wanted = np.searchsorted(at.n, np.linspace(0, rows.height, CURVE_POINTS + 1)[1:] - 1e-9)
    places = np.unique(np.minimum(wanted, len(at.n) - 1))
    n, right = at.n[places], (at.n - at.n_wrong)[places]
    low, high = selective.proportion_interval(right / at.design[places], n / at.design[places])
    columns = {"threshold": at.threshold[places], "n_used": n, "share": n / rows.height, "accuracy": right / n}
    return pl.DataFrame(columns | {"ci_low": low, "ci_high": high})


def route_rows(small: pl.DataFrame, large: pl.DataFrame, costs: tuple[float, float, float]) -> selective.Routing:
    """Judge routing from a small model to a large one: answer_rows of both on the same rows, in the same order."""
    if (
        small.height != large.height
        or not small["gold"].equals(large["gold"])
        or not small["question"].equals(large["question"])
    ):
        raise ConfigError("The two runs are not about the same rows: their questions or true labels differ.")
    scope = _Scope({}, small)
    probability, right = scope.arrays("probability", "correct")
    return selective.route(probability, right, large["correct"].to_numpy(), costs, scope.groups)
