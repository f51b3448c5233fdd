"""Simulate how often `evaluator gate --watch` ever raises an alarm, and write the table of docs/gate.md.

A case draws streams of errors, or of signs of paired changes, and tests after every value. Without drift, at most 5% of
streams may raise an alarm; with drift, the median delay of the alarm is reported. Rows are appended to
results/drift.csv. `python -m benchmarks.columnar.drift --table` writes the page without simulating.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import RESULTS, ROOT, append_rows, read_rows, with_block
from evaluator.arrays import Floats
from evaluator.statistics.betting import e_process, two_sided_e_process
from evaluator.statistics.paired import LEVEL

PAGE = ROOT / "docs" / "gate.md"
COMMAND = "benchmarks.columnar.drift --table"
PROMISED, N, N_RUNS = 0.1, 5_000, 1_000


def _cases() -> Iterator[tuple[str, Floats, int, bool]]:
    """Yield name, error rate at every position, size of groups with equal errors, and whether values are signs."""
    place = np.arange(N)
    for rate in (PROMISED, 0.095, 0.05):
        yield f"no drift: {rate:.1%} of errors", np.full(N, rate), 1, False
    yield "no drift: 10.0% on average, groups of 5 with equal errors", np.full(N, PROMISED), 5, False
    yield "no drift: waves from 0 to 10%", 0.05 + 0.05 * np.sin(place / 50), 1, False
    for rate in (0.12, 0.15, 0.2):
        yield f"drift from the start: {rate:.1%}", np.full(N, rate), 1, False
    yield "drift after 2,000 answers: from 7.0% to 15.0%", np.where(place < 2_000, 0.07, 0.15), 1, False
    yield "inputs asked again, no drift: changes in both directions", np.full(N, 0.5), 1, True
    yield "inputs asked again: 60.0% of changes are down", np.full(N, 0.6), 1, True


def simulate(rates: Floats, group_size: int, has_signs: bool) -> dict[str, object]:
    """Simulate streams; return the share that ever raises an alarm, and the median position of the first alarm.

    Args:
        rates: [N], error rates, or with signs the probability of a change for the worse.
        group_size: number of adjacent rows that form one value.
        has_signs: whether values are signs of changes.
    """
    rng = np.random.default_rng(1)
    first = np.full(N_RUNS, np.inf)
    for stream in range(N_RUNS):
        # A group counts as one value, the mean over its rows, as in evaluator.runs.watch.
        hits = rng.random(N)[: N // group_size] < rates[::group_size]
        capital = two_sided_e_process(1 - 2.0 * hits) if has_signs else e_process(hits, PROMISED)
        above = capital >= 1 / LEVEL
        if above.any():
            first[stream] = (above.argmax() + 1) * group_size
    median = float(np.median(first))
    return {"n": N, "runs": N_RUNS, "alarms": float(np.isfinite(first).mean()), "median": median}


def main() -> None:
    """Simulate every case, append the rows, and write the table of the page."""
    if "--table" not in sys.argv:
        for name, rates, group_size, has_signs in _cases():
            append_rows("drift", name, ["numpy"], [simulate(rates, group_size, has_signs)])
    PAGE.write_text(with_block(PAGE.read_text(), COMMAND, table(read_rows(RESULTS / "drift.csv"))))


def table(rows: pl.DataFrame) -> str:
    """Return the newest row of every case as a Markdown table."""
    newest = rows.unique("case", keep="last", maintain_order=True)
    return "| answers | ever an alarm | median first alarm |\n|---|---|---|\n" + "".join(
        map(_line, newest.iter_rows(named=True))
    )


def _line(row: dict[str, Any]) -> str:
    median = f"after {row['median']:,.0f}" if np.isfinite(row["median"]) else ""
    return f"| {row['case']} | {row['alarms']:.1%} | {median} |\n"


if __name__ == "__main__":
    main()
