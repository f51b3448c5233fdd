"""Declare the tables of a prompt search."""

import polars as pl

from evaluator.random_baselines.held_out import HELD_OUT_KEY, HELD_OUT_PREDICTION, HELD_OUT_TRIALS
from evaluator.schemas import TEST_OF_GUESSING, TEST_OF_MAJORITY, declare

SEARCH_EXAMPLES_KEY = ["dataset", "place"]
SEARCH_EXAMPLES = declare(  # the queries of a prompt search; in its store
    dataset=pl.String(),
    place=pl.Int64(),  # of the query in the search, from 0; the same for every prompt
    query_id=pl.Int64(),  # row of the dataset, as in REQUESTS
    example_id=pl.String(),  # as the data file has it
    n_choices=pl.Int64(),
    correct=pl.List(pl.Int64()),  # indices of the correct choices; any of them is right
    source=pl.String(),  # its file and row, for messages
)

TRIED_PROMPTS_KEY = ["part", "dataset", "n_shots", "prompt_number"]
TRIED_PROMPTS = declare(  # the candidate prompts of a search; in its store
    part=pl.String(),  # what differs between prompts: "demonstrations" | "instructions" | "templates"
    dataset=pl.String(),
    n_shots=pl.Int64(),
    prompt_number=pl.Int64(),  # within the part and number of shots, from 0
    demonstrations=pl.List(pl.String()),  # example ids, in prompt order
    text=pl.String(),  # the prompt, with {input} and {choices} in place of a query's
)

SEARCH = {
    "part": pl.String(),  # as in TRIED_PROMPTS
    "dataset": pl.String(),
    "n_shots": pl.Int64(),
    "method": pl.String(),
}
"""Columns that identify one prompt search, whose prompts are compared with each other."""
SEARCH_GROUP = [*SEARCH]

SEARCH_PROMPTS_KEY = [*SEARCH_GROUP, "prompt_number"]
SEARCH_PROMPTS = declare(
    **SEARCH,
    prompt_number=pl.Int64(),
    # The first prompt of the same text that was not stopped, if any: itself, unless a prompt was tried twice.
    first_alike=pl.Int64(),
    n_queries=pl.Int64(),  # that the prompt was scored on
    n_correct=pl.Int64(),
    accuracy=pl.Float64(),  # n_correct / n_queries
    n_ties=pl.Int64(),  # answers with several equally probable choices, of which one is drawn
    is_stopped=pl.Boolean(),  # by halving, before it was scored on all queries
    could_have_won=pl.Boolean(),  # stopped, but would reach the best with all its remaining queries right
    demonstrations=pl.List(pl.String()),
    text=pl.String(),
)

SEARCH_RESULTS_KEY = SEARCH_GROUP
SEARCH_RESULTS = declare(
    **SEARCH,
    n_queries=pl.Int64(),
    n_prompts=pl.Int64(),  # candidate prompts
    tries=pl.Int64(),  # candidate prompts of different texts, stopped ones included
    n_stopped=pl.Int64(),  # of the different prompts, by halving
    n_could_have_won=pl.Int64(),
    n_ties=pl.Int64(),  # over all answers
    mean_accuracy=pl.Float64(),  # of the different prompts; null where some were stopped
    mean_low=pl.Float64(),  # 95% interval over queries and prompts; null as well with one prompt
    mean_high=pl.Float64(),
    best_accuracy=pl.Float64(),  # highest of the prompts that were scored on all queries
    # Limits of the best prompt's accuracy on all queries there are, at least 95% and for all tried prompts at once,
    # so that they hold for whichever is best:
    best_low=pl.Float64(),
    best_high=pl.Float64(),
    best_correct=pl.Int64(),
    best_prompt_numbers=pl.List(pl.Int64()),  # all different prompts with this accuracy
    chance=pl.Float64(),  # the standard random baseline: mean of the queries' chances
    majority=pl.Float64(),  # share of queries to which the best constant answer, one text, is correct
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
    log10_standard_tail=pl.Float64(),  # of one random classifier reaching best_correct
    log10_tail=pl.Float64(),  # of the best of `tries` reaching it
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py
    **TEST_OF_GUESSING,  # over all searches of the run; the lower bound is of the best prompt's true accuracy
    **TEST_OF_MAJORITY,  # of the best prompt, at its share of the tries
)

SEARCH_CURVES_KEY = [*SEARCH_GROUP, "definition", "tries"]
SEARCH_CURVES = declare(  # without searches in which prompts were stopped, whose accuracies are unknown
    **SEARCH,
    # How `tries` prompts are drawn from all: "paper", with replacement (Dodge et al. 2019, as Yauney & Mimno 2024);
    # "distinct", all subsets of different prompts.
    definition=pl.String(),
    tries=pl.Int64(),
    expected_maximum=pl.Float64(),  # mean of the best accuracy
    standard_tail=pl.Float64(),  # probability that one random classifier reaches the expected maximum
    max_tail=pl.Float64(),  # probability that the best of `tries` random classifiers reaches it
    max_random=pl.Float64(),  # expected best accuracy of `tries` random classifiers
    chance=pl.Float64(),
)

_MODEL = {"number": pl.Int64(), "model": pl.String(), "n_parameters": pl.Int64()}  # as in a comparison of runs

SEARCH_MODELS_KEY = [*SEARCH_GROUP, "number"]
SEARCH_MODELS = pl.Schema({**_MODEL, **SEARCH_RESULTS})  # of a comparison: the searches that all runs have

SEARCH_TOTALS_KEY = ["number", "model", "part", "method", "n_shots"]
SEARCH_TOTALS = declare(  # of a comparison: how many searches beat which baseline (Yauney & Mimno 2024, table 1)
    **{name: {**_MODEL, **SEARCH}[name] for name in SEARCH_TOTALS_KEY},  # n_shots: null for all together
    n_searches=pl.Int64(),
    above_standard=pl.Int64(),  # whose best accuracy is above chance
    above_max=pl.Int64(),  # and above the best of as many random classifiers
    disagreements=pl.Int64(),  # above chance, but not above the best of as many random classifiers
    flipped_share=pl.Float64(),  # disagreements / above_standard; null without any
)

SEARCH_HELD_OUT, SEARCH_HELD_OUT_KEY = HELD_OUT_TRIALS, HELD_OUT_KEY
SEARCH_HELD_OUT_PREDICTION = pl.Schema({"tries": pl.Int64(), **HELD_OUT_PREDICTION})
