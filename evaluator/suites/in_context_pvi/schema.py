"""Declare the tables of in-context pointwise V-information, PVI (Lu et al. 2023), and the values of their columns."""

from typing import Literal, get_args

import polars as pl

from evaluator.schemas import TEST_OF_GUESSING, TEST_OF_MAJORITY, as_in, declare
from evaluator.statistics.variance_components import ONE_WAY, REPEATED_MEASURES

PviDefinition = Literal["paper", "label_space", "released"]
"""Log-likelihoods from which PVI is computed. `paper`: over the whole vocabulary. `label_space`: normalised over the
labels. `released`: over the 20 most probable tokens at temperature 0.8, with predictions that are drawn, as in the
published notebook. PVI is in bits under all definitions, except in columns that end in `_nats`, the unit of the
notebook."""
PVI_DEFINITIONS: tuple[PviDefinition, ...] = get_args(PviDefinition)

PviOrder = Literal["hardest", "easiest", "middle"]
"""Rule for the choice of demonstrations from a label's training rows: lowest PVI, highest PVI, or around the median."""
PVI_ORDERS: tuple[PviOrder, ...] = get_args(PviOrder)

CHOSEN: dict[str, PviOrder] = {f"{order}_demonstrations": order for order in PVI_ORDERS}
"""Name of a method, and of its part with queries -> its rule for the choice of demonstrations."""

PVI_QUERIES_KEY = ["dataset", "query_id"]
PVI_QUERIES = declare(  # the queries of the suite; a side table of its store
    dataset=pl.String(),
    query_id=pl.Int64(),  # row of the test split
    row=pl.Int64(),  # row of the source, from 0
    text=pl.String(),  # text fields, joined by line ends
    gold=pl.Int64(),
    asked=pl.Boolean(),  # whether the query has prompts; false if it is a demonstration of some set
)

PVI_CANDIDATES = declare(  # training rows from which methods choose demonstrations by PVI; a side table of the store
    dataset=pl.String(),
    training_row=pl.Int64(),  # row of the demonstration split
    row=pl.Int64(),  # row of the source, from 0
    text=pl.String(),  # text fields, joined by line ends
    n_training=pl.Int64(),  # number of rows of the demonstration split
)

_SET = {
    "dataset": pl.String(),
    "demonstrations": pl.String(),  # PviSource of the suite's sets, or PviOrder of sets chosen by PVI
    "n_shots": pl.Int64(),
    "demonstration_set": pl.Int64(),  # number of the set, from 0
}
_RUN = {**_SET, "definition": pl.String()}  # PviDefinition
PVI_RUN = [*_RUN]
"""Key of a run: all queries of a dataset after one demonstration set, under one definition of PVI."""

PVI_KEY = [*PVI_RUN, "query_id"]
PVI = declare(
    **_RUN,
    query_id=pl.Int64(),
    gold=pl.Int64(),
    # The most probable label, the first if several tie; null if a label has no log-likelihood. Under `released` the
    # label whose token is drawn; null if another token is drawn, and then `correct` is false.
    pred=pl.Int64(),
    n_highest_labels=pl.Int64(),  # number of labels with the highest score; above 1 for a tie
    correct=pl.Boolean(),  # null without a prediction
    given_input=pl.Float64(),  # log-likelihood of the gold label after the query, nats
    given_null=pl.Float64(),  # log-likelihood of the gold label after the null prompt of the run, nats
    pvi_bits=pl.Float64(),  # given_input - given_null, in bits; null if one is missing or not finite
    pvi_nats=pl.Float64(),  # pvi_bits in nats
)


def _of_ends(name: str, dtype: pl.DataType) -> dict[str, pl.DataType]:
    """Declare four columns: `name` for the fifth and the half of the queries with the lowest and the highest PVI."""
    return {f"{end}_{share}_{name}": dtype for share in ("fifth", "half") for end in ("lowest", "highest")}


_MEAN_PVI = ("right_pvi", "wrong_pvi", "v_information")

PVI_SUMMARY_KEY = PVI_RUN
PVI_SUMMARY = declare(
    **_RUN,
    n_queries=pl.Int64(),
    n_missing=pl.Int64(),  # number of queries without a PVI
    n_unpredicted=pl.Int64(),  # number of queries without a prediction, which are left out of accuracies
    n_tied=pl.Int64(),  # number of queries with several labels of the highest score, of which the first is predicted
    # Only under `released`, where predictions are drawn; null under the other definitions.
    n_other_token=pl.Int64(),  # number of queries for which the drawn token is no label: wrong predictions
    seed=pl.Int64(),  # seed of the draws
    accuracy=pl.Float64(),
    # Accuracy of the fifth or half of the queries with the lowest or highest PVI; ties at the border count in part.
    # Under `released`, of the queries strictly below or above a quantile (numpy.quantile); null if there are none.
    **_of_ends("accuracy", pl.Float64()),
    # Number of queries that tie at the border, if not all of them fit in, else 0. Under `released`, number of queries
    # equal to the quantile, which are left out.
    **_of_ends("tied", pl.Int64()),
    **_of_ends("n", pl.Int64()),  # number of queries in the fifth or half
    # Mean PVI in bits: of right predictions, of wrong predictions (null if there are none), of all queries.
    **dict.fromkeys(_MEAN_PVI, pl.Float64()),
    **{f"{name}_nats": pl.Float64() for name in _MEAN_PVI},  # mean PVI in nats, the unit of the published tables
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64()),  # 95% interval of v_information over queries, bits
    threshold=pl.Float64(),  # PVI above which at least half are right; -inf: at every PVI, inf: at no PVI
    threshold_accuracy=pl.Float64(),  # share of queries that are right above the threshold or wrong below it
)

