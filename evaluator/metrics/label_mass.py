"""Label mass: how much of the whole vocabulary's probability the label set has. A metric of ours, not StaICC's.

It is the probability that the tokens after a prompt begin with those of any label, as they are scored. `paper`: the sum
of exp(label log-likelihood) over the labels that have no other label as a prefix. The tokens of different labels
exclude each other unless one begins with the other, as " yes" and " yes, indeed" do: the longer one then happens only
where the shorter one does, and adding both would count it twice, to more than 1 at worst. `released`: the sum of the
probabilities of the labels' last tokens right after the prompt, which always differ.

Only the tokens that are scored count. With --label-boundary separate, a label follows a prompt that ends in a token of
its own for the last space; a model that would write space and label as one token has little label mass there.

A query's label mass is the mean over its requests. Intervals of a quantile are between the order statistics that hold
it with at least 95% probability, whatever the distribution (as SciPy's quantile_test), or 0 and 1 where there are none.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import binom

from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import ScoredRequests
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, mean_of_intervals
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS, METRICS_KEY, Definition
from evaluator.store.ids import bucket_by_bucket

QUANTILES = {"label_mass_median": 0.5, "label_mass_5th_percentile": 0.05}
_DATASET = ["suite", "part", "dataset"]


def label_mass_metrics(scored: ScoredRequests, definitions: Sequence[Definition]) -> pl.DataFrame:
    """Return QUANTILES of the label mass over queries, of each part that methods answer, and their means over datasets.

    Returns schema METRICS, sorted by its key, with the method vanilla: the mass belongs to prompts, and methods differ
    in what they make of it. Parts without label scores under a definition have no rows for it.
    """
    parts = {name: part for name, part in scored.parts.items() if part.kind in ("classification", "diagnostic")}
    asked = scored.rows.filter(pl.col("for_part").is_null(), pl.col("part").is_in(list(parts)))
    weights = _label_weights(scored.tokens)
    wanted = [name for name in LABEL_SCORE if name in definitions]
    columns = [*(pl.col(name).cast(pl.Categorical) for name in _DATASET), pl.col("query_id")]

    def masses_of(bucket: pl.Expr) -> pl.LazyFrame:
        weighted = asked.filter(bucket).join(weights.filter(bucket), on="prompt_id", how="left", maintain_order="left")
        return weighted.select(*columns, **{name: _mass(name) for name in wanted})

    masses = bucket_by_bucket(asked.select(pl.len()).collect(engine="streaming").item(), masses_of)
    found: list[dict[str, object]] = []
    for definition in wanted:
        measured = [name for name, part in parts.items() if definition in part.definitions]
        of_parts = masses.filter(pl.col("part").cast(pl.String).is_in(measured), pl.col(definition).is_not_null())
        by_query = of_parts.group_by(*_DATASET, "query_id").agg(mass=pl.col(definition).mean(), n_requests=pl.len())
        for key, queries in by_query.sort(*_DATASET, "query_id").group_by(_DATASET, maintain_order=True):
            sizes = {"n_queries": queries.height, "n_requests": queries["n_requests"].sum()}
            shared = dict(zip(_DATASET, key, strict=True)) | {"definition": definition, **sizes}
            found += [shared | row for row in _quantile_rows(queries["mass"].to_numpy())]
    datasets = pl.DataFrame(found, schema=METRICS).with_columns(method=pl.lit(REFERENCE_METHOD))
    means = (
        datasets.group_by([column for column in METRICS_KEY if column != "dataset"], maintain_order=True)
        .agg(**mean_of_intervals(), n_queries=pl.col("n_queries").sum(), n_requests=pl.col("n_requests").sum())
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    return pl.concat([datasets, means], how="diagonal").sort(METRICS_KEY)


def _mass(definition: Definition) -> pl.Expr:
    """Return the label mass of a request; null without scores under the definition."""
    score = pl.col(LABEL_SCORE[definition])
    probs = score.list.eval(pl.element().exp())
    counted = probs * pl.col("weights") if definition == "paper" else probs
    return pl.when(score.is_not_null()).then(counted.list.sum().clip(0, 1))  # rounding can lead beyond 1


def _label_weights(tokens: pl.LazyFrame) -> pl.LazyFrame:
    """Return `weights` by `prompt_id`, one a label: 0 where another label's tokens begin this label's, else 1."""
    texts = pl.element().list.eval(pl.element().cast(pl.String)).list.join(" ")
    space = pl.col("continuations").list.eval(texts).list.join("|")
    spaces = tokens.filter(ask="labels").select("prompt_id", space=space)
    # Label spaces repeat, so that each different one is looked at once.
    distinct = spaces.select("space").unique().collect(engine="streaming")["space"]
    weights = pl.LazyFrame(
        {"space": distinct, "weights": [_prefix_weights(space.split("|")) for space in distinct]},
        schema_overrides={"weights": pl.List(pl.Float64)},
    )
    return spaces.join(weights, on="space").drop("space")


def _prefix_weights(labels: Sequence[str]) -> list[float]:
    """Return 0 for each label that begins with the tokens of another one, else 1. Tokens are numbers with spaces."""
    ended = [f"{label} " for label in labels]  # so that 12 is no prefix of 123
    return [0.0 if any(one != other and one.startswith(other) for other in ended) else 1.0 for one in ended]


def _quantile_rows(masses: npt.NDArray[np.float64]) -> Iterator[dict[str, object]]:
    for name, share in QUANTILES.items():
        low, high = quantile_interval(masses, share)
        yield {"metric": name, "value": float(np.quantile(masses, share)), "ci_low": low, "ci_high": high}


def quantile_interval(values: npt.NDArray[np.float64], share: float) -> tuple[float, float]:
    """Return a 95% interval of a quantile of numbers in [0, 1]: order statistics, 0 or 1 where a limit has none.

    The number of values at or below the true quantile is binomial, so the interval holds it with at least the stated
    probability (SciPy's quantile_test, which follows Conover 1999).
    """
    ordered, tail = np.sort(values), (1 - CONFIDENCE_LEVEL) / 2
    below, above = binom.ppf([tail, 1 - tail], len(values), share)
    low, high = math.ceil(below), math.floor(above) + 1
    return float(ordered[low - 1]) if low > 0 else 0.0, float(ordered[high - 1]) if high <= len(values) else 1.0
