"""Measure how much answers change with the order of options, the wording, negation and more, and compute baselines.

These variations should not change an answer. Each query is answered with the question unchanged (template 0) and in
variations. Only accuracies need true options.

Accuracies are compared with two cheap baselines: a classifier of words, and the question without demonstrations.
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
"""Measures of a variation. The name of a metric is PART_MEASURE, such as `order_flips`."""


def variation_effect(group: PredictionGroup, kinds: Mapping[str, QuestionKind]) -> dict[str, Measured]:
    """Measure the effect of the variations of one part of VARIED, with intervals over queries.

    PART_flips is the share of variations whose answer differs from the answer to the unchanged question. PART_distance
    is the mean total variation distance between the label probabilities of the two; both are in [0, 1]. PART_accuracy
    is the accuracy over the unchanged question and all variations, for queries with a true option. order_first is the
    share of answers that are the first option in the prompt: 1/k for k options if order has no effect.

    Args:
        group: predictions of the part, where `template` numbers the variations.
        kinds: question (dataset) -> its kind, if the kind is known.
    """
    part, varied, pred = group.key["part"], changes(group.rows), pl.col("pred")
    measures = {FLIPS: (varied, pl.col("flips")), DISTANCE: (varied, pl.col("distance"))}
    if (known := group.rows.drop_nulls("gold")).height:
        measures[ACCURACY] = (known, pred == pl.col("gold"))
    # order_first needs a known order: only rotations have one, in which variation k begins with option first[k].
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
    """Compare each variation with the unchanged question (template 0) of its query.

    Args:
        rows: query_id, template, pred and label_probs.

    Returns query_id, template, flips (0.0 or 1.0) and distance (total variation, in [0, 1]), one row a variation.
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
"""Part -> the property of prompts that its variations change."""


