"""Declare the tables of in-context pointwise V-information, PVI (Lu et al. 2023), and the words in their columns."""

from typing import Literal, get_args

import polars as pl

from evaluator.schemas import TEST_OF_GUESSING, TEST_OF_MAJORITY, declare
from evaluator.statistics.variance_components import ONE_WAY, REPEATED_MEASURES

PviDefinition = Literal["paper", "label_space", "released"]
"""`paper`: log-likelihoods over the whole vocabulary. `label_space`: the same normalised over the labels. `released`:
over the 20 most probable tokens at temperature 0.8, as in the published notebook, whose predictions are drawn. PVI is
in bits under all definitions, except in columns that end in `_nats`, the notebook's unit."""
PVI_DEFINITIONS: tuple[PviDefinition, ...] = get_args(PviDefinition)

PviOrder = Literal["hardest", "easiest", "middle"]
"""Training rows of a label that become demonstrations: of the lowest PVI, of the highest, or around the median."""
PVI_ORDERS: tuple[PviOrder, ...] = get_args(PviOrder)

CHOSEN: dict[str, PviOrder] = {f"{order}_demonstrations": order for order in PVI_ORDERS}
"""Name of a method, which is also the name of its part with queries -> the order in which it chooses."""

PVI_QUERIES_KEY = ["dataset", "query_id"]
PVI_QUERIES = declare(  # the queries of the suite; in its store
    dataset=pl.String(),
    query_id=pl.Int64(),  # row of the test split
    row=pl.Int64(),  # of the source, from 0
    text=pl.String(),  # its text fields, a line each
    gold=pl.Int64(),
    asked=pl.Boolean(),  # false where the query is a demonstration of some set, so that it has no prompts
)

PVI_CANDIDATES = declare(  # training rows from which a method chooses demonstrations by PVI; in its store
    dataset=pl.String(),
    training_row=pl.Int64(),  # row of the demonstration split
    row=pl.Int64(),  # of the source, from 0
    text=pl.String(),  # its text fields, a line each
    n_training=pl.Int64(),  # number of rows of the whole demonstration split
)

_SET = {
    "dataset": pl.String(),
    "demonstrations": pl.String(),  # PviSource of the suite's own sets, or PviOrder of sets chosen by PVI
    "n_shots": pl.Int64(),
    "demonstration_set": pl.Int64(),  # from 0
}
_RUN = {**_SET, "definition": pl.String()}  # PviDefinition
PVI_RUN = [*_RUN]
"""Key of a run: all queries of a dataset after one demonstration set, under one definition of PVI."""

PVI_KEY = [*PVI_RUN, "query_id"]
PVI = declare(
    **_RUN,
    query_id=pl.Int64(),
    gold=pl.Int64(),
    # The most probable label, the first of equals; null where one has no log-likelihood. Under `released` the label
    # whose token is drawn; null where another token is, and `correct` is false.
    pred=pl.Int64(),
    n_highest_labels=pl.Int64(),  # labels that share the highest score; more than 1 is a tie
    correct=pl.Boolean(),  # null without a prediction
    given_input=pl.Float64(),  # log-likelihood of the gold label after the query, nats
    given_null=pl.Float64(),  # the same after the null prompt of the run
    pvi_bits=pl.Float64(),  # given_input - given_null in bits; null where one is missing or not finite
    pvi_nats=pl.Float64(),  # the same in nats
)


def _of_ends(name: str, dtype: pl.DataType) -> dict[str, pl.DataType]:
    """Declare a column of the fifth and the half of queries with the lowest PVI and with the highest PVI."""
    return {f"{end}_{share}_{name}": dtype for share in ("fifth", "half") for end in ("lowest", "highest")}


_MEAN_PVI = ("right_pvi", "wrong_pvi", "v_information")

