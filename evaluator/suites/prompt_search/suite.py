"""Define the suite prompt-search: find the best of many prompts on one set of queries.

With the option --halving, all prompts are scored on a few queries, then the better half of the prompts on twice as many
queries, and so on. A prompt that is stopped still counts as a try. The column `could_have_won` of SEARCH_PROMPTS says
whether a stopped prompt would have reached the best accuracy with right answers to all its remaining queries, which is
so for most stopped prompts.

If several choices are equally probable, a seeded draw decides between them before answers are marked as right or wrong.

Source: Yauney & Mimno 2024, section 5.1.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.errors import ConfigError, LabelError, plural
from evaluator.methods.base import predict
from evaluator.metrics.guessing import VERDICTS
from evaluator.random_baselines.held_out import held_out_prediction
from evaluator.report.section import MeasuredRun
from evaluator.report.table import p_text
from evaluator.schemas import METRICS, PREDICTIONS, declare
from evaluator.store import PromptStore
from evaluator.suites import base
from evaluator.suites.prompt_search import schema, tables
from evaluator.suites.prompt_search.prompts import MAX_QUERIES, SearchOptions, search_requests
from evaluator.suites.prompt_search.report import comparison, right_answers, search_sections
from evaluator.templates.template import LABEL_SPACE

ANSWERS = declare(
    **schema.SEARCH,
    prompt_number=pl.Int64(),
    place=pl.Int64(),  # position of the query in the search, from 0; the same for every prompt
    is_correct=pl.Boolean(),  # whether the predicted choice is one of the correct choices
    is_tied=pl.Boolean(),  # whether the prediction was drawn among several equally probable choices
)

_GAMMA, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Constants of SplitMix64."""


