"""Combine the metrics of several runs on common datasets, and collect the answer of each run to each request.

Also write the answer and the notes of a comparison: the best run, data left out, models that are not independent.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from evaluator.compare.runs import ComparedRun, different_settings, settings
from evaluator.compare.schema import COMPARISON, COMPARISON_KEY
from evaluator.errors import ConfigError, plural
from evaluator.methods import METHODS, REFERENCE_METHOD
from evaluator.metrics.classification import DEFINITIONS
from evaluator.metrics.groups import prediction_groups
from evaluator.metrics.intervals import mean_over_datasets
from evaluator.report.table import p_text
from evaluator.schemas import MEAN_OVER_DATASETS, declare
from evaluator.statistics.paired import LEVEL, TWO_WAY

MEASURED = ["suite", "part", "method", "metric", "definition"]
"""Columns that, with model and dataset, identify a value."""

DATASET = ["suite", "part", "dataset"]
"""Columns that identify a dataset of a part."""

MODEL = ["number", "model", "run", "weights_fingerprint", "n_parameters", "dtype"]
"""Columns of schema.COMPARISON about the run of a value."""


def comparison_table(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return every metric of every run on the common datasets, and the plain means over them, with 95% intervals.

    A dataset is common for a metric, method and definition if all runs that have these have the dataset. Means are over
    the common datasets, and can therefore differ from the means in the table of a run. A mean is undefined if one of
    its values is. A mean of several values with a reduced_bias (schemas.METRICS) has no interval, because it cannot be
    computed from the intervals of the datasets.

    Args:
        runs: runs to compare. Datasets that ask about the same inputs (record.prompts.inputs) are not taken as
            independent in the intervals of means.

    Returns:
        schema.COMPARISON, sorted by its key.

    Raises ConfigError if no dataset is in the same part of all runs.
    """
    _require_common_datasets(runs)
    measured = _all_datasets(runs)
    n_runs = pl.col("number").n_unique()
    common = measured.filter(n_runs.over(*MEASURED, "dataset") == n_runs.over(*MEASURED))
    means = mean_over_datasets(
        common,
        [*MODEL, *MEASURED, "dataset"],
        independent=pl.col("dataset").replace(runs[0].record.prompts.inputs).is_unique().all(),
        chance=pl.col("chance").mean(),
        n_queries=pl.col("n_queries").sum(),
        n_requests=pl.col("n_requests").sum(),
        undefined=pl.col("value").is_null().any(),
        without_interval=pl.col("reduced_bias").is_not_null().any() & (pl.len() > 1),
    )
    has_interval = ~pl.col("undefined") & ~pl.col("without_interval")
    means = means.with_columns(
        pl.when(~pl.col("undefined")).then("value").alias("value"),
        pl.when(has_interval).then(pl.col("ci_low", "ci_high")),
    )
    parts = [part.select(pl.col(name).cast(dtype) for name, dtype in COMPARISON.items()) for part in (common, means)]
    return pl.concat(parts).sort(COMPARISON_KEY)


