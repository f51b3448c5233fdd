"""Test the sentences that the StaICC paper writes about its results."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import binomtest

from evaluator.methods import REFERENCE_METHOD
from evaluator.reproductions.cho_inoue_2025.figures import (
    COUNTED,
    QUANTITY,
    Counted,
    quantity,
    standard_ranks,
    wide_metrics,
    with_holm,
)
from evaluator.statistics.correlation import CONFIDENCE, Estimated, least_squares
from evaluator.suites.staicc.published import METHODS, printed_tables

Expected = Literal["rises", "falls", "rises insignificantly", "falls insignificantly", "none", "weak"]
"""What a sentence says of a quantity. `none`: not significantly different from 0; `weak`: between -WEAK and WEAK."""

WEAK = 0.4
"""Correlations nearer to 0 are called weak: Schober et al. 2018, "Correlation Coefficients: Appropriate Use and
Interpretation", Anesthesia & Analgesia 126."""

LEVEL = 0.05

SENTENCE_RESULTS = pl.Schema(
    {
        "section": pl.String(),
        "sentence": pl.String(),
        "expected": pl.String(),  # Expected
        "quantity": pl.String(),
        **QUANTITY,
        "outcome": pl.String(),  # "holds" | "does not hold" | "not shown"
    }
)

BIASES = ("contextual_bias", "domain_bias", "empirical_bias")
ROBUSTNESS = ("template_consistency", "sampling_consistency")
CALIBRATIONS = ("contextual_calibration", "domain_calibration", "batch_calibration")
FREQUENTLY_BEST = ("Hidden Calibration", "SA-ICL")


class Figures(NamedTuple):
    """The recomputed figures that sentences are about."""

    points: pl.DataFrame  # published.figure_points
    lines: pl.DataFrame  # figures.LINES
    correlations: pl.DataFrame  # figures.CORRELATIONS


class Sentence(NamedTuple):
    """A sentence, and the quantities that test it."""

    section: str
    text: str
    expected: Expected
    quantities: Callable[[Figures], pl.DataFrame]  # quantity and QUANTITY


def slopes(figure: int, *metrics: str) -> Callable[[Figures], pl.DataFrame]:
    """Return the slopes of a figure over size, of these metrics or of all its methods."""

    def rows(figures: Figures) -> pl.DataFrame:
        lines = figures.lines.filter(pl.col("metric").is_in(metrics), figure=figure)
        name = pl.when(pl.col("method") == REFERENCE_METHOD).then("metric").otherwise("method")
        return lines.select(*QUANTITY, quantity=pl.format("slope of {}", name))

    return rows


def correlations(*pairs: tuple[str, str]) -> Callable[[Figures], pl.DataFrame]:
    """Return the rank correlations of these pairs of metrics."""

    def rows(figures: Figures) -> pl.DataFrame:
        wanted = pl.struct("a", "b").is_in([{"a": a, "b": b} for a, b in pairs])
        return figures.correlations.filter(wanted).select(*QUANTITY, quantity=pl.format("ρ of {} and {}", "a", "b"))

    return rows


def contrasts(
    estimates: Callable[[Figures, Counted], Iterator[tuple[str, int, Estimated]]],
) -> Callable[[Figures], pl.DataFrame]:
    """Return quantities of a sentence's own, corrected for each other; `estimates` yields name, models and number."""

    def rows(figures: Figures) -> pl.DataFrame:
        found = [
            {"quantity": name} | quantity(counted, n_models, number)
            for counted in COUNTED
            for name, n_models, number in estimates(figures, counted)
        ]
        return with_holm(found, pl.Schema({"quantity": pl.String(), **QUANTITY}))

    return rows


