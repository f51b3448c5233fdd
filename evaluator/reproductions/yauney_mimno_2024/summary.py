"""Summarise the published experiments for a terminal. Nothing is computed here."""

from collections.abc import Iterator

from evaluator.reproductions.yauney_mimno_2024.recompute import Published

SCORES = {"accuracy": 10, "precision": 11, "recall": 8, "auroc": 8, "aupr": 8}
"""Column of PUBLISHED_HELD_OUT -> width in characters."""


def summary_lines(published: Published) -> Iterator[str]:
    """Yield totals under each set of rules, then scores of predictors of held-out accuracy, at the highest tries."""
    tables = published.tables
    yield f"{'rules':40}{'experiments':>12}{'> standard':>12}{'> both':>8}{'disagree':>10}{'share':>8}"
    for row in tables.totals.iter_rows(named=True):
        yield (
            f"{row['rules']:40}{row['n_experiments']:12}{row['above_standard']:12}{row['above_max']:8}"
            f"{row['disagreements']:10}{row['flipped_share']:8.1%}"
        )
    max_tries = int(tables.held_out["tries"].to_numpy().max())
    yield ""
    heads = "".join(f"{score:>{width}}" for score, width in SCORES.items())
    yield f"{f'held out, best of {max_tries} prompts':40}{'predictor':>16}{heads}"
    for row in tables.held_out.filter(over="all", tries=max_tries).iter_rows(named=True):
        numbers = "".join(f"{_two_decimals(row[score]):>{width}}" for score, width in SCORES.items())
        yield f"{row['splits'] + ' splits, ' + row['rules']:40}{row['predictor']:>16}{numbers}"


def _two_decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
