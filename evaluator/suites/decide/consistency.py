"""Measure what should not matter: how far answers change with the order of options, wording, negation and more.

A query is answered as it is (template 0) and in variations. No measure but the accuracies needs true options.

Compare accuracies with cheap baselines: a classifier of words, and the question without demonstrations.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from warnings import catch_warnings, simplefilter

import numpy as np
import polars as pl

from evaluator.decisions.questions import AMONG, FORM, NEGATION, ORDER, REPEAT, SPACING, VARIED, WORDING, QuestionKind
from evaluator.metrics.classification import Measured, mean_metric, metric_values
from evaluator.metrics.groups import Diagnostic, PredictionGroup
from evaluator.metrics.total_error import CrossedAnswers, Design, Headline, TotalErrors, crossed_cells
from evaluator.schemas import BASELINES, BASELINES_KEY, VARIANCE_COMPONENTS, VARIANCE_COMPONENTS_KEY
from evaluator.statistics.paired import paired_interval, paired_test
from evaluator.statistics.selective import share_interval
from evaluator.suites.decide.prompts import INPUTS, MAX_ORDERS, ZERO_SHOT, default_order

FLIPS, DISTANCE, ACCURACY, FIRST = "flips", "distance", "accuracy", "first"
"""Measures, in the names of metrics after the part: `order_flips`."""


def variation_effect(group: PredictionGroup, kinds: Mapping[str, QuestionKind]) -> dict[str, Measured]:
    """Measure a part of VARIED, with intervals over queries; `kinds` are those of questions whose kind is known.

    PART_flips is the share of variations with another answer than the question as it is, PART_distance the mean total
    variation distance between their probabilities; both are in [0, 1]. PART_accuracy is the accuracy over all
    variations, of queries with true options. order_first is the share of answers that name the option shown first:
    1/k for k options where order does not matter.
    """
    part, varied, pred = group.key["part"], changes(group.rows), pl.col("pred")
    measures = {FLIPS: (varied, pl.col("flips")), DISTANCE: (varied, pl.col("distance"))}
    if (known := group.rows.drop_nulls("gold")).height:
        measures[ACCURACY] = (known, pred == pl.col("gold"))
    is_rotation = group.rows["template"].is_between(0, group.n_labels - 1).all()
    if part == ORDER and group.n_labels <= MAX_ORDERS and is_rotation:
        first = default_order(kinds.get(group.key["dataset"], "choice"), group.n_labels)
        shown_first = pl.col("template").replace_strict(dict(enumerate(first)), return_dtype=pl.Int64)
        measures[FIRST] = (group.rows, pred == shown_first)
    found = dict[str, Measured]()
    for measure, (rows, of) in measures.items():
        name = f"{part}_{measure}"
        [measured] = metric_values(rows, group.n_labels, {name: mean_metric(name, of)}).values()
        found[name] = measured._replace(sizes=replace(group, rows=rows).sizes if measure == ACCURACY else None)
    return found


def changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return query_id, template, flips (0 or 1) and distance of each variation against template 0 of its query.

    Args:
        rows: query_id, template, pred and label_probs.
    """
    plain = rows.filter(template=0).select("query_id", plain="label_probs", plain_pred="pred")
    varied = rows.filter(pl.col("template") > 0).join(plain, on="query_id", maintain_order="left")
    gaps = (pl.col("label_probs") - pl.col("plain")).list.eval(pl.element().abs()).list.sum()
    return varied.select(
        "query_id",
        "template",
        flips=(pl.col("pred") != pl.col("plain_pred")).cast(pl.Float64),
        distance=(gaps / 2).clip(0.0, 1.0),
    )


TITLES = {
    FORM: "Letters or names",
    ORDER: "Order of options",
    WORDING: "Wording",
    NEGATION: "Negation",
    SPACING: "Spaces and case",
    AMONG: "Other questions before it",
    REPEAT: "Repetition",
}
"""Part -> the property of prompts that changes in it."""


def diagnostics(kinds: Mapping[str, QuestionKind]) -> tuple[Diagnostic, ...]:
    """Make a diagnostic of each part that should change no answer, for questions (datasets) of these kinds."""
    return tuple(
        Diagnostic(
            part=part,
            measure=partial(variation_effect, kinds=kinds),
            metric=f"{part}_{FLIPS}",
            title=f"{title}: other answers",
            lower_is_better=True,
            titles={
                f"{part}_{DISTANCE}": f"{title}: distance of probabilities",
                f"{part}_{ACCURACY}": f"{title}: accuracy over all variations",
            }
            | ({f"{ORDER}_{FIRST}": f"{title}: answers that name the first"} if part == ORDER else {}),
        )
        for part, title in TITLES.items()
    )


def total_errors(main_part: str, independent: bool) -> TotalErrors:
    """Return the total errors of accuracies in the form of the variations: ways to ask are samples, as queries are."""
    return TotalErrors(main_part, (ACCURACY,), {part: part for part in VARIED}, _crossed_answers, independent)


def _crossed_answers(group: PredictionGroup) -> Iterator[CrossedAnswers]:
    """Yield the answers of a group of a part in VARIED to queries with true options."""
    part, rows = group.key["part"], group.rows.filter(pl.col("gold").is_not_null())
    if part in VARIED and rows.height:
        answers = rows.select("query_id", "template", right=pl.col("pred") == pl.col("gold"))
        key = {**group.key, "n_shots": rows["n_shots"][0], "metric": ACCURACY}
        names = {"query": "query", "level": part, "interaction": f"query x {part} and residual"}
        cells, n_left_out = crossed_cells(answers, "right", "template", None)
        yield CrossedAnswers(key, cells, n_left_out, names, Design(len(cells), 1, 1))


