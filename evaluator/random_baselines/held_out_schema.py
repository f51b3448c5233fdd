"""Declare the tables of held-out evaluation: the best prompt on some examples, compared with guessing on others."""

import polars as pl

CORRECTNESS_KEY = ["experiment", "prompt", "example"]
CORRECTNESS = pl.Schema(
    {
        "experiment": pl.String(),  # name of one search, such as "known_unknowns/4-shot"
        "prompt": pl.Int64(),
        "example": pl.Int64(),  # that the prompt was scored on; never one of its demonstrations
        "correct": pl.Boolean(),
    }
)

CHANCES_KEY = ["experiment", "example"]
CHANCES = pl.Schema(
    {
        "experiment": pl.String(),
        "example": pl.Int64(),
        "chance": pl.Float64(),  # probability that a random guess is right, above 0 and below 1
    }
)

HELD_OUT_KEY = ["experiment", "tries", "split"]
HELD_OUT_SEARCHES = pl.Schema(
    {
        "experiment": pl.String(),
        "tries": pl.Int64(),  # number of prompts to search
        "split": pl.Int64(),  # from 0
        "n_prompts": pl.Int64(),  # number of prompts searched: `tries`, or all prompts if there are fewer
        "prompt": pl.Int64(),  # the best on the train part; of ties, the lowest id
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
        "log10_standard_tail": pl.Float64(),  # probability that one random classifier has correct_train or more right
        "log10_max_tail": pl.Float64(),  # the same for the best of n_prompts random classifiers
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
        "accuracy": pl.Float64(),  # this and the next two are null for scores, and NaN for 0 / 0
        "precision": pl.Float64(),
        "recall": pl.Float64(),
        "auroc": pl.Float64(),  # NaN where all trials have one outcome
        "aupr": pl.Float64(),  # average precision; NaN where no trial is above the baseline
    }
)
