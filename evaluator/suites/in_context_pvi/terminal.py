"""Summarise the V-information of a run in a few lines for a terminal."""

from collections.abc import Iterator

import polars as pl

from evaluator.report.section import MeasuredRun


def v_information_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and source of demonstrations: means over demonstration sets.

    Args:
        run: has the table pvi_summary; the lines are about the definition paper.
    """
    runs = run.table("pvi_summary").filter(definition="paper")
    means = runs.group_by("dataset", "n_shots", "demonstrations", maintain_order=True).agg(
        pl.col("v_information", "accuracy").mean(), sets=pl.len()
    )
    for dataset, n_shots, source, bits, accuracy, sets in means.iter_rows():
        yield (
            f"{dataset}, {n_shots}-shot, {source} demonstrations: V-information {bits:.3f} bits, accuracy "
            f"{accuracy:.3f}, over {sets} set{'s' * (sets != 1)}"
        )
