"""The tables between stages: every column with its dtype, unit and meaning. Columns are declared here and nowhere else.

Each table has a key and is sorted by it before it is written, so that equal tables are equal files. Prompts, tokens and
scores are exceptions: they have PROMPTS_KEY but are in an order in which neighbours share long prefixes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

Ask = Literal["labels", "text", "state"]
"""What is computed for a prompt: the log-likelihoods of continuations after it ("labels"), the log-likelihood of the
prompt itself, all its tokens but the first ("text"), or the hidden state at its end ("state")."""


def declare(**types: pl.DataType) -> pl.Schema:
    """Return the schema of a table: its columns in order, each with its type."""
    return pl.Schema(types)


def _texts(names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return columns of text; in tables of metrics `dataset` can be MEAN_OVER_DATASETS."""
    return dict.fromkeys(names, pl.String())


def _numbers(*names: str) -> dict[str, pl.DataType]:
    """Return columns of numbers."""
    return dict.fromkeys(names, pl.Float64())


def _with_ends(name: str) -> dict[str, pl.DataType]:
    """Return the columns of a value with its 95% interval."""
    return _numbers(name, f"{name}_low", f"{name}_high")


def _as_in(table: pl.Schema, *names: str) -> dict[str, pl.DataType]:
    """Return columns that mean the same as in another table."""
    return {name: table[name] for name in names}


ESTIMATE = _numbers("value", "ci_low", "ci_high")
"""A value with its 95% interval."""

REQUESTS_KEY = ["suite", "part", "dataset", "position", "for_part"]
REQUESTS = declare(
    suite=pl.String(),  # "staicc-normal"
    part=pl.String(),  # test of the suite: "normal"; in rows that a method adds, the name of the method
    for_part=pl.String(),  # in rows that a method adds, the part that it predicts with them; else null
    dataset=pl.String(),
    position=pl.Int64(),  # unique within (suite, part, for_part, dataset), from 0; rows are sorted by it
    query_id=pl.Int64(),  # row of the test split; null in a request without a query
    demonstration_set=pl.Int64(),  # which demonstration set of this query, from 0
    n_shots=pl.Int64(),  # demonstrations in the prompt
    template=pl.Int64(),  # index of the template or instruction; 0 is the dataset's default
    noise_rate=pl.Float64(),  # nominal share of demonstration labels to falsify; else 0.0
    n_wrong_labels=pl.Int64(),  # demonstrations shown with a wrong label: noise_rate * n_shots as a whole number
    label_tried=pl.Int64(),  # index into label_names; null unless a method tries each label
    ordering=pl.Int64(),  # number of the order of the demonstrations; null unless a method tries several
    training_row=pl.Int64(),  # row of the demonstration split that is the query; null if none is
    # Rows of the demonstration split, in prompt order; in a method's training prompts, of the calibration split.
    demonstration_ids=pl.List(pl.Int64()),
    gold=pl.Int64(),  # index into label_names; null where there is no true label
    label_names=pl.List(pl.String()),  # the label space: label -> text scored, in order
    prompt_id=pl.String(),  # key of PROMPTS
)

PROMPTS_KEY = ["prompt_id"]
PROMPTS = declare(
    # Digest of ask, prompt and continuations: equal prompts have equal ids in every store. (Where a store has the
    # same text with different spans, of the spans as well, but for the first.)
    prompt_id=pl.String(),
    ask=pl.String(),  # Ask
    prompt=pl.String(),  # the complete text
    continuations=pl.List(pl.String()),  # texts to score after the prompt if ask is "labels"; else empty
    # Characters of the prompt that each demonstration and, last, the query covers; before the first is the
    # instruction. Null where a text asks nothing, as one whose likelihood or hidden state is wanted.
    spans=pl.List(
        pl.Struct(
            {
                "start": pl.Int32(),
                "label": pl.Int32(),  # where the label begins; in a noisy channel, the text after the label
                "end": pl.Int32(),  # of a query without its label: where the label begins
            }
        )
    ),
)

