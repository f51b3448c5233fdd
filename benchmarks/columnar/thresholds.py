"""Simulate how often the promise of a threshold fails and what it accepts, and write the table of docs/thresholds.md.

A case draws samples from a model whose accuracy at every probability is known, chooses a threshold, and compares the
true accuracy above it with the target. A promise may fail in 5% of samples. results/thresholds.csv gets one row per
case and number of rows. `python -m benchmarks.columnar.thresholds --table` writes the page without simulating.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import beta

from benchmarks.harness import RESULTS, ROOT, append_rows, read_rows, with_block
from evaluator.arrays import Bools, Floats, Ints
from evaluator.statistics.selective import accuracy_interval, choose, looks

SIZES = (50, 100, 200, 400, 1_000, 5_000)
ALPHA = 0.05
N_RUNS = 1_000
PAGE = ROOT / "docs" / "thresholds.md"
COMMAND = "benchmarks.columnar.thresholds --table"
STEPS = np.arange(50, 101) / 100


class Model(NamedTuple):
    """The probabilities that a model reports, with their frequencies and accuracies."""

    name: str
    probability: Floats  # [values], the probabilities that the model can report
    share: Floats  # [values], frequency of every probability
    accuracy: Floats  # [values], accuracy of answers with every probability
    group_size: int = 1  # mean size of groups of rows; sizes are geometric
    alike: float = 0.0  # correlation of errors within a group

    def truth(self, threshold: float) -> tuple[float, float]:
        """Return the expected share of rows with at least this probability, and their accuracy."""
        used = self.probability >= threshold - 1e-12
        share = float(self.share[used].sum())
        return share, float((self.share * self.accuracy)[used].sum()) / max(share, 1e-300)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Bools, Ints | None]:
        """Draw probabilities, errors and groups of n rows; groups are None if rows are independent."""
        drawn = rng.choice(len(self.share), n, p=self.share)
        chance = 1 - self.accuracy[drawn]
        if self.group_size == 1:
            return self.probability[drawn], rng.random(n) < chance, None
        sizes = rng.geometric(1 / self.group_size, n)
        groups = np.repeat(np.arange(n), sizes)[:n]
        # A row shares the random number of its group with probability sqrt(alike), else it has a separate one.
        common = rng.random(n)[groups]
        luck = np.where(rng.random(n) < np.sqrt(self.alike), common, rng.random(n))
        return self.probability[drawn], luck < chance, groups


def _calibrated(a: float, b: float) -> Floats:
    edges = np.clip((np.arange(50, 102) - 50.5) / 50, 0, 1)
    mass: Floats = np.diff(beta.cdf(edges, a, b))
    return np.asarray(mass / mass.sum())


def _softened(temperature: float) -> Floats:
    kept = np.clip(STEPS, 0.5, 0.995)
    accuracy: Floats = 1 / (1 + np.exp(-np.log(kept / (1 - kept)) / temperature))
    return accuracy


def _evenly(name: str, probability: Floats, accuracy: Floats | float, **more: float) -> Model:
    share = np.full(len(probability), 1 / len(probability))
    return Model(name, probability, share, np.broadcast_to(accuracy, len(probability)), **more)  # type: ignore[arg-type]


USUAL = _calibrated(4.0, 1.2)
"""Frequencies of STEPS for a calibrated model with accuracy 0.885; the share of rows that can be used is 0.92 at a
target of 0.9, and 0.49 at 0.95."""
MANY = np.arange(2_000) / 2_000 * 0.2 + 0.004  # probabilities of the most probable of 255 options

THREE = np.array([1.0, 0.9, 0.6])


def _cases() -> Iterator[tuple[Model, float]]:
    """Yield pairs of model and target accuracy."""
    for target in (0.9, 0.95):
        yield Model("calibrated, two decimals", STEPS, USUAL, STEPS), target
    yield Model("overconfident, two decimals", STEPS, USUAL, _softened(1.2)), 0.9
    yield Model("overconfident, most are 1.00", STEPS, _calibrated(8, 0.4), _softened(2.0)), 0.9
    yield _evenly("255 options, underconfident", MANY, 0.8 + MANY * 0.9), 0.9
    for target in (0.9, 0.95):
        for gap in (0.0001, 0.005):
            yield _evenly(f"{target - gap:g} everywhere, two decimals", STEPS, target - gap), target
            yield _evenly(f"{target - gap:g} everywhere, all different", MANY, target - gap), target
    yield _evenly("one value, 0.8999", np.ones(1), 0.8999), 0.9
    shares, falling = np.array([0.4, 0.4, 0.2]), np.array([0.93, 0.89, 0.85])
    yield Model("three values, the loosest is too wrong", THREE, shares, falling), 0.9
    yield Model("three values, 0.8999 each", THREE, shares, np.full(3, 0.8999)), 0.9
    yield _evenly("more certain is more wrong", STEPS, 0.95 - (STEPS - 0.5) / 5), 0.9
    yield _evenly("waves of accuracy", STEPS, 0.895 + 0.05 * np.sin(STEPS * 40)), 0.9
    for size in (3, 10):
        for alike in (0.0, 0.3, 0.9):
            name = f"groups of {size}, errors {alike:g} alike, 0.8999 everywhere"
            yield _evenly(name, STEPS, 0.8999, group_size=size, alike=alike), 0.9
    for alike in (0.0, 0.3):
        yield Model(f"groups of 5, errors {alike:g} alike, calibrated", STEPS, USUAL, STEPS, 5, alike), 0.9


def fixed_start(scores: Floats, wrong: Bools, limit: float) -> float | None:
    """Return the threshold of the plain fixed-sequence test, or None, for comparison.

    It tests thresholds in order from the first that accepts 30% of the rows, and stops at the first failure.
    """
    from scipy.stats import binom

    at = looks(scores, wrong)
    first = int(np.argmax(at.n >= 0.3 * len(scores)))
    fails = binom.cdf(at.n_wrong, at.n, limit) > ALPHA
    end = first + int(np.append(fails[first:], True).argmax())
    return float(at.threshold[end - 1]) if end > first else None


def simulate(model: Model, target: float, n: int, n_runs: int) -> dict[str, object]:
    """Simulate n_runs samples of n rows; return one row of results.

    The row has the shares of runs with a broken promise, with a threshold, and with an interval that misses the true
    accuracy. It also has the mean share of rows that are used (0 without a threshold), by this project and by
    fixed_start, and the largest share that is possible.
    """
    rng = np.random.default_rng(n)
    broken, used, plain, named, outside, below = 0, 0.0, 0.0, 0, 0, 0
    limit = round(1 - target, 12)
    for _ in range(n_runs):
        scores, wrong, groups = model.sample(n, rng)
        at = looks(scores, wrong, groups)
        if chosen := choose(at, limit, ALPHA):
            share, accuracy = model.truth(float(at.threshold[chosen.look]))
            low, high = accuracy_interval(at, chosen)
            named, used, broken = named + 1, used + share, broken + (accuracy < target - 1e-12)
            outside, below = outside + (not low <= accuracy <= high), below + (accuracy < low)
        if groups is None and (threshold := fixed_start(scores, wrong, limit)) is not None:
            plain += model.truth(threshold)[0]
    enough = [share for value in model.probability for share, right in [model.truth(value)] if right >= target]
    return {
        "model": model.name,
        "target": target,
        "n": n,
        "runs": n_runs,
        "broken": broken / n_runs,
        "named": named / n_runs,
        "used": used / n_runs,
        "used_by_fixed_start": None if model.group_size > 1 else plain / n_runs,
        "possible": max(enough, default=0.0),
        "outside_interval": outside / n_runs,
        "below_interval": below / n_runs,
    }


def main() -> None:
    """Simulate every case, append the rows, and write the table of the page."""
    if "--table" not in sys.argv:
        for model, target in _cases():
            rows = [simulate(model, target, n, N_RUNS if n < SIZES[-1] else N_RUNS // 4) for n in SIZES]
            append_rows("thresholds", model.name, ["numpy", "scipy"], rows)
            print(table(pl.DataFrame(rows)), flush=True)
    PAGE.write_text(with_block(PAGE.read_text(), COMMAND, table(read_rows(RESULTS / "thresholds.csv"))))


def table(rows: pl.DataFrame) -> str:
    """Return the newest rows as a Markdown table, with one line per case and one column per number of rows."""
    newest = rows.unique(["model", "target", "n"], keep="last", maintain_order=True)
    sizes = "".join(f"{n:,} rows | " for n in SIZES)
    head = f"| answers | target | {sizes}possible |\n" + "|---" * (len(SIZES) + 3) + "|\n"
    return head + "".join(map(_line, newest.partition_by("model", "target", maintain_order=True)))


def _line(case: pl.DataFrame) -> str:
    cells = (_cell(row) for row in case.sort("n").iter_rows(named=True))
    model, target, possible = case.select("model", "target", "possible").row(0)
    return f"| {model} | {target:g} | {' | '.join(cells)} | {possible:.2f} |\n"


def _cell(row: dict[str, Any]) -> str:
    plain = "" if row["used_by_fixed_start"] is None else f" ({row['used_by_fixed_start']:.2f})"
    return f"{row['broken']:.1%}, {row['used']:.2f}{plain}"


if __name__ == "__main__":
    main()
