"""Build the tables of a run: metrics, metrics by level of a varied factor, reliability, confusion, mass and queries.

The table of queries joins the requests of a run with their texts and scores, one row a request.

The label mass is the share of the whole vocabulary's probability that belongs to the label space: the probability that
the tokens after a prompt begin with the scored tokens of any label. It is our metric, not StaICC's. Under `paper` it is
the sum of exp(label log-likelihood) over the labels that have no other label as a prefix. Two labels exclude each other
unless the tokens of one begin with the tokens of the other, as " yes, indeed" with " yes": the longer label then
implies the shorter one, and adding both would count it twice, up to a sum above 1. Under `released` it is the sum of
the probabilities of the labels' last tokens right after the prompt; these tokens always differ.

Only scored tokens count. With --label-boundary separate, the prompt ends in a separate token for the last space; a
model that would write space and label as one token has little label mass after it.

A query's label mass is the mean over its requests. The interval of a quantile lies between the order statistics that
contain it with a probability of at least 95% under any distribution (as in SciPy's quantile_test); where there is no
such order statistic, the limit is 0 or 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from evaluator import schemas
from evaluator.arrays import Floats
from evaluator.config import Definition
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import LABEL_SCORE, ScoredRequests
from evaluator.metrics import intervals
from evaluator.metrics.classification import BIN_EDGES, N_BINS, Measured
from evaluator.metrics.groups import GROUP, MeasuredGroup
from evaluator.metrics.guessing import GUESSES, mean_guesses, with_baselines, with_tests_of_run
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.selective import binomial_quantile
from evaluator.store import id_numbers, kept, slices

_NUMBERS = {name: pl.Float64() for name in Measured._fields if name not in ("interval", "bins", "sizes", "over")}
SIZES = {name: pl.col(name).sum() for name in ("n_queries", "n_requests")}
"""Expressions for the sizes of a mean over datasets: the sums over its datasets."""


def metrics_table(
    groups: Iterable[MeasuredGroup], draws: Mapping[str, str] | None = None, *, independent: bool = True
) -> pl.DataFrame:
    """Return every metric of every dataset and method, and the plain means over datasets, with 95% intervals.

    Rows of accuracy also have the guessing baselines and the tests against guessing (guessing.py).

    Args:
        groups: one or more groups, as measured_groups returns.
        draws: method -> name of a random factor that is drawn once for all queries, so that intervals do not cover it.
        independent: whether datasets are independent; questions about the same inputs are not.

    Returns:
        schema METRICS, sorted by METRICS_KEY. An absent dataset is left out of the mean, not counted as 0; n_queries of
        a mean is the number of queries of its datasets.
    """
    rows = [row for group in groups for row in _rows(group)]
    estimates = intervals.reduced_bias(rows)
    plain = [{name: value for name, value in row.items() if name not in ("bins", "sizes")} for row in rows]
    frame = pl.DataFrame(plain, infer_schema_length=None, schema_overrides={**_NUMBERS, **GUESSES})
    datasets = intervals.with_intervals(frame.with_columns(ci_over="over", ci_given=_given(draws or {})))
    same = {name: pl.col(name).first() for name in ("ci_over", "ci_given")}
    sizes = {**SIZES, **mean_guesses()}
    means = intervals.mean_over_datasets(datasets, schemas.METRICS_KEY, independent=independent, **same, **sizes)
    both = with_baselines(pl.concat([datasets, means], how="diagonal_relaxed"))
    tested = with_tests_of_run(intervals.with_estimates(both, estimates), independent=independent)
    return schemas.declared(tested, schemas.METRICS, schemas.METRICS_KEY)


def _rows(group: MeasuredGroup) -> Iterator[dict[str, object]]:
    """Yield a row for each metric, without intervals."""
    for name, values in group.measured.items():
        guessed = group.guesses if group.guesses and name == "accuracy" else dict.fromkeys(GUESSES)
        yield {**group.key, **(values.sizes or group.sizes), "metric": name, **values._asdict(), **guessed}


def _given(draws: Mapping[str, str]) -> pl.Expr:
    """Return the names of the factors that an interval holds fixed: an unsampled template, and the method's draw."""
    template = pl.when(~pl.col("over").str.contains("templates")).then(pl.lit("template"))
    named = {method: factor for method, factor in draws.items() if factor}
    drawn = pl.col("method").replace_strict(named, default=None, return_dtype=pl.String)
    both = pl.concat_str(template, drawn, separator=", ", ignore_nulls=True)
    return pl.when(both != "").then(both)