def diagnostics(kinds: Mapping[str, QuestionKind]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for each part of TITLES; `kinds` as for variation_effect."""
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
    """Return the collector of total errors of the accuracy, if queries and variations are both random samples.

    Args:
        main_part: part with the accuracies, in the form of prompts that variations have.
        independent: whether the questions are independent.
    """
    return TotalErrors(main_part, (ACCURACY,), {part: part for part in VARIED}, _crossed_answers, independent)


def _crossed_answers(group: PredictionGroup) -> Iterator[CrossedAnswers]:
    """Yield whether answers of a group of VARIED are right, [query, variation, 1], for queries with a true option."""
    part, rows = group.key["part"], group.rows.filter(pl.col("gold").is_not_null())
    if part in VARIED and rows.height:
        answers = rows.select("query_id", "template", right=pl.col("pred") == pl.col("gold"))
        key = {**group.key, "n_shots": rows["n_shots"][0], "metric": ACCURACY}
        names = {"query": "query", "level": part, "interaction": f"query x {part} and residual"}
        cells, n_left_out = crossed_cells(answers, "right", "template", None)
        yield CrossedAnswers(key, cells, n_left_out, names, Design(len(cells), 1, 1))


def total_error_of_accuracies(errors: TotalErrors, definitions: Collection[str]) -> dict[str, pl.DataFrame]:
    """Return the tables variance_components, total_error and design_study by name.

    Args:
        errors: with the answers of all groups.
        definitions: definitions of the run.

    In variance_components, rows of a part of VARIED are components of a single answer's variance. Rows of the main part
    split the squared total error of an accuracy: over queries, and what each part of VARIED adds, with their shares.
    """
    tables = errors.tables(definitions)
    components = [tables["variance_components"], *map(_shares, errors.headlines(definitions))]
    return tables | {"variance_components": pl.concat(components).sort(VARIANCE_COMPONENTS_KEY)}


def _shares(accuracy: Headline) -> pl.DataFrame:
    """Return rows of VARIANCE_COMPONENTS that split the squared total error of an accuracy."""
    # Errors are cumulative: over queries, then with each factor added. Differences of squares are the factors'
    # variances.
    squares = [(error or 0.0) ** 2 for error, _ in accuracy.errors]
    rows = [
        {**accuracy.about, "component": name, "variance": value, "share": value / squares[-1] if squares[-1] else None}
        for name, value in zip(["queries", *accuracy.factors], [squares[0], *np.diff(squares)], strict=True)
    ]
    return pl.DataFrame(rows, schema=VARIANCE_COMPONENTS)


N_FOLDS = 5  # number of folds of the cross-validation
WORDS = "TF-IDF with logistic regression"  # name of the baseline in the tables


def words_right(rows: pl.DataFrame, seed: int) -> pl.DataFrame | None:
    """Return whether a logistic regression on TF-IDF of words predicts each gold option, by cross-validation.

    Args:
        rows: query_id, gold, and `input` and `group` of INPUTS. Rows of a group are in the same fold.
        seed: seed of the folds.

    Returns query_id and `right`; None for fewer than N_FOLDS groups, or if scikit-learn (extra `sklearn`) is not
    installed.
    """
    alone = pl.format("row {}", "query_id")  # a row without a group is a group by itself
    named = rows.select(pl.coalesce(pl.format("group {}", "group"), alone)).to_series()
    if named.n_unique() < N_FOLDS or find_spec("sklearn") is None:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline

    inputs, gold = np.array(rows["input"].to_list(), dtype=object), rows["gold"].to_numpy()
    pred = np.full(len(gold), -1)
    for train, test in GroupKFold(N_FOLDS, shuffle=True, random_state=seed).split(inputs, gold, named.to_numpy()):
        if len(np.unique(gold[train])) == 1:
            pred[test] = gold[train][0]
            continue
        words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
        with catch_warnings():  # scikit-learn warns of many options in few rows: that may be a regression
            simplefilter("ignore", UserWarning)
            model = make_pipeline(words, LogisticRegression(max_iter=1000)).fit(inputs[train], gold[train])
        pred[test] = model.predict(inputs[test])
    return rows.select("query_id", right=pl.Series(pred == gold))


class Baselines:
    """Collect the answers of methods, and compare their accuracies with cheap baselines on the same queries.

    Args:
        inputs: prompts.INPUTS.
        seed: seed of the folds of the word classifier.
        parts: parts whose answers are compared with baselines.
    """

    def __init__(self, inputs: pl.LazyFrame, seed: int, parts: tuple[str, ...]) -> None:
        self._inputs, self._seed, self._parts = inputs.cast(INPUTS).collect(), seed, parts
        self._groups: list[tuple[dict[str, str], pl.DataFrame]] = []  # key of a group; its query_id, gold and right

    def add(self, group: PredictionGroup) -> None:
        """Keep the right and wrong answers of a group of one of the parts, or of the zero-shot baseline."""
        rows = group.rows.filter(pl.col("gold").is_not_null())
        if group.key["part"] in (ZERO_SHOT, *self._parts) and rows.height:
            # With several demonstration sets, `right` is the share of right answers to the query.
            is_right = (pl.col("pred") == pl.col("gold")).mean()
            by_query = rows.group_by("query_id", maintain_order=True)
            self._groups.append((group.key, by_query.agg(pl.col("gold").first(), right=is_right)))

    def table(self) -> pl.DataFrame:
        """Return BASELINES, sorted by its key."""
        zero_shot = {(key["dataset"], key["method"]): right for key, right in self._groups if key["part"] == ZERO_SHOT}
        answered = [(key, right) for key, right in self._groups if key["part"] != ZERO_SHOT]
        # The queries of a question, and their gold labels, from its first group: all methods answer the same queries.
        first = {key["dataset"]: right for key, right in reversed(answered)}
        words = {}
        for dataset, right in first.items():
            inputs = right.join(self._inputs.filter(dataset=dataset), on="query_id", maintain_order="left")
            words[dataset] = words_right(inputs, self._seed)
        found = []
        # The accuracy of each baseline on the queries of a method, and the paired difference of the method.
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