TOKENS = declare(
    prompt_id=pl.String(),  # key of PROMPTS; rows are in prefix order of their contexts
    token_id=pl.String(),  # digest of ask, context and continuations: equal in every store for equal tokens
    # Ask; or "last_tokens": a second row for a prompt with a label of several tokens, which scores the last token
    # of each label directly after the prompt.
    ask=pl.String(),
    context=pl.List(pl.Int32()),  # token ids, with BOS if the tokenizer adds one; for ask "text" only the first
    # Token ids of each continuation, none empty; for ask "text" one continuation, the rest of the tokens.
    continuations=pl.List(pl.List(pl.Int32())),
)

TOKEN_SCORES = declare(
    token_id=pl.String(),  # key of TOKENS
    log_likelihoods=pl.List(pl.Float64()),  # nats, over the whole vocabulary, summed over each continuation
    token_counts=pl.List(pl.Int32()),  # tokens of each continuation
)

TOKEN_STATES = declare(
    token_id=pl.String(),  # key of TOKENS, of rows with ask "state"
    hidden_state=pl.List(pl.Float32()),  # after the final norm, at the last token
)

SCORES = declare(
    prompt_id=pl.String(),  # key of PROMPTS
    # One number per continuation, in nats, over the whole vocabulary:
    label_log_likelihoods=pl.List(pl.Float64()),  # summed over all tokens of the continuation
    # of its last token alone, directly after the prompt; null unless a part is measured under `released`:
    last_token_log_probs=pl.List(pl.Float64()),
    label_token_counts=pl.List(pl.Int32()),  # tokens of each continuation
)

HIDDEN_STATES = declare(
    prompt_id=pl.String(),  # key of PROMPTS, of rows with ask "state"
    hidden_state=pl.List(pl.Float32()),  # after the final norm, at the prompt's last token
)

LABEL_DISTANCES = declare(  # computed by a method from hidden states and the LM head during the score stage
    method=pl.String(),
    definition=pl.String(),
    prompt_id=pl.String(),  # key of HIDDEN_STATES
    distances=pl.List(pl.Float64()),  # one per label, or one per anchor of the method
)

PREDICTIONS_KEY = ["suite", "part", "dataset", "method", "definition", "position"]
PREDICTIONS = declare(
    **_texts(PREDICTIONS_KEY[:5]),  # of inference methods, under the definitions "paper" and "released"
    **_as_in(
        REQUESTS, "position", "query_id", "demonstration_set", "n_shots", "template", "noise_rate", "n_wrong_labels"
    ),
    prompt_id=pl.String(),  # key of PROMPTS; the number of distinct ids of a query is its number of tries
    gold=pl.Int64(),
    pred=pl.Int64(),  # index of the most probable label, the first if several are
    label_names=pl.List(pl.String()),
    label_probs=pl.List(pl.Float64()),  # in label-space order; sums to one
)

QUERIES_KEY = [
    *("suite", "part", "dataset", "query_id", "n_shots", "demonstration_set", "template", "noise_rate", "prompt_id")
]
QUERIES = declare(  # every prompt that a method answered a query with; PREDICTIONS has the answers
    **_texts(QUERIES_KEY[:3]),
    **_as_in(REQUESTS, "query_id", "n_shots", "demonstration_set", "template", "noise_rate", "n_wrong_labels"),
    prompt_id=pl.String(),  # key of PROMPTS, where the whole prompt is
    query=pl.String(),  # the end of the prompt, after the demonstrations
    gold=pl.Int64(),
    label_names=pl.List(pl.String()),
    label_log_likelihoods=pl.List(pl.Float64()),  # nats, in label-space order; null where they were not asked
)

