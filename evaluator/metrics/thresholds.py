"""Measure coverage and calibration of answers with label probabilities, and choose thresholds with a guarantee.

An answer is used if the largest probability of its options is at least the threshold. All functions work on stored
answers; none runs a model. A *promise* is a target for a measure (such as accuracy >= 0.9) that holds for new answers
with a stated probability.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtr, stdtrit

from evaluator.arrays import Bools, Ints
from evaluator.config import ThresholdMeasure, ThresholdOptions, ThresholdPer
from evaluator.errors import ConfigError, MetricError
from evaluator.methods.calibration import fit_temperature
from evaluator.metrics.classification import confidence_bin
from evaluator.metrics.groups import PredictionGroup
from evaluator.schemas import COVERAGE, COVERAGE_KEY, RISK_COVERAGE, THRESHOLDS
from evaluator.statistics import selective
from evaluator.statistics.paired import holm

YES = ("yes", "true", "1", "positive")
"""Names that mean "yes" in a question with two options, in upper or lower case."""

DECIMALS = 9
"""Decimals that probabilities are rounded to: equal probabilities may differ by rounding errors."""

TABLES = {"coverage": COVERAGE, "risk_coverage": RISK_COVERAGE, "thresholds": THRESHOLDS}
"""Tables of a run, by name."""

PROMISES = (ThresholdOptions(target=0.9), ThresholdOptions(target=0.95))
"""Target accuracies of the thresholds on a run's page."""

CURVE_POINTS = 60
"""Maximum number of points of a risk-coverage curve in a table, evenly spaced in the share of used answers."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold, its promise, and its measured values on the rows it was chosen on, or on new rows."""

    question: str | None = None  # dataset; None: all questions
    option: str | None = None  # predicted answer that the threshold applies to; None: any answer
    slice: str | None = None  # value of the slice column; None: all rows
    measure: ThresholdMeasure = "accuracy"
    target: float | None = None  # promised value of the measure; None: no promise
    alpha: float | None = None  # probability that the promise of this threshold fails
    threshold: float | None = None  # None: no threshold fulfils the promise
    n: int = 0  # number of rows; for recall those with true answer yes, for a false-positive rate those with no
    n_groups: int = 0  # number of independent groups in these rows
    n_used: int = 0  # number of used answers; for the measures of "yes", number of answers yes
    share: float | None = None  # n_used as a share of all rows
    share_low: float | None = None  # 95% interval
    share_high: float | None = None
    value: float | None = None  # measured value of the measure
    value_low: float | None = None  # 95% interval
    value_high: float | None = None
    largest_target: float | None = None  # highest accuracy or precision that could be promised, if the target cannot
    rows_needed: int | None = None  # estimated number of rows, if the target cannot be promised; None: never enough


SCOPE = {"question": "question", "answer": "option", "slice": "slice"}
"""Column of answer_rows -> the field of Threshold that has its value, if the threshold is for this value alone."""


