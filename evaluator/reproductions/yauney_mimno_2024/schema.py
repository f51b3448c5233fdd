"""Declare the recomputed tables of Yauney & Mimno 2024."""

import polars as pl

from evaluator.random_baselines.held_out_prediction import HELD_OUT_PREDICTION

PUBLISHED_VERDICTS = pl.Schema(  # one row an experiment and set of rules; rules.py has them
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "rules": pl.String(),
        "n": pl.Int64(),  # examples the baselines are for
        "chance": pl.Float64(),  # the standard baseline: mean chance of guessing an example right
        "tries": pl.Int64(),
        "max_random": pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
        "verdict": pl.String(),  # Verdict of random_baselines/significance.py
    }
)
PUBLISHED_TOTALS = pl.Schema(
    {
        "rules": pl.String(),
        "n_experiments": pl.Int64(),
        "above_standard": pl.Int64(),
        "above_max": pl.Int64(),
        "disagreements": pl.Int64(),  # above the standard baseline and not above the maximum random one
        "flipped_share": pl.Float64(),  # disagreements / above_standard
    }
)
PUBLISHED_IDENTICAL = pl.Schema(  # one row a task, number of shots and pair of models with the same weights
    {
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "model": pl.String(),
        "other_model": pl.String(),
        "shared_prompts": pl.Int64(),  # different prompts that both models ran
        "identical_prompts": pl.Int64(),  # shared prompts with every loss equal bit for bit
    }
)
PUBLISHED_HELD_OUT = pl.Schema(
    {
        "splits": pl.String(),  # "authors'": released trials | "seeded": drawn here
        "rules": pl.String(),  # "released" | "sound"
        "tries": pl.Int64(),
        "over": pl.String(),  # column of groups: "all" | "model" | "dataset"
        "group": pl.String(),
        **HELD_OUT_PREDICTION,
    }
)
PUBLISHED_CELLS = pl.Schema(  # one row a number that the paper prints
    {
        "table": pl.String(),  # its number, or "section 5.1"
        "row": pl.String(),
        "column": pl.String(),
        "published": pl.Float64(),  # percentages as shares; null where the paper prints "n/a"
        "decimals": pl.Int64(),  # as printed
        "recomputed": pl.Float64(),  # null where it is not in the data, or undefined
        "verdict": pl.String(),  # "equal" | "differs" | "not in the data" | "not printed"
        "note": pl.String(),
    }
)
PUBLISHED_SPREAD = pl.Schema(  # scores over the authors' splits and over seeded ones, under the authors' rules
    {
        "predictor": pl.String(),
        "score": pl.String(),
        "authors": pl.Float64(),
        "seeded": pl.Float64(),
        "difference": pl.Float64(),  # seeded - authors
        "standard_error": pl.Float64(),  # of the difference: jackknife over splits, of both
        "z": pl.Float64(),  # difference in standard errors
    }
)
PUBLISHED_QUERY_RULES = pl.Schema(  # rules by which prompts without their query may be told from the losses alone
    {
        "rule": pl.String(),
        "n_prompts": pl.Int64(),  # that lost their query by the rule
        "n_experiments": pl.Int64(),
        "is_used": pl.Boolean(),
        "is_stated_count": pl.Boolean(),  # whether n_prompts is STATED_WITHOUT_QUERY of data.py
    }
)
PUBLISHED_EXPERIMENTS = pl.Schema(  # one row a published experiment; "released": the authors' rules, "sound": ours
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "shots": pl.Int64(),
        "best_prompt": pl.Int64(),  # of the highest accuracy, the lowest id of equals
        "n": pl.Int64(),  # examples on which it was scored
        "correct": pl.Int64(),
        "accuracy": pl.Float64(),
        "n_best": pl.Int64(),  # prompts with the same accuracy
        "n_prompts": pl.Int64(),
        "n_distinct_prompts": pl.Int64(),
        "released_n": pl.Int64(),
        "released_chance": pl.Float64(),
        "released_tries": pl.Int64(),
        "released_max_random": pl.Float64(),
        "released_verdict": pl.String(),  # Verdict of random_baselines/significance.py
        "sound_chance": pl.Float64(),
        "sound_tries": pl.Int64(),
        "sound_max_random": pl.Float64(),
        "sound_verdict": pl.String(),
        "log10_standard_tail": pl.Float64(),  # under sound rules, of `correct` or more
        "log10_max_tail": pl.Float64(),
        "reason": pl.String(),  # why the sound verdict differs; null where it does not
        "choices_source": pl.String(),  # "task": chances are from the task's file | "authors": from their constants
        "n_without_query": pl.Int64(),  # prompts that lost their query when they were cut
        "best_without_query": pl.Boolean(),
        "same_losses_as": pl.String(),  # models whose losses are equal bit for bit; null where there is none
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
