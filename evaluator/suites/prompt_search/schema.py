"""Declare the tables of a prompt search."""

import polars as pl

from evaluator.random_baselines.held_out import HELD_OUT_KEY, HELD_OUT_PREDICTION, HELD_OUT_TRIALS
from evaluator.schemas import TEST_OF_GUESSING, TEST_OF_MAJORITY, as_in, declare

SEARCH_EXAMPLES_KEY = ["dataset", "place"]
SEARCH_EXAMPLES = declare(  # the queries of a prompt search; a side table of its store
    dataset=pl.String(),
    place=pl.Int64(),  # position of the query in the search, from 0; the same for every prompt
    query_id=pl.Int64(),  # row of the dataset, as in REQUESTS
    example_id=pl.String(),  # id in the data file
    n_choices=pl.Int64(),
    correct=pl.List(pl.Int64()),  # indices of the correct choices; an answer is right if it is one of them
    source=pl.String(),  # file and row of the example, for messages
)

TRIED_PROMPTS_KEY = ["part", "dataset", "n_shots", "prompt_number"]
TRIED_PROMPTS = declare(  # the candidate prompts of a search; a side table of its store
    part=pl.String(),  # what differs between prompts: "demonstrations" | "instructions" | "templates"
    dataset=pl.String(),
    n_shots=pl.Int64(),
    prompt_number=pl.Int64(),  # number within the part and number of shots, from 0
    demonstrations=pl.List(pl.String()),  # example ids, in prompt order
    text=pl.String(),  # text of the prompt, with {input} and {choices} in place of the query
)

SEARCH = {
    "part": pl.String(),  # as in TRIED_PROMPTS
    "dataset": pl.String(),
    "n_shots": pl.Int64(),
    "method": pl.String(),
}
"""Columns that identify a search: a set of prompts that are compared with each other."""
SEARCH_GROUP = [*SEARCH]

SEARCH_PROMPTS_KEY = [*SEARCH_GROUP, "prompt_number"]
SEARCH_PROMPTS = declare(
    **SEARCH,
    prompt_number=pl.Int64(),
    # Number of the first prompt with the same text, among those scored on most queries. It is the number of the prompt
    # itself, unless the same text was tried twice.
    first_alike=pl.Int64(),
    n_queries=pl.Int64(),  # number of queries on which the prompt was scored
    n_correct=pl.Int64(),
    accuracy=pl.Float64(),  # n_correct / n_queries
    n_ties=pl.Int64(),  # number of answers drawn among several equally probable choices
    is_stopped=pl.Boolean(),  # whether halving stopped the prompt before it was scored on all queries
    could_have_won=pl.Boolean(),  # stopped, although right answers to all remaining queries would have made it the best
    demonstrations=pl.List(pl.String()),
    text=pl.String(),
)

SEARCH_RESULTS_KEY = SEARCH_GROUP
SEARCH_RESULTS = declare(
    **SEARCH,
    n_queries=pl.Int64(),
    n_prompts=pl.Int64(),  # candidate prompts
    tries=pl.Int64(),  # candidate prompts of different texts, stopped ones included
    n_stopped=pl.Int64(),  # number of different prompts that halving stopped
    n_could_have_won=pl.Int64(),  # number of different prompts with could_have_won
    n_ties=pl.Int64(),  # number of tied answers of all prompts
    mean_accuracy=pl.Float64(),  # mean of the different prompts; null if one was stopped
    mean_low=pl.Float64(),  # 95% interval of the mean over queries and prompts; null too with one prompt
    mean_high=pl.Float64(),
    best_accuracy=pl.Float64(),  # highest accuracy of a prompt that was scored on all queries
    # Limits of the best prompt's accuracy on the population of queries. They hold for all tried prompts at once with a
    # probability of at least 95%, and so also for the prompt that was chosen as the best:
    best_low=pl.Float64(),
    best_high=pl.Float64(),
    best_correct=pl.Int64(),
    best_prompt_numbers=pl.List(pl.Int64()),  # numbers of all different prompts with this accuracy
    chance=pl.Float64(),  # the standard random baseline: mean over queries of the chance of a right guess
    majority=pl.Float64(),  # accuracy of the best constant answer: always the same text
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
    log10_standard_tail=pl.Float64(),  # log10 of the probability that a random classifier has best_correct or more
    log10_tail=pl.Float64(),  # log10 of the probability that the best of `tries` random classifiers has as many
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py
    **TEST_OF_GUESSING,  # corrected over all searches of the run; the lower bound is for the best prompt's accuracy
    **TEST_OF_MAJORITY,  # best prompt against the best constant answer, corrected for the number of tries
)

SEARCH_CURVES_KEY = [*SEARCH_GROUP, "definition", "tries"]
SEARCH_CURVES = declare(  # best accuracy by number of tries, for searches without stopped prompts
    **SEARCH,
    # How `tries` prompts are drawn from all prompts: "paper", with replacement (Dodge et al. 2019, as in Yauney & Mimno
    # 2024); "distinct", all subsets of different prompts.
    definition=pl.String(),
    tries=pl.Int64(),
    expected_maximum=pl.Float64(),  # expected best accuracy of the drawn prompts
    standard_tail=pl.Float64(),  # probability that one random classifier reaches the expected maximum
    max_tail=pl.Float64(),  # probability that the best of `tries` random classifiers reaches it
    max_random=pl.Float64(),  # expected best accuracy of `tries` random classifiers
    chance=pl.Float64(),
)

_MODEL = {"number": pl.Int64(), "model": pl.String(), "n_parameters": pl.Int64()}  # as in a comparison of runs

SEARCH_MODELS_KEY = [*SEARCH_GROUP, "number"]
SEARCH_MODELS = pl.Schema({**_MODEL, **SEARCH_RESULTS})  # in a comparison: results of the searches that all runs have

SEARCH_TOTALS_KEY = ["number", "model", "part", "method", "n_shots"]
SEARCH_TOTALS = declare(  # in a comparison: number of searches above each baseline (Yauney & Mimno 2024, table 1)
    **as_in({**_MODEL, **SEARCH}, *SEARCH_TOTALS_KEY),  # n_shots is null for all numbers of shots
    n_searches=pl.Int64(),
    above_standard=pl.Int64(),  # searches with a best accuracy above chance
    above_max=pl.Int64(),  # searches with a best accuracy above the best of as many random classifiers
    disagreements=pl.Int64(),  # searches above chance, but not above the best of as many random classifiers
    flipped_share=pl.Float64(),  # disagreements / above_standard; null if above_standard is 0
)

SEARCH_HELD_OUT, SEARCH_HELD_OUT_KEY = HELD_OUT_TRIALS, HELD_OUT_KEY
SEARCH_HELD_OUT_PREDICTION = pl.Schema({"tries": pl.Int64(), **HELD_OUT_PREDICTION})