PVI_MEANS_KEY = ["over", "dataset", "demonstrations", "n_shots", "definition"]
PVI_MEANS = declare(  # means of PVI_SUMMARY with equal weight for each run (Lu et al. 2023, tables 1, 14, figure 2)
    over=pl.String(),  # "sets" | "sets and shots" | "sets, shots and datasets"
    **as_in(_RUN, *PVI_MEANS_KEY[1:]),  # means over several: n_shots null, dataset MEAN_OVER_DATASETS
    n_runs=pl.Int64(),
    accuracy=pl.Float64(),
    **_of_ends("accuracy", pl.Float64()),
    **dict.fromkeys(_MEAN_PVI, pl.Float64()),  # bits
)

PVI_DECILES_KEY = [*PVI_RUN, "decile"]
PVI_DECILES = declare(
    **_RUN,
    decile=pl.Int64(),  # decile of PVI, from 1, the lowest; equal PVIs share a decile, so that sizes can differ
    n=pl.Int64(),  # number of queries
    mean_pvi=pl.Float64(),  # bits
    **dict.fromkeys(("accuracy", "ci_low", "ci_high"), pl.Float64()),  # accuracy with its 95% interval over queries
)

PVI_DENSITIES_KEY = [*PVI_RUN, "correct", "bin"]
PVI_DENSITIES = declare(
    **_RUN,
    correct=pl.Boolean(),
    bin=pl.Int64(),  # number of the bin, from 0; all runs of a dataset under one definition have the same bins
    **dict.fromkeys(("bin_low", "bin_high"), pl.Float64()),  # edges of the bin, bits
    n=pl.Int64(),  # number of queries
    density=pl.Float64(),  # share of queries per bit; integrates to one over right and over wrong predictions
)

_CORRELATION = {
    "n": pl.Int64(),  # number of queries with a finite PVI at both levels
    "pearson": pl.Float64(),  # NaN if PVI does not vary at one of the levels
    "pearson_p": pl.Float64(),  # two-sided p-value; NaN with fewer than three queries
    "spearman": pl.Float64(),
    "spearman_p": pl.Float64(),
}
PVI_CORRELATIONS = declare(  # correlations of PVI between two levels; they follow the columns that identify a case
    first=pl.String(),  # first level: a demonstration set, number of shots, or model
    second=pl.String(),  # second level
    **_CORRELATION,
)

PVI_STRENGTHS = declare(  # summary of the correlations of many cases; they follow the columns that identify a group
    n=pl.Int64(),  # number of cases with a correlation
    n_undefined=pl.Int64(),  # number of cases without a correlation, which the columns below leave out
    mean=pl.Float64(),
    median=pl.Float64(),
    strong_share=pl.Float64(),  # share of cases with r > 0.6
    weak_share=pl.Float64(),  # share of cases with r < 0.3
)

_CASE = dict.fromkeys(("dataset", "demonstrations", "definition"), pl.String())
PVI_CASE = [*_CASE]
"""Columns that are equal in two runs whose PVIs are correlated. `demonstrations` is among them, because sets of
different sources differ by more than a random draw."""

_PAIR = {f"{end}_{name}": pl.Int64() for end in ("first", "second") for name in ("n_shots", "demonstration_set")}
PVI_PAIRS_KEY = [*_CASE, *_PAIR]
PVI_PAIRS = declare(
    **_CASE,
    across=pl.String(),  # difference between the two runs: "sets" | "shots" | "both"
    **_PAIR,
    **_CORRELATION,
)

PVI_CONSISTENCY_KEY = ["demonstrations", "definition", "across", "coefficient"]
PVI_CONSISTENCY = declare(
    # `across` is "sets", "shots" or "models", `coefficient` "pearson" or "spearman".
    **dict.fromkeys(PVI_CONSISTENCY_KEY, pl.String()),
    **PVI_STRENGTHS,
)

PVI_MODELS_KEY = [*PVI_RUN, "first", "second"]
PVI_MODELS = pl.Schema({**_RUN, **PVI_CORRELATIONS})  # `first` and `second` are models

