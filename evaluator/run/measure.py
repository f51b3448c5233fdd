"""What is measured of a run: its scores go in, its tables by name come out, each kind of run with tables of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from evaluator.errors import ConfigError
from evaluator.methods.predictions import predict
from evaluator.run.build import PromptStore
from evaluator.run.folder import answered_stores, read_answers, read_scores, run_store, scored_requests, state_requests
from evaluator.run.record import read_run
from evaluator.schemas import METRICS, PROMPTS_KEY, REQUESTS_KEY
from evaluator.scores.checks import require_complete, require_states
from evaluator.suites import ALL_METHODS as METHODS
from evaluator.suites.in_context_pvi.query_schema import PVI_CANDIDATES, PVI_QUERIES
from evaluator.suites.prompt_search.halving import asked_requests


def run_tables(out: Path, annotations: Sequence[Path] = ()) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables of a run by name, `predictions` and `metrics` among them; write each before the next is asked for.

    Raises ScoreError where the scores of the run are not whole, ConfigError for annotations of a run that has no PVI.
    """
    store = run_store(out)
    if annotations and not store.manifest["pvi"]:
        raise ConfigError("--annotations are compared with PVI: measure a run of the suite pvi with them.")
    if store.manifest["search"]:
        yield from _search_tables(store, out).items()
        return
    for asked, scores in answered_stores(out):
        require_complete(scored_requests(asked), scores.scores().collect())
        require_states(state_requests(asked), scores.states().select(PROMPTS_KEY).collect())
    yield from _classification_tables(store, out)
    if store.manifest["pvi"]:
        yield from _pvi_tables(store, out, annotations).items()


def _classification_tables(store: PromptStore, out: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    # Here, because whoever only builds should not wait for SciPy.
    from evaluator.compare.method_differences import method_differences
    from evaluator.methods.training_states import missing_classes
    from evaluator.metrics import (
        confusion_table,
        group_metrics_table,
        label_spaces_table,
        metrics_table,
        reliability_table,
    )
    from evaluator.suites.staicc.diagnostics.label_bias import absent_labels

    answers, methods, definitions = read_answers(out), store.manifest["methods"], store.manifest["definitions"]
    predictions = predict(answers, {name: METHODS[name] for name in methods}, definitions).collect()
    asked_for = pl.col("definition").is_in(definitions)
    metrics = metrics_table(predictions).filter(asked_for)
    yield "predictions", predictions
    yield "metrics", metrics
    yield "group_metrics", group_metrics_table(predictions).filter(asked_for)
    yield "method_differences", method_differences(out, read_run(out), metrics)  # reads the predictions
    yield "missing_classes", missing_classes(answers, methods)
    yield "reliability", reliability_table(predictions)
    yield "confusion", confusion_table(predictions)
    yield "label_spaces", label_spaces_table(predictions)
    yield "absent_labels", absent_labels(predictions)


def _pvi_tables(store: PromptStore, out: Path, annotations: Sequence[Path]) -> dict[str, pl.DataFrame]:
    from evaluator.suites.in_context_pvi.measures import pvi_measures

    tables = {"pvi_queries": PVI_QUERIES, "pvi_candidates": PVI_CANDIDATES}
    queries, candidates = (store.table(name, schema).collect() for name, schema in tables.items())
    source = store.manifest["pvi"]["source"]
    return pvi_measures(read_answers(out), queries, annotations, source=source, candidates=candidates)


def _search_tables(store: PromptStore, out: Path) -> dict[str, pl.DataFrame]:
    """Choices differ from query to query, so that no label has a frequency, and no metric of classification a value."""
    from evaluator.suites.prompt_search.measures import search_measures

    scored, asked = read_scores(out), scored_requests(store)
    if store.manifest["search"]["halving"]:
        asked = asked.join(asked_requests(store, scored), on=REQUESTS_KEY, how="semi", maintain_order="left")
        scored = scored.join(asked.lazy(), on=REQUESTS_KEY, how="semi", maintain_order="left")
    ((_, scores),) = answered_stores(out)
    require_complete(asked, scores.scores().collect())
    return search_measures(store, scored) | {"metrics": pl.DataFrame(schema=METRICS)}
