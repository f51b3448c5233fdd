"""Schemas of the tables between stages: every column with its dtype, unit and meaning.

Columns are declared only here. A table has a key and is sorted by it before it is written, so that equal tables give
equal files. Prompts, tokens and scores are exceptions: their key is PROMPTS_KEY, but they are in an order in which
neighbouring rows share long prefixes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

Ask = Literal["labels", "text", "state"]
"""The quantity that is computed for a prompt. "labels": the log-likelihood of each continuation after the prompt;
"text": the log-likelihood of the prompt itself, without its first token; "state": the hidden state at its end."""


def declare(**types: pl.DataType) -> pl.Schema:
    """Return the schema of a table from column=type, in order."""
    return pl.Schema(types)


def _texts(names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return text columns. In tables of metrics the value of `dataset` can be MEAN_OVER_DATASETS."""
    return dict.fromkeys(names, pl.String())


def _numbers(*names: str) -> dict[str, pl.DataType]:
    """Return float columns."""
    return dict.fromkeys(names, pl.Float64())


def _with_ends(name: str) -> dict[str, pl.DataType]:
    """Return the columns of a value with its 95% interval."""
    return _numbers(name, f"{name}_low", f"{name}_high")


def as_in(table: Mapping[str, pl.DataType], *names: str) -> dict[str, pl.DataType]:
    """Return columns of another table, with the same meaning."""
    return {name: table[name] for name in names}


ESTIMATE = _numbers("value", "ci_low", "ci_high")
"""A value with its 95% interval."""

REQUESTS_KEY = ["suite", "part", "dataset", "position", "for_part"]
REQUESTS = declare(
    suite=pl.String(),  # "staicc-normal"
    part=pl.String(),  # part of the suite: "normal"; in rows that a method adds, the method's name for its requests
    for_part=pl.String(),  # in rows that a method adds, the part that the method predicts with them; else null
    dataset=pl.String(),
    position=pl.Int64(),  # unique within (suite, part, for_part, dataset), from 0; sort order of the rows
    query_id=pl.Int64(),  # row of the test split; null in a request without a query
    demonstration_set=pl.Int64(),  # number of the query's demonstration set, from 0
    n_shots=pl.Int64(),  # number of demonstrations in the prompt
    template=pl.Int64(),  # index of the template or instruction; 0 is the dataset's default
    noise_rate=pl.Float64(),  # nominal share of demonstration labels to falsify; 0.0 without label noise
    n_wrong_labels=pl.Int64(),  # number of demonstrations with a wrong label: noise_rate * n_shots as a whole number
    label_tried=pl.Int64(),  # index into label_names; null unless a method has a request for each label
    ordering=pl.Int64(),  # number of the demonstrations' order; null unless a method tries several orders
    training_row=pl.Int64(),  # row of the demonstration split whose text is the query; null for other queries
    # Rows of the demonstration split, in prompt order; in a method's training prompts, rows of the calibration split.
    demonstration_ids=pl.List(pl.Int64()),
    gold=pl.Int64(),  # index of the true label in label_names; null if there is none
    label_names=pl.List(pl.String()),  # the label space: names of the labels, in order
    prompt_id=pl.String(),  # key of PROMPTS
)

PROMPTS_KEY = ["prompt_id"]
PROMPTS = declare(
    # Digest of ask, prompt and continuations: equal prompts have equal ids in every store. (If a store has one text
    # with different spans, the ids of all but the first of them are digests that include the spans.)
    prompt_id=pl.String(),
    ask=pl.String(),  # Ask
    prompt=pl.String(),  # the complete text
    continuations=pl.List(pl.String()),  # texts to score after the prompt if ask is "labels"; else empty
    # Character ranges of the demonstrations and, last, of the query; the instruction is before the first range. Null
    # for a text without a query, such as an instruction whose likelihood is computed.
    spans=pl.List(
        pl.Struct(
            {
                "start": pl.Int32(),
                "label": pl.Int32(),  # start of the label; in a noisy channel, start of the text after the label
                "end": pl.Int32(),  # end of the range; of a query without its label, the start of the label
            }
        )
    ),
)