def _curvature(figures: Figures, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the quadratic term of figure 4: a log-linear law has none."""
    rows = counted.models(figures.points.filter(figure=4, metric="true_label_probability"))
    x = rows["x"].to_numpy() - rows["x"].mean()
    fit = least_squares([x, x**2], rows["value"].to_numpy(), counted.clusters(rows))
    yield "curvature of true_label_probability", rows.height, fit.estimate(2)


def _often_best(_: Figures, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the share of table 2's models whose best method is one of two, minus the share of two among ten methods."""
    if counted.by_family:
        return
    accuracies = printed_tables()[1].filter(table=2)
    models = accuracies if counted.with_awq else accuracies.filter(~pl.col("model").str.ends_with("AWQ"))
    best = models.sort("value", descending=True, maintain_order=True).group_by("model").first()
    chance = len(FREQUENTLY_BEST) / len(METHODS)
    test = binomtest(best["method"].is_in(FREQUENTLY_BEST).sum(), best.height, chance)
    ends = test.proportion_ci(CONFIDENCE)
    share, low, high = (number - chance for number in (test.statistic, ends.low, ends.high))
    name = "share of models with one of both as best method, minus 0.2"
    yield name, best.height, Estimated(share, low, high, test.pvalue)


def _calibration_gain(figures: Figures, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield how much less calibration improves accuracy than other methods do, mean over models."""
    is_calibration = pl.col("method").is_in(CALIBRATIONS)
    gain = pl.col("value").filter(is_calibration).mean() - pl.col("value").filter(~is_calibration).mean()
    rows = counted.models(figures.points.filter(figure=5))
    rows = rows.group_by("model", "family", maintain_order=True).agg(gain.alias("value"))
    yield (
        "gain of three calibration methods minus gain of other methods",
        rows.height,
        least_squares([], rows["value"].to_numpy(), counted.clusters(rows)).estimate(0),
    )


def _stronger_with_ece(_: Figures, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield |rho| of a bias with ECE-1 minus |rho| of it with accuracy or macro-F1.

    The difference of both correlations is the slope of the difference of both standardised ranks, each with the sign
    of its correlation, over the ranks of the bias: its error takes into account that both are of the same models.
    """
    wide = wide_metrics(counted)
    for metric, bias in product(("accuracy", "macro_f1"), BIASES[:2]):
        x, *sides = (standard_ranks(wide[name].to_numpy()) for name in (bias, "expected_calibration_error", metric))
        ece, other = (side * np.sign(side @ x) for side in sides)
        found = least_squares([x], ece - other, counted.clusters(wide)).estimate()
        yield f"|ρ| of {bias} with expected_calibration_error minus with {metric}", wide.height, found


def _at_equal_size(_: Figures, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the slope of accuracy over GLER, both in standardised ranks, with the ranks of size held."""
    wide = wide_metrics(counted)
    y, *x = (standard_ranks(wide[name].to_numpy()) for name in ("accuracy", "gler", "n_parameters"))
    yield "accuracy over gler at equal size", wide.height, least_squares(x, y, counted.clusters(wide)).estimate()


SENTENCES = (
    Sentence(
        "1",
        "We observe clear scaling laws of ICL classification performance against the model parameter numbers.",
        "rises",
        slopes(4, "accuracy", "true_label_probability", "macro_f1"),
    ),
    Sentence("3.2", "A clear log-linear scaling law can be observed (figure 4): the slope.", "rises",
             slopes(4, "true_label_probability")),
    Sentence("3.2", "A clear log-linear scaling law can be observed (figure 4): no curvature.", "none",
             contrasts(_curvature)),
    Sentence("3.2", "Hidden Calibration and SA-ICL outperform frequently among these models (table 2).", "rises",
             contrasts(_often_best)),
    Sentence("3.2", "Scaling laws are not observed on the improvement of accuracies (figure 5).", "none",
             slopes(5, "accuracy")),
    Sentence("3.3", "The bias is globally descending, statistically insignificant (figure 7).",
             "falls insignificantly", slopes(7, *BIASES)),
    Sentence("3.3", "The robustness is ascending, statistically insignificant (figure 7).",
             "rises insignificantly", slopes(7, *ROBUSTNESS)),
    Sentence("3.3", "The GLER has a significant ascending correlation against the model scale (figure 7).", "rises",
             slopes(7, "gler")),
    Sentence("4", "Weak correlation between accuracy/F1 and contextual/domainal bias (figure 8).", "weak",
             correlations(*product(("accuracy", "macro_f1"), BIASES[:2]))),
    Sentence("4", "Calibration methods are with relatively weaker improvement on the accuracy (figure 5).", "falls",
             contrasts(_calibration_gain)),
    Sentence("4", "The correlations from ECE-1 are relatively stronger (figure 8).", "rises",
             contrasts(_stronger_with_ece)),
    Sentence("4", "Template robustness tends to be positively correlated with ECE-1.", "rises",
             correlations(("expected_calibration_error", "template_consistency"))),
    Sentence("4", "Sampling robustness tends to be positively correlated with accuracy.", "rises",
             correlations(("accuracy", "sampling_consistency"))),
    Sentence("4", "A larger GLER (lower robustness) seems to improve accuracy.", "rises",
             correlations(("accuracy", "gler"))),
    Sentence("4", "Given the confounding variable of model size, this is not a reliable causal relationship.", "none",
             contrasts(_at_equal_size)),
)  # fmt: skip


def sentence_results(figures: Figures) -> pl.DataFrame:
    """Return SENTENCE_RESULTS: every quantity of every sentence, counted in every way, and whether it holds."""
    results = []
    for section, text, expected, quantities in SENTENCES:
        about = {"section": pl.lit(section), "sentence": pl.lit(text), "expected": pl.lit(expected)}
        results.append(quantities(figures).with_columns(**about, outcome=_outcome(expected)))
    return pl.concat([rows.select(SENTENCE_RESULTS.names()) for rows in results])


def _outcome(expected: Expected) -> pl.Expr:
    """Return "holds", "does not hold", or "not shown" where the printed values are too few to tell."""
    is_significant, value = pl.col("p_holm") <= LEVEL, pl.col("value")
    if expected == "weak":
        holds = (pl.col("ci_low") > -WEAK) & (pl.col("ci_high") < WEAK)
        fails = (pl.col("ci_low") > WEAK) | (pl.col("ci_high") < -WEAK)
    elif expected == "none":
        holds, fails = ~is_significant, is_significant
    else:
        has_sign = value > 0 if expected.startswith("rises") else value < 0
        if expected.endswith("insignificantly"):
            holds, fails = has_sign & ~is_significant, ~has_sign | is_significant
        else:
            holds, fails = has_sign & is_significant, ~has_sign & is_significant
    held, failed = (pl.lit(outcome) for outcome in ("holds", "does not hold"))
    return pl.when(holds).then(held).when(fails).then(failed).otherwise(pl.lit("not shown"))