def _all_datasets(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return the rows of all runs, without means; sorted, so that sums do not depend on the order in a run."""
    frames = []
    for run in runs:
        model, dtype = run.record.model, run.record.engine.dtype
        of_run = (run.number, run.model, run.name, model.weights_fingerprint, model.n_parameters, dtype)
        columns = {name: pl.lit(value, COMPARISON[name]) for name, value in zip(MODEL, of_run, strict=True)}
        rows = run.metrics.filter(pl.col("dataset") != MEAN_OVER_DATASETS).with_columns(**columns)
        frames.append(rows.select(*COMPARISON.names(), "reduced_bias"))
    return pl.concat(frames).sort(COMPARISON_KEY)


def _measured_datasets(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return suite, part and dataset of every dataset that was measured, without means."""
    return metrics.filter(pl.col("dataset") != MEAN_OVER_DATASETS).select(DATASET).unique().sort(DATASET)


def _require_common_datasets(runs: Sequence[ComparedRun]) -> None:
    answered = [run.metrics.filter(metric="accuracy") for run in runs]
    are_answered = not any(rows.is_empty() for rows in answered)
    measured = [*map(_measured_datasets, answered if are_answered else [run.metrics for run in runs])]
    if not set[tuple[str, ...]].intersection(*({*rows.rows()} for rows in measured)):
        datasets = "; ".join(
            f"{run.folder} has {', '.join(f'{part} {dataset}' for _, part, dataset in rows.rows())}"
            for run, rows in zip(runs, measured, strict=True)
        )
        raise ConfigError(
            f"No dataset is in the same part of all runs: {datasets}. Run them on common datasets (--datasets) and "
            "parts (--parts; of typed questions --form)."
        )


ANSWER_KEY = [*DATASET, "method", "definition"]
"""Columns that identify the answers of a method on a dataset."""

CHOOSING = [name for name, method in METHODS.items() if method.prompts.follow_up]
"""Methods that choose demonstrations or templates by the answers of the model, so that prompts differ between runs."""


_RESULTS = declare(
    **dict.fromkeys(ANSWER_KEY, pl.String()),
    **dict.fromkeys(("position", "query_id", "n_shots", "demonstration_set", "gold"), pl.Int64()),
    prompt_id=pl.UInt64(),  # hash of PROMPTS.prompt_id
    correct=pl.Float64(),  # 0 or 1
    true_label_prob=pl.Float64(),
)


_PROBS = declare(pred=pl.Int64(), label_probs=pl.List(pl.Float64()))


def request_results(predictions: pl.DataFrame, metrics: pl.DataFrame, *, with_probs: bool = False) -> pl.DataFrame:
    """Return the answers of a run: one row for each request with a true label, method and definition.

    Args:
        predictions: schemas.PREDICTIONS of the run.
        metrics: schemas.METRICS of the run; only parts and definitions with an accuracy are returned.
        with_probs: whether to add `pred` and `label_probs`.

    Returns:
        _RESULTS, with `correct` and `true_label_prob` as the definition computes them. `true_label_prob` is null in
        parts without probabilities: imported labels, and parts that count refusals as wrong.
    """
    schema = pl.Schema(_RESULTS | _PROBS) if with_probs else _RESULTS
    measured = metrics.filter(metric="accuracy").select("suite", "part").unique()
    have_probs = {*metrics.filter(metric="true_label_probability").select("suite", "part").rows()}
    definitions = {*metrics["definition"]}
    answered = predictions.filter(pl.col("gold").is_not_null()).join(measured, on=["suite", "part"], how="semi")
    frames = [schema.to_frame()]
    for group in prediction_groups(answered):
        if group.definition in definitions:
            key = (pl.lit(group.key[name]).alias(name) for name in ANSWER_KEY)
            correct, probs = group.requests["correct"].cast(pl.Float64), group.requests["true_label_prob"]
            if (group.key["suite"], group.key["part"]) not in have_probs:
                probs = probs.clear(len(probs))
            rows = group.rows.with_columns(*key, correct=correct, true_label_prob=probs)
            frames.append(rows.select(schema.names()))
    return pl.concat(frames)


def answers_to_common_prompts(answers: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return the answers of imported runs to prompts that all have answered, numbered as in the first run.

    A service can refuse what another answers. Without a common prompt in a dataset its answers are all returned.

    Args:
        answers: request_results of each run.
    """
    prompt, numbers = [*ANSWER_KEY, "prompt_id"], ["query_id", "position"]
    common = answers[0].select(*prompt, *numbers)
    for rows in answers[1:]:
        common = common.join(rows, on=prompt, how="semi", maintain_order="left")
    found = []
    for rows in answers:
        paired = rows.drop(numbers).join(common, on=prompt, maintain_order="right").select(rows.columns)
        found.append(pl.concat([paired, rows.join(common, on=ANSWER_KEY, how="anti", maintain_order="left")]))
    return found


def is_renamed(*by: str) -> pl.Expr:
    """Return whether `gold` and `gold_b` correspond one to one in each group: the same labels, at most renamed.

    Args:
        by: columns of the groups.
    """
    labels = pl.struct("gold", "gold_b").n_unique().over(by)
    return pl.all_horizontal(pl.col("gold", "gold_b").n_unique().over(by) == labels)


def require_equal_queries(runs: Sequence[ComparedRun], answers: Sequence[pl.DataFrame]) -> None:
    """Raise ConfigError for runs with different queries, or with gold labels that differ by more than their names.

    Queries of a dataset are the same if the records of both runs have equal fingerprints of the query texts; without
    these fingerprints, if the prompts are equal. Prompts of the methods in CHOOSING are not compared.

    Args:
        runs: runs to compare; each is checked against the first.
        answers: request_results of each run.
    """
    for run, requests in zip(runs[1:], answers[1:], strict=True):
        common = answers[0].join(requests, on=ANSWER_KEY, how="semi").select(ANSWER_KEY).unique()
        # Requests do not depend on the definition, so keep one row for each request, and one for each query.
        request, query = [*DATASET, "method", "position"], [*DATASET, "method", "query_id"]
        shared = (rows.join(common, on=ANSWER_KEY, how="semi").sort(request) for rows in (answers[0], requests))
        a, b = (rows.unique(request, keep="first", maintain_order=True) for rows in shared)
        of_query = [rows.unique(query, keep="first", maintain_order=True) for rows in (a, b)]
        pairs = of_query[0].join(of_query[1], on=query, how="full", suffix="_b", coalesce=True)
        # Datasets whose query texts are known to be equal (same), or known to differ (other).
        known = [each.record.prompts.query_fingerprints for each in (runs[0], run)]
        both = known[0].keys() & known[1].keys()
        same = [name for name in both if known[0][name] == known[1][name]]
        other = both.difference(same)
        is_asked_once = pl.col("gold").is_null() | pl.col("gold_b").is_null()  # query of one run only
        queries = pairs.filter(is_asked_once | ~is_renamed(*DATASET) | pl.col("dataset").is_in(other))
        if not queries.is_empty():
            _refuse(runs[0], run, "queries", queries, pairs.height)
        # Prompts must be equal too, unless a method chooses them or the query texts are known to be equal.
        is_excused = pl.col("method").is_in(CHOOSING) | pl.col("dataset").is_in(same)
        prompts = a.join(b, on=request, suffix="_b").filter(~is_excused)
        changed = prompts.filter((pl.col("prompt_id") != pl.col("prompt_id_b")) | (pl.col("gold") != pl.col("gold_b")))
        if not changed.is_empty():
            _refuse(runs[0], run, "prompts", changed, prompts.height)


def _refuse(first: ComparedRun, run: ComparedRun, what: str, rows: pl.DataFrame, n: int) -> None:
    suite, part, dataset = rows.sort(DATASET).select(DATASET).row(0)
    raise ConfigError(
        f"{first.folder} and {run.folder} have different {what}: {rows.height:,} of {n:,}, the first in "
        f"{suite} / {part}, {dataset}. They were built from different data, by different versions, or with labels in "
        "another order, which draws other demonstrations. Build and score one of them again."
    )


PLACE = pl.format("{} / {}", "suite", "part")
"""Suite and part, as a title."""


def comparison_notes(
    runs: Sequence[ComparedRun], comparison: pl.DataFrame, results: Sequence[pl.DataFrame] = ()
) -> list[str]:
    """Return the notes of a comparison.

    They name datasets, methods and parameter counts that are missing, settings that differ, and runs with the same
    weights or the same scores.

    Args:
        runs: runs that are compared.
        comparison: schema.COMPARISON of the runs.
        results: request_results of each run; without them, scores are not compared.
    """
    named = ", ".join(run.model for run in runs if run.record.model.n_parameters is None)
    return [
        *_left_out(runs, comparison),
        *_not_measured(runs, comparison),
        *_unpaired(runs, results),
        *_settings(runs),
        *_same_weights(runs),
        *_same_scores(runs[: len(results)], results),
        *[f"Not in the figures by size, because their number of parameters was not recorded: {named}."] * bool(named),
    ]


def comparison_answer(runs: Sequence[ComparedRun], differences: pl.DataFrame) -> str:
    """Describe in sentences how far the run with the best mean accuracy is ahead of the others; "" without accuracies.

    The numbers are those of the first part, definition and method (vanilla before others) that the runs have.

    Args:
        runs: runs that are compared.
        differences: schema.DIFFERENCES of the runs.
    """
    rows = differences.filter(pl.col("model_a") != pl.col("model_b"), dataset=MEAN_OVER_DATASETS, metric="accuracy")
    if rows.is_empty():
        return ""
    parts = [(suite, part) for suite, parts in runs[0].record.prompts.parts.items() for part in parts]
    key = ("suite", "part", "definition", "method_a")

    def place(row: tuple[str, ...]) -> tuple[Any, ...]:
        suite, part, definition, method = row
        number_of_part = [*parts, (suite, part)].index((suite, part))  # parts of other runs come last
        return number_of_part, [*DEFINITIONS].index(definition), method != REFERENCE_METHOD, row

    first = min(rows.select(key).unique().rows(), key=place)
    rows = rows.filter(**dict(zip(key, first, strict=True)))
    # Add every pair in the other direction, so that each model has a difference to every other model.
    turned = rows.rename({"model_a": "model_b", "model_b": "model_a"}).with_columns(
        difference=-pl.col("difference"), ci_low=-pl.col("ci_high"), ci_high=-pl.col("ci_low")
    )
    both = pl.concat([rows, turned.select(rows.columns)])
    ranked = both.group_by("model_a").agg(pl.col("difference").sum()).sort("difference", "model_a", descending=True)
    ahead = both.filter(model_a=ranked["model_a"][0]).sort("difference", "model_b")
    return " ".join(map(_difference_text, ahead.head(MAX_ANSWERS).iter_rows(named=True)))


def _difference_text(row: Mapping[str, Any]) -> str:
    values = (row[name] for name in ("difference", "ci_low", "ci_high"))
    points, low, high = (None if value is None else 100 * value + 0.0 for value in values)
    p_value = p_text(row["p_holm"]) if row["p_holm"] < 0.001 else f"= {p_text(row['p_holm'])}"
    interval = "" if low is None else f"95% interval {low:.1f} to {high:.1f}, "
    tests = f" after Holm's correction for {row['n_tests']} tests" if row["n_tests"] > 1 else ""
    numbers = f"by {points:.1f} points of accuracy ({interval}p {p_value}{tests}; {plural(row['n_queries'], 'query')})"
    if row["p_holm"] <= LEVEL:
        return f"{row['model_a']} is better than {row['model_b']} {numbers}."
    nothing = f"No difference is shown between {row['model_a']} and {row['model_b']}: the first is ahead {numbers}."
    return nothing + _needed_text(row["n_queries"], row["difference"], row["min_detectable"], row["test"])


def _needed_text(n_queries: int, difference: float, min_detectable: float | None, test: str = "t") -> str:
    """Describe the smallest detectable difference, and how many queries it would take to detect the observed one.

    Standard errors shrink with 1 / sqrt(n_queries), so a difference k times smaller takes k^2 times as many queries. If
    queries share demonstration sets ("two-way t"), no number is given, because more queries do not shrink the error of
    the sets.
    """
    what = "queries and demonstration sets" if test == TWO_WAY else "queries"
    if min_detectable is None or min_detectable >= 1:
        return f" So few {what} detect no difference."
    detected = f" These {what} detect a true difference of {100 * min_detectable:.1f} points with 80% probability"
    if 100 * difference < 0.05 or test == TWO_WAY:
        return f"{detected}."
    needed = float(f"{n_queries * (min_detectable / difference) ** 2:.2g}")
    return f"{detected}; one of {100 * difference:.1f} points takes about {needed:,.0f} queries."


MAX_ANSWERS = 5
"""Largest number of other models with which the best model is compared in words."""


def _left_out(runs: Sequence[ComparedRun], comparison: pl.DataFrame) -> Iterator[str]:
    datasets = pl.concat([_measured_datasets(run.metrics).with_columns(model=pl.lit(run.model)) for run in runs])
    left_out = datasets.join(comparison, on=DATASET, how="anti", maintain_order="left")
    models_of_dataset = left_out.group_by(DATASET, maintain_order=True).agg("model").sort(DATASET)
    rows = models_of_dataset.select(PLACE, "dataset", "model").rows()
    if named := [f"{place}, {dataset} (only in {', '.join(models)})" for place, dataset, models in rows]:
        yield f"Only datasets that all runs have are compared. Left out: {'; '.join(named)}."


def _not_measured(runs: Sequence[ComparedRun], comparison: pl.DataFrame) -> Iterator[str]:
    measured = comparison.select("suite", "part", "method").unique().sort(pl.all())
    for run in runs:
        missing = measured.join(run.metrics, on=["suite", "part", "method"], how="anti", maintain_order="left")
        if named := [f"{method} in {place}" for place, method in missing.select(PLACE, "method").rows()]:
            yield f"{run.model} has no results of {', none of '.join(named)}."


def _unpaired(runs: Sequence[ComparedRun], results: Sequence[pl.DataFrame]) -> Iterator[str]:
    """Yield a note for each dataset of a run with queries that another run has no answer to."""
    for run, rows in zip(runs, results, strict=False):
        asked = run.metrics.filter(metric="accuracy").select(*ANSWER_KEY, "n_queries")
        paired = rows.group_by(ANSWER_KEY).agg(n_paired=pl.col("query_id").n_unique())
        both = asked.join(paired, on=ANSWER_KEY, maintain_order="left").filter(pl.col("n_paired") < pl.col("n_queries"))
        names = both.select("dataset", "n_paired", "n_queries").unique(maintain_order=True).rows()
        if counts := [f"{paired:,} of its {n:,} queries in {dataset}" for dataset, paired, n in names]:
            yield (
                f"{run.model} has answers to queries that another run has not answered. Its differences are over "
                f"{', '.join(counts)}, its own accuracy is over all."
            )


def _same_weights(runs: Sequence[ComparedRun]) -> Iterator[str]:
    first_of: dict[str, ComparedRun] = {}
    for run in runs:
        first = first_of.setdefault(run.record.model.weights_fingerprint, run)
        if first is not run:
            yield f"{first.model} and {run.model} have the same weights. Correlations and line fits are over the first."


def _settings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    is_one_model = len({run.record.model.weights_fingerprint for run in runs}) == 1
    for name in different_settings([run.record for run in runs]):
        if name not in ("dtype", "engine") and (is_one_model or name != "tokenizer"):
            values = "; ".join(f"{run.model}: {settings(run.record).get(name, 'none')}" for run in runs)
            yield f"The runs differ in their {name}, so their differences include its effect. {values}."


def _same_scores(runs: Sequence[ComparedRun], results: Sequence[pl.DataFrame]) -> Iterator[str]:
    """Yield a note for every two runs whose probabilities of true labels are equal for all requests."""
    key = [*ANSWER_KEY, "position"]
    numbers = [rows.sort(key).select(*key, "true_label_prob").drop_nulls() for rows in results]
    for (first, a), (second, b) in combinations(zip(runs, numbers, strict=True), 2):
        if a.height and a.equals(b):
            yield (
                f"{first.model} and {second.model} have the same scores to the last digit ({a.height:,} predictions), "
                "so they are one model, or the setting that sets them apart had no effect. Check --model and --adapter."
            )
