"""The tables between stages: every column with its dtype, unit and meaning. Columns are declared here and nowhere else.

Each table has a key, is sorted by it before it is written, and so comes out the same bytes every time.
"""

from typing import Literal, get_args

import polars as pl

Definition = Literal["paper", "released", "published"]
"""Which formula a number follows: the paper's, the released code's, or the one the published tables were made with."""
DEFINITIONS: tuple[Definition, ...] = get_args(Definition)

REQUESTS_KEY = ["suite", "part", "dataset", "position"]
REQUESTS = pl.Schema(
    {
        "suite": pl.String(),  # what asked: "staicc-normal"
        "part": pl.String(),  # which test of the suite: "normal"
        "dataset": pl.String(),
        "position": pl.Int64(),  # place in the benchmark's own order, from 0 within (suite, part, dataset)
        "query_id": pl.Int64(),  # row of the test split
        "repeat": pl.Int64(),  # which demonstration set of this query, from 0
        "demonstration_ids": pl.List(pl.Int64()),  # rows of the demonstration split, in prompt order
        "gold": pl.Int64(),  # index into label_names
        "label_names": pl.List(pl.String()),  # the label space: label -> text scored, in order
        "prompt_id": pl.String(),  # key of PROMPTS
    }
)

PROMPTS_KEY = ["prompt_id"]
PROMPTS = pl.Schema(
    {
        "prompt_id": pl.String(),  # digest of prompt and continuations: the same text has the same id in every store
        "prompt": pl.String(),  # the text sent, complete
        "continuations": pl.List(pl.String()),  # the texts whose log-likelihood after the prompt is asked for
    }
)

TOKENS_KEY = ["prompt_id"]
TOKENS = pl.Schema(
    {
        "prompt_id": pl.String(),  # key of PROMPTS; rows stand in prefix order of their contexts
        "context": pl.List(pl.Int32()),  # token ids, BOS included where the tokenizer adds one
        "continuations": pl.List(pl.List(pl.Int32())),  # token ids of each continuation, none empty
    }
)

