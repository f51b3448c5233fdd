"""Measure the embedded model on test queries: `python -m benchmarks.embedded_model.evaluation`.

Run vanilla inference in fp32 for every query with both of its demonstration sets: with 0 to 8 demonstrations, and with
four demonstrations of which an increasing share has wrong labels. Print the numbers of MODEL_CARD.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtrit

from evaluator.config import ModelConfig, RunConfig
from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.staicc import load_staicc
from evaluator.engine import load_engine
from evaluator.methods.base import softmax
from evaluator.metrics.intervals import CONFIDENCE_LEVEL
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from evaluator.prompts.rows import normal_requests
from evaluator.random_baselines import max_random_accuracy, max_random_tail
from evaluator.scores.compute import engine_requests, score_frame
from evaluator.store import with_prompt_ids
from evaluator.suites.staicc.robustness import label_noise_requests, slope_weights
from evaluator.tokens.table import tokenise

N_SHOTS = 4
SHOT_COUNTS = (0, 1, 2, 4, 8)


def main(folder: Path, n_queries: int | None) -> None:
    """Score the model in `folder` on n_queries test queries per dataset (None: all), and print three tables."""
    requests = pl.concat([frame for name in SOURCES for frame in _requests(load_staicc(name), n_queries)])
    scored = _scored(with_prompt_ids(requests), ModelConfig(model=str(folder), dtype="float32"))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, float_precision=3):
        print(_against_baselines(scored))
        print(_by_shots(scored))
        print(_under_noise(scored))


def _requests(dataset: ClassificationDataset, n_queries: int | None) -> Iterator[pl.DataFrame]:
    for n_shots in SHOT_COUNTS:
        for rows in normal_requests(dataset, n_shots=n_shots, n_queries=n_queries):
            yield rows.with_columns(noise_rate=pl.lit(None, pl.Float64))
    config = RunConfig(suites=("staicc-robustness",), datasets=(dataset.name,), n_shots=N_SHOTS, n_queries=n_queries)
    yield from label_noise_requests(dataset, config)


def _scored(requests: pl.DataFrame, config: ModelConfig) -> pl.DataFrame:
    """Score requests and add the columns `correct` and `true_label_prob`."""
    source = find_model(config)
    distinct = requests.unique("prompt_id", maintain_order=True)
    tokens = tokenise(source.tokenizer, distinct, config.label_boundary or "separate")
    tokens = tokens.sort("context", maintain_order=True)
    engine = load_engine(source, config)
    try:
        answers = sorted(engine.log_likelihoods(engine_requests(tokens)), key=lambda answer: answer.index)
    finally:
        engine.close()
    scores = score_frame(tokens, [answer.token_log_probs for answer in answers]).with_columns(tokens["prompt_id"])
    scored = requests.lazy().join(scores.lazy(), on="prompt_id", maintain_order="left")
    probs = scored.with_columns(label_probs=softmax(pl.col("log_likelihoods")))
    return probs.with_columns(
        correct=pl.col("label_probs").list.arg_max() == pl.col("gold"),
        true_label_prob=pl.col("label_probs").list.get(pl.col("gold")),
    ).collect()


def _against_baselines(scored: pl.DataFrame) -> pl.DataFrame:
    """Compare accuracy with random baselines, for N_SHOTS demonstrations and the first demonstration set of a query.

    Only one set per query is used, so that the answers are independent.
    """
    first = scored.filter(
        pl.col("noise_rate").is_null(), pl.col("n_shots") == N_SHOTS, pl.col("demonstration_set") == 0
    )
    counted = first.group_by("dataset", maintain_order=True).agg(
        n=pl.len(),
        correct=pl.col("correct").sum(),
        accuracy=pl.col("correct").mean(),
        majority=pl.col("gold").value_counts().struct.field("count").max() / pl.len(),
        chance=1 / pl.col("label_names").first().list.len(),
    )
    settings = [counted[name].to_numpy() for name in ("correct", "n", "chance")]
    return counted.with_columns(
        max_random=pl.Series(np.asarray(max_random_accuracy(*settings[1:]))),
        log10_p=pl.Series(np.asarray(max_random_tail(*settings, log10=True))),
    )


def _by_shots(scored: pl.DataFrame) -> pl.DataFrame:
    """Return the mean probability of the true label by dataset and number of shots, over both demonstration sets."""
    noiseless = scored.filter(pl.col("noise_rate").is_null())
    table = noiseless.pivot("n_shots", index="dataset", values="true_label_prob", aggregate_function="mean")
    means = table.select(pl.lit("mean").alias("dataset"), *(pl.col(str(n_shots)).mean() for n_shots in SHOT_COUNTS))
    return pl.concat([table, means])


def _under_noise(scored: pl.DataFrame) -> pl.DataFrame:
    """Return accuracy by dataset and noise rate, and its slope over the noise rate with an interval."""
    noisy = scored.filter(pl.col("noise_rate").is_not_null())
    accuracies = noisy.pivot("noise_rate", index="dataset", values="correct", aggregate_function="mean")
    slopes = [
        {"dataset": name, **noise_slope(rows)._asdict()}
        for (name,), rows in noisy.partition_by("dataset", as_dict=True, maintain_order=True).items()
    ]
    return accuracies.join(pl.DataFrame(slopes), on="dataset", maintain_order="left")


class NoiseSlope(NamedTuple):
    """Change of accuracy from no wrong demonstration label to only wrong labels.

    It is below 0 if the model uses the labels of demonstrations.
    """

    slope: float  # accuracy per unit of noise rate
    ci_low: float  # bounds of the 95% interval over queries
    ci_high: float


def noise_slope(answers: pl.DataFrame) -> NoiseSlope:
    """Fit the least-squares line of accuracy over `noise_rate`; its slope is minus `gler` of the StaICC paper.

    The slope is the mean of the slopes of single queries, so its standard error is the standard error of a mean over
    queries: the answers of a query at all rates and with all demonstration sets are one observation.

    Args:
        answers: columns `query_id`, `noise_rate` and `correct` (bool); two queries or more, all at the same rates and
            equally often.
    """
    accuracies = answers.group_by("query_id", "noise_rate").agg(pl.col("correct").mean()).sort("query_id", "noise_rate")
    weights = np.array(slope_weights(accuracies["noise_rate"].unique().sort().to_list()))
    slopes = accuracies["correct"].to_numpy().reshape(-1, len(weights)) @ weights
    slope = float(slopes.mean())
    standard_error = float(slopes.std(ddof=1)) / len(slopes) ** 0.5
    margin = float(stdtrit(len(slopes) - 1, (1 + CONFIDENCE_LEVEL) / 2)) * standard_error
    return NoiseSlope(slope, slope - margin, slope + margin)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]) if len(sys.argv) > 1 else EMBEDDED_MODELS["embedded"](),
        n_queries=int(sys.argv[2]) if len(sys.argv) > 2 else None,
    )
