"""Compute paired differences of accuracy and true-label probability between runs and between methods, and test them.

Also compare runs with one base run: recovery of its accuracy, changed answers, and divergence of label probabilities.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import rel_entr, stdtrit

from evaluator.arrays import Floats
from evaluator.compare.results import ANSWER_KEY, DATASET
from evaluator.compare.schema import AGAINST, AGAINST_KEY, DIFFERENCES, DIFFERENCES_KEY, EQUIVALENCE, EQUIVALENCE_KEY
from evaluator.errors import plural
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.metrics.groups import MeasuredGroup
from evaluator.metrics.intervals import NO_VARIATION, two_way_standard_error
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.correlation import DECIMALS
from evaluator.statistics.paired import (
    EXACT_TESTS,
    LEVEL,
    TWO_WAY,
    Estimate,
    Spread,
    adjusted_estimate,
    detectable_difference,
    end_by_test,
    equivalence_test,
    holm,
    interval,
    largest_difference,
    mean_estimate,
    paired_test,
    plain_estimate,
    t_test,
)

SET = ["n_shots", "demonstration_set"]
"""Columns that identify a demonstration set, in parts whose queries all have the same sets."""


class Shared(NamedTuple):
    """Demonstration sets or inputs that answers share, so that the answers are not independent."""

    sets: Collection[tuple[str, str]] = ()  # (suite, part) in which all queries have the same demonstration sets
    inputs: Mapping[str, str] = {}  # dataset -> table; in datasets of one table, equal query_id means the same input


NOTHING_SHARED = Shared()


_QUERY_KEY = [*ANSWER_KEY, "query_id"]
_GROUP_OF_MEAN = [name for name in DIFFERENCES_KEY if name != "dataset"]
ADJUSTED = ["adjusted_difference", "adjusted_error", "adjusted_freedom"]
"""The fields of statistics.paired.Estimate, as columns: the estimate from which test and interval are computed."""

_SPREAD = ["standard_error", "adjusted_error", "adjusted_freedom", "n_queries", "mean_size", "mean_square"]
"""The fields of statistics.paired.Spread, as columns."""


def method_differences(
    groups: Iterable[MeasuredGroup], metrics: pl.DataFrame, model: str, inputs: Mapping[str, str] = {}
) -> pl.DataFrame:
    """Compare every method of one run with vanilla, query by query.

    Args:
        groups: measured groups of the run.
        metrics: schemas.METRICS of the run.
        model: name of the model.
        inputs: as in Shared.

    Returns:
        schema.DIFFERENCES, sorted by its key, with the same model on both sides; without rows if the run lacks vanilla
        or has no other method.
    """
    methods = {*metrics.filter(metric="accuracy")["method"]}
    if REFERENCE_METHOD not in methods or len(methods) == 1:
        return DIFFERENCES.to_frame()
    answered = ((group.key, group.queries) for group in groups if group.queries is not None)
    queries = [rows.with_columns(pl.lit(key[name]).alias(name) for name in ANSWER_KEY) for key, rows in answered]
    return paired_differences(estimated_differences([model], [pl.concat(queries)], metrics, Shared(inputs=inputs)))


def estimated_differences(
    models: Sequence[str],
    results: Sequence[pl.DataFrame],
    comparison: pl.DataFrame,
    shared: Shared = NOTHING_SHARED,
    *,
    is_against: bool = False,
) -> pl.DataFrame:
    """Compare every two models under each common method, and every method with vanilla within each model.

    A query counts once, with the mean over its requests. Where all queries have equally many requests, as in our
    suites, the difference equals the difference of the two values in the metrics of the runs.

    Args:
        models: name of each run.
        results: for each run, the table that request_results returns; for a single run, one row per query is enough.
        comparison: schema.COMPARISON, or schemas.METRICS of a single run; defines the common datasets.
        shared: with shared sets, models are compared over queries and sets as crossed factors; with shared inputs, the
            mean over datasets is tested over inputs.
        is_against: whether models are compared only with the last one.

    Returns:
        The rows of query_differences, followed by their means over datasets, with two more columns: `is_repeat` marks
        a mean over a single dataset, which repeats the test of that dataset; `n_pairs` is the number of pairs for
        tests against a margin.
    """
    common = comparison.filter(metric="accuracy").select(*DATASET, "method").unique()
    answers = [each.join(common, on=[*DATASET, "method"], how="semi", maintain_order="left") for each in results]
    pairs = [*_between_models(models, answers, shared.sets, is_against), *map(_between_methods, models, answers)]
    rows = pl.concat(map(query_differences, pairs))
    rows = rows.with_columns(is_repeat=False, n_pairs="n_queries", table=pl.col("dataset").replace(shared.inputs))
    means = []
    for key, group in rows.group_by(_GROUP_OF_MEAN, maintain_order=True):
        named = dict(zip(_GROUP_OF_MEAN, key, strict=True))
        mean = _mean_difference if group["table"].is_unique().all() else _mean_over_inputs
        means.append(named | mean(group))
    return pl.concat([rows, pl.DataFrame(means, schema=rows.drop("d", "inputs", "table").schema)], how="diagonal")


def paired_differences(estimated: pl.DataFrame) -> pl.DataFrame:
    """Correct the p-values for the number of tests, and compute the smallest difference that each test detects.

    Differences between models and differences between methods are two families of tests, separately for each metric and
    definition. A mean over several datasets is one test of its family.

    Args:
        estimated: as returned by estimated_differences.

    Returns:
        schema.DIFFERENCES, sorted by its key, means over datasets included.
    """
    family = ["metric", "definition", pl.col("model_a") == pl.col("model_b")]
    tested = estimated.with_columns(
        p_holm=holm(_counted("p_value")).over(family), n_tests=(~pl.col("is_repeat")).sum().cast(pl.Int64).over(family)
    )
    detectable = [
        detectable_difference(Spread(*spread), test, n_tests)
        for *spread, test, n_tests in tested.select(*_SPREAD, "test", "n_tests").rows()
    ]
    tested = tested.with_columns(min_detectable=pl.Series(detectable, dtype=pl.Float64))
    tested = _with_repeats(tested, ["p_value", "p_holm", "n_tests", "min_detectable", "test"])
    return tested.select(pl.col(name).cast(dtype) for name, dtype in DIFFERENCES.items()).sort(DIFFERENCES_KEY)


def equivalence_table(estimated: pl.DataFrame, margin: float) -> pl.DataFrame:
    """Test for every difference of accuracy whether a is not worse than b by a margin, and whether both are equivalent.

    Tests use the adjusted estimate (statistics.paired), so that pairs that all agree do not count as certainty, or over
    queries and sets as crossed factors the plain one. Holm's correction is over the families of paired_differences.

    Args:
        estimated: as returned by estimated_differences.
        margin: difference of accuracies, between 0 and 1.

    Returns schema.EQUIVALENCE, sorted by its key.
    """
    rows = estimated.filter(metric="accuracy")
    cases = rows.select(*ADJUSTED, "n_pairs").rows()
    tests = [equivalence_test(Estimate(*adjusted), margin, n_pairs) for *adjusted, n_pairs in cases]
    family = ["definition", pl.col("model_a") == pl.col("model_b")]
    names = ("p_no_worse", "p_equivalent")
    p_values = pl.DataFrame(tests, schema=dict.fromkeys(names, pl.Float64), orient="row")
    rows = rows.hstack(p_values).with_columns(
        *(holm(_counted(name)).over(family).name.suffix("_holm") for name in names), margin=pl.lit(margin)
    )
    is_no_worse, is_equivalent = (pl.col(f"{name}_holm") <= LEVEL for name in names)
    shown = pl.when(is_equivalent).then(pl.lit("equivalent")).when(is_no_worse).then(pl.lit("no worse"))
    numbers = ("difference", "p_no_worse", "p_no_worse_holm", "p_equivalent", "p_equivalent_holm")
    rows = _with_repeats(rows, numbers).with_columns(shown=shown.otherwise(pl.lit("not shown")))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in EQUIVALENCE.items()).sort(EQUIVALENCE_KEY)


def _counted(p_value: str) -> pl.Expr:
    """Return the p-value, or null in a mean that repeats the test of its dataset, so that this test counts once."""
    return pl.when(~pl.col("is_repeat")).then(p_value)


def _with_repeats(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Copy the columns of a single dataset, the first row of its group, to the mean that repeats it."""
    of_dataset = pl.col(columns).first().over(_GROUP_OF_MEAN)
    return rows.with_columns(pl.when("is_repeat").then(of_dataset).otherwise(pl.col(columns)).name.keep())


