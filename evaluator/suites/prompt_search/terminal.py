"""Summarise the best prompts of a search in a few lines for a terminal."""

from collections.abc import Iterator
from typing import Any

from evaluator.report.section import MeasuredRun


def best_prompt_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and method: the best prompt's accuracy and the random baselines,
    and whether it is better than guessing.

    Args:
        run: with the table search_results.
    """
    for row in run.table("search_results").iter_rows(named=True):
        yield (
            f"{row['part']}, {row['method']}, {row['dataset']}, {row['n_shots']}-shot: best of {row['n_prompts']:,} "
            f"prompts {row['best_accuracy']:.3f}, chance {row['chance']:.3f}, max random {row['max_random']:.3f}: "
            f"{row['verdict']}; {_tested(row)}"
        )


def _tested(row: dict[str, Any]) -> str:
    correction = f"after Holm's correction for {row['n_tests']:,} test{'s' * (row['n_tests'] != 1)}"
    p_value = f"{row['p_holm']:.3f}" if row["p_holm"] >= 0.001 else "< 0.001"
    return f"{'' if row['better_than_guessing'] else 'not '}better than guessing, p {p_value} {correction}"
