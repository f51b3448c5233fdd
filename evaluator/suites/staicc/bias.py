"""StaICC-Diag, prediction bias: which labels a model prefers when the query has no content.

Source: Cho & Inoue 2025, section 3.3.
"""

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.prompts.pseudo_queries import domain_queries, empty_queries
from evaluator.prompts.rows import benchmark_plan, normal_requests, requests
from evaluator.suites.base import Part, Requests, Suite
from evaluator.suites.staicc import family
from evaluator.suites.staicc.diagnostics.registry import METRIC_TEXTS
from evaluator.suites.staicc.terminal import diagnostic_lines

N_WORDS = 128
"""Words of a domain query, as in the toolkit; the paper does not give the number."""


def bias_requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    """Return the prompts of StaICC-Normal, with empty queries and domain queries in place of theirs.

    Rows keep position, query_id and gold of the query that is replaced. The part `normal` has the unchanged prompts, on
    which the empirical bias is measured; it is left out where the run has staicc-normal, which has the same rows.
    Domain queries are random words of the calibration split, under `released` of the demonstration split.
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
    return pl.concat(rows.with_columns(part=pl.lit(part)) for part, rows in parts.items())


def _domain_queries(dataset: ClassificationDataset, n_queries: int, config: RunConfig) -> pl.Series:
    definition = config.prompt_definition
    split = "demonstration" if definition == "released" else "calibration"
    return domain_queries(
        dataset.demonstration if definition == "released" else dataset.calibration,
        n_queries=n_queries,
        n_words=N_WORDS,
        definition=definition,
        source_name=f"{dataset.name}: the {split} split",
    )


STAICC_BIAS = Suite(
    summary="Label bias: empty queries, queries of random words, and the queries of staicc-normal.",
    parts={
        "normal": Part(),
        "contextual": Part(kind="diagnostic"),
        "domain": Part(kind="diagnostic", prompts_differ=True),
    },
    all_methods=family.INFERENCE_METHODS,
    default_datasets=family.DATASETS,
    take=as_classification,
    requests=lambda dataset, config: Requests(bias_requests(dataset, config)),
    describe=family.describe,
    measure=family.measure,
    sections=family.sections,
    summary_lines=diagnostic_lines,
    metric_texts=METRIC_TEXTS,
)
