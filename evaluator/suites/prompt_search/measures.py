"""Compute all tables of a prompt search from its scored requests."""

import polars as pl

from evaluator.methods.predictions import predict
from evaluator.random_baselines.held_out_prediction import held_out_prediction
from evaluator.schemas import METRICS, PREDICTIONS
from evaluator.suites.base import ScoredRun
from evaluator.suites.prompt_search.answers import answers, planned
from evaluator.suites.prompt_search.held_out import search_held_out
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.suites.prompt_search.tables import curves_table, prompts_table, results_table, with_mean_intervals
from evaluator.suites.prompt_search.ties import break_ties
from evaluator.suites.prompt_search.total_error import total_error_tables


def search_measures(run: ScoredRun) -> dict[str, pl.DataFrame]:
    """Return the tables of a search by name.

    These are predictions, search_prompts, search_results, search_curves, search_held_out (one row a trial),
    search_held_out_prediction (four predictors, over all trials of the run), variance_components, total_error and
    design_study. Choices differ from query to query, so no label has a frequency, and `metrics` has no rows.

    Args:
        run: a prompt search; with halving, only the requests that were scored in its rounds.
    """
    seed = run.config.options_of(SearchOptions).seed
    examples = run.store.table("search_examples", SEARCH_EXAMPLES)
    predictions = break_ties(predict(run.scored, run.methods, ("paper",)).collect(), seed)
    search_answers = answers(predictions, planned(run.store.requests(), examples), examples)
    prompts = prompts_table(search_answers, run.store.table("tried_prompts", TRIED_PROMPTS), examples)
    queries = examples.collect()
    trials = search_held_out(search_answers, prompts, queries, seed)
    return {
        "metrics": pl.DataFrame(schema=METRICS),
        "predictions": predictions.select(PREDICTIONS.names()),
        "search_prompts": prompts,
        "search_results": with_mean_intervals(results_table(prompts, queries), search_answers, prompts),
        "search_curves": curves_table(prompts, queries),
        "search_held_out": trials,
        "search_held_out_prediction": held_out_prediction(trials),
        **dict(total_error_tables(search_answers, prompts)),
    }
