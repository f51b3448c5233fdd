"""Declare the tables of a comparison of several runs."""

import polars as pl

from evaluator import schemas
from evaluator.schemas import ESTIMATE, as_in, declare

COMPARISON_KEY = ["number", "suite", "part", "dataset", "method", "metric", "definition"]
COMPARISON = declare(  # schemas.METRICS of all runs, on common datasets (results.comparison_table)
    number=pl.Int64(),  # position of the run, from 1; labels the points of the model in figures
    model=pl.String(),  # model name; if not unique, with differing settings, then the run name
    run=pl.String(),  # name of the run's folder, or its path if two folders have the same name
    weights_fingerprint=pl.String(),
    n_parameters=pl.Int64(),  # null if the run did not record it
    dtype=pl.String(),
    **as_in(schemas.METRICS, *COMPARISON_KEY[1:], *ESTIMATE),
    chance=pl.Float64(),  # expected accuracy of one random classifier; null for other metrics
    n_queries=pl.Int64(),
    n_requests=pl.Int64(),
)

DIFFERENCES_KEY = ["suite", "part", "dataset", "metric", "definition", "model_a", "method_a", "model_b", "method_b"]
DIFFERENCES = declare(  # two models under one method, or one model under two methods; same queries
    **dict.fromkeys(DIFFERENCES_KEY, pl.String()),  # metrics are "accuracy" and "true_label_probability"
    difference=pl.Float64(),  # a minus b
    # 95% interval of the paired difference, clustered by query; if all queries share their demonstration sets, over
    # queries and sets. Null for a single query:
    ci_low=pl.Float64(),
    ci_high=pl.Float64(),
    n_queries=pl.Int64(),
    p_value=pl.Float64(),  # two-sided, of the hypothesis that the difference is 0
    p_holm=pl.Float64(),  # p_value corrected by Holm's procedure for n_tests tests
    n_tests=pl.Int64(),  # tests between models, or between methods, of this metric and definition
    test=pl.String(),  # "McNemar" | "sign flips" (both exact) | "t" | "two-way t" (over queries and sets)
    min_detectable=pl.Float64(),  # smallest true difference that is detected with 80% power, after correction
)

METHOD_DIFFERENCES, METHOD_DIFFERENCES_KEY = DIFFERENCES, DIFFERENCES_KEY  # table of a single run

EQUIVALENCE_KEY = DIFFERENCES_KEY
EQUIVALENCE = declare(  # differences of accuracies, as in DIFFERENCES, tested against a margin
    **as_in(DIFFERENCES, *DIFFERENCES_KEY, "difference", "n_queries"),
    margin=pl.Float64(),  # difference of accuracies
    p_no_worse=pl.Float64(),  # one-sided, of the hypothesis that a is worse than b by the margin or more
    p_no_worse_holm=pl.Float64(),
    p_equivalent=pl.Float64(),  # the larger of two one-sided p-values: a is worse, or better, by the margin or more
    p_equivalent_holm=pl.Float64(),
    shown=pl.String(),  # result at 5% after correction: "equivalent" | "no worse" | "not shown"
)

AGAINST_KEY = ["suite", "part", "dataset", "method", "definition", "model"]
AGAINST = declare(  # each run compared with the base run, on the same queries
    **dict.fromkeys(AGAINST_KEY, pl.String()),
    recovery=pl.Float64(),  # accuracy of the run divided by that of the base, in %; null if the base has 0
    recovery_low=pl.Float64(),  # 95% interval, paired; null if the base is not significantly above 0
    recovery_high=pl.Float64(),
    **as_in(DIFFERENCES, "difference", "ci_low", "ci_high", "n_queries"),
    # The next four columns are null if the runs differ in their demonstration sets:
    n_lost=pl.Int64(),  # answers that are right in the base and wrong in the run
    n_gained=pl.Int64(),  # answers that are wrong in the base and right in the run
    n_changed=pl.Int64(),  # answers with another label; null if labels were renamed or reordered
    kl_nats=pl.Float64(),  # mean over requests of KL(base || run); inf if the run gives a label probability 0
    **as_in(DIFFERENCES, "p_value", "p_holm", "n_tests"),
)

RANK_CORRELATIONS_KEY = ["between", "over", "definition", "measure", "a", "b"]
RANK_CORRELATIONS = declare(
    between=pl.String(),  # objects that are correlated: "measures" | "models"
    over=pl.String(),  # points of a correlation: "models" | "models and datasets" | "datasets"
    definition=pl.String(),
    measure=pl.String(),  # measure whose values are correlated between models; null between measures
    a=pl.String(),  # measure (across_models.with_measure) or model
    b=pl.String(),
    rho=pl.Float64(),  # Spearman's rho; null if undefined
    p_value=pl.Float64(),  # two-sided; null if the points are not independent of each other
    n_points=pl.Int64(),
    n_models=pl.Int64(),  # number of models among the points; between models, 2
    reason=pl.String(),  # reason why rho or p_value is null
)

SCALING_KEY = ["of", "measure", "method", "definition"]
SCALING = declare(  # least-squares lines over log10 of the number of parameters; a point is a model
    of=pl.String(),  # fitted quantity: "value" of a measure | "improvement" of a method over vanilla
    measure=pl.String(),
    method=pl.String(),
    definition=pl.String(),
    slope=pl.Float64(),  # change of the quantity with ten times the parameters; null without a line
    ci_low=pl.Float64(),  # 95% interval of the slope
    ci_high=pl.Float64(),
    intercept=pl.Float64(),  # value of the line at one parameter
    n_models=pl.Int64(),  # models that the line is fitted to: with a value and a number of parameters
    reason=pl.String(),  # reason why there is no line or no interval
)
