"""Split the variance of answers into components of queries, of a crossed factor and of draws within each query.

The levels of the crossed factor are what every query is answered with: templates, prompts, or demonstration sets that
all queries share. Draws are what each query has for itself, such as StaICC's demonstration sets. All three are random
samples. A design study says from the components what more prompts should be spent on, and how many a wanted interval
takes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, ndtri, stdtrit

from evaluator.arrays import Floats, Ints

ROUNDING = 1e-12
"""Variances of at most so small a share of the largest answer's square are rounding errors."""

UPPER = 0.975
"""Quantile of the upper limit of a 95% interval."""

COMPONENTS = ("query", "level", "interaction", "draw", "residual")


class Component(NamedTuple):
    """A variance component with its 95% interval."""

    variance: float  # below 0 where sampling noise makes it so
    # 0 or more; NaN with fewer than three queries or two levels, and where no query changes the estimate:
    ci_low: float
    ci_high: float


class Decomposition(NamedTuple):
    """The components of one answer's variance, by name, and the mean squares that they are estimated from.

    Components that cannot be estimated are absent. With a single draw a query, `query` includes the draw's effect and
    `interaction` the residual. With a single level, `query` includes the effects of the level and `draw` the residual.
    """

    components: dict[str, Component]  # keys among COMPONENTS
    mean_squares: dict[str, float]  # the same keys, or fewer
    shape: tuple[int, int, int]  # queries, levels, draws

    def variance(self, name: str) -> float:
        """Return a component's estimate, 0 where it is negative or absent."""
        return max(self.components[name].variance, 0.0) if name in self.components else 0.0


def variance_components(cells: Floats, attributes: Sequence[Sequence[int]] | None = None) -> Decomposition:
    """Estimate the variance components of complete data by analysis of variance (Henderson 1953, method 1).

    Args:
        cells: [query, level, draw], the answer of each query with each level after each of its draws; finite.
        attributes: where levels are rows of a saturated orthogonal array, the values of each level's attributes. Its
            levels share values, so that they vary less among each other than levels with values of their own: of L9's
            nine rows the variance is 3/4 of the sum of the attributes' variances, which is the component of a level.

    Mean squares are set equal to their expectations under y[q, a, d] = mean + query[q] + level[a] + interaction[q, a]
    + draw[q, d] + residual[q, a, d] with independent terms. On complete data this is unbiased for any distribution
    (Searle, Casella & McCulloch 1992, "Variance Components", chapter 4).

    Intervals: of `level`, that of Tukey 1951 and Williams 1962, from chi-squared quantiles of its mean square, which
    counts as that of the interaction at least for the upper limit. Of the others, t times the jackknife standard error
    over queries, given the levels: answers are mostly 0 or 1, so that the normal theory of their mean squares does not
    hold; up from an estimate of at least 0. So no interval has zero width.
    """
    n_queries, n_levels, n_draws = shape = cells.shape
    squares = _mean_squares(cells)
    widening = level_widening(n_levels, attributes)
    estimates = _solve(squares, n_queries, n_levels, n_draws)
    if "level" in estimates:
        estimates["level"] = estimates["level"] * widening
    reach = stdtrit(n_queries - 1, UPPER) * np.sqrt(max(n_queries - 1, 0)) if n_queries > 2 else np.nan
    components, rounding = {}, ROUNDING * float(np.abs(cells).max(initial=0.0)) ** 2
    for name, (value, *without_one) in estimates.items():
        error = np.std(without_one)
        distance = reach * error if error > rounding else np.nan
        low, high = value - distance, max(value, 0.0) + distance
        if name == "level":
            # Limits of E[MS_level], less the mean square of the interaction.
            of_level, noise = squares["level"][0], squares["interaction"][0]
            limits = (n_levels - 1) / chdtri(n_levels - 1, [1 - UPPER, UPPER]) * [of_level, max(of_level, noise)]
            low, high = widening * (limits - noise) / (n_queries * n_draws)
            if max(of_level, noise) <= rounding:  # no two answers of a query differ
                low = high = np.nan
        components[name] = Component(float(value), max(float(low), 0.0), max(float(high), 0.0))
    return Decomposition(components, {name: float(values[0]) for name, values in squares.items()}, shape)


def level_widening(n_levels: int, attributes: Sequence[Sequence[int]] | None) -> float:
    """Return the variance of a level of independent attributes over the expected variance among the array's levels.

    An attribute of k values, each in n/k of n levels, adds (n - n/k) / (n - 1) of its variance to that among them.
    """
    if attributes is None:
        return 1.0
    n_values = {len({*values}) for values in zip(*attributes, strict=True)}
    assert len(n_values) == 1, "all attributes have equally many values"
    return (n_levels - 1) / (n_levels - n_levels / n_values.pop())


