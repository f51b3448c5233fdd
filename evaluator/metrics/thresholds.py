"""Measure coverage and calibration of answers with label probabilities, and choose thresholds with a promise.

An answer is used where the largest probability of its options is at least the threshold. Nothing here asks a model.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import ThresholdMeasure, ThresholdOptions, ThresholdPer
from evaluator.errors import ConfigError, MetricError
from evaluator.methods.calibration import fit_temperature
from evaluator.metrics.classification import confidence_bin
from evaluator.metrics.groups import PredictionGroup
from evaluator.schemas import COVERAGE, COVERAGE_KEY, RISK_COVERAGE, THRESHOLDS
from evaluator.statistics import selective
from evaluator.statistics.paired import holm

YES = ("yes", "true", "1", "positive")
"""Names of the option "yes" of a question with two options, in any case."""

DECIMALS = 9
"""Digits of probabilities that count: the same probability may have been computed in several ways."""

TABLES = {"coverage": COVERAGE, "risk_coverage": RISK_COVERAGE, "thresholds": THRESHOLDS}
"""Tables of a run, by name."""

TARGETS = (0.9, 0.95)
"""Accuracies that the thresholds of a run's page promise."""

CURVE_POINTS = 60
"""Points of a risk-coverage curve in a table, evenly over the share that is used."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold and its promise; on new answers, the same rule and how it did."""

    question: str | None = None  # dataset; None: all questions
    option: str | None = None  # the answer that it is for; None: any
    slice: str | None = None  # value of the slice column; None: all rows
    measure: ThresholdMeasure = "accuracy"
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
    largest_target: float | None = None  # highest accuracy or precision that could be promised, where this one cannot
    rows_needed: int | None = None  # estimate, where none can be promised; None: no number of rows is enough


def answer_rows(predictions: pl.DataFrame, yes: str | None = None) -> pl.DataFrame:
    """Return a row for each answer with the columns that thresholds need.

    Args:
        predictions: gold and label_probs, as in schemas.PREDICTIONS, of one method and definition. Optional are
            label_names, without which answers have no names; dataset, the question; `group`, rows that are not
            independent, else query_id; and `slice`.
        yes: name of the option yes; None: one of YES, in questions with two options.

    Returns question, group (a number), slice, answer, probability (the largest), correct, gold_prob, yes_prob and
    is_yes (null without an option yes), label_probs and gold, in the order of the rows. Raises MetricError for rows
    whose probabilities are no finite numbers, and where no row is left.
    """
    have, probs = predictions.columns, pl.col("label_probs")
    group = "group" if "group" in have else "query_id" if "query_id" in have else None
    if "label_names" not in have:
        predictions = predictions.with_columns(label_names=pl.lit([], pl.List(pl.String())))
    names = pl.col("label_names")
    alone = pl.int_range(pl.len()) + 1  # the group of a row that has none
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
    """Return thresholds without a value, of all rows or by question, answer and slice, and the rows they are about."""
    columns = {"question": per != "all", "answer": per == "class", "slice": by_slice}
    by = [column for column, is_apart in columns.items() if is_apart]
    parts = sorted((rows.partition_by(by, as_dict=True) if by else {(): rows}).items(), key=lambda part: str(part[0]))
    named = [(dict(zip(by, key, strict=True)), part) for key, part in parts]
    return [(Threshold(option=names.pop("answer", None), **names), part) for names, part in named]


def _groups(rows: pl.DataFrame) -> Ints | None:
    """Return the group of each row; None where every row is its own."""
    return None if rows["group"].n_unique() == rows.height else rows["group"].to_numpy()


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
    """Return the columns that a threshold is compared with, and that say whether an answer is right to use."""
    return ("probability", "correct") if measure == "accuracy" else ("yes_prob", "is_yes")


def compared(thresholds: Sequence[Threshold]) -> str:
    """Return the column of answer_rows that the thresholds of one file, which have one measure, are compared with."""
    return _columns(next((each.measure for each in thresholds), "accuracy"))[0]


def _looks(rows: pl.DataFrame, measure: ThresholdMeasure) -> selective.Looks:
    score, right = _columns(measure)
    return selective.looks(rows[score].to_numpy(), ~rows[right].to_numpy(), _groups(rows))