PVI_SUMMARY_KEY = PVI_RUN
PVI_SUMMARY = declare(
    **_RUN,
    n_queries=pl.Int64(),
    n_missing=pl.Int64(),  # queries without a PVI
    n_unpredicted=pl.Int64(),  # queries without a prediction: in no accuracy
    n_tied=pl.Int64(),  # queries with several labels of the highest score: the first is taken for the prediction
    # Under `released` predictions are drawn, not taken from the highest score; null under the other definitions.
    n_other_token=pl.Int64(),  # queries for which a token is drawn that is no label: wrong predictions
    seed=pl.Int64(),  # of the draws
    accuracy=pl.Float64(),
    # Of the fifth or half of queries with the lowest or highest PVI; ties at the border count in part. Under
    # `released` of the queries strictly below or above a quantile (numpy.quantile); null if there are none.
    **_of_ends("accuracy", pl.Float64()),
    # Queries that tie at the border, if not all of them fit in, else 0; under `released` queries equal to the
    # quantile, which are left out.
    **_of_ends("tied", pl.Int64()),
    **_of_ends("n", pl.Int64()),  # queries in this part
    # Mean PVI, bits: of right predictions, of wrong ones (null where there are none), of all queries.
    **dict.fromkeys(_MEAN_PVI, pl.Float64()),
    **{f"{name}_nats": pl.Float64() for name in _MEAN_PVI},  # the same in nats, the unit of the published tables
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64()),  # 95% interval of v_information, over queries
    threshold=pl.Float64(),  # PVI from which at least half are right; -inf: from the lowest, inf: never
    threshold_accuracy=pl.Float64(),  # share of queries that are right above and wrong below it
)

PVI_MEANS_KEY = ["over", "dataset", "demonstrations", "n_shots", "definition"]
PVI_MEANS = declare(  # PVI_SUMMARY averaged, each run alike (Lu et al. 2023, tables 1 and 14, figure 2)
    over=pl.String(),  # "sets" | "sets and shots" | "sets, shots and datasets"
    **{name: _RUN[name] for name in PVI_MEANS_KEY[1:]},  # n_shots is null, dataset MEAN_OVER_DATASETS over several
    n_runs=pl.Int64(),
    accuracy=pl.Float64(),
    **_of_ends("accuracy", pl.Float64()),
    **dict.fromkeys(_MEAN_PVI, pl.Float64()),  # bits
)

PVI_DECILES_KEY = [*PVI_RUN, "decile"]
PVI_DECILES = declare(
    **_RUN,
    decile=pl.Int64(),  # of PVI, from 1, the lowest; equal PVIs share a decile, so that sizes can differ
    n=pl.Int64(),
    mean_pvi=pl.Float64(),
    **dict.fromkeys(("accuracy", "ci_low", "ci_high"), pl.Float64()),  # with its 95% interval, over queries
)

PVI_DENSITIES_KEY = [*PVI_RUN, "correct", "bin"]
PVI_DENSITIES = declare(
    **_RUN,
    correct=pl.Boolean(),
    bin=pl.Int64(),  # from 0; the same bins in all runs of a dataset under one definition
    **dict.fromkeys(("bin_low", "bin_high"), pl.Float64()),
    n=pl.Int64(),
    density=pl.Float64(),  # per unit of PVI; integrates to one over right and over wrong predictions
)

_CORRELATION = {
    "n": pl.Int64(),  # queries with a finite PVI at both levels
    "pearson": pl.Float64(),  # NaN where PVI does not vary at one of the levels
    "pearson_p": pl.Float64(),  # two-sided; NaN below three queries
    "spearman": pl.Float64(),
    "spearman_p": pl.Float64(),
}
PVI_CORRELATIONS = declare(  # after the columns of a case: how PVIs agree between two levels
    first=pl.String(),  # a demonstration set, number of shots, or model
    second=pl.String(),  # another
    **_CORRELATION,
)

PVI_STRENGTHS = declare(  # after the columns of a group: the correlations of many cases
    n=pl.Int64(),  # cases with a correlation
    n_undefined=pl.Int64(),  # cases without a correlation, left out of the columns below
    mean=pl.Float64(),
    median=pl.Float64(),
    strong_share=pl.Float64(),  # of cases with r > 0.6
    weak_share=pl.Float64(),  # of cases with r < 0.3
)

_CASE = {name: pl.String() for name in ("dataset", "demonstrations", "definition")}
PVI_CASE = [*_CASE]
"""Columns that two runs share whose PVIs are compared: demonstrations of different sources differ by more than a random
draw."""

