"""Time shared prefix lengths of token rows in prefix order, and the token floors that are computed from them.

Rows resemble few-shot prompts: the rows of a group share their first three quarters (the demonstrations) and differ in
the rest (the query).

    python -m benchmarks.kernels.shared_prefix [n_rows] [tokens_per_row]
"""

import sys
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.harness import Target, Work, print_targets, race, require_green_tests
from evaluator.tokens.rows import floors, ragged
from evaluator_kernels.shared_prefix import shared_prefix_lengths

VOCABULARY = 32_000
GROUP = 32  # mean number of rows that share a stem
Tokens = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


def main(n_rows: int = 140_000, tokens_per_row: int = 200) -> None:
    require_green_tests("tests/kernels/test_shared_prefix.py")
    tokens, offsets = make_rows(n_rows, tokens_per_row)

    def work(case: str) -> Work:
        case = f"{case}, {n_rows} rows of about {tokens_per_row} tokens"
        return Work(benchmark="shared_prefix", case=case, items=n_rows, unit="rows", packages=["numpy", "pyarrow"])

    timings = race(
        work("shared prefix lengths"),
        {
            "python loop": lambda: python_loop(tokens, offsets),
            "evaluator": lambda: shared_prefix_lengths(tokens, offsets),
        },
        runs=5,
    )
    race(work("floor"), {"token floor": lambda: floors(tokens, offsets)[0]}, runs=5)
    race(work("block floor"), {"blocks of 16": lambda: floors(tokens, offsets, [16])[1]}, runs=5)
    if (n_rows, tokens_per_row) == (140_000, 200):
        print_targets(
            Target(what="evaluator, seconds", value=timings["evaluator"].median_s, at_most=0.5),
            Target(what="evaluator, times as fast as the loop", value=timings["evaluator"].times_baseline, at_least=5),
        )


def make_rows(n_rows: int, tokens_per_row: int) -> tuple[Tokens, Offsets]:
    """Return tokens and offsets of random rows in prefix order."""
    random = np.random.default_rng(0)
    longest, stem = tokens_per_row * 11 // 10, tokens_per_row * 3 // 4
    lengths = random.integers(tokens_per_row * 9 // 10, longest + 1, n_rows)
    rows = random.integers(0, VOCABULARY, (n_rows, longest), dtype=np.int32)
    stems = random.integers(0, VOCABULARY, (n_rows // GROUP + 1, stem), dtype=np.int32)
    rows[:, :stem] = stems[random.integers(0, len(stems), n_rows)]
    return ragged(pl.Series([row[:length] for row, length in zip(rows, lengths, strict=True)]).sort())


def python_loop(tokens: Tokens, offsets: Offsets) -> Tokens:
    """Compute shared prefix lengths in plain Python, from the same arrays and with the same early exit.

    Conversion to lists is about a quarter of the time.
    """
    shared = [0]
    above: list[int] = []
    for row, (start, end) in enumerate(pairwise(offsets.tolist())):
        here = tokens[start:end].tolist()
        if row:
            length = 0
            for a, b in zip(above, here, strict=False):
                if a != b:
                    break
                length += 1
            shared.append(length)
        above = here
    return np.array(shared, dtype=np.int32)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
