"""Choose demonstrations by the PVI of training rows, and compare them with the demonstration sets of the suite pvi.

Lu et al. 2023, section 5.6 and table 7, compare the accuracy after the hardest training instances with the accuracy
after random demonstrations: "based on in-context PVI estimates obtained using one set of randomly selected exemplars,
we selected the most challenging training instance from each category".

Here training rows are scored after set 0 of the suite, for each number of shots. By these scores, as many sets are
chosen as the suite has, from the hardest, easiest or middle rows. Then the queries are scored after the chosen sets.
Sets consist of blocks, as in prompts.py.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import DatasetError, TemplateError
from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, label_score, softmax_of
from evaluator.metrics.classification import Limits, Measured
from evaluator.metrics.guessing import GUESSES, majority_test, prompts_tried, with_baselines, with_both_tests
from evaluator.metrics.intervals import two_way_standard_error, with_intervals
from evaluator.metrics.total_error import crossed_cells
from evaluator.schemas import declared
from evaluator.statistics.paired import paired_interval
from evaluator.suites.in_context_pvi import prompts, schema
from evaluator.suites.in_context_pvi.pvi import gain_nats
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_CANDIDATES, PviOrder

TRAINING = "pvi_training"
"""Part with the prompts of training rows; `training_row` is the row, and `query_id` is null."""

_GROUP = ["dataset", "n_shots"]

_DESCRIPTIONS: dict[PviOrder, str] = {
    "hardest": "of the lowest PVI",
    "easiest": "of the highest PVI",
    "middle": "around the median PVI",
}


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Build the requests of candidate training rows after set 0 of each number of shots; the same for all rules.

    `position` enumerates numbers of shots, then all training rows.

    Raises TemplateError or DatasetError if there are too few candidates, before anything is scored.
    """
    dataset, pvi = context.classification, prompts.resolved_options(context.config)
    numbered = {"training_row": pl.col("query_id"), "query_id": pl.lit(None, pl.Int64)}
    for number, first in enumerate(first_sets(dataset, pvi)):
        chosen = candidates_for_set(dataset, pvi, first)
        for rows in prompts.queries_after(dataset, [first], chosen, part=TRAINING):
            position = pl.col("position") + number * dataset.demonstration.height
            yield rows.with_columns(**numbered, position=position).select(context.columns)


def training_pvi(scored: ScoredRequests) -> pl.DataFrame:
    """Compute the PVI of training rows after set 0, from log-likelihoods over the whole vocabulary.

    Returns dataset, n_shots, training_row, gold and pvi_bits (null if not finite), sorted by the first three.
    """
    scores, gold = pl.col("label_log_likelihoods"), pl.col("gold")
    # Set 0 of each number of shots has one null prompt.
    nulls = scored.rows.filter(part=prompts.NULL, demonstration_set=0).select(*_GROUP, null_scores=scores)
    bits = gain_nats(scores.list.get(gold), pl.col("null_scores").list.get(gold)) / math.log(2)
    rows = scored.rows.filter(part=TRAINING).join(nulls, on=_GROUP, how="left", validate="m:1")
    return rows.select(*_GROUP, "training_row", "gold", pvi_bits=bits).sort(*_GROUP, "training_row").collect()


def first_sets(dataset: ClassificationDataset, pvi: prompts.PviOptions) -> list[prompts.DemonstrationSet]:
    """Return set 0 of each number of shots. Raises the errors of demonstration_sets."""
    return [drawn for drawn in prompts.demonstration_sets(dataset, pvi) if drawn.number == 0]


def candidates(dataset: ClassificationDataset, pvi: prompts.PviOptions) -> pl.DataFrame:
    """Return the training rows from which demonstrations are chosen, as rows of as_queries.

    Candidates are the first `training_queries` rows of the demonstration split, without rows that have the inputs of a
    test row: a query must not be its own demonstration. Raises DatasetError if the dataset has no training rows.
    """
    if dataset.demonstration.is_empty():
        raise DatasetError(
            f"{dataset.name} has no training rows to choose demonstrations from: with --demonstrations published all "
            "rows of a single table are queries. Add a table of training rows next to it, use --demonstrations random, "
            "or leave out the methods that choose by PVI (--methods)."
        )
    query_inputs = prompts.as_queries(dataset, dataset.test)["inputs"]
    rows = prompts.as_queries(dataset, dataset.demonstration.head(pvi.training_queries))
    return rows.filter(~pl.col("inputs").is_in(query_inputs.implode()))