TEST_OF_GUESSING: dict[str, pl.DataType] = {  # of an accuracy; random_baselines/max_random.py has the rules
    "p_value": pl.Float64(),  # probability that the best of `tries` random classifiers is at least as accurate
    "p_holm": pl.Float64(),  # the same, corrected by Holm's procedure for n_tests tests
    "n_tests": pl.Int64(),  # tests of the table that are corrected together
    "better_than_uniform": pl.Boolean(),  # than uniform guessing: p_holm is 0.05 at most
    "accuracy_lower_bound": pl.Float64(),  # of the true accuracy, with 80% confidence, also where the best was chosen
    "n_needed": pl.Int64(),  # queries that tell an accuracy of that bound from guessing with 80% power, corrected
}

TEST_OF_MAJORITY: dict[str, pl.DataType] = {  # of an accuracy; metrics/guessing.py has the rules
    "p_majority": pl.Float64(),  # one-sided, paired: not more accurate than the best constant answer
    "p_majority_holm": pl.Float64(),  # corrected together with p_value
    "better_than_guessing": pl.Boolean(),  # p_holm and p_majority_holm are 0.05 at most
}

METRICS_KEY = ["suite", "part", "dataset", "method", "metric", "definition"]
METRICS = declare(
    **_texts(METRICS_KEY),
    **ESTIMATE,  # its interval is clustered by query; some diagnostics cluster by more
    n_queries=pl.Int64(),
    n_requests=pl.Int64(),
    ci_over=pl.String(),  # what the interval counts as drawn at random
    ci_given=pl.String(),  # what it takes as it is, though it was drawn or chosen; null where there is nothing
    # The value with less of its bias on finitely many requests, where it has one: of calibration errors and label
    # biases that are distances from no bias. Their intervals are of what this estimates.
    reduced_bias=pl.Float64(),
    # Random baselines of an accuracy, null for any other metric; metrics/guessing.py has the rules.
    chance=pl.Float64(),  # expected accuracy of one random classifier
    majority=pl.Float64(),  # share of the most frequent gold label
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers on n_queries
    tries=pl.Int64(),  # 1: the mean over a query's prompts is not the best of several
    log10_tail=pl.Float64(),  # log10 of the probability that a random classifier is at least as accurate
    verdict=pl.String(),  # metrics.guessing.VERDICTS, by both tests
    **TEST_OF_GUESSING,  # both tests of all accuracies of the run under this definition
    **TEST_OF_MAJORITY,
    # 95% Bayesian interval of the accuracy under Jeffreys' prior, for n_queries independent queries:
    **_numbers("credible_low", "credible_high"),
)

GRADED_KEY = ["suite", "part", "dataset", "method", "definition", "metric"]
GRADED = declare(  # of levels, of answers whose gold is a distribution, of yes-or-no questions (metrics/graded.py)
    **_texts(GRADED_KEY),
    **ESTIMATE,
    guess=pl.Float64(),  # the same of the mean gold answer for every row
)

BASELINES_KEY = ["suite", "part", "dataset", "method", "definition", "baseline"]
BASELINES = declare(  # accuracies of cheap classifiers beside that of a method, in the suite decide
    **_texts(BASELINES_KEY),
    accuracy=pl.Float64(),  # of the baseline
    **_numbers("ci_low", "ci_high"),  # 95%, exact
    **_with_ends("difference"),  # the method's accuracy, less the baseline's on the same queries
    p_value=pl.Float64(),  # statistics.paired.paired_test
)

GROUP_METRICS_KEY = [*METRICS_KEY, "noise_rate", "template", "demonstration_set"]
GROUP_METRICS = declare(  # a metric of a part at one noise rate, with one template or one demonstration set
    **_texts(METRICS_KEY),
    # Null in a row over all of them, and in a part that does not vary them:
    **_as_in(REQUESTS, "noise_rate", "template", "demonstration_set"),
    value=pl.Float64(),
    n_requests=pl.Int64(),
)

_ANSWERS_KEY = ["suite", "part", "dataset", "method", "definition", "n_shots", "metric"]
_ANSWERS = {
    **_texts(_ANSWERS_KEY[:5]),  # `definition` can be a suite's own
    "n_shots": pl.Int64(),
    "metric": pl.String(),  # whose value for a request is decomposed: "accuracy" | "true_label_probability" | ...
}

