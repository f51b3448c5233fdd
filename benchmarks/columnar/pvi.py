"""Time all measures of in-context PVI for ten datasets with six runs of 10,000 queries, against NumPy and SciPy.

python -m benchmarks.columnar.pvi

The baseline loops over runs and pairs of runs, with arrays in memory. It computes less: PVI, accuracies by PVI,
V-information with its interval, thresholds, correlations with p-values, and both analyses of variance, but no
densities, deciles or lists of queries. These numbers are compared before anything is timed.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats
from scipy.special import log_softmax

from benchmarks.harness import Target, Work, print_targets, race, require_green_tests
from evaluator.arrays import Floats
from evaluator.methods.base import ScoredRequests
from evaluator.record import PartRecord
from evaluator.schemas import REQUESTS
from evaluator.suites.in_context_pvi.suite import pvi_measures

N_LABELS = [2, 2, 3, 3, 2, 3, 4, 2, 3, 6]  # ten label spaces of the sizes that classification datasets have
N_QUERIES, N_SETS = 10_000, 3
N_RUNS = 2 * N_SETS
SUMMARY = ["lowest_fifth_accuracy", "highest_fifth_accuracy", "lowest_half_accuracy", "highest_half_accuracy"]
SUMMARY += ["accuracy", "right_pvi", "wrong_pvi", "v_information", "ci_low", "ci_high", "threshold"]
CORRELATIONS = ["pearson", "pearson_p", "spearman", "spearman_p"]


class Dataset(NamedTuple):
    gold: npt.NDArray[np.int64]  # [queries], label indices
    inputs: Floats  # [runs, queries, labels], label log-likelihoods in nats; runs are ordered by shots, then set
    nulls: Floats  # [runs, labels], label log-likelihoods after the null prompt, in nats


def main() -> None:
    require_green_tests("tests/suites/in_context_pvi/test_measures.py")
    datasets = [_dataset(seed, n_labels) for seed, n_labels in enumerate(N_LABELS)]
    scored, queries = _answers(datasets), _queries()
    work = Work(
        benchmark="pvi_measures",
        case=f"{len(datasets)} datasets, {N_RUNS} runs, {N_QUERIES} queries",
        items=len(datasets) * N_RUNS * N_QUERIES,
        unit="PVIs",
        packages=["polars", "numpy", "scipy"],
    )
    timings = race(
        work,
        {
            "numpy and scipy": lambda: _baseline(datasets),
            "evaluator, all": lambda: _numbers(pvi_measures(scored, queries)),
        },
        runs=3,
        same=_assert_same,
    )
    print_targets(Target(what="all measures of PVI, s", value=timings["evaluator, all"].median_s, at_most=10))


def _dataset(seed: int, n_labels: int) -> Dataset:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, n_labels, N_QUERIES)
    scores = rng.normal(-3, 1, (N_QUERIES, n_labels))
    scores[np.arange(N_QUERIES), gold] += rng.exponential(1, N_QUERIES)
    inputs = scores + rng.normal(0, 0.7, (N_RUNS, *scores.shape))
    return Dataset(gold, inputs, rng.normal(-3, 0.3, (N_RUNS, n_labels)))


def _answers(datasets: list[Dataset]) -> ScoredRequests:
    frames = [
        _requests(f"dataset {place}", run, part, gold, scores)
        for place, dataset in enumerate(datasets)
        for run in range(N_RUNS)
        for part, gold, scores in (
            ("input", dataset.gold, dataset.inputs[run]),
            ("null", None, dataset.nulls[run : run + 1]),
        )
    ]
    return ScoredRequests(
        rows=pl.concat(frames).lazy(), parts={"input": PartRecord("classification", ("paper", "released"))}
    )


def _requests(name: str, run: int, part: str, gold: npt.NDArray[np.int64] | None, scores: Floats) -> pl.DataFrame:
    n_queries, n_labels = scores.shape
    places = np.arange(n_queries)
    columns = {
        "part": part,
        "dataset": name,
        "position": run * n_queries + places,
        "query_id": None if gold is None else places,
        "demonstration_set": run % N_SETS,
        "training_row": None,
        "n_shots": n_labels * (1 + run // N_SETS),
        "gold": gold,
        "label_names": [[str(label) for label in range(n_labels)]] * n_queries,
        "label_log_likelihoods": pl.Series(scores).arr.to_list(),
    }
    kept = {column: dtype for column, dtype in REQUESTS.items() if column in columns}
    return pl.DataFrame(columns).cast(pl.Schema(kept))


def _queries() -> pl.DataFrame:
    names = pl.DataFrame({"dataset": [f"dataset {place}" for place in range(len(N_LABELS))]})
    numbers = pl.DataFrame({"query_id": np.arange(N_QUERIES)})
    rows = names.join(numbers, how="cross")
    return rows.with_columns(row="query_id", text=pl.format("text of {}", "query_id"))


def _baseline(datasets: list[Dataset]) -> dict[str, Floats]:
    """Compute the arrays of _numbers, by dataset, definition (normalised over the label space first) and run."""
    numbers: dict[str, list[Any]] = {name: [] for name in ("pvi", "summary", "pairs", "one_way", "repeated")}
    for dataset in datasets:
        for normalised in (True, False):
            inputs, nulls = dataset.inputs, dataset.nulls
            if normalised:
                inputs, nulls = log_softmax(inputs, axis=-1), log_softmax(nulls, axis=-1)
            rows = np.arange(N_QUERIES)
            bits = (inputs[:, rows, dataset.gold] - nulls[:, dataset.gold]) / np.log(2)
            right = inputs.argmax(-1) == dataset.gold
            numbers["pvi"].append(bits)
            numbers["summary"] += map(_summary, bits, right)
            numbers["pairs"] += [_correlated(bits[i], bits[j]) for i, j in combinations(range(N_RUNS), 2)]
            means = np.array([run_bits[correct].mean() for run_bits, correct in zip(bits, right, strict=True)])
            numbers["one_way"].append(stats.f_oneway(*means.reshape(2, N_SETS).T))
            numbers["repeated"] += [_repeated(of_shots) for of_shots in (bits[:N_SETS], bits[N_SETS:])]
    return {name: np.array(values) for name, values in numbers.items()}


def _summary(bits: Floats, right: npt.NDArray[np.bool_]) -> list[float]:
    order = bits.argsort()
    in_order = right[order]
    n = len(bits)
    parts = [in_order[: n // 5], in_order[-(n // 5) :], in_order[: n // 2], in_order[-(n // 2) :], right]
    low, high = stats.t.interval(0.95, n - 1, bits.mean(), stats.sem(bits))
    # The threshold maximises the number of right minus the number of wrong answers above it.
    gains = np.cumsum((in_order - 0.5)[::-1])[::-1]
    cut = int(gains.argmax())
    threshold = -np.inf if cut == 0 else (bits[order[cut]] + bits[order[cut - 1]]) / 2
    means = [bits[right].mean(), bits[~right].mean(), bits.mean()]
    return [*(part.mean() for part in parts), *means, low, high, threshold]


def _correlated(first: Floats, second: Floats) -> list[float]:
    return [*stats.pearsonr(first, second), *stats.spearmanr(first, second)]


def _repeated(bits: Floats) -> list[float]:
    """Return F and p of a repeated-measures analysis of variance over demonstration sets; `bits` is [sets, queries]."""
    n_sets, n_queries = bits.shape
    between = n_queries * ((bits.mean(1) - bits.mean()) ** 2).sum()
    rest = ((bits - bits.mean(1, keepdims=True) - bits.mean(0) + bits.mean()) ** 2).sum()
    df, df_rest = n_sets - 1, (n_sets - 1) * (n_queries - 1)
    f = (between / df) / (rest / df_rest)
    return [f, stats.f.sf(f, df, df_rest)]


def _numbers(tables: dict[str, pl.DataFrame]) -> dict[str, Floats]:
    order = ["dataset", "definition", "n_shots", "demonstration_set"]
    pairs = [
        "dataset",
        "definition",
        "first_n_shots",
        "first_demonstration_set",
        "second_n_shots",
        "second_demonstration_set",
    ]
    by_shots = ["dataset", "definition", "n_shots"]
    shape = (2 * len(N_LABELS), N_RUNS, N_QUERIES)
    return {
        "pvi": tables["pvi"].sort(*order, "query_id")["pvi_bits"].to_numpy().reshape(shape),
        "summary": tables["pvi_summary"].sort(order).select(SUMMARY).to_numpy(),
        "pairs": tables["pvi_pairs"].sort(pairs).select(CORRELATIONS).to_numpy(),
        "one_way": tables["pvi_one_way"].sort("dataset", "definition").select("f", "p").to_numpy(),
        "repeated": tables["pvi_repeated_measures"].sort(by_shots).select("f", "p").to_numpy(),
    }


def _assert_same(baseline: dict[str, Floats], ours: dict[str, Floats]) -> None:
    for name, expected in baseline.items():
        np.testing.assert_allclose(ours[name], expected, rtol=1e-7, atol=1e-9, err_msg=name)


if __name__ == "__main__":
    main()
