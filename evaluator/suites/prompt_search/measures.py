"""The scores of a prompt search go in; its predictions and all of its tables come out."""

from typing import Any

import polars as pl

from evaluator.methods import METHODS
from evaluator.methods.base import Answers
from evaluator.methods.predictions import predict
from evaluator.random_baselines.held_out_prediction import held_out_prediction
from evaluator.run.build import PromptStore
from evaluator.schemas import PREDICTIONS
from evaluator.suites.prompt_search.answers import answers, planned
from evaluator.suites.prompt_search.held_out import search_held_out
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.suites.prompt_search.tables import curves_table, prompts_table, results_table
from evaluator.suites.prompt_search.ties import break_ties


def search_measures(store: PromptStore, scored: pl.LazyFrame) -> dict[str, pl.DataFrame]:
    """Tables by name: predictions, search_prompts, search_results, search_curves, search_held_out (trials) and
    search_held_out_prediction, which has the four predictors over all trials of a run.

    Args:
        store: of a prompt search.
        scored: its requests joined with their scores; under halving those that were asked.
    """
    search: dict[str, Any] = store.manifest["search"]
    examples = store.table("search_examples", SEARCH_EXAMPLES)
    given = Answers(scored=scored, asked_parts=store.manifest["parts"])
    predictions = break_ties(
        predict(given, {name: METHODS[name] for name in store.manifest["methods"]}, ("paper",)).collect(),
        search["seed"],
    )
    answered = answers(predictions, planned(store.requests(), examples), examples)
    prompts = prompts_table(answered, store.table("tried_prompts", TRIED_PROMPTS), examples)
    queries = examples.collect()
    trials = search_held_out(answered, prompts, queries, search["seed"])
    return {
        "predictions": predictions.select(PREDICTIONS.names()),
        "search_prompts": prompts,
        "search_results": results_table(prompts, queries),
        "search_curves": curves_table(prompts, queries),
        "search_held_out": trials,
        "search_held_out_prediction": held_out_prediction(trials),
    }
