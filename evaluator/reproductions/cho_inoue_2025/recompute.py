"""Recompute figures of the StaICC paper from its printed tables, and test its sentences about the results.

Figures 4, 5 and 7 give slopes over model size, figure 8 gives rank correlations, all with intervals. The printed tables
are also compared with each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import binomtest, rankdata, zscore

from evaluator.arrays import Floats
from evaluator.methods import REFERENCE_METHOD
from evaluator.progress import Progress, Stage
from evaluator.reproductions.base import Tables
from evaluator.reproductions.cho_inoue_2025.inconsistencies import findings, judged_cells
from evaluator.schemas import ESTIMATE, declare
from evaluator.statistics.correlation import (
    CONFIDENCE,
    Estimated,
    correlation_interval,
    least_squares,
    rank_correlation,
)
from evaluator.statistics.paired import holm
from evaluator.suites.staicc.published import METHODS, METRICS, figure_points, printed_tables, published_results


class Counted(NamedTuple):
    """A way to count models: which models are included, and whether their errors are clustered."""

    name: str
    by_family: bool = False  # whether errors are clustered by model family
    with_awq: bool = True  # whether models with AWQ quantisation are included

    def models(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the counted models."""
        return rows if self.with_awq else rows.filter(~pl.col("is_awq"))

    def clusters(self, rows: pl.DataFrame) -> Sequence[str] | None:
        """Return the cluster of every row, or None if models are independent."""
        return rows["family"].to_list() if self.by_family else None


COUNTED = (Counted("independent"), Counted("by family", by_family=True), Counted("without AWQ", with_awq=False))

QUANTITY = {
    "counted": pl.String(),  # Counted.name
    "n_models": pl.Int64(),
    **ESTIMATE,
    "p_value": pl.Float64(),
    "p_holm": pl.Float64(),  # p-value after Holm's correction for the n_tests of the same figure or sentence
    "n_tests": pl.Int64(),
}
LINES = declare(  # least-squares lines over log10 of the number of parameters; `value` is the slope
    figure=pl.Int64(),  # 4 (also the other metrics of vanilla) | 5 (accuracy minus accuracy of vanilla) | 7
    method=pl.String(),
    metric=pl.String(),
    **QUANTITY,
    intercept=pl.Float64(),
)
CORRELATIONS = pl.Schema({"a": pl.String(), "b": pl.String(), **QUANTITY})  # figure 8: Spearman's rho under vanilla


def figure_lines(points: pl.DataFrame) -> pl.DataFrame:
    """Fit the lines of published.figure_points; return LINES, in the order of the paper's tables."""
    key, rows = ["figure", "method", "metric"], []
    for counted in COUNTED:
        for place, of_line in counted.models(points).group_by(key, maintain_order=True):
            fit = least_squares([of_line["x"].to_numpy()], of_line["value"].to_numpy(), counted.clusters(of_line))
            numbers = quantity(counted, of_line.height, fit.estimate())
            rows.append(dict(zip(key, place, strict=True)) | numbers | {"intercept": float(fit.coefficients[0])})
    order = [pl.col(name).cast(pl.Enum([*METHODS.values(), *METRICS.values()])) for name in ("method", "metric")]
    return with_holm(rows, LINES, "figure").sort("figure", *order, maintain_order=True)


def wide_metrics(counted: Counted) -> pl.DataFrame:
    """Return one row per counted model: order, model, family, n_parameters, and a column per metric under vanilla."""
    vanilla = counted.models(published_results()).filter(method=REFERENCE_METHOD)
    return vanilla.pivot("metric", index=["order", "model", "family", "n_parameters"], values="value").sort("order")


def figure_correlations() -> pl.DataFrame:
    """Return CORRELATIONS over models, for all pairs of metrics."""
    rows = []
    for counted in COUNTED:
        wide = wide_metrics(counted)
        for a, b in combinations(METRICS.values(), 2):
            found = rank_estimate(wide[a].to_numpy(), wide[b].to_numpy(), counted.clusters(wide))
            rows.append({"a": a, "b": b} | quantity(counted, wide.height, found))
    return with_holm(rows, CORRELATIONS)