_PAIR = {f"{end}_{name}": pl.Int64() for end in ("first", "second") for name in ("n_shots", "demonstration_set")}
PVI_PAIRS_KEY = [*_CASE, *_PAIR]
PVI_PAIRS = declare(
    **_CASE,
    across=pl.String(),  # what differs between the two runs: "sets" | "shots" | "both"
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
PVI_DEMONSTRATIONS = declare(  # one row a source of demonstrations, compared with the suite's own sets
    **{name: _RUN[name] for name in PVI_DEMONSTRATIONS_KEY},  # definition "paper"
    n_candidates=pl.Int64(),  # training rows with a PVI, to choose from; null for the suite's own sets
    n_training=pl.Int64(),  # all training rows; null for the suite's own sets
    n_sets=pl.Int64(),
    n_queries=pl.Int64(),  # with a prediction after every set of this many shots, whatever its source
    n_unpredicted=pl.Int64(),  # without such a prediction: in no accuracy
    accuracy=pl.Float64(),  # mean over sets
    best_accuracy=pl.Float64(),  # highest of any set
    chance=pl.Float64(),
    majority=pl.Float64(),  # share of the most frequent gold label of these queries
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers on n_queries
    tries=pl.Int64(),  # different sets of demonstrations
    log10_tail=pl.Float64(),  # log10 of the probability that guessing reaches best_accuracy
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py on best_accuracy
    **TEST_OF_GUESSING,  # of best_accuracy, over all rows of this table
    **TEST_OF_MAJORITY,
    v_information=pl.Float64(),  # mean over sets, bits
    n_measured=pl.Int64(),  # queries with a PVI after every set of this many shots; v_information is over these
    # Minus the value of the suite's sets on the same queries; null for the suite's sets. 95% intervals are over
    # queries, for these sets; two-way ones over queries, the suite's sets and the choice, which counts as one more
    # set: at least 95% if choices vary no more than sets do. Null if there is only one set.
    **{
        f"{name}_{column}": pl.Float64()
        for name in ("accuracy", "v_information")  # v_information in bits
        for column in ("difference", "low", "high", "two_way_low", "two_way_high")
    },
)

PVI_CHOSEN_KEY = [*_SET, "place"]
PVI_CHOSEN = declare(  # one row a demonstration that was chosen by PVI
    **_SET,
    place=pl.Int64(),  # in the prompt, from 0
    definition=pl.String(),  # "paper"
    training_row=pl.Int64(),  # as in PVI_CANDIDATES, as are `row` and `text`
    row=pl.Int64(),
    text=pl.String(),
    gold=pl.Int64(),
    pvi_bits=pl.Float64(),  # after set 0 of the suite for this number of shots; the row was chosen by it
)

PVI_ANNOTATORS_KEY = [*PVI_RUN, "annotations", "measure"]
PVI_ANNOTATORS = declare(  # correlations of PVI with the agreement of annotators about the same queries
    **_RUN,
    annotations=pl.String(),  # column of the annotation file, or the stem of a file of foreign PVI
    # "agreement" | "variation_ratio" | "entropy" | "foreign_pvi"; correlations.py has the formulas
    measure=pl.String(),
    **_CORRELATION,
    pearson_over_sets=pl.Float64(),  # mean over demonstration sets (Lu et al. 2023, table 16)
    spearman_over_sets=pl.Float64(),
    n_annotated=pl.Int64(),  # queries with annotations; those without a PVI are in no correlation
)

_OVER_RUNS = {"dataset": pl.String(), "definition": pl.String(), "gold": pl.Int64()}
PVI_HARDEST_KEY = ["dataset", "definition", "gold", "rank"]
PVI_HARDEST = declare(
    **_OVER_RUNS,
    rank=pl.Int64(),  # from 1, the lowest mean PVI of the label; the lower query_id first of equals
    query_id=pl.Int64(),
    mean_pvi=pl.Float64(),  # over the runs with a PVI
    n_runs=pl.Int64(),  # the suite's own demonstration sets times numbers of shots
    n_missing=pl.Int64(),  # runs without a PVI
    n_right=pl.Int64(),  # runs that predict the gold label
    row=pl.Int64(),  # as in PVI_QUERIES, as is `text`
    text=pl.String(),
)

PVI_MISLABELLED_KEY = ["dataset", "definition", "rank"]
PVI_MISLABELLED = declare(
    **_OVER_RUNS,
    rank=pl.Int64(),  # from 1, the lowest mean PVI of the dataset; the lower query_id first of equals
    query_id=pl.Int64(),
    predicted=pl.Int64(),  # the one label that every run predicts instead
    mean_pvi=pl.Float64(),
    highest_pvi=pl.Float64(),  # of any run; below 0
    n_runs=pl.Int64(),
    row=pl.Int64(),  # as in PVI_QUERIES, as is `text`
    text=pl.String(),
)

PVI_ONE_WAY_KEY = ["dataset", "demonstrations", "definition"]
PVI_ONE_WAY = pl.Schema({name: _RUN[name] for name in PVI_ONE_WAY_KEY} | ONE_WAY)

PVI_REPEATED_MEASURES_KEY = ["dataset", "demonstrations", "n_shots", "definition"]
PVI_REPEATED_MEASURES = pl.Schema({name: _RUN[name] for name in PVI_REPEATED_MEASURES_KEY} | REPEATED_MEASURES)