TOKENS = declare(
    prompt_id=pl.String(),  # key of PROMPTS; rows are in prefix order of their contexts
    token_id=pl.String(),  # digest of ask, context and continuations: equal tokens have equal ids in every store
    # A value of Ask, or "last_tokens": a second row for a prompt with a label of several tokens, which scores the last
    # token of each label directly after the prompt.
    ask=pl.String(),
    context=pl.List(pl.Int32()),  # token ids, with BOS if the tokenizer adds it; for ask "text" only the first token
    # Token ids of each continuation, none empty; for ask "text" one continuation with all other tokens.
    continuations=pl.List(pl.List(pl.Int32())),
)

TOKEN_SCORES = declare(
    token_id=pl.String(),  # key of TOKENS
    log_likelihoods=pl.List(pl.Float64()),  # of each continuation: nats, over the whole vocabulary, summed over tokens
    token_counts=pl.List(pl.Int32()),  # number of tokens of each continuation
)

TOKEN_STATES = declare(
    token_id=pl.String(),  # key of TOKENS: a row with ask "state"
    hidden_state=pl.List(pl.Float32()),  # after the final norm, at the last token
)

SCORES = declare(
    prompt_id=pl.String(),  # key of PROMPTS
    # Log-likelihood of each continuation, summed over its tokens; nats, over the whole vocabulary.
    label_log_likelihoods=pl.List(pl.Float64()),
    # Log-probability of only the last token of each continuation, directly after the prompt; nats, over the whole
    # vocabulary. Null unless a part is measured under `released`.
    last_token_log_probs=pl.List(pl.Float64()),
    label_token_counts=pl.List(pl.Int32()),  # number of tokens of each continuation
)

HIDDEN_STATES = declare(
    prompt_id=pl.String(),  # key of PROMPTS: a row with ask "state"
    hidden_state=pl.List(pl.Float32()),  # after the final norm, at the prompt's last token
)

LABEL_DISTANCES = declare(  # distances that a method computes from hidden states and the LM head in the score stage
    method=pl.String(),
    definition=pl.String(),
    prompt_id=pl.String(),  # key of HIDDEN_STATES
    distances=pl.List(pl.Float64()),  # distance to each label's centroid, or to each training prompt
)

PREDICTIONS_KEY = ["suite", "part", "dataset", "method", "definition", "position"]
PREDICTIONS = declare(
    **_texts(PREDICTIONS_KEY[:5]),  # `definition` is "paper" or "released", or a suite's own, such as "floored"
    **as_in(
        REQUESTS, "position", "query_id", "demonstration_set", "n_shots", "template", "noise_rate", "n_wrong_labels"
    ),
    prompt_id=pl.String(),  # key of PROMPTS; a query's number of tries is its number of distinct ids
    gold=pl.Int64(),  # index of the true label; null if there is none
    pred=pl.Int64(),  # index of the most probable label, the first of equal ones
    label_names=pl.List(pl.String()),
    label_probs=pl.List(pl.Float64()),  # label probabilities in label-space order; they sum to one
)

QUERIES_KEY = [
    *("suite", "part", "dataset", "query_id", "n_shots", "demonstration_set", "template", "noise_rate", "prompt_id")
]
QUERIES = declare(  # every prompt with which a method answered a query; PREDICTIONS has the answers
    **_texts(QUERIES_KEY[:3]),
    **as_in(REQUESTS, "query_id", "n_shots", "demonstration_set", "template", "noise_rate", "n_wrong_labels"),
    prompt_id=pl.String(),  # key of PROMPTS, which has the whole prompt
    query=pl.String(),  # text of the prompt after the demonstrations
    gold=pl.Int64(),
    label_names=pl.List(pl.String()),
    label_log_likelihoods=pl.List(pl.Float64()),  # nats, in label-space order; null if they were not requested
)

# Test of an accuracy against random guessing; random_baselines/max_random.py has the rules.
TEST_OF_GUESSING: dict[str, pl.DataType] = {
    "p_value": pl.Float64(),  # probability that the best of `tries` random classifiers is at least as accurate
    "p_holm": pl.Float64(),  # p_value corrected by Holm's procedure for n_tests tests
    "n_tests": pl.Int64(),  # number of tests of the table that are corrected together
    "better_than_uniform": pl.Boolean(),  # whether p_holm is at most 0.05: better than uniform guessing
    "accuracy_lower_bound": pl.Float64(),  # lower 80% confidence bound of the true accuracy, valid for a chosen best
    "n_needed": pl.Int64(),  # queries to distinguish this bound from guessing with 80% power, after correction
}