PVI_DEMONSTRATIONS_KEY = ["dataset", "demonstrations", "n_shots", "definition"]
PVI_DEMONSTRATIONS = declare(  # sources of demonstrations, compared with the suite's sets: a row for each
    **as_in(_RUN, *PVI_DEMONSTRATIONS_KEY),  # the definition is "paper"
    n_candidates=pl.Int64(),  # number of training rows with a PVI; null for the suite's sets
    n_training=pl.Int64(),  # number of all training rows; null for the suite's sets
    n_sets=pl.Int64(),
    n_queries=pl.Int64(),  # number of queries with a prediction after all sets of n_shots, whatever their source
    n_unpredicted=pl.Int64(),  # number of other queries, which are left out of accuracies
    accuracy=pl.Float64(),  # mean over sets
    best_accuracy=pl.Float64(),  # highest accuracy of a set
    chance=pl.Float64(),
    majority=pl.Float64(),  # share of the most frequent gold label among the n_queries
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers on n_queries
    tries=pl.Int64(),  # number of different demonstration sets
    log10_tail=pl.Float64(),  # log10 of the probability that the best of `tries` guesses has best_accuracy or more
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py for best_accuracy
    **TEST_OF_GUESSING,  # test of best_accuracy, corrected over all rows of this table
    **TEST_OF_MAJORITY,
    v_information=pl.Float64(),  # mean over sets, bits
    n_measured=pl.Int64(),  # number of queries with a PVI after all sets of n_shots, which v_information is over
    # Difference to the suite's sets on the same queries; null for the suite's sets. `low` and `high` are a 95% interval
    # over queries, for these sets. The two-way interval is over queries, the suite's sets and the choice by PVI, which
    # counts as one more set; it is at least 95% if choices vary no more than sets do. Null if there is only one set.
    **{
        f"{name}_{column}": pl.Float64()
        for name in ("accuracy", "v_information")  # v_information in bits
        for column in ("difference", "low", "high", "two_way_low", "two_way_high")
    },
)

PVI_CHOSEN_KEY = [*_SET, "place"]
PVI_CHOSEN = declare(  # demonstrations that were chosen by PVI: a row for each
    **_SET,
    place=pl.Int64(),  # position in the prompt, from 0
    definition=pl.String(),  # "paper"
    training_row=pl.Int64(),  # as in PVI_CANDIDATES, like `row` and `text`
    row=pl.Int64(),
    text=pl.String(),
    gold=pl.Int64(),
    pvi_bits=pl.Float64(),  # PVI by which the row was chosen: after set 0 of the suite for this number of shots
)

PVI_ANNOTATORS_KEY = [*PVI_RUN, "annotations", "measure"]
PVI_ANNOTATORS = declare(  # correlations of PVI with the agreement of annotators on the same queries
    **_RUN,
    annotations=pl.String(),  # column of the annotation file, or stem of the name of a file of foreign PVI
    # "agreement" | "variation_ratio" | "entropy" | "foreign_pvi"; correlations.py has the formulas
    measure=pl.String(),
    **_CORRELATION,
    pearson_over_sets=pl.Float64(),  # mean of `pearson` over demonstration sets (Lu et al. 2023, table 16)
    spearman_over_sets=pl.Float64(),
    n_annotated=pl.Int64(),  # number of queries with annotations; correlations leave out queries without a PVI
)

_OVER_RUNS = {"dataset": pl.String(), "definition": pl.String(), "gold": pl.Int64()}
PVI_HARDEST_KEY = ["dataset", "definition", "gold", "rank"]
PVI_HARDEST = declare(
    **_OVER_RUNS,
    rank=pl.Int64(),  # 1 for the lowest mean PVI of the label; ties by ascending query_id
    query_id=pl.Int64(),
    mean_pvi=pl.Float64(),  # mean over the runs with a PVI, bits
    n_runs=pl.Int64(),  # number of runs: the suite's demonstration sets times numbers of shots
    n_missing=pl.Int64(),  # number of runs without a PVI
    n_right=pl.Int64(),  # number of runs that predict the gold label
    row=pl.Int64(),  # as in PVI_QUERIES, like `text`
    text=pl.String(),
)

PVI_MISLABELLED_KEY = ["dataset", "definition", "rank"]
PVI_MISLABELLED = declare(
    **_OVER_RUNS,
    rank=pl.Int64(),  # 1 for the lowest mean PVI of the dataset; ties by ascending query_id
    query_id=pl.Int64(),
    predicted=pl.Int64(),  # label that all runs predict instead of the gold label
    mean_pvi=pl.Float64(),  # mean over runs, bits
    highest_pvi=pl.Float64(),  # highest PVI in a run, bits; below 0
    n_runs=pl.Int64(),
    row=pl.Int64(),  # as in PVI_QUERIES, like `text`
    text=pl.String(),
)

PVI_ONE_WAY_KEY = ["dataset", "demonstrations", "definition"]
PVI_ONE_WAY = pl.Schema(as_in(_RUN, *PVI_ONE_WAY_KEY) | ONE_WAY)

PVI_REPEATED_MEASURES_KEY = ["dataset", "demonstrations", "n_shots", "definition"]
PVI_REPEATED_MEASURES = pl.Schema(as_in(_RUN, *PVI_REPEATED_MEASURES_KEY) | REPEATED_MEASURES)