def _mean_difference(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the mean over independent datasets, with its test and interval.

    Where all datasets have exact tests and equally many queries, the exact test of all queries together is used, else
    Student's test of the adjusted estimates.

    Args:
        rows: query_differences of one comparison, one row for each dataset.
    """
    of_datasets = [np.array(d) for d in rows["d"].to_list()]
    # Two pairs in total are added to the datasets of a mean; estimates over queries and sets have no added pairs.
    tested = [
        Estimate(*adjusted) if test == TWO_WAY else adjusted_estimate(d, 2 / rows.height)
        for d, (test, *adjusted) in zip(of_datasets, rows.select("test", *ADJUSTED).rows(), strict=True)
    ]
    adjusted, n_queries = mean_estimate(tested), pl.col("n_queries")
    p_value, test = t_test(adjusted), TWO_WAY if rows["test"].eq(TWO_WAY).any() else "t"
    if rows["test"].is_in(EXACT_TESTS).all() and rows["n_queries"].n_unique() == 1:
        exact, test = paired_test(np.concatenate(of_datasets))
        p_value = p_value if test == "t" else exact
    mean = rows.select(
        pl.lit(MEAN_OVER_DATASETS).alias("dataset"),
        pl.col("difference", "mean_size", "mean_square").mean(),
        n_queries.sum(),
        # Pairs for tests against a margin: a pair of the smallest dataset moves the mean by 1 / (n_min x datasets).
        n_pairs=n_queries.min() * pl.len(),
        is_repeat=pl.len() == 1,
        standard_error=(pl.col("standard_error") ** 2).sum().sqrt() / pl.len(),
    ).row(0, named=True)
    has_interval = rows["n_queries"].min() != 1
    return mean | _tested(mean["difference"], adjusted, p_value, test, has_interval=has_interval)


def _mean_over_inputs(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the mean over datasets that ask about the same inputs, with a test whose pairs are the inputs.

    The difference of an input is the weighted sum of the differences of its answers; the weight of an answer is its
    share in the mean over datasets. If every question is asked about every input, this is the mean over questions.
    Pairs that the estimate adds, and the pair by which a test against a margin corrects, count as much as all answers
    to the input with the largest share.

    Args:
        rows: query_differences of one comparison, with `table`, one row for each dataset.
    """
    # An answer has the weight 1 / (datasets x queries of its dataset); the weights of all answers sum to 1.
    asked = rows.select("table", "inputs", "d", share=1 / (pl.len() * pl.col("n_queries"))).explode("inputs", "d")
    sums = (pl.col("share") * pl.col("d")).sum().alias("d"), pl.col("share").sum()
    by_input = asked.group_by("table", "inputs", maintain_order=True).agg(sums)
    # Times n_inputs, the sums of inputs have the mean over datasets as their plain mean.
    n_inputs, most = by_input.height, by_input["share"].to_numpy().max()
    largest = n_inputs * most * largest_difference(asked["d"].to_numpy())
    estimate = _estimate(n_inputs * by_input["d"].to_numpy()[:, None], largest)
    of_inputs = {"dataset": MEAN_OVER_DATASETS, "n_queries": n_inputs, "n_pairs": round(1 / most), "is_repeat": False}
    return estimate | of_inputs


def _between_models(
    models: Sequence[str], answers: Sequence[pl.DataFrame], shared_sets: Collection[tuple[str, str]], is_against: bool
) -> Iterator[pl.DataFrame]:
    """Yield the paired answers of every two models, in the form that query_differences takes.

    Parts with shared demonstration sets have one row for each query and set, others one for each query.
    """
    of_suites = pl.concat_str("suite", "part", separator="/").is_in([f"{suite}/{part}" for suite, part in shared_sets])
    for (model_a, a), (model_b, b) in combinations(zip(models, answers, strict=True), 2):
        if is_against and model_b != models[-1]:
            continue
        # Pair the sets as well only where both runs have the same sets; else average over the sets of a query.
        sets = [rows.filter(of_suites).select(*DATASET, *SET).unique().sort(pl.all()) for rows in (a, b)]
        is_shared = of_suites & sets[0].equals(sets[1])
        means = [_query_means(rows.filter(~is_shared)) for rows in (a, b)]
        for paired in (
            means[0].join(means[1], on=_QUERY_KEY, suffix="_b", maintain_order="left"),
            a.filter(is_shared).join(b.filter(is_shared), on=[*_QUERY_KEY, *SET], suffix="_b", maintain_order="left"),
        ):
            named = paired.with_columns(model_a=pl.lit(model_a), model_b=pl.lit(model_b), method_b="method")
            yield named.rename({"method": "method_a"})


def _between_methods(model: str, answers: pl.DataFrame) -> pl.DataFrame:
    """Return the paired answers of every method and vanilla, in the form that query_differences takes."""
    queries = _query_means(answers)
    vanilla = queries.filter(method=REFERENCE_METHOD)
    others = queries.filter(pl.col("method") != REFERENCE_METHOD)
    on = [name for name in _QUERY_KEY if name != "method"]
    paired = others.join(vanilla, on=on, suffix="_b", maintain_order="left").rename({"method": "method_a"})
    return paired.with_columns(model_a=pl.lit(model), model_b=pl.lit(model))


def _query_means(answers: pl.DataFrame) -> pl.DataFrame:
    """Average `correct` and `true_label_prob` over the requests of each query, so that each query counts once.

    Some methods have one request for each query, others one for each demonstration set.
    """
    return answers.group_by(_QUERY_KEY, maintain_order=True).agg(pl.col("correct", "true_label_prob").mean())


def query_differences(paired: pl.DataFrame) -> pl.DataFrame:
    """Return the mean paired difference over the queries of each group, with its 95% interval and test.

    The difference of a query is the mean over its requests, which are not independent, so interval and test are
    clustered by query (Miller 2024, "Adding Error Bars to Evals", sections on clustering and on paired differences).
    The interval is Bonett & Price's, the test is exact where possible, and the interval excludes 0 exactly where the
    test rejects 0 at 5% (statistics.paired: adjusted_estimate, paired_test, interval).

    Where all queries have the same several demonstration sets, queries and sets are two crossed random factors:
    interval and test ("two-way t") are Student's with the standard error of metrics.intervals.two_way_standard_error,
    and cover other demonstration sets as well.

    Args:
        paired: columns DIFFERENCES_KEY without metric, query_id, and the columns of REQUEST_COLUMNS for a, and with
            suffix "_b" for b; one row for each query, or with the columns of SET for each query and set.

    Returns:
        DIFFERENCES without the columns that depend on other tests, and columns from which means over datasets are
        computed: `d` (difference of each query), `inputs` (query_id of each query), standard_error, mean_size,
        mean_square and ADJUSTED.
    """
    group = [name for name in DIFFERENCES_KEY if name != "metric"]
    sets = [name for name in SET if name in paired.columns]
    metrics = {metric: pl.col(column) - pl.col(f"{column}_b") for metric, column in REQUEST_COLUMNS.items()}
    key = [*group, "query_id", *sets]
    by_metric = paired.select(*key, **metrics).unpivot(list(metrics), index=key, variable_name="metric", value_name="d")
    measured = by_metric.drop_nulls("d")
    ordered = measured.sort("query_id", *sets, maintain_order=True).group_by(*group, "metric", maintain_order=True)
    gathered = ordered.agg("d", inputs=pl.col("query_id").unique(maintain_order=True))
    gathered = gathered.with_columns(n_queries=pl.col("inputs").list.len().cast(pl.Int64))
    # Rows are sorted by query and set, so the differences of a group reshape to [queries, sets].
    cells = zip(gathered["d"], gathered["n_queries"], strict=True)
    estimates = [_estimate(d.to_numpy().reshape(n_queries, -1)) for d, n_queries in cells]
    return gathered.drop("d").hstack(pl.DataFrame(estimates, schema=_ESTIMATE)).sort(DIFFERENCES_KEY)


_NUMBERS = ("difference", "standard_error", "mean_size", "mean_square", *ADJUSTED, "p_value", "ci_low", "ci_high")
_ESTIMATE = pl.Schema({"d": pl.List(pl.Float64), "test": pl.String(), **dict.fromkeys(_NUMBERS, pl.Float64())})


def _estimate(cells: Floats, largest: float | None = None) -> dict[str, Any]:
    """Return the columns of _ESTIMATE for differences [queries, sets].

    Args:
        cells: differences; rounded to DECIMALS, so that differences below rounding error become 0.
        largest: as for adjusted_estimate.
    """
    cells = cells.round(DECIMALS)
    d = cells.mean(axis=1)
    plain = plain_estimate(d)
    two_way, freedom = two_way_standard_error(cells)
    if cells.shape[1] > 1 and two_way and two_way > NO_VARIATION:
        plain = tested = Estimate(plain.difference, two_way, freedom)
        p_value, test = t_test(tested), TWO_WAY
    else:
        tested = adjusted_estimate(d, largest=largest)
        p_value, test = paired_test(d)
        p_value = p_value if test in EXACT_TESTS else t_test(tested)
    sizes = {"mean_size": float(np.abs(d).mean()), "mean_square": float((d**2).mean())}
    plain_columns = {"d": d.tolist(), "difference": plain.difference, "standard_error": plain.standard_error}
    return plain_columns | sizes | _tested(plain.difference, tested, p_value, test, has_interval=len(d) > 1)


def _tested(difference: float, tested: Estimate, p_value: float, test: str, *, has_interval: bool) -> dict[str, Any]:
    """Return the columns of a tested difference: ADJUSTED, p_value, test, ci_low and ci_high."""
    low, high = interval(difference, tested, p_value) if has_interval else (None, None)
    return dict(zip(ADJUSTED, tested, strict=True)) | {"p_value": p_value, "test": test, "ci_low": low, "ci_high": high}


_TESTS = ["difference", "ci_low", "ci_high", "p_value", "p_holm", "n_tests", "n_queries"]


def against_table(
    models: Sequence[str], results: Sequence[pl.DataFrame], differences: pl.DataFrame, shared: Shared = NOTHING_SHARED
) -> pl.DataFrame:
    """Compare every run with the base, which is the last run, on each dataset and over all datasets.

    Args:
        models: name of each run.
        results: request_results of each run, with probabilities.
        differences: schema.DIFFERENCES of the runs against the base.
        shared: as for estimated_differences.

    Returns:
        schema.AGAINST, sorted by its key.
    """
    of_base = differences.filter(metric="accuracy", model_b=models[-1])
    of_base = of_base.rename({"model_a": "model", "method_a": "method"}).select(*AGAINST_KEY, *_TESTS)
    # `correct` becomes the mean over the requests of a query, because runs may differ in their number of requests.
    means = {"correct": pl.col("correct").mean().over(*ANSWER_KEY, "query_id"), "right": pl.col("correct") == 1}
    compared = (answers.join(of_base, on=ANSWER_KEY, how="semi", maintain_order="left") for answers in results)
    *runs, base = (answers.with_columns(**means, n_requests=pl.len().over(ANSWER_KEY)) for answers in compared)
    datasets: dict[tuple[object, ...], list[pl.DataFrame]] = {}  # values of AGAINST_KEY -> paired requests by dataset
    for model, answers in zip(models[:-1], runs, strict=True):
        paired = answers.join(base, on=[*ANSWER_KEY, "position"], suffix="_b")
        for key, pairs in paired.partition_by(ANSWER_KEY, as_dict=True, maintain_order=True).items():
            suite, part, dataset, *others = key
            for name in (dataset, MEAN_OVER_DATASETS):
                datasets.setdefault((suite, part, name, *others, model), []).append(pairs)
    tests = of_base.rows_by_key(AGAINST_KEY, named=True, include_key=True, unique=True)
    rows = [
        tests[key] | _against(found, tests[key]["p_value"], shared.inputs)
        for key, found in datasets.items()
        if key in tests
    ]
    return pl.DataFrame(rows, schema=AGAINST).sort(AGAINST_KEY)


def _against(datasets: Sequence[pl.DataFrame], p_value: float, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of AGAINST that are not in DIFFERENCES: counts, divergence, and recovery with its interval.

    Args:
        datasets: paired requests of each dataset; of one dataset, or of all for the mean over datasets.
        p_value: p-value of the hypothesis that run and base have the same accuracy.
        inputs: as in Shared.
    """
    # Changed answers are summed over datasets; the divergence is the mean over datasets.
    counts = [_counts(pairs) for pairs in datasets]
    totals = {name: sum(each[name] for each in counts) for name in counts[0] if all(name in each for each in counts)}
    if "kl_nats" in totals:
        totals["kl_nats"] /= len(datasets)
    # Accuracies of run and base for each query, or for each input if several datasets ask about the same inputs.
    table = pl.col("dataset").replace(inputs).alias("table")
    queries = [pairs.group_by(table, "query_id", maintain_order=True).agg(pl.col(*_SIDES).mean()) for pairs in datasets]
    queries = combined_by_input(queries, _SIDES)
    # Plain accuracies, and moments of the adjusted ones, of the mean over datasets; two pairs in total are added.
    of_datasets = [_moments(means, 2 / len(queries)) for means in queries]
    plain, moments = (np.mean(numbers, axis=0) for numbers in zip(*of_datasets, strict=True))
    recovery, ends = _recovery(plain, moments, len(queries))
    if recovery is not None:
        totals["recovery"] = 100 * recovery
    if recovery is not None and ends is not None:
        low, high = ends
        if (low <= 1 <= high) == (p_value <= LEVEL):  # interval and test disagree
            near = 1 + end_by_test(recovery - 1, p_value)
            low, high = (near, high) if recovery > 1 else (low, near)
        totals |= {"recovery_low": 100 * low, "recovery_high": 100 * high}
    return totals


def combined_by_input(
    datasets: Sequence[pl.DataFrame], values: Sequence[str], one_input: Sequence[str] = ("table", "query_id")
) -> list[pl.DataFrame]:
    """Combine datasets into one, with one row for each input, if several of them ask about the same inputs.

    A value of an input is the sum over its questions, in which every question has the same total weight, in units of
    the largest weight of an input.

    Args:
        datasets: table (that the dataset asks about) and the columns `one_input` and `values`, one row for each query.
        values: names of columns.
        one_input: names of the columns that two questions about the same input have in common.
    """
    if len({rows["table"][0] for rows in datasets}) == len(datasets):
        return [*datasets]
    shares = (rows.with_columns(share=1 / pl.len()) for rows in datasets)
    weighted = pl.concat(rows.with_columns(pl.col(*values) * pl.col("share")) for rows in shares)
    by_input = weighted.group_by(one_input, maintain_order=True).agg(pl.col(*values, "share").sum())
    return [by_input.with_columns(pl.col(*values) / pl.col("share").max())]


def _counts(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the numbers of changed answers, and the mean of KL(base || run) over requests in nats.

    Nothing if the requests are not in pairs, because the runs differ in their demonstration sets. No `n_changed` and
    `kl_nats` if the label spaces differ; no `kl_nats` if a run has no probabilities.

    Args:
        rows: paired requests of one dataset.
    """
    numbers = {*rows["n_requests"], *rows["n_requests_b"]}
    if numbers != {rows.height} or not rows["demonstration_set"].equals(rows["demonstration_set_b"]):
        return {}
    right, right_before = rows["right"], rows["right_b"]
    counts: dict[str, Any] = {"n_lost": (right_before & ~right).sum(), "n_gained": (right & ~right_before).sum()}
    # If gold indices differ, the labels were renamed or reordered, and indices of labels cannot be compared.
    n_labels, n_labels_before = (rows[name].list.len() for name in ("label_probs", "label_probs_b"))
    is_same = rows["gold"].equals(rows["gold_b"]) and n_labels.equals(n_labels_before)
    if is_same:
        counts["n_changed"] = (rows["pred"] != rows["pred_b"]).sum()
    if is_same and not rows["true_label_prob"].null_count():
        run, base = (np.array(rows[name].to_list()) for name in ("label_probs", "label_probs_b"))
        counts["kl_nats"] = float(rel_entr(base, run).sum(axis=1).mean())
    return counts


_SIDES = ("correct", "correct_b")


def _moments(queries: pl.DataFrame, n_added: float) -> tuple[Floats, Floats]:
    """Return the plain accuracies of run and base, [2], and moments of the adjusted accuracies, [6].

    As in statistics.paired.adjusted_estimate, `n_added` pairs are added; in each of them one side is right, in half of
    them the run, in half the base.

    Args:
        queries: columns _SIDES, one row for each query.
        n_added: number of added pairs, which need not be whole.

    Returns:
        Plain accuracies of run and base; and adjusted accuracies of run and base, the variances of these two means,
        their covariance, and degrees of freedom.
    """
    a, b = (queries[name].to_numpy() for name in _SIDES)
    n, half = len(a) + n_added, n_added / 2
    mean_a, mean_b = (a.sum() + half) / n, (b.sum() + half) / n
    variance_a = ((a @ a + half) / n - mean_a**2) / (n - 1)
    variance_b = ((b @ b + half) / n - mean_b**2) / (n - 1)
    covariance = (a @ b / n - mean_a * mean_b) / (n - 1)
    return np.array([a.mean(), b.mean()]), np.array([mean_a, mean_b, variance_a, variance_b, covariance, n - 1])


def _recovery(plain: Floats, moments: Floats, n_datasets: int) -> tuple[float | None, tuple[float, float] | None]:
    """Return the ratio of the accuracies of run and base, and its 95% interval by Fieller's theorem.

    The ratio is None if the base has accuracy 0, the interval if the base's accuracy is not significantly above 0.

    Args:
        plain, moments: as returned by _moments; means over independent datasets.
        n_datasets: number of these datasets.

    Source: Fieller 1954, "Some problems in interval estimation", Journal of the Royal Statistical Society B 16.
    """
    a, b, *spread, freedom = moments
    # The variances and the covariance of a mean over datasets shrink with their number; degrees of freedom add up.
    variance_a, variance_b, covariance = (number / n_datasets for number in spread)
    square = float(stdtrit(freedom * n_datasets, 1 - LEVEL / 2)) ** 2
    # The interval has all r with (a - r b)^2 <= t^2 Var(a - r b), that is lead r^2 - 2 middle r + last <= 0.
    lead, middle, last = b**2 - square * variance_b, a * b - square * covariance, a**2 - square * variance_a
    recovery = float(plain[0] / plain[1]) if plain[1] else None
    if recovery is None or lead <= 0:
        return recovery, None
    reach = math.sqrt(max(middle**2 - lead * last, 0.0))
    low, high = float((middle - reach) / lead), float((middle + reach) / lead)
    return recovery, (max(min(low, recovery), 0.0), max(high, recovery))


def against_lines(table: pl.DataFrame, base: str) -> Iterator[str]:
    """Yield a line for each run, part, method and definition: recovery, changed answers and test of the mean.

    Args:
        table: schema.AGAINST.
        base: name of the base run.
    """
    for row in table.filter(dataset=MEAN_OVER_DATASETS).iter_rows(named=True):
        recovery = "no recovery" if row["recovery"] is None else f"{row['recovery']:.1f}% of the accuracy of {base}"
        ends = "" if row["recovery_low"] is None else f" ({row['recovery_low']:.1f} to {row['recovery_high']:.1f})"
        kl = "" if row["kl_nats"] is None else f", KL {row['kl_nats']:.3g} nats"
        lost = row["n_lost"]
        flips = "" if lost is None else f" {plural(lost, 'answer')} lost, {row['n_gained']:,} gained{kl};"
        place = ", ".join(row[name] for name in ("model", "part", "method", "definition"))
        yield f"{place}: {recovery}{ends};{flips} p {row['p_holm']:.3g} after Holm for {plural(row['n_tests'], 'test')}"