# Test of an accuracy against the best constant answer; metrics/guessing.py has the rules.
TEST_OF_MAJORITY: dict[str, pl.DataType] = {
    "p_majority": pl.Float64(),  # one-sided paired p-value of "not more accurate than the best constant answer"
    "p_majority_holm": pl.Float64(),  # p_majority corrected together with p_value
    "better_than_guessing": pl.Boolean(),  # whether p_holm and p_majority_holm are both at most 0.05
}

METRICS_KEY = ["suite", "part", "dataset", "method", "metric", "definition"]
METRICS = declare(
    **_texts(METRICS_KEY),
    **ESTIMATE,  # the interval is clustered by query; some diagnostics also cluster by other factors
    n_queries=pl.Int64(),
    n_requests=pl.Int64(),
    ci_over=pl.String(),  # factors that the interval treats as random draws
    ci_given=pl.String(),  # factors that were drawn or chosen, but the interval treats as fixed; null if none
    # The value with a reduced finite-sample bias, for calibration errors and for label biases that are distances from
    # no bias; else null. The intervals of these metrics are for the quantity that this estimates.
    reduced_bias=pl.Float64(),
    # Random baselines of an accuracy, null for any other metric; metrics/guessing.py has the rules.
    chance=pl.Float64(),  # expected accuracy of one random classifier
    majority=pl.Float64(),  # share of the most frequent gold label
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers on n_queries
    tries=pl.Int64(),  # 1: the mean over a query's prompts is not the best of several
    log10_tail=pl.Float64(),  # log10 of the probability that a random classifier is at least as accurate
    verdict=pl.String(),  # value of metrics.guessing.VERDICTS, from both tests
    **TEST_OF_GUESSING,  # corrected, as the next test, over all accuracies of the run under this definition
    **TEST_OF_MAJORITY,
    # 95% Bayesian interval of the accuracy under Jeffreys' prior, for n_queries independent queries:
    **_numbers("credible_low", "credible_high"),
)

GRADED_KEY = ["suite", "part", "dataset", "method", "definition", "metric"]
GRADED = declare(  # scores of levels, of distribution-valued gold answers, of yes-or-no questions (metrics/graded.py)
    **_texts(GRADED_KEY),
    **ESTIMATE,
    guess=pl.Float64(),  # the metric if the mean gold answer is predicted for every row
)

BASELINES_KEY = ["suite", "part", "dataset", "method", "definition", "baseline"]
BASELINES = declare(  # accuracies of simple classifiers, compared with a method, in the suite decide
    **_texts(BASELINES_KEY),
    accuracy=pl.Float64(),  # accuracy of the baseline
    **_numbers("ci_low", "ci_high"),  # exact 95% interval of it
    **_with_ends("difference"),  # the method's accuracy minus the baseline's, on the same queries
    p_value=pl.Float64(),  # p-value of statistics.paired.paired_test
)

GROUP_METRICS_KEY = [*METRICS_KEY, "noise_rate", "template", "demonstration_set"]
GROUP_METRICS = declare(  # a metric of a part at one noise rate, with one template or with one demonstration set
    **_texts(METRICS_KEY),
    # Null in a row over all values of the column, and in a part that does not vary it:
    **as_in(REQUESTS, "noise_rate", "template", "demonstration_set"),
    value=pl.Float64(),
    n_requests=pl.Int64(),
)

_ANSWERS_KEY = ["suite", "part", "dataset", "method", "definition", "n_shots", "metric"]
_ANSWERS = {
    **_texts(_ANSWERS_KEY[:5]),  # `definition` can be a suite's own
    "n_shots": pl.Int64(),
    "metric": pl.String(),  # the decomposed value of a request: "accuracy" | "true_label_probability" | ...
}

VARIANCE_COMPONENTS_KEY = [*_ANSWERS_KEY, "component"]
VARIANCE_COMPONENTS = declare(  # components of a request's value (statistics/variance_components.py)
    **_ANSWERS,
    component=pl.String(),  # "query", "template", "query x template", "residual", ...
    variance=pl.Float64(),  # squared unit of the metric; unbiased, so it may be below 0. In a mean: the mean
    **_numbers("ci_low", "ci_high"),  # 95% interval, cut at 0; null if there are too few queries or levels
    share=pl.Float64(),  # share of the sum of all components, negative ones counted as 0; null if all are 0
    n_queries=pl.Int64(),  # number of queries that have all values; in a mean, summed over datasets
    n_left_out=pl.Int64(),  # number of queries that lack a value
    n_levels=pl.Int64(),  # number of templates, prompts, or demonstration sets that all queries share
    n_draws=pl.Int64(),  # number of demonstration sets of each query
)

