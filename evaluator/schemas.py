"""The tables between stages: every column with its dtype, unit and meaning. Columns are declared here and nowhere else.

Each table has a key, is sorted by it before it is written, and so comes out the same bytes every time. Prompts, and
what is made of each, have PROMPTS_KEY and stand in the order in which an engine can share their prefixes.
"""

from typing import Literal, get_args

import polars as pl

Definition = Literal["paper", "released", "published"]
"""Which formula a number follows: the paper's, the released code's, or the one the published tables were made with."""
DEFINITIONS: tuple[Definition, ...] = get_args(Definition)

PartKind = Literal["classification", "choice", "diagnostic", "null"]
"""What a part of a suite is: queries with one label space, which every inference method can answer; queries with
choices that differ; prompts disturbed on purpose; prompts without a query."""

Ask = Literal["labels", "text", "state"]
"""What a prompt asks of a model: the log-likelihoods of continuations after it ("labels"), the log-likelihood of the
prompt itself, all its tokens but the first ("text"), or the hidden state at its end ("state")."""

REQUESTS_KEY = ["suite", "part", "dataset", "position", "for_part"]
REQUESTS = pl.Schema(
    {
        "suite": pl.String(),  # what asked: "staicc-normal"
        "part": pl.String(),  # which test of the suite: "normal"; of rows that a method adds, the method's own name
        "for_part": pl.String(),  # of rows that a method adds, the part that it answers with them; else null
        "dataset": pl.String(),
        "position": pl.Int64(),  # unique within (suite, part, for_part, dataset), from 0; rows are sorted by it
        "query_id": pl.Int64(),  # row of the test split; null where a method asks about no query
        "demonstration_set": pl.Int64(),  # which demonstration set of this query, from 0
        "n_shots": pl.Int64(),  # demonstrations in the prompt
        "template": pl.Int64(),  # index of the template or instruction tried; 0 for the dataset's own
        "noise_rate": pl.Float64(),  # share of demonstration labels that are falsified, nominal; else 0.0
        "label_tried": pl.Int64(),  # index into label_names; null unless a method tries labels
        "ordering": pl.Int64(),  # of the same demonstrations, from 0; null unless a method tries orderings
        "training_row": pl.Int64(),  # null unless a row of the demonstration split is the query
        # Rows of the demonstration split, in prompt order; of the calibration split in a method's training prompts.
        "demonstration_ids": pl.List(pl.Int64()),
        "gold": pl.Int64(),  # index into label_names; null where there is no true label
        "label_names": pl.List(pl.String()),  # the label space: label -> text scored, in order
        "prompt_id": pl.String(),  # key of PROMPTS
    }
)

PROMPTS_KEY = ["prompt_id"]
PROMPTS = pl.Schema(
    {
        "prompt_id": pl.String(),  # digest of what is asked: the same question has the same id in every store
        "ask": pl.String(),  # Ask
        "prompt": pl.String(),  # the text sent, complete
        "continuations": pl.List(pl.String()),  # scored after the prompt where it asks "labels"; else empty
    }
)

TOKENS = pl.Schema(
    {
        "prompt_id": pl.String(),  # key of PROMPTS; rows are in prefix order of their contexts
        "token_id": pl.String(),  # digest of ask, context and continuations: equal tokens have the same in every store
        # Ask; or "last_tokens", a further row of a prompt whose labels have several tokens: the last of each, right
        # after the prompt.
        "ask": pl.String(),
        "context": pl.List(pl.Int32()),  # token ids, BOS included where the tokenizer adds one; of a text the first
        # Token ids of each continuation, none of them empty; of a text one, which is the rest of it.
        "continuations": pl.List(pl.List(pl.Int32())),
    }
)

TOKEN_SCORES = pl.Schema(
    {
        "token_id": pl.String(),  # key of TOKENS
        "log_likelihoods": pl.List(pl.Float64()),  # nats, over the whole vocabulary, summed over each continuation
        "token_counts": pl.List(pl.Int32()),  # tokens of each continuation
    }
)

TOKEN_STATES = pl.Schema(
    {
        "token_id": pl.String(),  # key of TOKENS, of those that ask "state"
        "hidden_state": pl.List(pl.Float32()),  # after the final norm, at the last token
    }
)

SCORES = pl.Schema(
    {
        "prompt_id": pl.String(),  # key of PROMPTS
        # One number a continuation, nats, over the whole vocabulary:
        "label_log_likelihoods": pl.List(pl.Float64()),  # summed over all tokens of the continuation
        # Of its last token alone, right after the prompt; null where no part is measured under `released`:
        "last_token_log_probs": pl.List(pl.Float64()),
        "label_token_counts": pl.List(pl.Int32()),  # tokens of each continuation
    }
)

HIDDEN_STATES = pl.Schema(
    {
        "prompt_id": pl.String(),  # key of PROMPTS, of those that ask "state"
        "hidden_state": pl.List(pl.Float32()),  # after the final norm, at the prompt's last token
    }
)

