"""Look at the queries and demonstrations of a run: classes, demonstration sets, and which differences they can tell."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.preflight.findings import MAJORITY_SHARE, finding, listed
from evaluator.record import FindingRecord

SHARES = (0.1, 0.25, 0.5)
"""Shares of queries that exactly one of two models answers correctly, for which detectable differences are stated."""


class Classes(NamedTuple):
    """The queries of a dataset."""

    n_queries: int
    by_label: dict[str, int]  # empty where queries have label spaces of their own


class SplitLabels(NamedTuple):
    """The labels of a dataset that has one label space: all that a check needs of it."""

    names: tuple[str, ...]
    queried: frozenset[int]  # indices of labels that some row of the test split has
    shown: pl.Series  # gold label of each row of the demonstration split, then of the test split, which suites may show

    @classmethod
    def of(cls, dataset: ClassificationDataset) -> "SplitLabels":
        """Return the labels of a dataset."""
        return cls(
            tuple(dataset.verbalizer.label_names),
            frozenset(dataset.test["gold"].unique()),
            pl.concat([dataset.demonstration["gold"], dataset.test["gold"]]),
        )


class Sets(NamedTuple):
    """The different demonstration sets of a dataset."""

    n_sets: int
    without_a_class: int
    n_shots: int  # the most demonstrations in a set


def classes(requests: pl.LazyFrame) -> dict[str, Classes]:
    """Count the queries of each dataset by label; a query counts once, however often it is asked."""
    rows = requests.filter(pl.col("query_id").is_not_null(), pl.col("gold").is_not_null(), pl.col("for_part").is_null())
    # A number for each dataset: the queries of all of them are in memory at once.
    queries = rows.select(pl.col("dataset").cast(pl.Categorical), "query_id", "gold")
    of_query = queries.group_by("dataset", "query_id").agg(pl.col("gold").first())
    by_gold = of_query.group_by("dataset", "gold").len().with_columns(pl.col("dataset").cast(pl.String))
    golds = by_gold.collect(engine="streaming")
    spaces = rows.select("dataset", "label_names").unique().collect(engine="streaming")
    found = {}
    for (dataset,), group in sorted(golds.partition_by("dataset", as_dict=True).items()):
        label_names, counts = spaces.filter(dataset=dataset)["label_names"], dict[str, int]()
        if len(label_names) == 1:
            of_label = dict(group.select("gold", "len").iter_rows())
            counts = {name: of_label.get(label, 0) for label, name in enumerate(label_names[0])}
        found[str(dataset)] = Classes(int(group["len"].sum()), counts)
    return found


def demonstration_sets(requests: pl.LazyFrame, datasets: Mapping[str, SplitLabels]) -> dict[str, Sets]:
    """Count the different demonstration sets of each dataset, and those that lack one of its labels.

    Args:
        requests: schemas.REQUESTS of one suite.
        datasets: as the suite takes them.
    """
    found = {}
    for name, labels in datasets.items():
        ids = pl.col("demonstration_ids")
        golds = dict(enumerate(labels.shown))
        gold = ids.list.eval(pl.element().replace_strict(golds, return_dtype=pl.Int64))
        # Not those before a demonstration that is asked itself.
        is_set = pl.col("for_part").is_null() & pl.col("query_id").is_not_null() & (ids.list.len() > 0)
        shown = requests.filter(is_set, dataset=name).select(
            set=ids.hash(), n_labels=gold.list.n_unique(), n_shots=ids.list.len()
        )
        # Sets are compared by their hashes, which are short.
        lacking = (pl.col("n_labels") < len(labels.names)).sum()
        sets = shown.unique("set").select(pl.len(), lacking=lacking, n_shots=pl.col("n_shots").max())
        n_sets, n_lacking, n_shots = sets.collect(engine="streaming").row(0)
        if n_sets:
            found[name] = Sets(n_sets, n_lacking, n_shots)
    return found


def detectable(n_queries: int) -> dict[str, float | None]:
    """Return the smallest difference of two accuracies that is detected with 80% power, for each of SHARES.

    None where not even the largest difference that such a share allows is detected.
    """
    from evaluator.statistics.paired import detectable_in_advance  # here, because SciPy is slow to import

    found = {share: detectable_in_advance(n_queries, share) for share in SHARES}
    return {str(share): None if difference >= share else round(difference, 4) for share, difference in found.items()}


def class_findings(dataset: str, counted: Classes, labels: SplitLabels | None) -> Iterator[FindingRecord]:
    """Yield the findings about the classes of a dataset's queries.

    Args:
        dataset: its name.
        counted: its queries.
        labels: of the dataset, if it has one label space.
    """
    absent = [repr(name) for label, name in enumerate(labels.names) if label not in labels.queried] if labels else []
    if absent:
        yield finding(
            "class-without-queries",
            f"No row of the test split has the label {listed(absent, 5)}, so recall and macro-F1 are undefined or 0 "
            "for it.",
            dataset,
        )
    undrawn = [repr(name) for name, n in counted.by_label.items() if not n and repr(name) not in absent]
    if undrawn:
        yield finding(
            "class-not-drawn",
            f"None of the {counted.n_queries:,} queries has the label {listed(undrawn, 5)}. Take more (--queries).",
            dataset,
        )
    most = max(counted.by_label.items(), key=lambda item: item[1], default=("", 0))
    if len(counted.by_label) > 1 and most[1] >= MAJORITY_SHARE * counted.n_queries:
        yield finding(
            "imbalanced-classes",
            f"{most[1] / counted.n_queries:.0%} of the queries are {most[0]!r}: whoever always answers so has this "
            "accuracy. Read macro-F1 next to it.",
            dataset,
        )


def set_finding(dataset: str, sets: Sets, n_labels: int) -> Iterator[FindingRecord]:
    """Yield a finding if some demonstration sets lack a class."""
    if sets.without_a_class:
        why = f": {sets.n_shots} demonstrations cannot show {n_labels} labels" if sets.n_shots < n_labels else ""
        yield finding(
            "demonstrations-lack-class",
            f"{sets.without_a_class:,} of {sets.n_sets:,} demonstration sets lack a label{why}.",
            dataset,
        )