def rank_estimate(a: Floats, b: Floats, clusters: Sequence[str] | None) -> Estimated:
    """Return Spearman's rho with its interval and p-value.

    For independent points, the interval is by Fisher's z and the p-value by Student's t. With clusters, rho is the
    slope of the standardised ranks of a over the standardised ranks of b, with cluster-robust errors.

    Args:
        a, b: [n_models].
        clusters: cluster of every model, or None for independent models.
    """
    if clusters is not None:
        return least_squares([standard_ranks(b)], standard_ranks(a), clusters).estimate()
    found = rank_correlation(a, b)
    assert found.rho is not None
    assert found.p_value is not None
    return Estimated(found.rho, *correlation_interval(found.rho, len(a)), found.p_value)


def standard_ranks(values: Floats) -> Floats:
    """Return ranks, scaled to mean 0 and variance 1; ties have their average rank."""
    return np.asarray(zscore(rankdata(values)))


def quantity(counted: Counted, n_models: int, found: Estimated) -> dict[str, object]:
    """Return a row of QUANTITY without the columns of Holm's correction."""
    numbers = dict(zip(("value", "ci_low", "ci_high", "p_value"), found, strict=True))
    return {"counted": counted.name, "n_models": n_models, **numbers}


def with_holm(rows: Iterable[dict[str, object]], schema: pl.Schema, *by: str) -> pl.DataFrame:
    """Return rows as a frame, with p-values corrected over the rows with the same values of `by` and `counted`."""
    group = ["counted", *by]
    frame = pl.DataFrame(list(rows), schema=schema)
    n_tests = pl.col("p_value").count().over(group).cast(pl.Int64)
    return frame.with_columns(p_holm=holm(pl.col("p_value")).over(group), n_tests=n_tests)


Expected = Literal["rises", "falls", "rises insignificantly", "falls insignificantly", "none", "weak"]
"""Claim of a sentence about a quantity. `none`: not significantly different from 0; `weak`: between -WEAK and WEAK."""

WEAK = 0.4
"""Limit of the absolute value of weak correlations: Schober et al. 2018, "Correlation Coefficients: Appropriate Use and
Interpretation", Anesthesia & Analgesia 126."""

LEVEL = 0.05

SENTENCE_RESULTS = declare(
    section=pl.String(),
    sentence=pl.String(),
    expected=pl.String(),  # Expected
    quantity=pl.String(),
    **QUANTITY,
    outcome=pl.String(),  # "holds" | "does not hold" | "not shown"
)

BIASES = ("contextual_bias", "domain_bias", "empirical_bias")
ROBUSTNESS = ("template_consistency", "sampling_consistency")
CALIBRATIONS = ("contextual_calibration", "domain_calibration", "batch_calibration")
FREQUENTLY_BEST = ("Hidden Calibration", "SA-ICL")


class Recomputed(NamedTuple):
    """The recomputed tables, and the points of the figures."""

    tables: Tables
    points: pl.DataFrame  # published.figure_points


class Sentence(NamedTuple):
    """A sentence of the paper, and the quantities that test it."""

    section: str
    text: str
    expected: Expected
    quantities: Callable[[Recomputed], pl.DataFrame]  # returns quantity and QUANTITY, from lines, correlations, points


def slopes(figures: Recomputed, figure: int, *metrics: str) -> pl.DataFrame:
    """Return the slopes of a figure over model size, for the given metrics and all methods of the figure."""
    lines = figures.tables["lines"].filter(pl.col("metric").is_in(metrics), figure=figure)
    name = pl.when(pl.col("method") == REFERENCE_METHOD).then("metric").otherwise("method")
    return lines.select(*QUANTITY, quantity=pl.format("slope of {}", name))


def correlations(figures: Recomputed, *pairs: tuple[str, str]) -> pl.DataFrame:
    """Return the rank correlations of the given pairs of metrics."""
    wanted = pl.struct("a", "b").is_in([{"a": a, "b": b} for a, b in pairs])
    named = pl.format("ρ of {} and {}", "a", "b")
    return figures.tables["correlations"].filter(wanted).select(*QUANTITY, quantity=named)


