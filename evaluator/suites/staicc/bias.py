"""Build the prompts of StaICC-Diag that show which labels a model prefers when the query has no content.

Source: Cho & Inoue 2025, section 3.3.
"""

from collections.abc import Iterator

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.pseudo_queries import domain_queries, empty_queries
from evaluator.prompts.rows import benchmark_plan, normal_requests, of_parts, requests
from evaluator.suites.base import Part
from evaluator.suites.staicc.family import INFERENCE_METHODS, staicc_suite

N_WORDS = 128
"""Number of words of a domain query, as in the toolkit; the paper does not give it."""


def bias_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of StaICC-Normal with their queries replaced by empty queries and by domain queries.

    Rows keep position, query_id and gold of the replaced query. Domain queries are random words of the calibration
    split, under `released` of the demonstration split. The part `normal` has the unchanged prompts, on which the
    empirical bias is measured; it is left out if the run includes staicc-normal, which has the same rows.
    """
    plan = benchmark_plan(dataset, n_shots=config.n_shots)
    n_prompts = len(plan.query_id)
    queries = {
        "contextual": empty_queries(n_prompts, len(dataset.text_fields)),
        "domain": _domain_queries(dataset, n_prompts, config),
    }
    parts = {
        part: requests(dataset, plan, queries=texts, n_queries=config.n_queries) for part, texts in queries.items()
    }
    if "staicc-normal" not in config.suites:
        parts["normal"] = normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)
    return of_parts(parts)


def _domain_queries(dataset: ClassificationDataset, n_queries: int, config: RunConfig) -> pl.Series:
    definition = config.prompt_definition
    split, rows = "calibration", dataset.calibration
    if definition == "released":
        split, rows = "demonstration", dataset.demonstration
    return domain_queries(
        rows,
        n_queries=n_queries,
        n_words=N_WORDS,
        definition=definition,
        source_name=f"{dataset.name}: the {split} split",
    )


STAICC_BIAS = staicc_suite(
    summary="Label bias: empty queries, queries of random words, and the queries of staicc-normal.",
    parts={
        "normal": Part(),
        "contextual": Part(kind="diagnostic"),
        "domain": Part(kind="diagnostic", prompts_differ=True),
    },
    requests=bias_requests,
    methods=INFERENCE_METHODS,
)
