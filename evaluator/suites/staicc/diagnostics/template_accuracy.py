"""How accurate a model is over templates, and how much that depends on the template."""

import math

import numpy as np
import polars as pl

from evaluator.metrics.intervals import Floats, jackknife_standard_error, two_way_standard_error
from evaluator.metrics.per_request import PredictionGroup, repeated_requests
from evaluator.metrics.values import Measured
from evaluator.suites.staicc.diagnostics.complete_grid import require_complete_grid

LARGEST_SD = math.sqrt(0.5)
"""Of numbers in [0, 1]: that of one 0 and one 1."""


def template_accuracy(group: PredictionGroup) -> dict[str, Measured]:
    """Measure accuracy_mean_over_templates and accuracy_sd_over_templates.

    The mean is what a user gets who has no reason to prefer a template. Its interval says what other queries *and*
    other templates of the same kind would have given: both vary (uncertainty.two_way_standard_error). The standard
    deviation is that of these templates' accuracies (n - 1 below), with an interval over queries alone. A little of it
    is noise of single answers, the less the more queries there are; the interval is one around it with this noise.

    Not in the paper or the toolkit; `paper` and `released` differ in the predictions they read.

    Raises MetricError where queries are not answered equally often with each template.
    """
    require_complete_grid(group, "template", "templates")
    cells = _cells(group)
    standard_error, degrees_of_freedom = two_way_standard_error(cells)
    without_one = (cells.sum(axis=0) - cells) / max(len(cells) - 1, 1)
    return {
        "accuracy_mean_over_templates": Measured(
            float(cells.mean()), standard_error, degrees_of_freedom, "score", 0.0, 1.0
        ),
        "accuracy_sd_over_templates": Measured(
            float(cells.mean(axis=0).std(ddof=1)),
            jackknife_standard_error(without_one.std(axis=1, ddof=1)),
            len(cells) - 1,
            "symmetric",
            0.0,
            LARGEST_SD,
        ),
    }


def _cells(group: PredictionGroup) -> Floats:
    """Return the share of right answers [query, template], over demonstration sets."""
    answers = repeated_requests(group).group_by("query_id", "template")
    cells = answers.agg(pl.col("correct").mean()).sort("query_id", "template")
    return np.asarray(cells["correct"].to_numpy()).reshape(-1, cells["template"].n_unique())