LABEL_DISTANCES_KEY = ["method", "definition", "prompt_id"]
LABEL_DISTANCES = pl.Schema(  # what a method makes of hidden states and the LM head, while the model is there
    {
        "method": pl.String(),
        "definition": pl.String(),
        "prompt_id": pl.String(),  # key of HIDDEN_STATES
        "distances": pl.List(pl.Float64()),  # to what the method compares with: one a label, or one an anchor
    }
)

PREDICTIONS_KEY = ["suite", "part", "dataset", "method", "definition", "position"]
PREDICTIONS = pl.Schema(
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),
        "method": pl.String(),  # inference method: "vanilla"
        "definition": pl.String(),  # "paper" | "released"
        "position": pl.Int64(),
        "query_id": pl.Int64(),
        "demonstration_set": pl.Int64(),  # this and the next three as in REQUESTS
        "n_shots": pl.Int64(),
        "template": pl.Int64(),
        "noise_rate": pl.Float64(),
        "prompt_id": pl.String(),  # key of PROMPTS; tells how many different prompts a query was tried with
        "gold": pl.Int64(),
        "pred": pl.Int64(),  # index of the most probable label, the first of equals
        "label_names": pl.List(pl.String()),
        "label_probs": pl.List(pl.Float64()),  # sums to one over the label space
    }
)

METRICS_KEY = ["suite", "part", "dataset", "method", "metric", "definition"]
METRICS = pl.Schema(
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),  # a dataset's name, or MEAN_OVER_DATASETS
        "method": pl.String(),
        "metric": pl.String(),
        "definition": pl.String(),  # Definition
        "value": pl.Float64(),
        "ci_low": pl.Float64(),  # 95% interval, clustered by query; diagnostics/__init__.py says where by more
        "ci_high": pl.Float64(),
        "n_queries": pl.Int64(),
        "n_requests": pl.Int64(),
        # What guessing gets, beside an accuracy and null beside any other metric; metrics/baselines.py has the rules.
        "chance": pl.Float64(),  # expected accuracy of one random classifier
        "majority": pl.Float64(),  # share of the most frequent gold label
        "max_random": pl.Float64(),  # expected accuracy of the best of `tries` random classifiers on n_queries
        "tries": pl.Int64(),  # distinct prompts a query was tried with in the run, summed over methods
        "log10_tail": pl.Float64(),  # log10 of the probability that the best of them is at least as accurate
        "verdict": pl.String(),  # Verdict of baselines/verdicts.py
        "n_needed": pl.Int64(),  # queries it would take to tell; where the verdict is "between"
    }
)

GROUP_METRICS_KEY = [
    "suite",
    "part",
    "dataset",
    "method",
    "metric",
    "definition",
    "noise_rate",
    "template",
    "demonstration_set",
]
GROUP_METRICS = pl.Schema(  # a metric at one noise rate, with one template or behind one demonstration set of a part
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),  # a dataset's name, or MEAN_OVER_DATASETS
        "method": pl.String(),
        "metric": pl.String(),
        "definition": pl.String(),
        # Null where the row is over all of them, or the part does not vary them:
        "noise_rate": pl.Float64(),
        "template": pl.Int64(),
        "demonstration_set": pl.Int64(),
        "value": pl.Float64(),
        "n_requests": pl.Int64(),
    }
)

RELIABILITY_KEY = ["suite", "part", "dataset", "method", "bin"]
RELIABILITY = pl.Schema(  # under definition "paper"
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),
        "method": pl.String(),
        "bin": pl.Int64(),  # from 0, in order of confidence
        "bin_low": pl.Float64(),
        "bin_high": pl.Float64(),
        "n_requests": pl.Int64(),  # 0 in an empty bin, whose means are null
        "mean_confidence": pl.Float64(),
        "accuracy": pl.Float64(),
    }
)

CONFUSION_KEY = ["suite", "part", "dataset", "method", "gold", "pred"]
CONFUSION = pl.Schema(  # under definition "paper"
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),
        "method": pl.String(),
        "gold": pl.Int64(),
        "pred": pl.Int64(),
        "n_requests": pl.Int64(),  # every pair has a row, also those of 0
    }
)

LABEL_SPACES_KEY = ["suite", "part", "dataset"]
LABEL_SPACES = pl.Schema(
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),
        "label_names": pl.List(pl.String()),  # in label-space order
    }
)

ABSENT_LABELS_KEY = ["suite", "part", "dataset", "method", "definition", "label_name"]
ABSENT_LABELS = pl.Schema(  # labels that no query has, but that are given probability
    {
        "suite": pl.String(),
        "part": pl.String(),
        "dataset": pl.String(),
        "method": pl.String(),
        "definition": pl.String(),
        "label_name": pl.String(),
        "mean_probability": pl.Float64(),
    }
)

MEAN_OVER_DATASETS = "mean"
"""The value of `dataset` in the row that holds the plain mean over a suite's datasets."""