def answer_rows(predictions: pl.DataFrame, yes: str | None = None) -> pl.DataFrame:
    """Return one row an answer with the columns that thresholds need, in the order of the predictions.

    Args:
        predictions: gold and label_probs, as in schemas.PREDICTIONS, of one method and definition. Optional columns:
            label_names (without them answers have no names); dataset, the question; `group`, which identifies rows
            that are not independent (default: query_id); and `slice`.
        yes: name of the option that means yes; None: one of YES, in questions with two options.

    Returns:
        question, group (a number), slice, answer, probability (of the answer), correct, gold_prob, yes_prob and is_yes
        (both null without an option yes), label_probs and gold.

    Raises MetricError where there are no rows, where probabilities are missing or not finite, or where the gold label
    has no probability.
    """
    have, probs = predictions.columns, pl.col("label_probs")
    group = "group" if "group" in have else "query_id" if "query_id" in have else None
    if "label_names" not in have:
        predictions = predictions.with_columns(label_names=pl.lit([], pl.List(pl.String())))
    names = pl.col("label_names")
    alone = pl.int_range(pl.len()) + 1  # a separate group for each row without a group
    folded = names.list.eval(pl.element().str.to_lowercase())
    is_yes = folded.list.eval(pl.element().is_in([yes.lower()] if yes else list(YES)))
    is_one = (is_yes.list.sum() == 1) & (pl.lit(yes is not None) | (names.list.len() == 2))
    place = pl.when(is_one).then(is_yes.list.arg_max())
    rows = predictions.select(
        question="dataset" if "dataset" in have else pl.lit("answers"),
        group=pl.col(group).rank("dense").cast(pl.Int64).fill_null(-alone) if group else alone,
        slice=pl.col("slice").cast(pl.String).fill_null("missing") if "slice" in have else pl.lit(None, pl.String),
        answer=names.list.get(probs.list.arg_max(), null_on_oob=True),
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


def _scopes(rows: pl.DataFrame, per: ThresholdPer, *, by_slice: bool) -> list[tuple[Threshold, pl.DataFrame]]:
    """Split rows into parts with separate thresholds, by question, answer or slice.

    Returns each part with a Threshold that names the part and has no other values.
    """
    is_apart = {"question": per != "all", "answer": per == "class", "slice": by_slice}
    fields = {column: field for column, field in SCOPE.items() if is_apart[column]}
    parts = rows.partition_by([*fields], as_dict=True) if fields else {(): rows}
    in_order = sorted(parts.items(), key=lambda part: str(part[0]))
    return [(Threshold(**dict(zip(fields.values(), key, strict=True))), part) for key, part in in_order]


def _groups(rows: pl.DataFrame) -> Ints | None:
    """Return the group of each row; None where all groups have one row."""
    return None if rows["group"].n_unique() == rows.height else rows["group"].to_numpy()


def choose_thresholds(rows: pl.DataFrame, options: ThresholdOptions) -> list[Threshold]:
    """Choose a threshold for each question, answer or slice, with its promise.

    All promises hold together with probability `options.assurance`: each promise may fail with an equal share of the
    remaining probability (Bonferroni).

    Args:
        rows: answer_rows.
        options: measure, target, assurance, and whether thresholds are for all rows, each question, or each answer.

    Returns:
        One Threshold a part of the rows. Where no threshold fulfils the promise, `threshold` is None, and rows_needed
        and largest_target (accuracy and precision only) are set.

    Raises ConfigError for a measure of the answer yes if no question has an option yes.
    """
    scopes = _scopes(rows, options.per, by_slice=options.slice_column is not None)
    if options.measure != "accuracy":
        scopes = [(rule, part) for rule, part in scopes if not part["yes_prob"].null_count()]
        if not scopes:
            raise ConfigError(
                f"--measure {options.measure} needs questions with two options, one of them {', '.join(YES[:-1])} or "
                f"{YES[-1]}. Name the option that means yes with --yes."
            )
    alpha = (1 - options.assurance) / len(scopes)
    choose = _choose_share if options.measure in ("recall", "false_positive_rate") else _choose_rate
    asked = {"measure": options.measure, "target": options.target, "alpha": alpha}
    return [choose(part, replace(rule, **asked), options.limit, alpha) for rule, part in scopes]  # type: ignore[arg-type]


def _columns(measure: ThresholdMeasure) -> tuple[str, str]:
    """Return two columns: the score that a threshold is compared with, and whether using the answer is right."""
    return ("probability", "correct") if measure == "accuracy" else ("yes_prob", "is_yes")


def compared(thresholds: Sequence[Threshold]) -> str:
    """Return the column of answer_rows to compare with the thresholds of one file, which all have the same measure."""
    return _columns(next((each.measure for each in thresholds), "accuracy"))[0]


def _looks(rows: pl.DataFrame, measure: ThresholdMeasure) -> selective.Looks:
    score, right = _columns(measure)
    return selective.looks(rows[score].to_numpy(), ~rows[right].to_numpy(), _groups(rows))


def _choose_rate(rows: pl.DataFrame, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Choose the loosest threshold at which the error rate of used answers is at most `limit`."""
    at = _looks(rows, rule.measure)
    chosen = selective.choose(at, limit, alpha)
    if not chosen:
        needed, largest = selective.n_needed(at, limit, alpha), selective.largest_target(at, alpha)
        return replace(applied(rows, rule), rows_needed=needed, largest_target=largest)
    low, high = selective.accuracy_interval(at, chosen)
    found = applied(rows, replace(rule, threshold=float(at.threshold[chosen.look])))
    return replace(found, value_low=low, value_high=high)


def _choose_share(rows: pl.DataFrame, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Choose a threshold of recall (the largest that holds) or of the false-positive rate (the smallest that holds).

    `limit` is the largest share of true yes below the threshold, or of true no at or above it. This share grows from
    one threshold to the next, so the first test that fails ends the search (fixed sequence).
    """
    is_recall = rule.measure == "recall"
    of_kind = rows.filter(pl.col("is_yes") == is_recall)
    scores, groups = of_kind["yes_prob"].to_numpy(), _groups(of_kind)
    values = np.unique(rows["yes_prob"].to_numpy())
    strictest_first = values if is_recall else values[::-1]

    def wrong_at(n: int) -> Bools:
        """Return which rows are wrong at the n-th strictest threshold."""
        threshold = strictest_first[n - 1]
        return np.asarray(scores < threshold if is_recall else scores >= threshold)

    n_passed = selective.last_passing(
        len(values), lambda n: selective.share_is_shown(wrong_at(n), limit, alpha, groups)
    )
    if n_passed:
        return applied(rows, replace(rule, threshold=float(strictest_first[n_passed - 1])))
    # Even the strictest threshold fails: estimate the number of rows with which it would pass.
    strictest = selective.looks(np.zeros(len(scores)), wrong_at(1), groups)
    needed = math.ceil(selective.rows_without_errors(limit, alpha) * strictest.design.max(initial=1.0))
    if strictest.n_wrong.any():
        needed = selective.n_needed(strictest, limit, alpha)
    return replace(applied(rows, rule), rows_needed=needed)


def counted(rows: pl.DataFrame, rule: Threshold) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Return the rows and the column from which a measure at a threshold is computed.

    Returns:
        All rows with the column `used`; the rows in the denominator of the measure; and the boolean column whose mean
        over these rows is the measure.

    Raises ConfigError for a measure of the answer yes where a question has no option yes.
    """
    if rule.measure != "accuracy" and rows["yes_prob"].null_count():
        raise ConfigError(f"A threshold of {rule.measure} is for questions with an option yes. Name it with --yes.")
    score = pl.col(_columns(rule.measure)[0])
    rows = rows.with_columns(used=score >= (math.inf if rule.threshold is None else rule.threshold))
    within, hits = {
        "accuracy": (pl.col("used"), "correct"),
        "precision": (pl.col("used"), "is_yes"),
        "recall": (pl.col("is_yes"), "used"),
        "false_positive_rate": (~pl.col("is_yes"), "used"),
    }[rule.measure]
    return rows, rows.filter(within), hits


def applied(rows: pl.DataFrame, rule: Threshold) -> Threshold:
    """Return a threshold with its values on rows that it applies to: share of used answers and measure, with intervals.

    Without a `threshold`, only n and n_groups are set.
    """
    rows, part, hits = counted(rows, rule)
    about = part if hits == "used" else rows
    rule = replace(rule, n=about.height, n_groups=about["group"].n_unique())
    if rule.threshold is None:
        return rule
    used, right = rows["used"].to_numpy(), part[hits].to_numpy()
    share_low, share_high = selective.share_interval(used, _groups(rows))
    value_low, value_high = selective.share_interval(right, _groups(part))
    share, value = (float(hit.mean()) if len(hit) else None for hit in (used, right))
    shares = {"n_used": int(used.sum()), "share": share, "share_low": share_low, "share_high": share_high}
    return replace(rule, value=value, value_low=value_low, value_high=value_high, **shares)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Check:
    """The check of a threshold's promise on a second table of answers."""

    promised: Threshold
    found: Threshold  # the same threshold with its values on the second table
    verdict: Literal["promise holds", "promise broken", "not decided", "no rows"]
    """Whether the 95% interval of the measure is on the right side of the target, on the wrong side, or contains the
    target; "no rows" if there is no measured value or no target."""


def checked(rows: pl.DataFrame, promised: Threshold) -> Check:
    """Check a threshold's promise on answers whose labels were not used to choose the threshold.

    Args:
        rows: answer_rows of a second table.
        promised: a threshold, as choose_thresholds returns.
    """
    found = applied(rows.filter(is_about(promised)), promised)
    low, high, target = found.value_low, found.value_high, promised.target
    if found.value is None or low is None or high is None or target is None:
        return Check(promised=promised, found=found, verdict="no rows")
    if promised.measure == "false_positive_rate":  # lower is better: compare the complements
        low, high, target = 1 - high, 1 - low, 1 - target
    verdict: Any = "promise holds" if low >= target else "promise broken" if high < target else "not decided"
    return Check(promised=promised, found=found, verdict=verdict)


def is_about(threshold: Threshold) -> pl.Expr:
    """Return the condition on answer_rows under which a threshold applies to a row."""
    named = {column: getattr(threshold, field) for column, field in SCOPE.items()}
    conditions = [pl.col(column).eq_missing(pl.lit(name)) for column, name in named.items() if name is not None]
    return pl.all_horizontal(pl.lit(True), *conditions)


def apply_thresholds(answers: pl.DataFrame, thresholds: Sequence[Threshold], yes: str | None = None) -> pl.DataFrame:
    """Add `threshold` and `is_used` to answers: the threshold that applies to the row, and whether the answer is used.

    Rows need no gold label. An answer without a threshold is not used; if several thresholds apply, the largest
    counts. A threshold of a measure of "yes" is compared with the probability of yes.

    Args:
        answers: label_names and label_probs; also dataset and slice, if thresholds depend on them.
        thresholds: thresholds of one file, as choose_thresholds returns.
        yes: name of the option that means yes.

    Raises ConfigError where thresholds depend on the slice and answers have no column `slice`.
    """
    named = [each for each in thresholds if each.threshold is not None]
    if "slice" not in answers.columns and any(each.slice is not None for each in named):
        raise ConfigError("Each threshold is for one slice. Give the answers a column `slice`.")
    limit = pl.max_horizontal(pl.lit(None, pl.Float64), *(pl.when(is_about(one)).then(one.threshold) for one in named))
    score = pl.col(compared(thresholds))
    rows = answer_rows(answers.with_columns(gold=pl.lit(0, pl.Int64)), yes)
    return answers.hstack(rows.select(threshold=limit, is_used=(score >= limit).fill_null(False)))


def accuracies_at(rows: pl.DataFrame, options: ThresholdOptions) -> list[Threshold]:
    """Return the share of used answers and their accuracy at the given thresholds `options.at`, without a promise."""
    scopes = _scopes(rows, options.per, by_slice=options.slice_column is not None)
    return [applied(part, replace(rule, threshold=each)) for rule, part in scopes for each in options.at]


SET_ALPHA = 0.1
"""Largest share of conformal sets that may lack the true option."""


def coverage(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the non-key columns of schemas.COVERAGE for answer_rows of one question, or of a slice of it."""
    probability, correct, gold_prob = (rows[name].to_numpy() for name in ("probability", "correct", "gold_prob"))
    groups = _groups(rows)
    bins = rows.select(confidence_bin(pl.col("probability"), is_last_closed=True)).to_series().to_numpy()
    temperature = fit_temperature(rows["label_probs"], rows["gold"], groups)
    area = selective.risk_coverage_area(probability, ~correct, groups)
    calibration = selective.calibration_test(probability, correct, bins, groups)
    sets = selective.conformal_sets(gold_prob, SET_ALPHA, groups)
    in_set = pl.col("label_probs").list.eval(pl.element().round(DECIMALS) >= sets.min_probability).list.sum()
    sizes = (rows.height, rows["group"].n_unique(), float(correct.mean()))
    set_values = (float((gold_prob >= sets.min_probability).mean()), rows.select(in_set.mean()).item())
    values = (*sizes, *area, *calibration, *temperature, *sets, *set_values)
    return dict(zip(list(COVERAGE)[len(COVERAGE_KEY) :], values, strict=True))


def by_question(rows: pl.DataFrame, *, by_slice: bool = False) -> pl.DataFrame:
    """Return `question`, `slice` and the columns of `coverage`, one row for each question, or for each slice of it.

    `calibration_p_holm` and `temperature_p_holm` are the p-values of the calibration test, and of the test that the
    temperature is 1, corrected over all rows. The latter is at most 0.05 without a correction where the interval of the
    temperature excludes 1.
    """
    scopes = _scopes(rows, "question", by_slice=by_slice)
    found = [{"question": rule.question, "slice": rule.slice} | coverage(part) for rule, part in scopes]
    numbers = {name: dtype for name, dtype in COVERAGE.items() if name not in COVERAGE_KEY}
    table = pl.DataFrame(found, schema={"question": pl.String(), "slice": pl.String(), **numbers})
    # The interval is Student's for log T; of an unbounded end the other one has the half-width.
    value, low, high = (table[name].to_numpy() for name in ("temperature", "temperature_low", "temperature_high"))
    freedom = table["n_groups"].to_numpy() - 1
    with np.errstate(divide="ignore"):
        reach = np.minimum(np.log(high / value), np.log(value / low))
    p = 2 * stdtr(freedom, -stdtrit(freedom, 0.975) * np.abs(np.log(value)) / reach)
    return table.with_columns(
        calibration_p_holm=holm(pl.col("calibration_p")), temperature_p_holm=holm(pl.lit(p).fill_nan(None))
    )


def curve(rows: pl.DataFrame) -> pl.DataFrame:
    """Return up to CURVE_POINTS of the risk-coverage curve: threshold, n_used, share, accuracy and its 95% interval."""
    at = _looks(rows, "accuracy")
    wanted = np.searchsorted(at.n, np.linspace(0, rows.height, CURVE_POINTS + 1)[1:] - 1e-9)
    places = np.unique(np.minimum(wanted, len(at.n) - 1))
    n, right = at.n[places], (at.n - at.n_wrong)[places]
    low, high = selective.proportion_interval(right / at.design[places], n / at.design[places])
    columns = {"threshold": at.threshold[places], "n_used": n, "share": n / rows.height, "accuracy": right / n}
    return pl.DataFrame(columns | {"accuracy_low": low, "accuracy_high": high})


def coverage_tables(group: PredictionGroup) -> dict[str, pl.DataFrame]:
    """Return one group's rows of the tables coverage, risk_coverage and thresholds."""
    rows = answer_rows(group.rows)  # group.rows has no label_names: a copy of them in each row takes much memory
    promises = [choose_thresholds(rows, options)[0] for options in PROMISES]
    found = {
        "coverage": pl.DataFrame([coverage(rows)]),
        "risk_coverage": curve(rows),
        "thresholds": pl.DataFrame(promises, infer_schema_length=None),
    }
    key = {name: pl.lit(group.key[name]) for name in COVERAGE_KEY}
    return {name: table.with_columns(**key).select(TABLES[name].names()) for name, table in found.items()}


def joined_tables(tables: Sequence[dict[str, pl.DataFrame]]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield TABLES of all groups by name, sorted by their keys.

    Args:
        tables: coverage_tables of each group.
    """
    for name, schema in TABLES.items():
        rows = pl.concat([schema.to_frame(), *(table[name].cast(schema) for table in tables)])
        yield name, rows.sort(*COVERAGE_KEY, *({"target", "threshold"} & {*schema}))


@dataclass(frozen=True, kw_only=True)
class ThresholdFile:
    """The contents of thresholds.json."""

    model: str
    method: str
    assurance: float  # probability that all promises hold together
    yes: str | None  # name of the option that means yes, if given
    group_column: str | None  # column whose equal cells mark rows that are not independent
    thresholds: tuple[Threshold, ...]
    part: str | None = None  # part of the suite, if given
    slice_column: str | None = None  # column with a separate threshold for each of its values
    version: int = 1


class ThresholdReport(NamedTuple):
    """Coverage, thresholds, checks and routing of stored answers."""

    file: ThresholdFile
    model: str  # name of the model that answered
    parts: Sequence[str]  # parts of the run, if none was given and the first was used
    coverage: pl.DataFrame  # columns question and slice, and numbers of schemas.COVERAGE
    rows: pl.DataFrame  # answer_rows
    at: Sequence[Threshold]  # given thresholds, without a promise
    checks: Sequence[Check]
    routing: selective.Routing | None

    def errors(self) -> pl.DataFrame:
        """Return the wrong answers that are used at a given threshold, or else at a chosen one; most certain first.

        For a measure of "yes", these are the rows answered yes whose true answer is no, and `probability` is the
        probability of yes.
        """
        named = [each for each in (self.at or self.file.thresholds) if each.threshold is not None]
        score, right = _columns(next((each.measure for each in named), "accuracy"))
        is_used = (is_about(each) & (pl.col(score) >= each.threshold) for each in named)
        rows = self.rows.with_row_index("row").with_columns(probability=score)
        wrong = rows.filter(pl.any_horizontal(pl.lit(False), *is_used), ~pl.col(right))
        shown = wrong.drop("label_probs", "group", "yes_prob", "is_yes", "correct")
        return shown.sort("probability", "row", descending=[True, False])


def route_rows(small: pl.DataFrame, large: pl.DataFrame, costs: Sequence[float]) -> selective.Routing:
    """Judge routing from a small model to a large one.

    Args:
        small, large: answer_rows of both models on the same rows in the same order.
        costs: cost of a call of the small model, of a call of the large model, and of a wrong answer.

    Raises ConfigError where questions or gold labels of the two differ.
    """
    asked = ["question", "gold"]
    if not small.select(asked).equals(large.select(asked)):
        raise ConfigError("The two runs are not about the same rows: their questions or true labels differ.")
    columns = (small["probability"], small["correct"], large["correct"])
    probability, right, right_of_large = (column.to_numpy() for column in columns)
    return selective.route(probability, right, right_of_large, costs, _groups(small))