def pvi_candidates(dataset: ClassificationDataset, pvi: prompts.PviOptions) -> pl.DataFrame:
    """Return schema.PVI_CANDIDATES of a dataset. Raises the errors of candidates."""
    rows = candidates(dataset, pvi).rename({"query_id": "training_row"})
    table = rows.with_columns(n_training=pl.lit(dataset.demonstration.height))
    return table.select(PVI_CANDIDATES.names()).cast(PVI_CANDIDATES)


def candidates_for_set(
    dataset: ClassificationDataset, pvi: prompts.PviOptions, first: prompts.DemonstrationSet
) -> pl.DataFrame:
    """Return the candidates that are not demonstrations of the set `first`.

    Raises TemplateError, with the name of the label, if a label has too few candidates for all sets; DatasetError if
    the dataset has no training rows.
    """
    rows = candidates(dataset, pvi).filter(~prompts.shown_by(dataset, [first]))
    labels = range(len(dataset.verbalizer.label_names))
    _require_enough(dataset, [rows.filter(gold=label)["query_id"].to_list() for label in labels], pvi, first.n_shots)
    return rows


def ranked_sets(
    dataset: ClassificationDataset, measured: pl.DataFrame, order: PviOrder, n_shots: int, pvi: prompts.PviOptions
) -> list[prompts.DemonstrationSet]:
    """Build the demonstration sets of a rule: set 0 has the first rows of each label in `order`, set 1 the next rows.

    The paper has only set 0 of the hardest rows.

    Args:
        measured: as for demonstrations_by_pvi, with PVIs after one set of `n_shots` demonstrations.
        order: the rule.

    Raises TemplateError, with the name of the label, if too few of its rows have a finite PVI.
    """
    ranked = demonstrations_by_pvi(measured, order=order, n_labels=len(dataset.verbalizer.label_names))
    per_label = _require_enough(dataset, ranked, pvi, n_shots)
    sets = []
    for number in range(pvi.sets):
        # The rows of each label that belong to this set.
        window = [rows[number * per_label : (number + 1) * per_label] for rows in ranked]
        draw = random.Random(f"demonstrations by PVI, set {number}, seed {pvi.seed}")
        sets.append(prompts.with_texts(dataset, number, prompts.in_blocks(window, n_shots, draw)))
    return sets


def demonstrations_by_pvi(pvi: pl.DataFrame, *, order: PviOrder, n_labels: int) -> list[list[int]]:
    """Return for each label its rows in the order in which a rule chooses them, [label][row].

    `hardest` begins at the lowest PVI, `easiest` at the highest. `middle` begins at the median of the label and
    continues outwards; of two rows at the same distance in rank, the harder row is first. Rows of equal PVI are sorted
    by number. Rows without a finite PVI are left out.

    Args:
        pvi: columns query_id (row of the demonstration split), gold and pvi_bits.
        order: the rule.
        n_labels: size of the label space.
    """
    bits = pl.col("pvi_bits")
    ranked = pvi.filter(bits.is_finite()).sort(-bits if order == "easiest" else bits, "query_id")
    if order == "middle":
        # Ranks from 0 to n - 1 have the median (n - 1) / 2; twice the distance to it is a whole number.
        place, n_rows = pl.int_range(pl.len()).over("gold"), pl.len().over("gold")
        ranked = ranked.sort((2 * place - (n_rows - 1)).abs(), maintain_order=True)
    return [ranked.filter(gold=label)["query_id"].to_list() for label in range(n_labels)]


