"""Measure accuracy over templates, and how much it depends on the template."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.metrics.intervals import jackknife_standard_error, two_way_standard_error
from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.values import Measured
from evaluator.suites.staicc.diagnostics.complete_grid import require_complete_grid
from evaluator.templates.orthogonal_array import ORTHOGONAL_ARRAY

MAX_SD = math.sqrt(0.5)
"""Largest standard deviation of numbers in [0, 1]: that of one 0 and one 1."""


def template_accuracy(group: PredictionGroup) -> dict[str, Measured]:
    """Measure accuracy_mean_over_templates and accuracy_sd_over_templates.

    The mean is the expected accuracy of a user without reason to prefer a template. Its interval covers other queries
    *and* other texts of the templates' attributes (metrics.intervals.two_way_standard_error). The standard deviation is
    that of these templates' accuracies (n - 1 in the denominator), with an interval over queries alone. Both include
    the noise of single answers, which shrinks as the number of queries grows.

    Neither is in the paper or the toolkit; `paper` and `released` differ in the predictions they read.

    Raises MetricError if queries are not answered equally often with each template.
    """
    require_complete_grid(group, "template", "templates")
    cells = _cells(group)
    standard_error, degrees_of_freedom = two_way_standard_error(cells, template_attributes(cells.shape[1]))
    # For the jackknife: the accuracies of the templates without one query, for each query, [query, template].
    without_one = (cells.sum(axis=0) - cells) / max(len(cells) - 1, 1)
    return {
        "accuracy_mean_over_templates": Measured(
            float(cells.mean()), standard_error, degrees_of_freedom, "score", 0.0, 1.0, over="queries and templates"
        ),
        "accuracy_sd_over_templates": Measured(
            float(cells.mean(axis=0).std(ddof=1)),
            jackknife_standard_error(without_one.std(axis=1, ddof=1)),
            len(cells) - 1,
            "symmetric",
            0.0,
            MAX_SD,
        ),
    }


def template_attributes(n_templates: int) -> Sequence[Sequence[int]] | None:
    """Return the rows of the orthogonal array where there are as many templates; None for templates of their own."""
    return ORTHOGONAL_ARRAY if n_templates == len(ORTHOGONAL_ARRAY) else None


def _cells(group: PredictionGroup) -> Floats:
    """Return the share of correct answers [query, template], over demonstration sets."""
    answers = group.repeated_requests.group_by("query_id", "template")
    cells = answers.agg(pl.col("correct").mean()).sort("query_id", "template")
    return np.asarray(cells["correct"].to_numpy()).reshape(-1, cells["template"].n_unique())
