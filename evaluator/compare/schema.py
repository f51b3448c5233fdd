"""Schemas of the tables of a comparison of several runs."""

import polars as pl

from evaluator import schemas
from evaluator.schemas import ESTIMATE, declare

COMPARISON_KEY = ["number", "suite", "part", "dataset", "method", "metric", "definition"]
COMPARISON = declare(  # METRICS of all runs, on the datasets that all runs with such a row have
    number=pl.Int64(),  # position among the runs, from 1; labels a model's points in figures
    model=pl.String(),  # name of the model, and of the run where two models have the same name
    run=pl.String(),  # the run's folder
    weights_fingerprint=pl.String(),
    n_parameters=pl.Int64(),  # null where the run did not record it
    dtype=pl.String(),
    **{name: schemas.METRICS[name] for name in (*COMPARISON_KEY[1:], *ESTIMATE)},
    chance=pl.Float64(),  # expected accuracy of one random classifier; null for other metrics
    n_queries=pl.Int64(),
    n_requests=pl.Int64(),
)

DIFFERENCES_KEY = ["suite", "part", "dataset", "metric", "definition", "model_a", "method_a", "model_b", "method_b"]
DIFFERENCES = declare(  # two models under one method, or one model under two methods, on the same queries
    **dict.fromkeys(DIFFERENCES_KEY, pl.String()),  # metrics are "accuracy" and "true_label_probability"
    difference=pl.Float64(),  # a less b
    # 95% interval of the paired difference, clustered by query, and over queries and demonstration sets where all
    # queries share the sets; null for a single query:
    ci_low=pl.Float64(),
    ci_high=pl.Float64(),
    n_queries=pl.Int64(),
    p_value=pl.Float64(),  # two-sided, of a difference of 0
    p_holm=pl.Float64(),  # the same, corrected by Holm's procedure for n_tests tests
    n_tests=pl.Int64(),  # differences between models, or between methods, of this metric and definition
    test=pl.String(),  # "McNemar" | "sign flips" (both exact) | "t" | "two-way t" (over queries and sets)
    min_detectable=pl.Float64(),  # smallest true difference detected with 80% power, after the correction
)

METHOD_DIFFERENCES, METHOD_DIFFERENCES_KEY = DIFFERENCES, DIFFERENCES_KEY  # of one run

EQUIVALENCE_KEY = DIFFERENCES_KEY
EQUIVALENCE = declare(  # differences of accuracy as in DIFFERENCES, tested against a margin
    **{name: DIFFERENCES[name] for name in (*DIFFERENCES_KEY, "difference", "n_queries")},
    margin=pl.Float64(),  # of accuracy
    p_no_worse=pl.Float64(),  # one-sided, of the hypothesis that a is worse than b by the margin or more
    p_no_worse_holm=pl.Float64(),
    p_equivalent=pl.Float64(),  # the larger of two one-sided p-values: a worse, or better, by the margin or more
    p_equivalent_holm=pl.Float64(),
    shown=pl.String(),  # at 5% after the correction: "equivalent" | "no worse" | "not shown"
)

AGAINST_KEY = ["suite", "part", "dataset", "method", "definition", "model"]
AGAINST = declare(  # a run and the base that all runs are compared with, on the same queries
    **dict.fromkeys(AGAINST_KEY, pl.String()),
    recovery=pl.Float64(),  # accuracy of the run over that of the base, in %; null where the base has 0
    recovery_low=pl.Float64(),  # 95% interval, paired; null where the accuracy of the base may be 0
    recovery_high=pl.Float64(),
    **{name: DIFFERENCES[name] for name in ("difference", "ci_low", "ci_high", "n_queries")},
    # Null, as are the next three, where the runs ask a query after other numbers of demonstration sets:
    n_lost=pl.Int64(),  # answers that are right in the base and wrong in the run
    n_gained=pl.Int64(),
    n_changed=pl.Int64(),  # answers that are another label, wrong ones included; null with other label names
    kl_nats=pl.Float64(),  # mean over requests of KL(base || run); inf where the run gives a label 0
    **{name: DIFFERENCES[name] for name in ("p_value", "p_holm", "n_tests")},
)

RANK_CORRELATIONS_KEY = ["between", "over", "definition", "measure", "a", "b"]
RANK_CORRELATIONS = declare(
    between=pl.String(),  # what is correlated: "measures" | "models"
    over=pl.String(),  # what a point is: "models" | "models and datasets" | "datasets"
    definition=pl.String(),
    measure=pl.String(),  # that models are ranked by; null between measures
    a=pl.String(),  # a measure, as across_models.with_measure names it, or a model
    b=pl.String(),
    rho=pl.Float64(),  # Spearman's; null where it is undefined
    p_value=pl.Float64(),  # two-sided; null where points are not independent of each other
    n_points=pl.Int64(),
    n_models=pl.Int64(),  # among the points, or that are correlated
    reason=pl.String(),  # why rho or p_value is null
)

SCALING_KEY = ["of", "measure", "method", "definition"]
SCALING = declare(  # least-squares lines over log10 of the number of parameters, one point a model
    of=pl.String(),  # fitted quantity: a measure's "value" | its "improvement" over vanilla
    measure=pl.String(),
    method=pl.String(),
    definition=pl.String(),
    slope=pl.Float64(),  # per tenfold parameters; null where there is no line
    ci_low=pl.Float64(),  # 95% interval of the slope
    ci_high=pl.Float64(),
    intercept=pl.Float64(),  # at one parameter
    n_models=pl.Int64(),  # on the line: with a value and a number of parameters
    reason=pl.String(),  # why there is no line, or no interval
)