TOTAL_ERROR_KEY = _ANSWERS_KEY
TOTAL_ERROR = declare(  # a headline value with its usual interval, and with one that treats the prompt as random
    **_ANSWERS,
    **ESTIMATE,  # the interval is over the factors in `ci_over`
    ci_over=pl.String(),
    **_numbers("total_low", "total_high"),  # 95% interval over the factors in `total_over`; null if not estimable
    total_over=pl.String(),
    degrees_of_freedom=pl.Float64(),  # Satterthwaite's, of the total standard error; null in a mean
)

DESIGN_STUDY_KEY = [*_ANSWERS_KEY, "question", "spent_on"]
DESIGN_STUDY = declare(  # predicted standard errors for other numbers of queries, levels and draws
    **_ANSWERS,
    question=pl.String(),  # "now" | "10,000 more prompts" | "half-width of 0.02", ...
    spent_on=pl.String(),  # the increased factor, a value of `component`; "cheapest": the cheapest design; "" for "now"
    n_queries=pl.Int64(),  # queries of each dataset in a mean; null if no number of queries is enough
    n_levels=pl.Int64(),  # as in VARIANCE_COMPONENTS
    n_draws=pl.Int64(),
    n_prompts=pl.Int64(),  # the product of these three, times the number of datasets in a mean
    standard_error=pl.Float64(),  # total standard error, in the unit of the metric
    half_width=pl.Float64(),  # half-width of the 95% interval: 1.96 standard errors
)

RELIABILITY_KEY = ["suite", "part", "dataset", "method", "bin"]
RELIABILITY = declare(  # under definition "paper"
    **_texts(RELIABILITY_KEY[:4]),
    bin=pl.Int64(),  # from 0, in order of confidence
    **_numbers("bin_low", "bin_high"),
    n_requests=pl.Int64(),  # 0 in an empty bin, whose means are null
    **_numbers("mean_confidence", "accuracy"),
)


COVERAGE_KEY = ["suite", "part", "dataset", "method"]
COVERAGE = declare(  # how well the largest label probability separates right from wrong answers; definition "paper"
    **_texts(COVERAGE_KEY),
    n=pl.Int64(),  # number of answers
    n_groups=pl.Int64(),  # number of groups of dependent answers: queries, unless a column defines groups
    accuracy=pl.Float64(),
    **_with_ends("aurc"),  # area under the risk-coverage curve
    **_with_ends("excess_aurc"),  # aurc minus the area of the best possible order of these answers
    calibration_error=pl.Float64(),  # expected calibration error with ten bins
    calibration_floor=pl.Float64(),  # expected value of this error for a calibrated model on as many answers
    calibration_p=pl.Float64(),  # probability that a calibrated model has this error or a larger one
    **_with_ends("temperature"),  # above 1: overconfident; ends are null if not determined, 0 or infinite if unbounded
    set_min_probability=pl.Float64(),  # sets of all labels with this probability contain the true label with 90%
    **_numbers("set_coverage_low", "set_coverage_high"),  # 95% range of the true coverage of these sets
    set_coverage=pl.Float64(),  # coverage of these sets on these answers
    set_size=pl.Float64(),  # mean number of labels in a set
)

RISK_COVERAGE = declare(  # accuracy of the answers whose largest probability is at least the threshold
    **_texts(COVERAGE_KEY),
    threshold=pl.Float64(),  # the last column of the key
    n_used=pl.Int64(),  # number of these answers
    share=pl.Float64(),  # share of these answers among all
    **_with_ends("accuracy"),
)

THRESHOLDS = declare(  # thresholds that guarantee the accuracy `target` of new answers, in 95% of samples
    **_texts(COVERAGE_KEY),
    target=pl.Float64(),  # the last column of the key
    threshold=pl.Float64(),  # null if no threshold has the guarantee
    n=pl.Int64(),  # number of answers
    **_with_ends("share"),  # share of used answers: at or above the threshold
    **_with_ends("value"),  # accuracy of the used answers
    largest_target=pl.Float64(),  # largest target with a guarantee, if `target` has none
    rows_needed=pl.Int64(),  # estimated number of answers for a guarantee; null: no number is enough
)

