"""Say what more prompts should be spent on, and how many a wanted interval takes, from variance components.

The variance of a mean over Q queries, L levels of a crossed factor and D draws of each query is query/Q + level/L +
interaction/QL + draw/QD + residual/QLD (a decision study of generalizability theory: Brennan 2001, "Generalizability
Theory", chapter 1).
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from evaluator.arrays import Floats, Ints
from evaluator.metrics.calibration_interval import Z

MORE_PROMPTS = 10_000
HALF_WIDTHS = (0.05, 0.03, 0.02, 0.01)
MAX_LEVELS, MAX_DRAWS = 200, 16
"""Largest numbers of levels and of draws that a cheapest design is sought among."""


class Design(NamedTuple):
    """How many of each there are."""

    n_queries: int
    n_levels: int
    n_draws: int

    @property
    def n_prompts(self) -> int:
        return self.n_queries * self.n_levels * self.n_draws


class Variances(NamedTuple):
    """Variance components, 0 or more."""

    query: float
    level: float
    interaction: float
    draw: float
    residual: float

    def standard_error(self, design: Design) -> float:
        """Return the standard error of a mean of this design."""
        n_queries, n_levels, n_draws = design
        of_answers = (self.draw + self.residual / n_levels) / n_draws
        of_queries = self.query + self.interaction / n_levels + of_answers
        return math.sqrt(of_queries / n_queries + self.level / n_levels)


def more_prompts(now: Design, n_prompts: int, names: Mapping[str, str]) -> Iterator[tuple[str, Design]]:
    """Yield what `n_prompts` more are spent on, and the design that results; nothing where they are too few for one.

    Args:
        names: "query", "level" and, where queries have draws, "draw" -> name of the component.
    """
    for field, other in (
        ("n_queries", now.n_levels * now.n_draws),
        ("n_levels", now.n_queries * now.n_draws),
        ("n_draws", now.n_queries * now.n_levels),
    ):
        name = {"n_queries": "query", "n_levels": "level", "n_draws": "draw"}[field]
        if name in names and n_prompts >= other:
            yield names[name], now._replace(**{field: getattr(now, field) + n_prompts // other})


def queries_needed(variances: Variances, half_width: float, n_levels: int, n_draws: int) -> int | None:
    """Return the fewest queries, two or more, for a half-width; None where no number of them is enough."""
    needed = float(_queries_needed(variances, half_width, np.array(n_levels), np.array(n_draws)))
    return int(needed) if math.isfinite(needed) else None


def cheapest(variances: Variances, half_width: float, *, has_draws: bool) -> Design | None:
    """Return the design of the fewest prompts with this half-width; of equals that of the fewest levels and draws."""
    levels, draws = np.meshgrid(
        np.arange(1, MAX_LEVELS + 1), np.arange(1, MAX_DRAWS + 1 if has_draws else 2), indexing="ij"
    )
    queries = _queries_needed(variances, half_width, levels, draws)
    best = np.unravel_index(np.argmin(queries * levels * draws), levels.shape)
    return Design(*(int(values[best]) for values in (queries, levels, draws))) if np.isfinite(queries[best]) else None


def _queries_needed(variances: Variances, half_width: float, levels: Ints, draws: Ints) -> Floats:
    """Return the fewest queries for each number of levels and draws, infinite where no number is enough."""
    left = (half_width / Z) ** 2 - variances.level / levels
    of_queries = (
        variances.query + variances.interaction / levels + (variances.draw + variances.residual / levels) / draws
    )
    needed = np.maximum(np.ceil(of_queries / np.where(left > 0, left, 1.0)), 2.0)
    return np.asarray(np.where(left > 0, needed, np.inf))