Estimates = Callable[[Recomputed, Counted], Iterator[tuple[str, int, Estimated]]]
"""Function that yields name, number of models and estimate of quantities."""


def contrasts(figures: Recomputed, estimates: Estimates) -> pl.DataFrame:
    """Return quantities that only one sentence needs, with Holm's correction among them."""
    found = [
        {"quantity": name} | quantity(counted, n_models, number)
        for counted in COUNTED
        for name, n_models, number in estimates(figures, counted)
    ]
    return with_holm(found, pl.Schema({"quantity": pl.String(), **QUANTITY}))


def _curvature(figures: Recomputed, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the quadratic term of figure 4, which is 0 under a log-linear law."""
    rows = counted.models(figures.points.filter(figure=4, metric="true_label_probability"))
    x = rows["x"].to_numpy() - rows["x"].mean()
    fit = least_squares([x, x**2], rows["value"].to_numpy(), counted.clusters(rows))
    yield "curvature of true_label_probability", rows.height, fit.estimate(2)


def _often_best(_: Recomputed, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the share of models in table 2 whose best method is in FREQUENTLY_BEST, minus the share by chance."""
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


def _calibration_gain(figures: Recomputed, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the improvement of accuracy by calibration minus that by other methods, mean over models."""
    is_calibration = pl.col("method").is_in(CALIBRATIONS)
    gain = pl.col("value").filter(is_calibration).mean() - pl.col("value").filter(~is_calibration).mean()
    rows = counted.models(figures.points.filter(figure=5))
    rows = rows.group_by("model", "family", maintain_order=True).agg(gain.alias("value"))
    mean = least_squares([], rows["value"].to_numpy(), counted.clusters(rows)).estimate(0)
    yield "gain of three calibration methods minus gain of other methods", rows.height, mean


def _stronger_with_ece(_: Recomputed, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield |rho| of a bias and ECE-1 minus |rho| of the bias and accuracy or macro-F1.

    The difference of the two correlations is a slope: the standardised ranks of ECE-1 and of the metric, multiplied by
    the signs of their correlations, are subtracted and regressed on the ranks of the bias. So its error takes into
    account that both correlations are over the same models.
    """
    wide = wide_metrics(counted)
    for metric, bias in product(("accuracy", "macro_f1"), BIASES[:2]):
        x, *sides = (standard_ranks(wide[name].to_numpy()) for name in (bias, "expected_calibration_error", metric))
        ece, other = (side * np.sign(side @ x) for side in sides)
        found = least_squares([x], ece - other, counted.clusters(wide)).estimate()
        yield f"|ρ| of {bias} with expected_calibration_error minus with {metric}", wide.height, found


def _at_equal_size(_: Recomputed, counted: Counted) -> Iterator[tuple[str, int, Estimated]]:
    """Yield the slope of accuracy over GLER, in standardised ranks, adjusted for the ranks of model size."""
    wide = wide_metrics(counted)
    y, *x = (standard_ranks(wide[name].to_numpy()) for name in ("accuracy", "gler", "n_parameters"))
    yield "accuracy over gler at equal size", wide.height, least_squares(x, y, counted.clusters(wide)).estimate()


SENTENCES = (
    Sentence("1",
             "We observe clear scaling laws of ICL classification performance against the model parameter numbers.",
             "rises", lambda figures: slopes(figures, 4, "accuracy", "true_label_probability", "macro_f1")),
    Sentence("3.2", "A clear log-linear scaling law can be observed (figure 4): the slope.", "rises",
             lambda figures: slopes(figures, 4, "true_label_probability")),
    Sentence("3.2", "A clear log-linear scaling law can be observed (figure 4): no curvature.", "none",
             lambda figures: contrasts(figures, _curvature)),
    Sentence("3.2", "Hidden Calibration and SA-ICL outperform frequently among these models (table 2).", "rises",
             lambda figures: contrasts(figures, _often_best)),
    Sentence("3.2", "Scaling laws are not observed on the improvement of accuracies (figure 5).", "none",
             lambda figures: slopes(figures, 5, "accuracy")),
    Sentence("3.3", "The bias is globally descending, statistically insignificant (figure 7).",
             "falls insignificantly", lambda figures: slopes(figures, 7, *BIASES)),
    Sentence("3.3", "The robustness is ascending, statistically insignificant (figure 7).",
             "rises insignificantly", lambda figures: slopes(figures, 7, *ROBUSTNESS)),
    Sentence("3.3", "The GLER has a significant ascending correlation against the model scale (figure 7).", "rises",
             lambda figures: slopes(figures, 7, "gler")),
    Sentence("4", "Weak correlation between accuracy/F1 and contextual/domainal bias (figure 8).", "weak",
             lambda figures: correlations(figures, *product(("accuracy", "macro_f1"), BIASES[:2]))),
    Sentence("4", "Calibration methods are with relatively weaker improvement on the accuracy (figure 5).", "falls",
             lambda figures: contrasts(figures, _calibration_gain)),
    Sentence("4", "The correlations from ECE-1 are relatively stronger (figure 8).", "rises",
             lambda figures: contrasts(figures, _stronger_with_ece)),
    Sentence("4", "Template robustness tends to be positively correlated with ECE-1.", "rises",
             lambda figures: correlations(figures, ("expected_calibration_error", "template_consistency"))),
    Sentence("4", "Sampling robustness tends to be positively correlated with accuracy.", "rises",
             lambda figures: correlations(figures, ("accuracy", "sampling_consistency"))),
    Sentence("4", "A larger GLER (lower robustness) seems to improve accuracy.", "rises",
             lambda figures: correlations(figures, ("accuracy", "gler"))),
    Sentence("4", "Given the confounding variable of model size, this is not a reliable causal relationship.", "none",
             lambda figures: contrasts(figures, _at_equal_size)),
)  # fmt: skip


def sentence_results(figures: Recomputed) -> pl.DataFrame:
    """Test all sentences: SENTENCE_RESULTS, one row per sentence, quantity and way to count models."""
    results = []
    for section, text, expected, quantities in SENTENCES:
        about = {"section": pl.lit(section), "sentence": pl.lit(text), "expected": pl.lit(expected)}
        results.append(quantities(figures).with_columns(**about, outcome=_outcome(expected)))
    return pl.concat([rows.select(SENTENCE_RESULTS.names()) for rows in results])


def _outcome(expected: Expected) -> pl.Expr:
    """Return "holds", "does not hold", or "not shown" where the printed values do not decide it."""
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


def recompute(printed: tuple[pl.DataFrame, pl.DataFrame]) -> Stage[Recomputed]:
    """Compare the printed tables, fit the lines, correlate the metrics and test the sentences.

    Args:
        printed: the cells of the appendix and of the main tables, from published.printed_tables.
    """
    yield Progress(stage="Recomputing", done=0, total=1, unit="papers")
    appendix, main = printed
    points = figure_points()
    tables = {
        "findings": findings(main, appendix),
        "cells": judged_cells(main, appendix),
        "lines": figure_lines(points),
        "correlations": figure_correlations(),
    }
    tables["sentences"] = sentence_results(Recomputed(tables, points))
    yield Progress(stage="Recomputing", done=1, total=1, unit="papers")
    return Recomputed(tables, points)


def summary_lines(recomputed: Recomputed) -> Iterator[str]:
    """Yield the sentences with their outcomes, then the contradictions between tables."""
    for (section, text), rows in recomputed.tables["sentences"].group_by("section", "sentence", maintain_order=True):
        counted = (f"{one.name}: {outcome(rows.filter(counted=one.name)['outcome'])}" for one in COUNTED)
        yield f"{section}: {text} {'; '.join(counted)}."
    for _, table, place, finding, cause in recomputed.tables["findings"].rows():
        yield f"Table {table}, {place}. {finding} Cause: {cause}."


def outcome(outcomes: pl.Series) -> str:
    """Return the outcome of a sentence, given the outcomes of its quantities; "not tested" without quantities."""
    n_holding = (outcomes == "holds").sum()
    if outcomes.n_unique() < 2:
        return str(outcomes[0]) if len(outcomes) else "not tested"
    return f"holds for {n_holding} of {len(outcomes)}"
