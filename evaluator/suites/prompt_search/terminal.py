"""Summarise the best prompts of a search in a few lines for a terminal."""

from collections.abc import Iterator

from evaluator.report.section import MeasuredRun


def best_prompt_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and method: the best prompt's accuracy and the random baselines.

    Args:
        run: with the table search_results.
    """
    for row in run.table("search_results").iter_rows(named=True):
        yield (
            f"{row['part']}, {row['method']}, {row['dataset']}, {row['n_shots']}-shot: best of {row['n_prompts']:,} "
            f"prompts {row['best_accuracy']:.3f}, chance {row['chance']:.3f}, max random {row['max_random']:.3f}: "
            f"{row['verdict']}"
        )
