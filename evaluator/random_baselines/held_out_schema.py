"""The tables of the held-out question: does the best prompt on some examples beat guessing on others?"""

import polars as pl

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
