"""Simulate runs of pure guessing: how often is an accuracy judged better than guessing, and how powerful are tests?

python -m benchmarks.end_to_end.guessing_verdicts

No engine is used: counts of right answers are drawn from the distribution of guessing, and the functions that judge a
run are applied to them. Simulated runs have different values of `definition`, because tests are corrected within a
definition.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import polars as pl
from scipy import stats

from benchmarks.harness import Target, append_rows, print_targets, require_green_tests
from evaluator.metrics.guessing import GUESSES, mean_guesses, with_baselines, with_tests_of_run
from evaluator.random_baselines.max_random import (
    ASSURANCE,
    POWER,
    TAIL_TO_TELL,
    is_above,
    max_random_accuracy,
    max_random_tail,
    queries_needed,
    with_tests,
)

RUNS = 2_000
TRIES = (1, 2, 10, 50, 200, 500)
LABEL_COUNTS = (2, 3, 5, 2, 6, 4, 3, 2, 4, 2)
"""Numbers of labels of ten datasets, similar to those of StaICC."""

MOST_FALSE = int(stats.binom.isf(0.001, RUNS, TAIL_TO_TELL))
"""Limit of the number of runs with an error: with a family-wise error rate of TAIL_TO_TELL, a simulation exceeds it
once in a thousand times."""


def main() -> None:
    require_green_tests("tests/random_baselines/test_significance.py")
    rng = np.random.default_rng(0)
    searches = [search_errors(tries, rng) for tries in TRIES]
    benchmark = [benchmark_errors(methods, rng) for methods in (1, 11)]
    powers = [power(*setting, rng) for setting in product((0.25, 0.5), TRIES)]
    planned = [planning(tries, rng) for tries in (1, 10, 200)]
    for case, rows in (("errors", [*searches, *benchmark]), ("power", powers), ("planning", planned)):
        append_rows(f"guessing_verdicts_{case}", case, ["numpy", "polars", "scipy"], rows)
        for row in rows:
            print(", ".join(f"{name} {value}" for name, value in row.items()))
    print_targets(
        Target(
            what=f"most of {RUNS} runs of guessing with an accuracy better than guessing",
            value=max(float(str(row["n_corrected"])) for row in (*searches, *benchmark)),
            at_most=MOST_FALSE,
        ),
        Target(what="least exact power at n_needed", value=min(float(str(r["exact"])) for r in powers), at_least=POWER),
        Target(
            what="least share of bounds that hold",
            value=min(float(str(r["held"])) for r in planned),
            at_least=ASSURANCE,
        ),
    )


def search_errors(tries: int, rng: np.random.Generator) -> dict[str, object]:
    """Count wrong verdicts of prompt searches with 12 tests: two datasets of 200 queries, three shots, two methods."""
    n_queries, chances = 200, np.repeat([0.25, 0.5], 6)
    rows = pl.concat(_searches(n_queries, chances, tries, rng))
    return {"what": "prompt search", "tries": tries} | _errors(with_tests(rows, ["run"]), "run", len(chances))


def _searches(n_queries: int, chances: np.ndarray, tries: int, rng: np.random.Generator) -> Iterator[pl.DataFrame]:
    """Yield one frame per chance, with the best of `tries` guessing prompts of every run."""
    for chance in chances:
        best = rng.binomial(n_queries, chance, size=(RUNS, tries)).max(axis=1)
        yield _judged(best, n_queries, chance, tries).with_columns(run=np.arange(RUNS))


def _judged(right: np.ndarray, n_queries: int, chance: float, tries: int) -> pl.DataFrame:
    expected = float(max_random_accuracy(n_queries, chance, tries))
    tails = max_random_tail(right, n_queries, chance, tries, log10=True)
    return pl.DataFrame({"n_right": right, "log10_tail": tails}).with_columns(
        n_queries=n_queries,
        chance=chance,
        tries=tries,
        n_chosen_from=tries,
        is_above=is_above(pl.col("n_right") / n_queries, pl.lit(expected)),
    )


def benchmark_errors(n_methods: int, rng: np.random.Generator) -> dict[str, object]:
    """Count wrong verdicts on ten datasets of 512 queries with two prompts per query, and on the mean over datasets."""
    n_queries, n_prompts = 512, 2
    tested = []
    for start in range(0, RUNS, 200):
        frames, runs = [], [f"run {run}" for run in range(start, start + 200)]
        for (place, n_labels), method in product(enumerate(LABEL_COUNTS), range(n_methods)):
            right = rng.binomial(n_queries, 1 / n_labels, size=(200, n_prompts)).sum(axis=1)
            frames.append(
                pl.DataFrame({"definition": runs, "n_correct": right}).with_columns(
                    suite=pl.lit("staicc-normal"),
                    part=pl.lit("normal"),
                    dataset=pl.lit(f"dataset {place}"),
                    method=pl.lit(f"method {method}"),
                    metric=pl.lit("accuracy"),
                    value=pl.col("n_correct") / (n_queries * n_prompts),
                    chance=1 / n_labels,
                    majority=1 / n_labels,
                    label_counts=pl.lit([n_labels], pl.List(pl.Int64)),
                    tries=pl.lit(1, pl.Int64),  # these accuracies are not the best of several
                    # Margins of 0 mean as accurate as the majority label: this simulation is about uniform guessing.
                    margins=pl.lit([0.0], pl.List(pl.Float64)),
                    margin_counts=pl.lit([n_queries], pl.List(pl.Int64)),
                    n_queries=pl.lit(n_queries, pl.Int64),
                    n_requests=pl.lit(n_queries * n_prompts, pl.Int64),
                )
            )
        datasets = pl.concat(frames).cast({name: dtype for name, dtype in GUESSES.items() if name in frames[0].columns})
        sizes = {name: pl.col(name).sum() for name in ("n_queries", "n_requests")}
        means = (
            datasets.group_by("suite", "part", "method", "metric", "definition", maintain_order=True)
            .agg(pl.col("value").mean(), **mean_guesses(), **sizes)
            .with_columns(dataset=pl.lit("mean"))
        )
        both = pl.concat([datasets, means], how="diagonal_relaxed")
        tested.append(with_tests_of_run(with_baselines(both)))
    rows = pl.concat(tested).with_columns(is_above=is_above(pl.col("value"), pl.col("max_random")))
    n_tests = 2 * (len(LABEL_COUNTS) + 1) * n_methods
    return {"what": f"ten datasets and their mean, {n_methods} methods", "tries": 1} | _errors(
        rows, "definition", n_tests
    )


def _errors(tested: pl.DataFrame, run: str, n_tests: int) -> dict[str, object]:
    """Count the runs in which any accuracy is above both baselines, or significant without and with correction.

    Args:
        tested: rows with the columns of the tests.
        run: column that identifies a run.
        n_tests: number of tests in a run.
    """
    p_value = pl.col("p_value") <= TAIL_TO_TELL
    runs = tested.group_by(run).agg(
        pl.col("is_above").any(), uncorrected=p_value.any(), corrected=pl.col("better_than_uniform").any()
    )
    assert runs.height == RUNS, "one group a run"
    return {
        "n_tests": n_tests,
        "runs": RUNS,
        "n_above_both": runs["is_above"].sum(),
        "n_uncorrected": runs["uncorrected"].sum(),
        "n_corrected": runs["corrected"].sum(),
    }


def power(chance: float, tries: int, rng: np.random.Generator) -> dict[str, object]:
    """Measure the power of a test with n_needed queries, in runs of twelve tests.

    One test is of a search in which one prompt has accuracy chance + 0.1; all other prompts guess.
    """
    n_tests, accuracy = 12, chance + 0.1
    n = queries_needed(accuracy, chance, tries, n_tests)
    assert n is not None
    # Exact power of a single test at the corrected level: the counts that are significant, and their probability.
    counts = np.arange(n + 1)
    is_told = np.asarray(max_random_tail(counts, n, chance, tries)) <= TAIL_TO_TELL / n_tests
    # Simulated power in whole runs, with Holm's correction: the skilled prompt may lose to a lucky guess.
    guesses = rng.binomial(n, chance, size=(RUNS, tries - 1)).max(axis=1, initial=0)
    best = np.maximum(guesses, rng.binomial(n, accuracy, size=RUNS))
    skilled = _judged(best, n, chance, tries).with_columns(run=np.arange(RUNS), is_skilled=True)
    others = pl.concat(_searches(n, np.repeat(chance, n_tests - 1), tries, rng)).with_columns(is_skilled=False)
    tested = with_tests(pl.concat([skilled, others]), ["run"]).filter("is_skilled")
    return {
        "chance": chance,
        "accuracy": accuracy,
        "tries": tries,
        "n_tests": n_tests,
        "n_needed": n,
        "runs": RUNS,
        "n_told": tested["better_than_uniform"].sum(),
        "exact": round(float(stats.binom.pmf(counts[is_told], n, accuracy).sum()), 4),
    }


def planning(tries: int, rng: np.random.Generator) -> dict[str, object]:
    """Plan the number of queries from the best of `tries` prompts with true accuracies around 0.4.

    Returns the share of lower bounds that hold and the mean power of the planned and of uncorrected numbers of queries.
    """
    n_queries, chance = 200, 0.25
    truths = np.clip(rng.normal(0.4, 0.05, size=(RUNS, tries)), 0.05, 0.95)
    right = rng.binomial(n_queries, truths)
    chosen = right.argmax(axis=1)
    truth, best = truths[np.arange(RUNS), chosen], right[np.arange(RUNS), chosen]
    tested = with_tests(_judged(best, n_queries, chance, tries).with_columns(run=np.arange(RUNS)), ["run"])
    naive = [queries_needed(count / n_queries, chance, tries, 1) for count in best.tolist()]
    corrected = tested["n_needed"].to_list()
    return {
        "tries": tries,
        "runs": RUNS,
        "observed": round(float((best / n_queries).mean()), 4),
        "true": round(float(truth.mean()), 4),
        "held": float((tested["accuracy_lower_bound"].to_numpy() <= truth).mean()),
        "planned": float(np.mean([n is not None for n in corrected])),
        "power_planned": _mean_power(corrected, truth, chance, tries),
        "power_without_correction": _mean_power(naive, truth, chance, tries),
    }


def _mean_power(sizes: list[int | None], truths: np.ndarray, chance: float, tries: int) -> float:
    """Return the mean power of tests on the planned numbers of queries, over runs with a planned number.

    Args:
        sizes: planned number of queries per run, or None.
        truths: [runs], true accuracies of the chosen prompts.
        chance: chance of guessing right.
        tries: number of prompts from which the best was chosen.
    """
    powers = []
    for n, truth in zip(sizes, truths.tolist(), strict=True):
        if n is not None:
            # Smallest count that the best of `tries` guesses reaches with probability at most TAIL_TO_TELL.
            least = int(stats.binom.isf(-np.expm1(np.log1p(-TAIL_TO_TELL) / tries), n, chance)) + 1
            powers.append(stats.binom.sf(least - 1, n, truth))
    return round(float(np.mean(powers)), 4)


if __name__ == "__main__":
    main()