SCORES_KEY = ["prompt_id"]
SCORES = pl.Schema(
    {
        "prompt_id": pl.String(),  # key of PROMPTS
        # One number a continuation, nats, over the whole vocabulary:
        "label_log_likelihoods": pl.List(pl.Float64()),  # summed over all tokens of the continuation
        "last_token_log_probs": pl.List(pl.Float64()),  # of its last token alone, right after the prompt
        "label_token_counts": pl.List(pl.Int32()),  # tokens of each continuation
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
        "repeat": pl.Int64(),
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
        "ci_low": pl.Float64(),  # 95% interval, clustered by query
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

MEAN_OVER_DATASETS = "mean"
"""The value of `dataset` in the row that holds the plain mean over a suite's datasets."""

SEARCH_EXAMPLES_KEY = ["dataset", "place"]
SEARCH_EXAMPLES = pl.Schema(  # the queries of a prompt search; in its store
    {
        "dataset": pl.String(),
        "place": pl.Int64(),  # in the order in which every prompt is asked them, from 0
        "query_id": pl.Int64(),  # row of the dataset, as in REQUESTS
        "example_id": pl.String(),  # as the data file has it
        "n_choices": pl.Int64(),
        "correct": pl.List(pl.Int64()),  # indices of the correct choices; any of them is right
        "source": pl.String(),  # its file and row, for messages
    }
)

TRIED_PROMPTS_KEY = ["part", "dataset", "n_shots", "repeat"]
TRIED_PROMPTS = pl.Schema(  # what a prompt search tries; in its store
    {
        "part": pl.String(),  # what is varied: "demonstrations" | "instructions" | "templates"
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "repeat": pl.Int64(),  # the try, from 0
        "demonstrations": pl.List(pl.String()),  # example ids, in prompt order
        "text": pl.String(),  # the prompt, with {input} and {choices} where those of a query stand
    }
)

SEARCH_GROUP = ["part", "dataset", "n_shots", "method"]
"""What one prompt search is about: its prompts are compared with each other."""

SEARCH_PROMPTS_KEY = [*SEARCH_GROUP, "repeat"]
SEARCH_PROMPTS = pl.Schema(
    {
        "part": pl.String(),  # as in TRIED_PROMPTS
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "method": pl.String(),
        "repeat": pl.Int64(),
        "first_alike": pl.Int64(),  # the first try of the same text: itself, unless a prompt was tried twice
        "n_queries": pl.Int64(),  # it was scored on
        "n_correct": pl.Int64(),
        "accuracy": pl.Float64(),  # on these
        "n_ties": pl.Int64(),  # answers of several equally probable choices; one of them is drawn, whatever their order
        "is_stopped": pl.Boolean(),  # by halving, so that n_queries is not all of them
        "could_have_won": pl.Boolean(),  # stopped, but with all its other queries right it would reach the best
        "demonstrations": pl.List(pl.String()),
        "text": pl.String(),
    }
)

SEARCH_RESULTS_KEY = SEARCH_GROUP
SEARCH_RESULTS = pl.Schema(
    {
        "part": pl.String(),
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "method": pl.String(),
        "n_queries": pl.Int64(),
        "n_prompts": pl.Int64(),  # tried
        "tries": pl.Int64(),  # of these, different from each other; stopped ones are counted
        "n_stopped": pl.Int64(),  # of these, by halving
        "n_could_have_won": pl.Int64(),
        "n_ties": pl.Int64(),  # over all answers
        "mean_accuracy": pl.Float64(),  # of the different prompts; null where some were stopped
        "best_accuracy": pl.Float64(),  # of those scored on all queries
        "best_correct": pl.Int64(),
        "best_repeats": pl.List(pl.Int64()),  # the different prompts that reach it
        "chance": pl.Float64(),  # the standard baseline: mean of each query's own
        "max_random": pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
        "log10_standard_tail": pl.Float64(),  # of one random classifier reaching best_correct
        "log10_tail": pl.Float64(),  # of the best of `tries` reaching it
        "verdict": pl.String(),  # Verdict of baselines/verdicts.py
        "n_needed": pl.Int64(),  # queries it would take to tell; where the verdict is "between"
    }
)

SEARCH_CURVES_KEY = [*SEARCH_GROUP, "tries"]
SEARCH_CURVES = pl.Schema(  # no rows of a search in which prompts were stopped: their accuracies are not known
    {
        "part": pl.String(),
        "dataset": pl.String(),
        "n_shots": pl.Int64(),
        "method": pl.String(),
        "tries": pl.Int64(),
        "expected_maximum": pl.Float64(),  # mean, over all subsets of so many different prompts, of the best accuracy
        "max_random": pl.Float64(),  # the same of random classifiers
        "chance": pl.Float64(),
    }
)

CORRECTNESS_KEY = ["experiment", "prompt", "example"]
CORRECTNESS = pl.Schema(
    {
        "experiment": pl.String(),  # what prompts are searched for: "known_unknowns/4-shot"
        "prompt": pl.Int64(),
        "example": pl.Int64(),  # a prompt's own demonstrations are not among the examples it was scored on
        "correct": pl.Boolean(),
    }
)

CHANCES_KEY = ["experiment", "example"]
CHANCES = pl.Schema(
    {
        "experiment": pl.String(),
        "example": pl.Int64(),
        "chance": pl.Float64(),  # that a guess at random gets this example right, above 0 and below 1
    }
)

HELD_OUT_KEY = ["experiment", "tries", "split"]
HELD_OUT_SEARCHES = pl.Schema(
    {
        "experiment": pl.String(),
        "tries": pl.Int64(),  # how many prompts were to be searched
        "split": pl.Int64(),  # from 0
        "n_prompts": pl.Int64(),  # how many were: all there are, where these are fewer
        "prompt": pl.Int64(),  # the best on the train part, the lowest id of equals
        "n_train": pl.Int64(),  # examples of the train part that this prompt was scored on
        "correct_train": pl.Int64(),
        "n_test": pl.Int64(),
        "correct_test": pl.Int64(),
        "train_chances": pl.List(pl.Float64()),  # distinct chances of the experiment's examples, ascending
        "train_counts": pl.List(pl.Int64()),  # how many of the n_train examples have each
        "standard_on_train": pl.Float64(),  # mean chance of the n_train examples
        "standard_on_test": pl.Float64(),
    }
)
HELD_OUT_TRIALS = pl.Schema(
    {
        **HELD_OUT_SEARCHES,
        "max_random_on_train": pl.Float64(),  # expected accuracy of the best of n_prompts random classifiers
        "log10_standard_tail": pl.Float64(),  # of one random classifier getting correct_train or more right
        "log10_max_tail": pl.Float64(),  # of the best of n_prompts doing so
        "above_standard_on_train": pl.Boolean(),  # accuracy strictly more than the baseline
        "above_max_on_train": pl.Boolean(),
        "above_standard_on_test": pl.Boolean(),
    }
)

HELD_OUT_PREDICTION = pl.Schema(  # after the columns that rows are grouped by
    {
        "predictor": pl.String(),  # "standard" | "max": above that baseline; "standard tail" | "max tail": a score
        "n_trials": pl.Int64(),
        "held_out_share": pl.Float64(),  # of trials whose held-out accuracy is above the standard baseline
        "accuracy": pl.Float64(),  # the next three are null for scores, and NaN where nothing is divided by nothing
        "precision": pl.Float64(),
        "recall": pl.Float64(),
        "auroc": pl.Float64(),  # NaN where all trials have one outcome
        "aupr": pl.Float64(),  # average precision; NaN where no trial is above the baseline
    }
)

PUBLISHED_VERDICTS = (
    pl.Schema(  # one row a published experiment and set of rules; baselines/published_rules.py has them
        {
            "model": pl.String(),
            "dataset": pl.String(),
            "shots": pl.Int64(),
            "rules": pl.String(),
            "n": pl.Int64(),  # examples the baselines are for
            "chance": pl.Float64(),  # the standard baseline: mean chance of guessing an example right
            "tries": pl.Int64(),
            "max_random": pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
            "verdict": pl.String(),  # Verdict of baselines/verdicts.py
        }
    )
)
PUBLISHED_TOTALS = pl.Schema(
    {
        "rules": pl.String(),
        "n_experiments": pl.Int64(),
        "above_standard": pl.Int64(),
        "above_max": pl.Int64(),
        "disagreements": pl.Int64(),  # above the standard baseline and not above the other
        "flipped_share": pl.Float64(),  # of those above the standard baseline
    }
)
PUBLISHED_IDENTICAL = pl.Schema(  # one row a task, number of shots and pair of models that are one
    {
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "model": pl.String(),
        "other_model": pl.String(),
        "shared_prompts": pl.Int64(),  # different prompts that both models ran
        "identical_prompts": pl.Int64(),  # of these, with every loss the same bit for bit
    }
)
PUBLISHED_HELD_OUT = pl.Schema(
    {
        "splits": pl.String(),  # "authors'": their own trials | "seeded": drawn here
        "rules": pl.String(),  # "released" | "sound"
        "tries": pl.Int64(),
        "over": pl.String(),  # what is grouped by: "all" | "model" | "dataset"
        "group": pl.String(),
        **HELD_OUT_PREDICTION,
    }
)
PUBLISHED_EXPERIMENTS = pl.Schema(  # one row a published experiment; "released": the authors' rules, "sound": ours
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "best_prompt": pl.Int64(),  # of the highest accuracy, the lowest id of equals
        "n": pl.Int64(),  # examples it was scored on
        "correct": pl.Int64(),
        "accuracy": pl.Float64(),
        "n_best": pl.Int64(),  # prompts with that accuracy
        "n_prompts": pl.Int64(),
        "n_distinct_prompts": pl.Int64(),
        "released_n": pl.Int64(),
        "released_chance": pl.Float64(),
        "released_tries": pl.Int64(),
        "released_max_random": pl.Float64(),
        "released_verdict": pl.String(),  # Verdict of baselines/verdicts.py
        "sound_chance": pl.Float64(),
        "sound_tries": pl.Int64(),
        "sound_max_random": pl.Float64(),
        "sound_verdict": pl.String(),
        "log10_standard_tail": pl.Float64(),  # under sound rules, of `correct` or more
        "log10_max_tail": pl.Float64(),
        "reason": pl.String(),  # why the sound verdict is another; null where it is the same
        "choices_source": pl.String(),  # "task": chances are from the task's own file | "authors": from their constants
        "n_without_query": pl.Int64(),  # prompts that lost their query when they were cut
        "best_without_query": pl.Boolean(),
        "same_losses_as": pl.String(),  # the model whose losses are the same bit for bit; null where none is known
    }
)
PUBLISHED_CURVES = pl.Schema(
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "tries": pl.Int64(),
        "expected_maximum": pl.Float64(),  # expected best accuracy of so many prompts
        "standard_tail": pl.Float64(),  # of one random classifier reaching it, under the authors' n and chance
        "max_tail": pl.Float64(),  # of the best of `tries` reaching it
    }
)
PUBLISHED_BASELINES = pl.Schema(
    {
        "dataset": pl.String(),
        "rules": pl.String(),  # "released" | "sound"
        "n": pl.Int64(),
        "chance": pl.Float64(),
        "tries": pl.Int64(),
        "max_random": pl.Float64(),
    }
)
