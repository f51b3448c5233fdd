"""Compare accuracies with cheap baselines: a classifier of words, and the question without demonstrations."""

from importlib.util import find_spec
from warnings import catch_warnings, simplefilter

import numpy as np
import polars as pl

from evaluator.arrays import Bools, Ints
from evaluator.metrics.groups import PredictionGroup
from evaluator.schemas import BASELINES, BASELINES_KEY
from evaluator.statistics.paired import paired_interval, paired_test
from evaluator.statistics.selective import share_interval
from evaluator.suites.decide.prompts import INPUTS, ZERO_SHOT

N_FOLDS = 5
WORDS = "TF-IDF with logistic regression"


def words_right(texts: list[str], gold: Ints, groups: Ints, seed: int) -> Bools | None:
    """Return whether logistic regression on TF-IDF of words, fitted on the other folds, predicts each gold option.

    Args:
        texts: inputs.
        gold: [n].
        groups: [n], rows that are in the same fold.
        seed: of the folds.

    None for fewer than N_FOLDS groups, and where scikit-learn (extra `sklearn`) is missing.
    """
    if len(np.unique(groups)) < N_FOLDS or find_spec("sklearn") is None:
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline

    inputs, pred = np.array(texts, dtype=object), np.full(len(gold), -1)
    for train, test in GroupKFold(N_FOLDS, shuffle=True, random_state=seed).split(inputs, gold, groups):
        if len(np.unique(gold[train])) == 1:
            pred[test] = gold[train][0]
            continue
        words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]")
        with catch_warnings():  # that many options for few rows look like a regression
            simplefilter("ignore", UserWarning)
            model = make_pipeline(words, LogisticRegression(max_iter=1000)).fit(inputs[train], gold[train])
        pred[test] = model.predict(inputs[test])
    right: Bools = pred == gold
    return right


class Baselines:
    """Accuracies of cheap classifiers on the queries of each question, with the paired differences of methods."""

    def __init__(self, inputs: pl.LazyFrame, seed: int, parts: tuple[str, ...]) -> None:
        self._inputs, self._seed, self._parts = inputs.cast(INPUTS).collect(), seed, parts
        self._words: dict[str, pl.DataFrame] = {}  # dataset -> query_id, group, and right of WORDS
        self._methods: list[tuple[dict[str, str], pl.DataFrame]] = []
        self._zero_shot: dict[tuple[str, str], pl.DataFrame] = {}

    def add(self, group: PredictionGroup) -> None:
        """Keep which answers of a group are right."""
        part, dataset = group.key["part"], group.key["dataset"]
        rows = group.rows.filter(pl.col("gold").is_not_null())
        # Of several demonstration sets, the share of right answers to the query.
        is_right = (pl.col("pred") == pl.col("gold")).mean()
        right = rows.group_by("query_id", maintain_order=True).agg(pl.col("gold").first(), right=is_right)
        if part == ZERO_SHOT:
            self._zero_shot[dataset, group.key["method"]] = right
        elif part in self._parts and rows.height:
            self._methods.append((group.key, right))
            if dataset not in self._words:
                self._words[dataset] = self._of_words(dataset, right)

    def _of_words(self, dataset: str, right: pl.DataFrame) -> pl.DataFrame:
        rows = right.join(self._inputs.filter(dataset=dataset), on="query_id", maintain_order="left")
        own = pl.format("row {}", "query_id")  # a row without a group is a group of its own
        group = rows.select(pl.coalesce(pl.format("group {}", "group"), own)).to_series()
        groups = np.unique(group.to_list(), return_inverse=True)[1]
        found = words_right(rows["input"].to_list(), rows["gold"].to_numpy(), groups, self._seed)
        return pl.DataFrame() if found is None else rows.select("query_id", right=pl.Series(found))

    def table(self) -> pl.DataFrame:
        """Return BASELINES, sorted by its key."""
        found = []
        for key, right in self._methods:
            of_question = key["dataset"], key["method"]
            others = {WORDS: self._words[key["dataset"]], ZERO_SHOT: self._zero_shot.get(of_question)}
            for name, other in others.items():
                if other is None or other.is_empty():
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