VARIANCE_COMPONENTS_KEY = [*_ANSWERS_KEY, "component"]
VARIANCE_COMPONENTS = declare(  # of a request's value (statistics/variance_components.py); in decide of accuracies
    **_ANSWERS,
    component=pl.String(),  # "query", "template", "query x template", "residual", ...
    variance=pl.Float64(),  # squared unit of the metric; unbiased, so it may be below 0. Of a mean: the mean
    **_numbers("ci_low", "ci_high"),  # 95% interval, cut at 0; null where there are too few queries or levels
    share=pl.Float64(),  # of the sum of all components, those below 0 counted as 0; null where all are
    n_queries=pl.Int64(),  # that have all values, summed over datasets in a mean
    n_left_out=pl.Int64(),  # queries that lack one
    n_levels=pl.Int64(),  # templates, prompts, or demonstration sets that all queries share
    n_draws=pl.Int64(),  # demonstration sets of each query
)

TOTAL_ERROR_KEY = _ANSWERS_KEY
TOTAL_ERROR = declare(  # a headline value with the interval that is usual and the one that counts the prompt as drawn
    **_ANSWERS,
    **ESTIMATE,  # its interval is over what `ci_over` names
    ci_over=pl.String(),
    **_numbers("total_low", "total_high"),  # 95% interval over what `total_over` names; null where it cannot be had
    total_over=pl.String(),
    degrees_of_freedom=pl.Float64(),  # of the total standard error (Satterthwaite); null of a mean
)