def _mean_squares(cells: Floats) -> dict[str, Floats]:
    """Return the mean squares [1 + Q]: of all queries, then without each query in turn."""
    n_queries, n_levels, n_draws = cells.shape
    cells = cells - cells.mean()  # so that differences of squares keep their digits
    of_query, by_level, by_draw = cells.mean(axis=(1, 2)), cells.mean(axis=2), cells.mean(axis=1)
    # Sums of squares within queries, [Q].
    ss_levels = n_draws * ((by_level - of_query[:, None]) ** 2).sum(axis=1)
    ss_draws = n_levels * ((by_draw - of_query[:, None]) ** 2).sum(axis=1)
    ss_cells = ((cells - of_query[:, None, None]) ** 2).sum(axis=(1, 2))
    n = n_queries - np.arange(n_queries + 1).clip(max=1)
    mean = _sums(of_query) / np.maximum(n, 1)
    ss_query = n_levels * n_draws * (_sums(of_query**2) - n * mean**2)
    level_means = _sums(by_level) / np.maximum(n, 1)[:, None]
    ss_level = n * n_draws * ((level_means - mean[:, None]) ** 2).sum(axis=1)
    sums_of_squares = {
        "query": (ss_query, n - 1),
        "level": (ss_level, np.full_like(n, n_levels - 1)),
        "interaction": (_sums(ss_levels) - ss_level, (n - 1) * (n_levels - 1)),
        "draw": (_sums(ss_draws), n * (n_draws - 1)),
        "residual": (_sums(ss_cells - ss_levels - ss_draws), n * (n_draws - 1) * (n_levels - 1)),
    }
    return {name: ss / np.maximum(df, 1) for name, (ss, df) in sums_of_squares.items() if df[0] > 0}


def _sums(of_query: Floats) -> Floats:
    """Return the sum over queries, then the sums without each query in turn."""
    total = of_query.sum(axis=0, keepdims=True)
    return np.concatenate([total, total - of_query])


def _solve(squares: dict[str, Floats], n_queries: int, n_levels: int, n_draws: int) -> dict[str, Floats]:
    """Return the components [1 + Q] that have these mean squares as expectations."""
    nothing = np.zeros(n_queries + 1)
    residual, draw, interaction = (squares.get(name, nothing) for name in ("residual", "draw", "interaction"))
    n = n_queries - np.arange(n_queries + 1).clip(max=1)
    # E[MS]: residual R; draw R + A D; interaction R + S I; level R + S I + Q S L; query R + A D + S I + A S Q.
    # With a single draw the term A D cannot be told from the query's, with a single level S I cannot.
    solved = {
        "query": (squares.get("query", nothing) - draw - interaction + residual) / (n_levels * n_draws),
        "level": (squares.get("level", nothing) - interaction) / (np.maximum(n, 1) * n_draws),
        "interaction": (interaction - residual) / n_draws,
        "draw": (draw - residual) / n_levels,
        "residual": residual,
    }
    return {name: solved[name] for name in COMPONENTS if name in squares}


# Design studies: what more prompts should be spent on, and how many a wanted interval takes.
#
# The variance of a mean over Q queries, L levels of a crossed factor and D draws of each query is query/Q + level/L +
# interaction/QL + draw/QD + residual/QLD (a decision study of generalizability theory: Brennan 2001, "Generalizability
# Theory", chapter 1).

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

    def of_query(self, n_levels: Ints | int, n_draws: Ints | int) -> Floats:
        """Return the variance of one query's mean over its answers; broadcasts."""
        of_answers = (self.draw + self.residual / n_levels) / n_draws
        return np.asarray(self.query + self.interaction / n_levels + of_answers)

    def standard_error(self, design: Design) -> float:
        """Return the standard error of a mean of this design."""
        of_query = float(self.of_query(design.n_levels, design.n_draws))
        return math.sqrt(of_query / design.n_queries + self.level / design.n_levels)


def more_prompts(now: Design, n_prompts: int, names: Mapping[str, str]) -> Iterator[tuple[str, Design]]:
    """Yield the uses of `n_prompts` more prompts, and the design that results; nothing where they are too few for one.

    Args:
        names: "query", "level" and, where queries have draws, "draw" -> name of the component.
    """
    for field, component in (("n_queries", "query"), ("n_levels", "level"), ("n_draws", "draw")):
        n, others = getattr(now, field), now.n_prompts // getattr(now, field)
        if component in names and n_prompts >= others:
            yield names[component], now._replace(**{field: n + n_prompts // others})


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
    left = (half_width / ndtri(UPPER)) ** 2 - variances.level / levels
    needed = np.maximum(np.ceil(variances.of_query(levels, draws) / np.where(left > 0, left, 1.0)), 2.0)
    return np.asarray(np.where(left > 0, needed, np.inf))