CONFUSION_KEY = ["suite", "part", "dataset", "method", "gold", "pred"]
CONFUSION = declare(  # under definition "paper"
    **_texts(CONFUSION_KEY[:4]),
    gold=pl.Int64(),
    pred=pl.Int64(),
    n_requests=pl.Int64(),  # may be 0: every pair of labels has a row
)

LABEL_SPACES_KEY = ["suite", "part", "dataset"]
LABEL_SPACES = pl.Schema(_texts(LABEL_SPACES_KEY) | {"label_names": pl.List(pl.String())})  # in label-space order

ABSENT_LABELS_KEY = ["suite", "part", "dataset", "method", "definition", "label_name"]
ABSENT_LABELS = pl.Schema(_texts(ABSENT_LABELS_KEY) | {"mean_probability": pl.Float64()})
"""Labels that no query has as its true label, with the mean probability that the method gives them."""

LEARNING_CURVE_KEY = ["dataset", "metric", "definition", "n_shots"]
LEARNING_CURVE = declare(  # metrics of vanilla's answers to every demonstration of the prompts, and to their query
    **_texts(LEARNING_CURVE_KEY[:3]),  # `metric` is "accuracy" or "true_label_probability"
    n_shots=pl.Int64(),  # number of demonstrations before the classified example
    **ESTIMATE,  # the interval is clustered by classified example
    n_examples=pl.Int64(),  # number of distinct classified examples
    n_requests=pl.Int64(),
    chance=pl.Float64(),  # one over the number of labels
)

MISSING_CLASSES_KEY = ["dataset", "method", "label"]
MISSING_CLASSES = pl.Schema(_texts(MISSING_CLASSES_KEY))  # labels without training prompts

UNTIL_KEY = ["dataset"]
UNTIL = declare(  # the decision of a run --until for each dataset
    dataset=pl.String(),
    decision=pl.String(),  # "better" | "worse" | "equivalent" | "certified" | "refuted" | "undecided"
    n_scored=pl.Int64(),  # number of queries with a gold label, in random order, up to the decision
    n_queries=pl.Int64(),  # number of queries of the dataset with a gold label
    saving=pl.Float64(),  # share of the queries that were not scored
    value=pl.Float64(),  # difference of accuracies on the scored queries, or accuracy of used answers
    **_numbers("low", "high"),  # 95% interval on all n_queries, or on new answers, valid at any stopping time
    p_new=pl.Float64(),  # anytime-valid p-value of no difference on new queries; null without a base run
)

RECEIPT_KEY = ["receipt", "prompt_id"]
RECEIPT = declare(  # a sample of a run's prompts, scored again
    receipt=pl.String(),  # engine and dtype of the second scoring: "vllm float32"
    prompt_id=pl.String(),  # key of PROMPTS
    ask=pl.String(),  # Ask
    # Largest absolute difference, over all continuations, between the two log-likelihoods, nats:
    drift_nats=pl.Float64(),
    pred=pl.Int64(),  # most probable label by the run's log-likelihoods; null for a prompt without several labels
    pred_again=pl.Int64(),  # most probable label of the second scoring
    margin_nats=pl.Float64(),  # the run's log-likelihood of its most probable label, minus the second largest
)

MEAN_OVER_DATASETS = "mean"
"""The value of `dataset` in rows with the unweighted mean over a suite's datasets."""


def declared(rows: pl.DataFrame, schema: pl.Schema, key: Sequence[str]) -> pl.DataFrame:
    """Select and cast the columns of a schema, and sort the rows by the key of the table."""
    return rows.select(schema.names()).cast(schema).sort(key)


def declared_tables(constants: Mapping[str, Any]) -> dict[str, tuple[pl.Schema, Sequence[str]]]:
    """Return table name -> (schema, key) of the tables that a module declares.

    METRICS with METRICS_KEY is the table "metrics".

    Args:
        constants: name -> value of the module's variables.
    """
    schemas = {name: value for name, value in constants.items() if isinstance(value, pl.Schema)}
    return {name.lower(): (schema, constants.get(f"{name}_KEY", ())) for name, schema in schemas.items()}
