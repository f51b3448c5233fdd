"""List the diagnostics of StaICC: measures of bias and robustness, which accuracy does not show.

Each line has the part of the requests, the metric, and its unit and sign:

contextual  contextual_bias                        nats; `paper`: 0 or less, more is more bias; `released`: reversed
domain      domain_bias                            as contextual_bias
normal      empirical_bias                         nats, 0 or more, more is more bias
gler        gler                                   accuracy lost per unit of noise (`released`: of the toolkit's axis)
gler        gler_per_tenth                         percentage points per 0.1 of noise, as table 3 prints GLER
gler        gler_toolkit_axis                      slope over the toolkit's axis, which table 7 prints
gler        gler_METRIC                            GLER of another metric: below 0 where the metric rises with noise
template    template_consistency                   share in [0, 1]
template    accuracy_mean_over_templates           share; its interval is over queries and templates
template    accuracy_sd_over_templates             standard deviation of the templates' accuracies
sampling    sampling_consistency                   share in [0, 1]
sampling    accuracy_mean_over_demonstration_sets  share
connector, verbalizer, order, split
            macro_f1_mean_over_LEVELS, macro_f1_sd_over_LEVELS: mean and standard deviation over eight levels (figure 2)

Intervals are over queries unless stated otherwise: they cover other queries with the same model, templates and noise
rates.

Source: Cho & Inoue 2025 (StaICC), section 3.3.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from evaluator.config import Definition
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.groups import Diagnostic, Measure, Reading
from evaluator.report.notes import first_definition
from evaluator.report.section import MeasuredRun
from evaluator.report.table import MetricText
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc import robustness
from evaluator.suites.staicc.label_bias import empirical_bias, prior_bias


def _headline(
    part: str, measure: Measure, title: str, paper: Reading, released: Reading | None = None, **more: Any
) -> Diagnostic:
    """Return a diagnostic of the paper. Its metric has the name of the title; `released` defaults to `paper`."""
    readings: dict[Definition, Reading] = {"paper": paper, "released": released or paper}
    metric = title.lower().replace(" ", "_")
    return Diagnostic(part=part, measure=measure, metric=metric, title=title, readings=readings, **more)


_MORE_BIAS, _LESS_BIAS = Reading("nats", "more is more bias"), Reading("nats", "less is more bias")
_STEADIER = Reading("share", "more is steadier")
_SLOPE, _SLOPE_ON_AXIS = (
    Reading(f"accuracy per unit of {axis}", "above 0 where labels are read") for axis in ("noise", "the toolkit's axis")
)

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    _headline("contextual", prior_bias, "Contextual bias", _MORE_BIAS, _LESS_BIAS),
    _headline("domain", prior_bias, "Domain bias", _MORE_BIAS, _LESS_BIAS),
    _headline("normal", empirical_bias, "Empirical bias", _MORE_BIAS, lower_is_better=True),
    _headline("template", robustness.template_consistency, "Template consistency", _STEADIER, varies="template"),
    Diagnostic(part="template", measure=robustness.template_accuracy, varies="template"),
    _headline(
        "sampling", robustness.sampling_consistency, "Sampling consistency", _STEADIER, varies="demonstration_set"
    ),
    _headline(
        "gler",
        robustness.gler,
        "GLER",
        _SLOPE,
        _SLOPE_ON_AXIS,
        titles={
            "gler_per_tenth": "GLER per 0.1",
            "gler_toolkit_axis": "GLER of table 7",
            "gler_macro_f1": "GLER of macro-F1",
            "gler_true_label_probability": "GLER of true-label probability",
        },
        varies="noise_rate",
    ),
    *(
        Diagnostic(
            part=part,
            measure=robustness.level_spread,
            titles={
                f"macro_f1_mean_over_{part}s": f"Macro-F1, mean of {part}s",
                f"macro_f1_sd_over_{part}s": f"Macro-F1, SD of {part}s",
            },
            varies=column,
        )
        for part, column in robustness.VARIABLES.items()
    ),
)
"""Signs and units differ between definitions; the list above has them."""

DIAGNOSTIC_PARTS = tuple(dict.fromkeys(diagnostic.part for diagnostic in DIAGNOSTICS if diagnostic.part != "normal"))
"""Parts whose prompts are altered on purpose, so that no classification metric is measured on them."""

HEADLINES = {diagnostic.metric: diagnostic for diagnostic in DIAGNOSTICS if diagnostic.metric}
"""Metric -> diagnostic, for the six diagnostics of the paper."""

AS_PRINTED = {
    "gler_per_tenth": Reading("percentage points per 0.1 of noise", "table 3 of Cho & Inoue 2025"),
    "gler_toolkit_axis": Reading("accuracy per unit of the toolkit's axis", "table 7"),
}
"""Metric -> unit and source of a diagnostic in the units of the paper's tables. Models are compared by the diagnostic
itself, not by these forms."""

METRIC_TEXTS = {
    metric: MetricText(diagnostic.title, lower_is_better=diagnostic.lower_is_better)
    for metric, diagnostic in HEADLINES.items()
} | {
    metric: MetricText(title, is_headline=metric not in AS_PRINTED)
    for diagnostic in DIAGNOSTICS
    for metric, title in diagnostic.titles.items()
}
"""Titles of the diagnostics' metrics on a page."""


def diagnostic_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each diagnostic: the mean of vanilla over datasets, under the first definition of the run, with
    unit and direction. Yield nothing for a run without diagnostics.

    Args:
        run: has the table metrics.
    """
    means = run.table("metrics").filter(method=REFERENCE_METHOD, dataset=MEAN_OVER_DATASETS)
    if means.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS)).is_empty():
        return
    shown = first_definition(means.filter(pl.col("metric").is_in(list(HEADLINES))))
    values = {metric: numbers for metric, *numbers in shown.select("metric", "value", "definition").iter_rows()}
    width = max(len(diagnostic.title) for diagnostic in HEADLINES.values())
    for metric, diagnostic in HEADLINES.items():
        if metric in values:
            value, definition = values[metric]
            unit, meaning = diagnostic.readings[definition]
            yield f"{diagnostic.title:{width}}  {value:6.3f}  {unit}, {meaning}"