DESIGN_STUDY_KEY = [*_ANSWERS_KEY, "question", "spent_on"]
DESIGN_STUDY = declare(  # standard errors that other numbers of queries, levels and draws would have
    **_ANSWERS,
    question=pl.String(),  # "now" | "10,000 more prompts" | "half-width of 0.02", ...
    spent_on=pl.String(),  # what there is more of: a name of `component`; "cheapest": of all
    n_queries=pl.Int64(),  # of each dataset in a mean; null where no number of them is enough
    n_levels=pl.Int64(),  # as in VARIANCE_COMPONENTS
    n_draws=pl.Int64(),
    n_prompts=pl.Int64(),  # the product of these three, times the datasets in a mean
    standard_error=pl.Float64(),  # total; unit of the metric
    half_width=pl.Float64(),  # of the 95% interval that it gives: 1.96 standard errors
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
COVERAGE = declare(  # how well the largest label probability tells right answers; under definition "paper"
    **_texts(COVERAGE_KEY),
    n=pl.Int64(),  # answers
    n_groups=pl.Int64(),  # groups of answers that are not independent: queries, if no column names others
    accuracy=pl.Float64(),
    **_with_ends("aurc"),  # area under the risk-coverage curve
    **_with_ends("excess_aurc"),  # above the area of the best order of these answers
    calibration_error=pl.Float64(),  # of ten bins
    calibration_floor=pl.Float64(),  # what a calibrated model shows on as many answers
    calibration_p=pl.Float64(),  # probability that a calibrated model shows as much
    **_with_ends("temperature"),  # above 1: overconfident; without interval where answers do not determine it
    set_min_probability=pl.Float64(),  # sets of the labels that have it hold the true one with 90%
    **_numbers("set_coverage_low", "set_coverage_high"),  # 95% range of the true coverage
    set_coverage=pl.Float64(),  # on these answers
    set_size=pl.Float64(),  # mean number of labels in a set
)

RISK_COVERAGE = declare(  # accuracy of answers whose largest probability is the threshold or more
    **_texts(COVERAGE_KEY),
    threshold=pl.Float64(),  # the last column of the key
    n_used=pl.Int64(),
    share=pl.Float64(),  # of all answers
    **_with_ends("accuracy"),
)

THRESHOLDS = declare(  # thresholds above which new answers have at least the accuracy `target`, in 95% of samples
    **_texts(COVERAGE_KEY),
    target=pl.Float64(),  # the last column of the key
    threshold=pl.Float64(),  # null where none can be promised
    n=pl.Int64(),  # answers
    **_with_ends("share"),  # of answers that are used
    **_with_ends("value"),  # their accuracy
    largest_target=pl.Float64(),  # that could be promised, where this one cannot
    rows_needed=pl.Int64(),  # estimate of the answers that would do; null: no number
)

CONFUSION_KEY = ["suite", "part", "dataset", "method", "gold", "pred"]
CONFUSION = declare(  # under definition "paper"
    **_texts(CONFUSION_KEY[:4]),
    gold=pl.Int64(),
    pred=pl.Int64(),
    n_requests=pl.Int64(),  # every pair of labels has a row, also if this is 0
)

LABEL_SPACES_KEY = ["suite", "part", "dataset"]
LABEL_SPACES = pl.Schema(_texts(LABEL_SPACES_KEY) | {"label_names": pl.List(pl.String())})  # in label-space order

ABSENT_LABELS_KEY = ["suite", "part", "dataset", "method", "definition", "label_name"]
ABSENT_LABELS = pl.Schema(_texts(ABSENT_LABELS_KEY) | {"mean_probability": pl.Float64()})
"""Labels that no query has, and the probability that they get."""

LEARNING_CURVE_KEY = ["dataset", "metric", "definition", "n_shots"]
LEARNING_CURVE = declare(  # vanilla's answers at every demonstration of the prompts, and at their query
    **_texts(LEARNING_CURVE_KEY[:3]),  # metrics are "accuracy" and "true_label_probability"
    n_shots=pl.Int64(),  # demonstrations before the label that is asked
    **ESTIMATE,  # its interval is clustered by the example that is classified
    n_examples=pl.Int64(),  # different examples that are classified
    n_requests=pl.Int64(),
    chance=pl.Float64(),  # one over the number of labels
)

MISSING_CLASSES_KEY = ["dataset", "method", "label"]
MISSING_CLASSES = pl.Schema(_texts(MISSING_CLASSES_KEY))  # labels without training prompts

UNTIL_KEY = ["dataset"]
UNTIL = declare(  # of a run --until: what was decided, and when
    dataset=pl.String(),
    decision=pl.String(),  # "better" | "worse" | "equivalent" | "certified" | "refuted" | "undecided"
    n_scored=pl.Int64(),  # queries with a gold label, in random order, up to the decision
    n_queries=pl.Int64(),  # those of the dataset
    saving=pl.Float64(),  # share of the queries that were not scored
    value=pl.Float64(),  # difference of accuracies on the scored queries, or accuracy of used answers
    **_numbers("low", "high"),  # of all n_queries, or of new answers: 95% interval that holds at any stopping time
    p_new=pl.Float64(),  # anytime-valid p-value of no difference on new queries; null without a base run
)

RECEIPT_KEY = ["receipt", "prompt_id"]
RECEIPT = declare(  # a sample of a run's prompts, scored again
    receipt=pl.String(),  # engine and dtype that scored again: "vllm float32"
    prompt_id=pl.String(),  # key of PROMPTS
    ask=pl.String(),  # Ask
    # Largest absolute difference to the run's log-likelihood over all continuations, nats:
    drift_nats=pl.Float64(),
    pred=pl.Int64(),  # most probable label by the run's log-likelihoods; null without labels to choose from
    pred_again=pl.Int64(),
    margin_nats=pl.Float64(),  # log-likelihood of the run's most probable label, less that of the second
)

MEAN_OVER_DATASETS = "mean"
"""The value of `dataset` in rows that hold the plain mean over a suite's datasets."""


def declared_tables(constants: Mapping[str, Any]) -> dict[str, tuple[pl.Schema, Sequence[str]]]:
    """Return schema and key of each table that a module declares: METRICS with METRICS_KEY is the table `metrics`."""
    schemas = {name: value for name, value in constants.items() if isinstance(value, pl.Schema)}
    return {name.lower(): (schema, constants.get(f"{name}_KEY", ())) for name, schema in schemas.items()}
