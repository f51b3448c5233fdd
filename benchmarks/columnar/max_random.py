"""Time maximum random baselines against the paper's package and SciPy's distributions.

python -m benchmarks.columnar.max_random

Three races: one setting of 10,000 examples; one setting whose 10,000 examples have different chances; 100,000 settings
of up to 200 examples. SciPy has the two distributions but not those of their maxima, which are computed here with as
little code as possible.
"""

from typing import Any

import numpy as np
from max_random_baseline import max_random_baseline
from scipy import special, stats

from benchmarks.harness import Target, Timing, Work, print_targets, race, require_green_tests
from evaluator.random_baselines import max_random_accuracy

N, TRIES = 10_000, 200
SETTINGS, LARGEST = 100_000, 200


def main() -> None:
    require_green_tests("tests/random_baselines/test_max_random.py")
    one, different, many = one_setting(), different_chances(), many_settings()
    print_targets(
        Target(what="10,000 examples, ms", value=one["evaluator"].median_s * 1_000, at_most=10),
        Target(what="10,000 examples, added MiB", value=one["evaluator"].added_mib, at_most=50),
        Target(what="10,000 different chances, s", value=different["evaluator"].median_s, at_most=0.5),
        Target(what="100,000 settings, s", value=many["evaluator"].median_s, at_most=2),
    )


def one_setting() -> dict[str, Timing]:
    contestants = {
        "max-random-baseline": lambda: max_random_baseline(N, 0.5, TRIES),
        "SciPy's binomial": lambda: accuracy_from_cdf(stats.binom.cdf(np.arange(N), N, 0.5)),
        "evaluator": lambda: max_random_accuracy(N, 0.5, TRIES),
    }
    return race(work("one setting of 10,000 examples", 1), contestants, runs=3, same=assert_close)


def different_chances() -> dict[str, Timing]:
    chances = np.random.default_rng(0).uniform(0.01, 0.99, N)
    listed = chances.tolist()
    contestants = {
        "max-random-baseline": lambda: max_random_baseline(N, listed, TRIES),
        "SciPy's Poisson binomial": lambda: accuracy_from_cdf(stats.poisson_binom.cdf(np.arange(N), chances)),
        "evaluator": lambda: max_random_accuracy(N, chances, TRIES),
    }
    return race(work("10,000 different chances", 1), contestants, runs=3, same=assert_close)


def many_settings() -> dict[str, Timing]:
    rng = np.random.default_rng(0)
    n = rng.integers(1, LARGEST + 1, SETTINGS)
    chance, tries = rng.uniform(0.05, 0.95, SETTINGS), rng.integers(1, 1_000, SETTINGS)
    contestants = {
        "SciPy's incomplete beta": lambda: accuracies_from_incomplete_beta(n, chance, tries),
        "evaluator": lambda: max_random_accuracy(n, chance, tries),
    }
    return race(work("100,000 settings of up to 200 examples", SETTINGS), contestants, runs=5, same=assert_close)


def accuracy_from_cdf(cdf: Any) -> float:
    return float((1 - cdf**TRIES).sum()) / N


def accuracies_from_incomplete_beta(n: Any, chance: Any, tries: Any) -> Any:
    """Return the expected best accuracy of every setting: the sum of P(best >= k) over k = 1, ..., n, divided by n.

    One flat array has the tails of all settings.
    """
    start = np.cumsum(n) - n
    k = np.arange(n.sum()) - start.repeat(n) + 1
    tail = special.betainc(k, n.repeat(n) - k + 1, chance.repeat(n))
    with np.errstate(divide="ignore"):
        best_tail = -np.expm1(tries.repeat(n) * np.log1p(-tail))
    return np.add.reduceat(best_tail, start) / n


def work(case: str, items: int) -> Work:
    packages = ["numpy", "scipy", "max-random-baseline"]
    return Work(benchmark="max_random", case=case, items=items, unit="settings", packages=packages)


def assert_close(theirs: Any, ours: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


if __name__ == "__main__":
    main()