def planned(requests: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return all requests of a search with TRIED_PROMPTS_KEY, place, prompt_id and position, sorted by prompt and
    place.

    Args:
        requests, examples: schemas.REQUESTS and SEARCH_EXAMPLES of one store. Requests without a query, which methods
            add, are left out.
    """
    # The number of a prompt is in the column that differs between the prompts of a part.
    prompt_number = pl.when(part="demonstrations").then("demonstration_set").otherwise("template")
    rows = requests.filter(pl.col("query_id").is_not_null()).with_columns(prompt_number=prompt_number)
    with_places = rows.join(examples.select("dataset", "query_id", "place"), on=["dataset", "query_id"])
    columns = [*schema.TRIED_PROMPTS_KEY, "place"]
    return with_places.select(*columns, "prompt_id", "position").sort(columns).collect()


def answers(predictions: pl.DataFrame, plan: pl.DataFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return ANSWERS of all methods, sorted by search, prompt and place.

    Args:
        predictions: schemas.PREDICTIONS with `n_tied`, as returned by break_ties.
        plan: as returned by planned(). Requests without a prediction have no row in the result.
        examples: SEARCH_EXAMPLES.
    """
    key = ["part", "dataset", "position"]
    answered = predictions.lazy().select(*key, "method", "query_id", "pred", "n_tied").join(plan.lazy(), on=key)
    joined = answered.join(examples.select("dataset", "query_id", "correct"), on=["dataset", "query_id"])
    judged = {"is_correct": pl.col("correct").list.contains(pl.col("pred")), "is_tied": pl.col("n_tied") > 1}
    columns = joined.with_columns(**judged).select(ANSWERS.names())
    return columns.sort(*schema.SEARCH_GROUP, "prompt_number", "place").collect()


def break_ties(predictions: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Draw `pred` among the most probable choices of each row, and add `n_tied`, the number of these choices.

    The draw depends only on the seed and the row's `position`, not on other rows. A classifier with equal probabilities
    for all choices then has the accuracy of chance, whatever the order of the choices.
    """
    most_probable = pl.col("label_probs").list.eval((pl.element() == pl.element().max()).arg_true())
    draw = pl.lit(pl.Series(uniform(predictions["position"].to_numpy(), seed)))
    with_ties = predictions.with_columns(tied=most_probable, n_tied=most_probable.list.len().cast(pl.Int64))
    drawn = pl.col("tied").list.get((draw * pl.col("n_tied")).floor().cast(pl.Int64))
    return with_ties.with_columns(pred=drawn.cast(pl.Int64)).drop("tied")


def uniform(keys: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each key, computed with the mixing steps of SplitMix64."""
    mixed = _mix(_mix(keys.astype(np.uint64) * _GAMMA) + np.uint64(seed % 2**64))
    return (mixed >> np.uint64(11)) / 2.0**53  # the upper 53 bits, as many as a float holds exactly


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


MIN_QUERIES = 16
"""Smallest number of queries in the first round. With fewer, a good prompt is too often in the worse half."""


def round_sizes(n_queries: int) -> list[int]:
    """Return the number of scored queries after each round: in every round half of the next number, rounded up."""
    sizes = [n_queries]
    while (half := math.ceil(sizes[0] / 2)) >= MIN_QUERIES:
        sizes.insert(0, half)
    return sizes


def rounds(run: base.ScoredRun) -> Iterator[pl.DataFrame]:
    """Yield, for each round, the prompt_id of the requests to score (see base.Family.rounds).

    Without halving there is one round with all requests. Requests that methods add belong to the first round.
    """
    options, requests = run.config.options_of(SearchOptions), run.store.requests()
    if not options.halving:
        yield requests.select("prompt_id").collect()
        return
    examples = run.store.table("search_examples", schema.SEARCH_EXAMPLES)
    plan = with_rounds(planned(requests, examples))
    untied = break_ties(predict(run.scored, run.methods, ("paper",)).collect(), options.seed)
    of_methods = requests.filter(pl.col("query_id").is_null()).select("prompt_id").collect()
    for number, rows in enumerate(rows_of_rounds(plan, answers(untied, plan, examples))):
        prompts = rows.select("prompt_id")
        yield prompts if number else pl.concat([prompts, of_methods])


def rows_of_rounds(plan: pl.DataFrame, answers_so_far: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of `plan` for each round, without rows of prompts that were stopped after earlier rounds.

    The rows of a round depend only on the answers of earlier rounds. So a run that was interrupted chooses the same
    prompts when it is resumed.

    Args:
        plan: as returned by planned, with `round`, the round in which each query is first scored.
        answers_so_far: ANSWERS of one method, with all rows of earlier rounds when a round is requested.
    """
    n_queries = plan.group_by("dataset").agg(n_queries=pl.col("place").n_unique())
    remaining = plan.select(schema.TRIED_PROMPTS_KEY).unique()
    for number in range(int(plan["round"].to_numpy().max()) + 1):
        yield plan.filter(round=number).join(remaining, on=schema.TRIED_PROMPTS_KEY, how="semi", maintain_order="left")
        scored = plan.filter(pl.col("round") <= number).join(remaining, on=schema.TRIED_PROMPTS_KEY, how="semi")
        so_far = answers_so_far.join(scored, on=[*schema.TRIED_PROMPTS_KEY, "place"], how="semi")
        remaining = better_half(so_far, n_queries)


def better_half(answers_so_far: pl.DataFrame, n_queries: pl.DataFrame) -> pl.DataFrame:
    """Keep the better half of the prompts of each search (rounded up, ties included) that can still be the best.

    A prompt can no longer be the best if it would have fewer right answers than the best prompt has now, even with
    right answers to all its remaining queries.

    Args:
        answers_so_far: ANSWERS of the prompts that were not stopped, all for equally many queries.
        n_queries: `dataset` and `n_queries`, the number of queries of the whole search.

    Returns TRIED_PROMPTS_KEY of the kept prompts.
    """
    search = schema.TRIED_PROMPTS_KEY[:-1]
    sums = {"n_correct": pl.col("is_correct").sum(), "n_answered": pl.len()}
    counts = answers_so_far.group_by(schema.TRIED_PROMPTS_KEY).agg(**sums)
    half = (pl.len() + 1) // 2
    # Right answers of the last prompt in the better half; prompts that tie with it are kept.
    threshold = pl.col("n_correct").sort(descending=True).get(half - 1).over(search)
    highest_count = pl.col("n_correct") + pl.col("n_queries") - pl.col("n_answered")
    is_kept = (pl.col("n_correct") >= threshold) & (highest_count >= pl.col("n_correct").max().over(search))
    return counts.join(n_queries, on="dataset").filter(is_kept).select(schema.TRIED_PROMPTS_KEY)


def with_rounds(plan: pl.DataFrame) -> pl.DataFrame:
    """Add `round`, the round in which each query is first scored, to the rows of planned()."""
    frames = []
    for rows in plan.partition_by("dataset", maintain_order=True):
        places = rows["place"].to_numpy()
        # With sizes 25, 50, 100: places 0 to 24 are in round 0, 25 to 49 in round 1, 50 to 99 in round 2.
        number = np.searchsorted(round_sizes(len(np.unique(places))), places, side="right")
        frames.append(rows.with_columns(round=pl.Series(number)))
    return pl.concat(frames).sort(*schema.TRIED_PROMPTS_KEY, "place")


def describe(config: RunConfig) -> base.Described:
    options = config.options_of(SearchOptions)
    seeds = {"queries, demonstrations and ties": options.seed}
    return base.Described(options.shots, f"at most {MAX_QUERIES}", seeds)


def check(config: RunConfig) -> None:
    if config.options_of(SearchOptions).halving and len(config.methods) > 1:
        raise ConfigError(
            f"--halving stops prompts by the accuracy of one method, got {', '.join(config.methods)}. Name one with "
            "--methods."
        )


def explain(error: LabelError, store: PromptStore) -> LabelError:
    """Add to the error the file and row of the first query with its labels as choices, if there is such a query."""
    choices = [label.removeprefix(LABEL_SPACE) for label in error.labels]
    rows = store.requests().filter(pl.col("label_names") == pl.lit(choices, pl.List(pl.String)))
    examples = store.table("search_examples", schema.SEARCH_EXAMPLES)
    sources = rows.join(examples, on=["dataset", "query_id"]).select("source").head(1).collect()
    if not error.labels or sources.is_empty():
        return error
    return LabelError(f"{sources.item()}: {error} Or change or remove the example.", error.labels)


def measure(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of a search, from the requests that were scored.

    `metrics` has no rows, because choices differ between queries. search_held_out has a row for each trial.
    search_held_out_prediction has rows for four predictors at each number of tries, over all trials of the run.
    """
    seed = run.config.options_of(SearchOptions).seed
    examples = run.store.table("search_examples", schema.SEARCH_EXAMPLES)
    predictions = break_ties(predict(run.scored, run.methods, ("paper",)).collect(), seed)
    search_answers = answers(predictions, planned(run.store.requests(), examples), examples)
    prompts = tables.prompts_table(search_answers, run.store.table("tried_prompts", schema.TRIED_PROMPTS), examples)
    queries = examples.collect()
    total = tables.search_total_error(search_answers, prompts)
    trials = tables.search_held_out(search_answers, prompts, queries, seed)
    yield "metrics", METRICS.to_frame()
    yield "predictions", predictions.select(PREDICTIONS.names())
    yield "search_prompts", prompts
    constants = tables.constant_answers(run.store.requests(), queries)
    yield "search_results", tables.results_table(prompts, queries, search_answers, constants, total["total_error"])
    yield "search_curves", tables.curves_table(prompts, queries)
    yield "search_held_out", trials
    yield "search_held_out_prediction", held_out_prediction(trials, ["tries"])
    yield from total.items()


def summary_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each search: the accuracy of the best prompt, its baselines, and the verdict of both tests.

    Args:
        run: has the table search_results.
    """
    for row in run.table("search_results").iter_rows(named=True):
        p_values = [p_text(row[name]) for name in ("p_holm", "p_majority_holm")]
        verdict = VERDICTS[0 if row["better_than_guessing"] else 1 if row["better_than_uniform"] else 2]
        yield (
            f"{row['part']}, {row['method']}, {row['dataset']}, {row['n_shots']}-shot: best of "
            f"{plural(row['tries'], 'prompt')} {row['best_accuracy']:.3f}, chance {row['chance']:.3f}, "
            f"max random {row['max_random']:.3f}, "
            f"constant answer {row['majority']:.3f}: {verdict}, p {p_values[0]} against uniform guessing and "
            f"{p_values[1]} against the constant answer after Holm's correction for {row['n_tests']:,} tests"
        )


SUITES = {
    "prompt-search": base.Suite(
        summary="The best of 200 demonstration sets, instructions or templates: is it better than guessing?",
        parts={name: base.Part(kind="choice") for name in ("demonstrations", "instructions", "templates")},
        methods=("per_token", "vanilla", "per_byte", "unconditional"),
        definitions=("paper",),
        label_boundary="merged",
        options=SearchOptions,
        take=lambda dataset, _config: as_multiple_choice(dataset),
        requests=lambda dataset, config: search_requests(dataset, config.options_of(SearchOptions), config.n_queries),
        describe=describe,
        check=check,
        files=lambda config: [config.options_of(SearchOptions).candidates],
        explain=explain,
        family=base.Family(
            measure=measure,
            sections=search_sections,
            rounds=rounds,
            query_numbers=right_answers,
            summary_lines=summary_lines,
            comparison=comparison,
        ),
    )
}
