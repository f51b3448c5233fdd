"""Compare the searches of several models with the same prompts and queries, and count disagreements of the baselines.

Source: Yauney & Mimno 2024, section 5.1, table 1 and figure 4; section 5.2, table 3.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.errors import ConfigError
from evaluator.suites.base import Comparison, declared
from evaluator.suites.prompt_search import schema

PROMPT = ["text", "demonstrations", "n_all", "chance"]
"""Columns that must be equal for one prompt of a search in all runs."""


class SearchComparison(NamedTuple):
    """Tables of the searches that all runs have."""

    models: pl.DataFrame  # schema.SEARCH_MODELS
    totals: pl.DataFrame  # schema.SEARCH_TOTALS
    curves: pl.DataFrame  # schema.SEARCH_CURVES and `model`, under the definition paper
    held_out: pl.DataFrame  # HELD_OUT_PREDICTION and `model`, of all prompts


def comparison(runs: Sequence[ComparedRun]) -> Comparison:
    """Compare the searches of several models: the tables search_models and search_totals, and their section."""
    from evaluator.suites.prompt_search.report import comparison_section  # here, because only a report needs figures

    compared = search_comparison(runs)
    tables = {"search_models": compared.models, "search_totals": compared.totals}
    return Comparison(tables, [comparison_section(compared, [run.model for run in runs])])


def search_comparison(runs: Sequence[ComparedRun]) -> SearchComparison:
    """Combine the searches that all runs have. Raises ConfigError for different prompts, queries, or none in common."""
    results = _of_all(runs, "search_results")
    is_common = pl.col("number").n_unique().over(schema.SEARCH_GROUP) == len(runs)
    results = results.filter(is_common)
    if results.is_empty():
        raise ConfigError(
            f"No search is in all of {', '.join(str(run.folder) for run in runs)}. Search the same datasets, shots and "
            "methods."
        )
    queries = results.select("number", *schema.SEARCH_GROUP, "chance", n_all="n_queries")
    prompts = _of_all(runs, "search_prompts").join(queries, on=["number", *schema.SEARCH_GROUP])
    first, *others = [
        prompts.filter(number=run.number).select(*schema.SEARCH_PROMPTS_KEY, *PROMPT).sort(schema.SEARCH_PROMPTS_KEY)
        for run in runs
    ]
    for run, of_run in zip(runs[1:], others, strict=True):
        if not of_run.equals(first):
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} have different prompts or queries in their searches. Search with "
                "equal --seed, --tries, --queries, --candidates and data."
            )
    models = declared(results, schema.SEARCH_MODELS, schema.SEARCH_MODELS_KEY)
    curves, held_out = _of_all(runs, "search_curves"), _of_all(runs, "search_held_out_prediction")
    curves = curves.join(first, on=schema.SEARCH_GROUP, how="semi").filter(definition="paper")
    of_all_prompts = pl.col("tries") == pl.col("tries").max().over("number")
    return SearchComparison(models, _totals(models), curves, held_out.filter(of_all_prompts))


def _of_all(runs: Sequence[ComparedRun], table: str) -> pl.DataFrame:
    return pl.concat(
        run.table(table).with_columns(
            number=pl.lit(run.number, pl.Int64),
            model=pl.lit(run.model),
            n_parameters=pl.lit(run.record.model.n_parameters, pl.Int64),
        )
        for run in runs
    )


def _totals(models: pl.DataFrame) -> pl.DataFrame:
    """Return schema.SEARCH_TOTALS: for each model, at each number of shots and at all together (null)."""
    by_shots = [models, models.with_columns(n_shots=pl.lit(None, pl.Int64))]
    totals = (
        pl.concat(by_shots)
        .group_by(schema.SEARCH_TOTALS_KEY)
        .agg(
            n_searches=pl.len(),
            above_standard=(pl.col("verdict") != "below both").sum(),
            above_max=(pl.col("verdict") == "above both").sum(),
            disagreements=(pl.col("verdict") == "between").sum(),
        )
    )
    flipped = pl.when(pl.col("above_standard") > 0).then(pl.col("disagreements") / pl.col("above_standard"))
    return declared(totals.with_columns(flipped_share=flipped), schema.SEARCH_TOTALS, schema.SEARCH_TOTALS_KEY)