def total_error_of_accuracies(errors: TotalErrors, definitions: Collection[str]) -> dict[str, pl.DataFrame]:
    """Return variance_components, total_error and design_study, by name.

    Rows of variance_components of the main part have the variance of an accuracy instead of an answer's: over
    queries, and of each part of VARIED, with shares of their sum, the squared total error.
    """
    tables = errors.tables(definitions)
    components = [tables["variance_components"], *map(_shares, errors.headlines(definitions))]
    return tables | {"variance_components": pl.concat(components).sort(VARIANCE_COMPONENTS_KEY)}


def _shares(accuracy: Headline) -> pl.DataFrame:
    """Return the rows of VARIANCE_COMPONENTS of an accuracy."""
    squares = [(error or 0.0) ** 2 for error, _ in accuracy.errors]
    parts = zip(["queries", *accuracy.factors], [squares[0], *np.diff(squares)], strict=True)
    rows = [
        {**accuracy.about, "component": name, "variance": value, "share": value / squares[-1] if squares[-1] else None}
        for name, value in parts
    ]
    return pl.DataFrame(rows, schema=VARIANCE_COMPONENTS)


N_FOLDS = 5
WORDS = "TF-IDF with logistic regression"


def words_right(rows: pl.DataFrame, seed: int) -> pl.DataFrame | None:
    """Return whether logistic regression on TF-IDF of words, fitted on the other folds, predicts each gold option.

    Args:
        rows: query_id, gold, and `input` and `group` of INPUTS; rows of a group are in the same fold.
        seed: of the folds.

    Returns query_id and `right`; None for fewer than N_FOLDS groups, and where scikit-learn (extra `sklearn`) is
    missing.
    """
    alone = pl.format("row {}", "query_id")  # a row without a group is a group of its own
    named = rows.select(pl.coalesce(pl.format("group {}", "group"), alone)).to_series()
    if named.n_unique() < N_FOLDS or find_spec("sklearn") is None:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline

    groups = np.unique(named.to_list(), return_inverse=True)[1]
    inputs, gold = np.array(rows["input"].to_list(), dtype=object), rows["gold"].to_numpy()
    pred = np.full(len(gold), -1)
    for train, test in GroupKFold(N_FOLDS, shuffle=True, random_state=seed).split(inputs, gold, groups):
        if len(np.unique(gold[train])) == 1:
            pred[test] = gold[train][0]
            continue
        words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
        with catch_warnings():  # that many options for few rows look like a regression
            simplefilter("ignore", UserWarning)
            model = make_pipeline(words, LogisticRegression(max_iter=1000)).fit(inputs[train], gold[train])
        pred[test] = model.predict(inputs[test])
    return rows.select("query_id", right=pl.Series(pred == gold))


class Baselines:
    """Accuracies of cheap classifiers on the queries of each question, with the paired differences of methods."""

    def __init__(self, inputs: pl.LazyFrame, seed: int, parts: tuple[str, ...]) -> None:
        self._inputs, self._seed, self._parts = inputs.cast(INPUTS).collect(), seed, parts
        self._groups: list[tuple[dict[str, str], pl.DataFrame]] = []  # key; query_id, gold and right

    def add(self, group: PredictionGroup) -> None:
        """Keep which answers of a group are right."""
        rows = group.rows.filter(pl.col("gold").is_not_null())
        if group.key["part"] in (ZERO_SHOT, *self._parts) and rows.height:
            # Of several demonstration sets, the share of right answers to the query.
            is_right = (pl.col("pred") == pl.col("gold")).mean()
            by_query = rows.group_by("query_id", maintain_order=True)
            self._groups.append((group.key, by_query.agg(pl.col("gold").first(), right=is_right)))

    def table(self) -> pl.DataFrame:
        """Return BASELINES, sorted by its key."""
        zero_shot = {(key["dataset"], key["method"]): right for key, right in self._groups if key["part"] == ZERO_SHOT}
        answered = [(key, right) for key, right in self._groups if key["part"] != ZERO_SHOT]
        # The first answers to a question name its queries, which all methods answer.
        first = {key["dataset"]: right for key, right in reversed(answered)}
        inputs = {
            dataset: right.join(self._inputs.filter(dataset=dataset), on="query_id", maintain_order="left")
            for dataset, right in first.items()
        }
        words = {dataset: words_right(rows, self._seed) for dataset, rows in inputs.items()}
        found = []
        for key, right in answered:
            others = {WORDS: words[key["dataset"]], ZERO_SHOT: zero_shot.get((key["dataset"], key["method"]))}
            for name, other in others.items():
                if other is None:
                    continue
                both = right.join(other, on="query_id", suffix="_other", maintain_order="left")
                mine, theirs = (both[column].to_numpy() for column in ("right", "right_other"))
                difference = mine - theirs.astype(float)
                low, high = paired_interval(difference)
                ends = share_interval(theirs.astype(bool))
                found.append(
                    key
                    | {"baseline": name, "accuracy": theirs.mean(), "ci_low": ends[0], "ci_high": ends[1]}
                    | {"difference": difference.mean(), "difference_low": low, "difference_high": high}
                    | {"p_value": paired_test(difference).p_value}
                )
        return pl.DataFrame(found, schema=BASELINES).sort(BASELINES_KEY)