def _require_enough(
    dataset: ClassificationDataset, by_label: Sequence[Sequence[int]], pvi: prompts.PviOptions, n_shots: int
) -> int:
    """Return the number of rows of each label that a set needs.

    Args:
        by_label: available rows of each label.

    Raises TemplateError if a label has too few rows for all sets.
    """
    names = dataset.verbalizer.label_names
    per_label = -(-n_shots // len(names))
    for name, rows in zip(names, by_label, strict=True):
        if len(rows) < pvi.sets * per_label:
            raise TemplateError(
                f"{dataset.name}: {pvi.sets} sets of {n_shots} demonstrations by PVI need {pvi.sets * per_label} rows "
                f"labelled {name!r}, and the first {pvi.training_queries} training rows have {len(rows)} to choose "
                "from. Choose fewer --sets or --shots, or more --training-queries."
            )
    return per_label


def _follow_up(
    context: MethodContext, scored: ScoredRequests, *, method: str, order: PviOrder
) -> Iterator[pl.DataFrame]:
    """Build the requests of the suite's queries after the chosen sets, and of a null prompt for each set.

    Args:
        method: name of the method, and of the part with the queries.
        order: rule of the method.

    Raises TemplateError if too few training rows of a label have a PVI.
    """
    dataset, pvi = context.classification, prompts.resolved_options(context.config)
    measured = training_pvi(scored).filter(dataset=dataset.name).rename({"training_row": "query_id"})
    sets = []
    for (n_shots,), rows in measured.group_by("n_shots", maintain_order=True):
        sets += ranked_sets(dataset, rows, order, int(n_shots), pvi)
    # The same queries as in the suite's requests, without test rows that are demonstrations of the suite's sets.
    asked = context.rows.select(pl.col("query_id").unique()).collect()["query_id"]
    queries = prompts.as_queries(dataset, dataset.test).filter(pl.col("query_id").is_in(asked.implode()))
    inputs = prompts.queries_after(dataset, sets, queries, part=method)
    for rows in chain(inputs, [prompts.null_prompts(dataset, sets, part=prompts.null_part(method))]):
        yield rows.select(context.columns)


CHOSEN_METHODS = {
    method: Method(
        summary=f"Vanilla after demonstrations {_DESCRIPTIONS[order]} of each label.",
        label_probs=softmax_of(label_score, method),
        prompts=MethodPrompts(requests=requests, follow_up=partial(_follow_up, method=method, order=order)),
        drawn_once="chosen demonstrations",
        part_kinds=("classification",),
        definitions=("paper",),
    )
    for method, order in CHOSEN.items()
}


DEFINITION = "paper"
"""Definition of the PVI by which demonstrations are chosen and compared."""

_LIMITS: dict[str, Limits] = {"accuracy": (-1.0, 1.0), "v_information": (-math.inf, math.inf)}


def difference_from_draws(chosen: Floats, drawn: Floats, limits: Limits = (-math.inf, math.inf)) -> list[Measured]:
    """Return mean(chosen) - mean(drawn) twice: with its standard error over queries, and over queries and sets.

    Args:
        chosen: [Q, C], a value for each query after each chosen set.
        drawn: [Q, S], values for the same queries after each random set.
        limits: limits of the difference.

    The first standard error is over queries, for these sets. The difference of a query is d[q] = mean chosen[q, .] -
    mean drawn[q, .], and the standard error of the mean of d is SD(d) / sqrt(Q) (Miller 2024, "Adding Error Bars to
    Evals", paired differences).

    The second standard error is over queries and sets, because other sets would give another difference. The table
    d[q, s] = mean chosen[q, .] - drawn[q, s] is complete, has two random factors, and has the same mean;
    metrics.intervals.two_way_standard_error has the formula and its sources. The sets were chosen once, by PVI after
    random set 0; another set 0 would have led to other chosen sets. A single choice does not show how much choices
    vary, so the choice counts as one more random set. The coverage of the interval is at least nominal if choices vary
    no more than random sets do (docs/coverage.md).
    """
    chosen_means = chosen.mean(axis=1)
    d = chosen_means - drawn.mean(axis=1)
    n_queries = len(d)
    over_queries = float(d.std(ddof=1)) / float(np.sqrt(n_queries)) if n_queries > 1 else None
    # The variance of the mean of S sets is v / S. Times 1 + S it is v / S + v: one more set, the choice, is added.
    two_way = two_way_standard_error(chosen_means[:, None] - drawn, template_weight=1 + drawn.shape[1])
    errors = ((over_queries, n_queries - 1), two_way)
    return [Measured(float(d.mean()), error, degrees, "symmetric", *limits) for error, degrees in errors]


def demonstrations_table(
    pvi: pl.DataFrame, n_labels: Mapping[str, int], training: pl.DataFrame, tries: pl.DataFrame
) -> pl.DataFrame:
    """Return schema.PVI_DEMONSTRATIONS, sorted by key: every source of demonstrations, compared with the suite's sets.

    The best set is compared with the best of as many random classifiers as there are different sets (Yauney & Mimno
    2024, section 3), and with the majority label of the same queries. The tests of all rows have one correction.

    Args:
        pvi: schema.PVI.
        n_labels: dataset -> size of its label space.
        training: as returned by training_counts.
        tries: as returned by tries_by_source.
    """
    cases = pvi.filter(definition=DEFINITION).sort(*_GROUP).group_by(_GROUP, maintain_order=True)
    records = [
        {"dataset": dataset, "n_shots": n_shots, "label_counts": [n_labels[str(dataset)]]} | record
        for (dataset, n_shots), rows in cases
        for record in _source_records(rows)
    ]
    types = {**schema.PVI_DEMONSTRATIONS, **GUESSES, "p_majority": pl.Float64()}
    rows = pl.DataFrame(records, infer_schema_length=None, schema_overrides=types)
    rows = rows.with_columns(definition=pl.lit(DEFINITION), chance=1 / pl.col("label_counts").list.first())
    rows = rows.join(tries, on=[*_GROUP, "demonstrations"], how="left")
    # with_baselines reads the accuracy from the column `value`, and the number of queries from `n_requests`.
    judged = with_baselines(rows.with_columns(value="best_accuracy", n_requests="n_queries")).drop("value")
    tested = with_both_tests(judged.with_columns(n_chosen_from="tries"))
    table = tested.join(training, on=["dataset", "demonstrations", "n_shots"], how="left")
    return declared(table, schema.PVI_DEMONSTRATIONS, schema.PVI_DEMONSTRATIONS_KEY)


def tries_by_source(scored: ScoredRequests, source: str) -> pl.DataFrame:
    """Count the different prompts of a query for each source of demonstrations.

    Args:
        scored: requests of the suite pvi.
        source: source of the suite's demonstration sets.

    Returns dataset, n_shots, demonstrations and tries.
    """
    names = {prompts.INPUT: source, **schema.CHOSEN}
    answered, name = scored.rows.filter(pl.col("part").is_in([*names])), pl.col("part").replace_strict(names)
    rows = answered.select(*_GROUP, "query_id", "prompt_id", demonstrations=name).collect()
    return prompts_tried(rows, [*_GROUP, "demonstrations"])


def training_counts(measured: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Count the training rows with a PVI, n_candidates, and all training rows, n_training.

    Args:
        measured: as returned by training_pvi.
        candidates: schema.PVI_CANDIDATES.

    Returns dataset, n_shots, n_candidates, n_training and demonstrations: a row for each rule (PviOrder).
    """
    counts = measured.group_by(_GROUP, maintain_order=True).agg(n_candidates=pl.col("pvi_bits").count())
    orders = pl.DataFrame({"demonstrations": schema.PVI_ORDERS})
    return counts.join(candidates.select("dataset", "n_training").unique(), on="dataset").join(orders, how="cross")


def chosen_table(scored: ScoredRequests, measured: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_CHOSEN, sorted by key: the demonstrations of every set that was chosen by PVI.

    Args:
        scored: requests of the suite pvi.
        measured: as returned by training_pvi.
        candidates: schema.PVI_CANDIDATES.
    """
    # Read the sets from their null prompts, which are one row for each set.
    orders = {prompts.null_part(method): order for method, order in schema.CHOSEN.items()}
    sets = scored.rows.filter(pl.col("part").is_in([*orders])).select(
        *_GROUP,
        "demonstration_set",
        demonstrations=pl.col("part").replace_strict(orders),
        training_row="demonstration_ids",
        place=pl.int_ranges(pl.col("demonstration_ids").list.len()),
    )
    rows = sets.explode("training_row", "place").collect().join(measured, on=[*_GROUP, "training_row"], how="left")
    table = rows.join(candidates, on=["dataset", "training_row"], how="left")
    return declared(table.with_columns(definition=pl.lit(DEFINITION)), schema.PVI_CHOSEN, schema.PVI_CHOSEN_KEY)


def _source_records(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a record, without baselines, for each source of demonstrations in schema.PVI of a dataset and shots."""
    right, bits = (_values_by_set(rows, value) for value in ("correct", "pvi_bits"))
    (reference,) = right.keys() - {*schema.PVI_ORDERS}  # the source of the suite's sets
    # The queries with a prediction after all sets of all sources, as in the tables of `right`.
    answered = rows.filter(pl.col("correct").is_not_null().all().over("query_id"))
    gold = answered.unique("query_id").sort("query_id")["gold"].to_numpy()
    for source in sorted(right):
        n_queries, n_sets = right[source].shape
        yield {
            "demonstrations": source,
            "n_sets": n_sets,
            "n_queries": n_queries,
            "n_unpredicted": rows["query_id"].n_unique() - n_queries,
            "n_measured": len(bits[source]),
            "accuracy": _mean(right[source]),
            "v_information": _mean(bits[source]),
            **_best(right[source], gold),
            **_difference("accuracy", right[source], right[reference]),
            **_difference("v_information", bits[source], bits[reference]),
        }


def _best(right: Floats, gold: Ints) -> dict[str, float | None]:
    """Return the accuracy of the best set, and its test against the majority label.

    Args:
        right: [query, set], 1 for a right answer, else 0.
        gold: [query].
    """
    if not len(right):
        return dict.fromkeys(("n_correct", "best_accuracy", "majority", "p_majority"))
    n_right = right.sum(axis=0)
    tested = majority_test(right[:, n_right.argmax()] == 1, np.unique(gold)[:, None] == gold)
    return {"n_correct": int(n_right.max()), "best_accuracy": float(right.mean(axis=0).max()), **tested}


def _difference(name: str, chosen: Floats, reference: Floats) -> dict[str, float | None]:
    """Return the difference to the suite's sets with both intervals; None for the suite's sets, or without queries.

    The interval of a difference of accuracies over queries is paired_interval, as elsewhere in the package.

    Args:
        name: "accuracy" or "v_information".
        chosen, reference: values [query, set] of the source and of the suite's sets.
    """
    columns = [f"{name}_{end}" for end in ("difference", "low", "high", "two_way_low", "two_way_high")]
    if chosen is reference or not len(reference):
        return dict.fromkeys(columns)
    found = difference_from_draws(chosen, reference, _LIMITS[name])
    rows = [measured._asdict() | {"n_queries": len(chosen)} for measured in found]
    over_queries, two_way = with_intervals(pl.DataFrame(rows)).select("ci_low", "ci_high").rows()
    if name == "accuracy":
        over_queries = paired_interval(chosen.mean(axis=1) - reference.mean(axis=1))
    return dict(zip(columns, (found[0].value, *over_queries, *two_way), strict=True))


def _values_by_set(rows: pl.DataFrame, value: str) -> dict[str, Floats]:
    """Return source -> values [query, set], for the queries that have a value after every set of every source."""
    # Number the sets of all sources as levels of one factor, so that all sources have the same queries.
    run = ["demonstrations", "demonstration_set"]
    runs = rows.select(run).unique().sort(run).with_row_index("run")
    cells, _ = crossed_cells(rows.join(runs, on=run), value, "run", None)
    return {str(source): cells[:, own["run"].to_numpy(), 0] for (source,), own in runs.group_by("demonstrations")}


def _mean(cells: Floats) -> float | None:
    return float(cells.mean()) if cells.size else None