def _choose_rate(rows: pl.DataFrame, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Return the threshold whose used answers have few errors."""
    at = _looks(rows, rule.measure)
    chosen = selective.choose(at, limit, alpha)
    found = applied(rows, replace(rule, threshold=float(at.threshold[chosen.look]) if chosen else None))
    if not chosen:
        needed, largest = selective.n_needed(at, limit, alpha), selective.largest_target(at, alpha)
        return replace(found, rows_needed=needed, largest_target=largest)
    low, high = selective.accuracy_interval(at, chosen)
    return replace(found, value_low=low, value_high=high)


def _choose_share(rows: pl.DataFrame, rule: Threshold, limit: float, alpha: float) -> Threshold:
    """Return the largest threshold that misses few of the true yes, or the smallest that lets few of the no through."""
    is_recall = rule.measure == "recall"
    of_kind = rows.filter(pl.col("is_yes") == is_recall)
    scores, values = of_kind["yes_prob"].to_numpy(), np.unique(rows["yes_prob"].to_numpy())
    candidates = values[::-1]
    if is_recall:  # a threshold misses what is at most the value before it
        scores, candidates = -scores, -np.append(-1.0, values[:-1])
    cut, needed = selective.loosest_cut(candidates, scores, limit, alpha, _groups(of_kind)), None
    if cut is None:
        strictest = selective.looks(np.zeros(len(scores)), scores >= candidates[0], _groups(of_kind))
        least = math.log(alpha) / math.log1p(-limit) * strictest.design.max(initial=1.0)  # rows without a wrong one
        needed = selective.n_needed(strictest, limit, alpha) if strictest.n_wrong.any() else math.ceil(least)
    elif is_recall:
        cut = float(values[np.searchsorted(-candidates, -cut)])
    return replace(applied(rows, replace(rule, threshold=cut)), rows_needed=needed)


def counted(rows: pl.DataFrame, rule: Threshold) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Return rows with the column `used`, those that the measure is a share of, and the column that it is the share of.

    Raises ConfigError for a measure of yes where a question has no such option.
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
    """Return how a threshold does on rows that it is about: the share that is used, and the measure, with intervals."""
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
    """A threshold on a second table: its promise, and the measured value."""

    promised: Threshold
    found: Threshold
    verdict: Literal["promise holds", "promise broken", "not decided", "no rows"]
    """Whether the interval of the measure is on the right side of the target, on the wrong one, or holds it."""


def checked(rows: pl.DataFrame, promised: Threshold) -> Check:
    """Apply a threshold to the answers of a second table, whose labels were not used to choose it."""
    found = applied(rows.filter(is_about(promised)), promised)
    low, high, target = found.value_low, found.value_high, promised.target
    if found.value is None or low is None or high is None or target is None:
        return Check(promised=promised, found=found, verdict="no rows")
    if promised.measure == "false_positive_rate":
        low, high, target = 1 - high, 1 - low, 1 - target
    verdict: Any = "promise holds" if low >= target else "promise broken" if high < target else "not decided"
    return Check(promised=promised, found=found, verdict=verdict)


def is_about(threshold: Threshold) -> pl.Expr:
    """Return which of answer_rows a threshold is for."""
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

    Raises ConfigError for answers without slices, where thresholds are for these.
    """
    named = [each for each in thresholds if each.threshold is not None]
    if "slice" not in answers.columns and any(each.slice is not None for each in named):
        raise ConfigError("Each threshold is for one slice. Give the answers a column `slice`.")
    limit = pl.max_horizontal(pl.lit(None, pl.Float64), *(pl.when(is_about(one)).then(one.threshold) for one in named))
    score = pl.col(compared(thresholds))
    rows = answer_rows(answers.with_columns(gold=pl.lit(0, pl.Int64)), yes)
    return answers.hstack(rows.select(threshold=limit, is_used=(score >= limit).fill_null(False)))


def accuracies_at(rows: pl.DataFrame, options: ThresholdOptions) -> list[Threshold]:
    """Return the share that is used and its accuracy at the thresholds `options.at`, which promise nothing."""
    scopes = _scopes(rows, options.per, by_slice=options.slice_column is not None)
    return [applied(part, replace(rule, threshold=each)) for rule, part in scopes for each in options.at]


SET_ALPHA = 0.1
"""Share of conformal sets that may lack the true option."""


def coverage(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the numbers of schemas.COVERAGE for answer_rows of one question, or of a slice of it."""
    probability, correct, gold_prob = (rows[name].to_numpy() for name in ("probability", "correct", "gold_prob"))
    groups = _groups(rows)
    area = selective.risk_coverage_area(probability, ~correct, groups)
    bins = rows.select(confidence_bin(pl.col("probability"), is_last_closed=True)).to_series().to_numpy()
    calibration = selective.calibration_test(probability, correct, bins, groups)
    temperature = fit_temperature(rows["label_probs"], rows["gold"], groups)
    sets = selective.conformal_sets(gold_prob, SET_ALPHA, groups)
    in_set = pl.col("label_probs").list.eval(pl.element().round(DECIMALS) >= sets.min_probability).list.sum()
    sizes = (rows.height, rows["group"].n_unique(), float(correct.mean()))
    set_values = (float((gold_prob >= sets.min_probability).mean()), rows.select(in_set.mean()).item())
    values = (*sizes, *area, *calibration, *temperature, *sets, *set_values)
    return dict(zip(list(COVERAGE)[len(COVERAGE_KEY) :], values, strict=True))


def by_question(rows: pl.DataFrame, *, by_slice: bool = False) -> pl.DataFrame:
    """Return `question`, `slice` and coverage of each question, or of each slice of it.

    Calibration is tested in each; `calibration_p_holm` is corrected for all of them.
    """
    scopes = _scopes(rows, "question", by_slice=by_slice)
    found = [{"question": rule.question, "slice": rule.slice} | coverage(part) for rule, part in scopes]
    numbers = {name: dtype for name, dtype in COVERAGE.items() if name not in COVERAGE_KEY}
    table = pl.DataFrame(found, schema={"question": pl.String(), "slice": pl.String(), **numbers})
    return table.with_columns(calibration_p_holm=holm(pl.col("calibration_p")))


def curve(rows: pl.DataFrame) -> pl.DataFrame:
    """Return CURVE_POINTS of the risk-coverage curve: threshold, n_used, share, accuracy and its 95% interval."""
    at = _looks(rows, "accuracy")
    wanted = np.searchsorted(at.n, np.linspace(0, rows.height, CURVE_POINTS + 1)[1:] - 1e-9)
    places = np.unique(np.minimum(wanted, len(at.n) - 1))
    n, right = at.n[places], (at.n - at.n_wrong)[places]
    low, high = selective.proportion_interval(right / at.design[places], n / at.design[places])
    columns = {"threshold": at.threshold[places], "n_used": n, "share": n / rows.height, "accuracy": right / n}
    return pl.DataFrame(columns | {"accuracy_low": low, "accuracy_high": high})


def coverage_tables(group: PredictionGroup) -> dict[str, pl.DataFrame]:
    """Return the rows of the tables coverage, risk_coverage and thresholds about one group of predictions."""
    rows = answer_rows(group.rows)  # without names of labels, a copy of which for each row takes much memory
    promises = [choose_thresholds(rows, ThresholdOptions(target=target))[0] for target in TARGETS]
    found = {
        "coverage": pl.DataFrame([coverage(rows)]),
        "risk_coverage": curve(rows),
        "thresholds": pl.DataFrame(promises, infer_schema_length=None),
    }
    key = {name: pl.lit(group.key[name]) for name in COVERAGE_KEY}
    return {name: table.with_columns(**key).select(TABLES[name].names()) for name, table in found.items()}


def joined_tables(tables: Sequence[dict[str, pl.DataFrame]]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the tables of all groups by name, sorted by their keys."""
    for name, schema in TABLES.items():
        rows = pl.concat([schema.to_frame(), *(table[name].cast(schema) for table in tables)])
        yield name, rows.sort(*COVERAGE_KEY, *({"target", "threshold"} & {*schema}))


@dataclass(frozen=True, kw_only=True)
class ThresholdFile:
    """What thresholds.json holds."""

    model: str
    method: str
    assurance: float  # probability with which all promises hold together
    yes: str | None  # name of the option yes, where one was given
    group_column: str | None  # rows with the same cell were not taken as independent
    thresholds: tuple[Threshold, ...]
    part: str | None = None  # of the suite, where one was given
    slice_column: str | None = None  # whose cells thresholds are for, each value by itself
    version: int = 1


class ThresholdReport(NamedTuple):
    """What stored answers say of coverage and thresholds."""

    file: ThresholdFile
    model: str  # that answered
    parts: Sequence[str]  # of the run whose first part was taken, as none was given
    coverage: pl.DataFrame  # question, slice and schemas.COVERAGE
    rows: pl.DataFrame  # answer_rows
    at: Sequence[Threshold]  # given thresholds, which promise nothing
    checks: Sequence[Check]
    routing: selective.Routing | None

    def errors(self) -> pl.DataFrame:
        """Return wrong answers that a given threshold, or else a chosen one, uses; the most certain first.

        Under a measure of "yes" these are the answers that it calls yes, and `probability` is that of yes.
        """
        named = [each for each in (self.at or self.file.thresholds) if each.threshold is not None]
        score, right = _columns(next((each.measure for each in named), "accuracy"))
        is_used = (is_about(each) & (pl.col(score) >= each.threshold) for each in named)
        rows = self.rows.with_row_index("row").with_columns(probability=score)
        wrong = rows.filter(pl.any_horizontal(pl.lit(False), *is_used), ~pl.col(right))
        shown = wrong.drop("label_probs", "group", "yes_prob", "is_yes", "correct")
        return shown.sort("probability", "row", descending=[True, False])


def route_rows(small: pl.DataFrame, large: pl.DataFrame, costs: Sequence[float]) -> selective.Routing:
    """Judge routing from a small model to a large one: answer_rows of both on the same rows, in the same order."""
    asked = ["question", "gold"]
    if not small.select(asked).equals(large.select(asked)):
        raise ConfigError("The two runs are not about the same rows: their questions or true labels differ.")
    columns = (small["probability"], small["correct"], large["correct"])
    probability, right, right_of_large = (column.to_numpy() for column in columns)
    return selective.route(probability, right, right_of_large, costs, _groups(small))