def group_metrics_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return METRICS at each noise rate, template or demonstration set, with the means over datasets.

    Values at a noise rate or template are over all demonstration sets. Demonstration sets are drawn for each query, so
    sets with the same number contain different demonstrations.

    Returns schema GROUP_METRICS, sorted by its key.
    """
    datasets = pl.concat([schemas.GROUP_METRICS.to_frame(), *(frame for group in groups for frame in group.variations)])
    key_of_mean = [column for column in schemas.GROUP_METRICS_KEY if column != "dataset"]
    means = datasets.sort("dataset").group_by(key_of_mean).agg(pl.col("value").mean(), pl.col("n_requests").sum())
    named = means.with_columns(dataset=pl.lit(MEAN_OVER_DATASETS)).select(datasets.columns)
    return pl.concat([datasets, named]).sort(schemas.GROUP_METRICS_KEY)


def reliability_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return accuracy and mean confidence in each bin of the expected calibration error, under "paper".

    Returns RELIABILITY, sorted by its key: all ten bins of each dataset and method.
    """
    bins = pl.DataFrame({"bin": range(N_BINS), "bin_low": BIN_EDGES[:-1], "bin_high": BIN_EDGES[1:]})
    n = pl.col("n_requests")
    means = {"mean_confidence": pl.col("confidence") / n, "accuracy": pl.col("correct") / n}
    tables = [
        bins.join(group.bins.with_columns(**means), on="bin", how="left").with_columns(n.fill_null(0), **_key(group))
        for group in groups
        if group.bins is not None and group.key["definition"] == "paper"
    ]
    return _stacked(tables, schemas.RELIABILITY, schemas.RELIABILITY_KEY)


def confusion_table(groups: Iterable[MeasuredGroup]) -> pl.DataFrame:
    """Return the number of requests for each pair of gold and predicted label, under "paper".

    Returns CONFUSION, sorted by its key: all pairs of each dataset and method.
    """
    tables = []
    for group in groups:
        if group.confusion is not None and group.key["definition"] == "paper":
            gold, pred = (pl.DataFrame({name: range(group.n_labels)}) for name in ("gold", "pred"))
            counted = gold.join(pred, how="cross").join(group.confusion, on=["gold", "pred"], how="left")
            tables.append(counted.with_columns(pl.col("n_requests").fill_null(0), **_key(group)))
    return _stacked(tables, schemas.CONFUSION, schemas.CONFUSION_KEY)


def _key(group: MeasuredGroup) -> dict[str, pl.Expr]:
    return {column: pl.lit(group.key[column]) for column in GROUP}


def _stacked(tables: Sequence[pl.DataFrame], schema: pl.Schema, key: list[str]) -> pl.DataFrame:
    return pl.concat([schema.to_frame(), *(table.select(schema.names()).cast(schema) for table in tables)]).sort(key)


QUANTILES = {"label_mass_median": 0.5, "label_mass_5th_percentile": 0.05}
_DATASET = ["suite", "part", "dataset"]


def label_mass_metrics(
    scored: ScoredRequests, definitions: Sequence[Definition], *, independent: bool = True
) -> pl.DataFrame:
    """Return QUANTILES of the label mass over queries in classification and diagnostic parts, with dataset means.

    Args:
        scored: scored requests of the run.
        definitions: definitions to measure; label mass has the definitions in LABEL_SCORE.
        independent: whether datasets are independent; questions about the same inputs are not.

    Returns schema METRICS, sorted by its key, with the method vanilla, because label mass depends on the prompt and not
    on the method. A part without label scores under a definition has no rows under it.
    """
    parts = {name: part for name, part in scored.parts.items() if part.kind in ("classification", "diagnostic")}
    wanted = [name for name in LABEL_SCORE if name in definitions]
    asked = scored.rows.filter(pl.col("for_part").is_null(), pl.col("part").is_in(list(parts)))
    masses = _with_weights(asked, scored.tokens).select(*_DATASET, "query_id", **{name: _mass(name) for name in wanted})
    keys = asked.select(_DATASET).unique().sort(_DATASET).collect(engine="streaming")
    found: list[dict[str, object]] = []
    for key in keys.iter_rows(named=True):
        requests = masses.filter(**key).collect().rechunk()
        for definition in wanted:
            scored_requests = requests.select("query_id", mass=definition).drop_nulls("mass")
            if scored_requests.is_empty() or definition not in parts[key["part"]].definitions:
                continue
            mass = scored_requests.group_by("query_id", maintain_order=True).mean()["mass"].to_numpy()
            sizes = {"n_queries": len(mass), "n_requests": scored_requests.height}
            for name, share in QUANTILES.items():
                low, high = quantile_interval(mass, share)
                numbers = {"value": float(np.quantile(mass, share)), "ci_low": low, "ci_high": high}
                found.append(key | sizes | numbers | {"definition": definition, "metric": name})
    datasets = pl.DataFrame(found, schema=schemas.METRICS).with_columns(method=pl.lit(REFERENCE_METHOD))
    means = intervals.mean_over_datasets(datasets, schemas.METRICS_KEY, independent=independent, **SIZES)
    return pl.concat([datasets, means], how="diagonal").sort(schemas.METRICS_KEY)


def _mass(definition: Definition) -> pl.Expr:
    """Return the label mass of a request; null without scores under the definition."""
    score = pl.col(LABEL_SCORE[definition])
    probs = score.list.eval(pl.element().exp())
    counted = pl.when(pl.col("weights").is_null()).then(probs).otherwise(probs * pl.col("weights"))
    mass = (counted if definition == "paper" else probs).list.sum().clip(0, 1)  # by rounding, a sum can exceed 1
    return pl.when(score.is_not_null()).then(mass)


def _with_weights(asked: pl.LazyFrame, tokens: pl.LazyFrame) -> pl.LazyFrame:
    """Add `weights` to requests, one a label: 0 where the label's tokens begin with another label's tokens, else 1.

    Null where all weights are 1, as in most label spaces.
    """
    asked_labels = tokens.filter(ask="labels")
    labels = asked_labels.select(id_numbers("prompt_id"), "continuations", space=pl.col("continuations").hash())
    # Many prompts share a label space; compute the weights once for each distinct space.
    distinct = labels.group_by("space").agg(pl.col("continuations").first()).collect(engine="streaming")
    weights = {
        space: [0.0 if any(one != other and one[: len(other)] == other for other in tokens) else 1.0 for one in tokens]
        for space, tokens in distinct.iter_rows()
    }
    overlapping = {space: of_labels for space, of_labels in weights.items() if min(of_labels, default=1.0) == 0}
    if not overlapping:
        return asked.with_columns(weights=pl.lit(None, pl.List(pl.Float64)))
    columns = schemas.declare(space=pl.UInt64(), weights=pl.List(pl.Float64()))
    by_space = pl.LazyFrame([*overlapping.items()], columns, orient="row")
    by_prompt = labels.select("space", number="prompt_id").join(by_space, on="space")
    numbered = asked.with_columns(number=id_numbers("prompt_id"))
    return numbered.join(by_prompt, on="number", how="left", maintain_order="left")


def quantile_interval(values: Floats, share: float) -> tuple[float, float]:
    """Return a 95% interval of a quantile of numbers in [0, 1]: order statistics, or 0 or 1 where there is none.

    The number of values at or below the true quantile is binomial, so the interval contains it with a probability of at
    least 95% (SciPy's quantile_test, which follows Conover 1999).

    Args:
        values: [n], in any order.
        share: the quantile, between 0 and 1.
    """
    ordered, tail = np.sort(values), (1 - intervals.CONFIDENCE_LEVEL) / 2
    low, above = map(int, binomial_quantile(np.array([tail, 1 - tail]), len(values), share))
    high = above + 1
    return float(ordered[low - 1]) if low > 0 else 0.0, float(ordered[high - 1]) if high <= len(values) else 1.0


ROWS_JOINED = 131_072
"""Number of rows that are joined with texts and scores at a time; each such step reads all texts and scores."""

assert {*schemas.QUERIES_KEY} < {*schemas.PREDICTIONS}, "answers say which query they are of"


def query_texts(prompts: pl.LazyFrame) -> pl.LazyFrame:
    """Return prompt_id and `query`, the text after the last demonstration, from a frame of schemas.PROMPTS."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    return prompts.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def queries_table(
    scored: ScoredRequests, texts: pl.LazyFrame, predictions: pl.LazyFrame, folder: Path
) -> Iterator[pl.DataFrame]:
    """Yield schemas.QUERIES, sorted by its key, in frames of up to ROWS_JOINED rows: every prompt with predictions.

    Args:
        scored, predictions: scored requests of the run, and schemas.PREDICTIONS.
        texts: query_texts of all stores of the run; a prompt_id may occur in several stores.
        folder: folder for a temporary file.
    """
    columns = [*schemas.QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    scores = scored.rows.select(*schemas.PROMPTS_KEY, "label_log_likelihoods")
    # Most methods answer the same prompts. Sort before `unique`, because only a sort can move rows to disk.
    in_order = predictions.select(columns).sort(schemas.QUERIES_KEY)
    distinct = in_order.unique(schemas.QUERIES_KEY, keep="first", maintain_order=True)
    with kept(distinct, folder) as answers:
        for rows in slices(answers, ROWS_JOINED):
            # The semi-join keeps only the ids of the slice in memory; a plain join would keep all texts or scores.
            ids = rows.lazy().select(schemas.PROMPTS_KEY).unique()
            joined = rows
            for by_prompt in (texts, scores):
                found = by_prompt.join(ids, on=schemas.PROMPTS_KEY, how="semi").unique(schemas.PROMPTS_KEY, keep="any")
                of_rows = found.collect(engine="streaming")
                joined = joined.join(of_rows, on=schemas.PROMPTS_KEY, how="left", maintain_order="left")
            yield joined.select(pl.col(name).cast(dtype) for name, dtype in schemas.QUERIES.items())
