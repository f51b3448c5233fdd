"""Show the work that is ahead before prompts are scored, and first results while others are still being scored."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.files.whole import size_text
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.methods.predictions import scored_definitions
from evaluator.metrics.per_request import DEFINITIONS, per_request_columns
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.run.build import Built
from evaluator.run.measure import ScoredStore
from evaluator.schemas import PROMPTS_KEY, TOKEN_SCORES, Definition
from evaluator.scores.compute import AfterShard, no_progress
from evaluator.scores.plan import Plan
from evaluator.scores.table import Kind, ScoreTable, prompt_scores
from evaluator.store.tables import id_numbers
from evaluator.suites import SUITES, methods_of

logger = logging.getLogger(__name__)

STAGE = "First results"

ID_BYTES = 40  # of a row's key, with its offset
PAGE_BYTES = 5_000_000  # most that a page takes
KEPT_BYTES = 250  # of a scored request without its numbers, on disk while a run is measured: twice where it is sorted


def show_outlook(
    built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan], source: ModelSource, data: Path
) -> Stage[None]:
    """Show how many prompts are scored, how many have scores of earlier runs, and what is written.

    Prompts that methods add after the first scores do not count. Warns if the disk may become full.

    Args:
        built: the run.
        scored: its first store, with the scores that it has.
        plans: of the rows of this store.
        source: the model, for the size of its hidden states.
        data: folder of prompts and scores.
    """
    assert TOKEN_SCORES["log_likelihoods"] == pl.List(pl.Float64), "a continuation has 8 bytes, and 4 of a count"
    n_prompts, n_scored = 0, 0
    to_write = PAGE_BYTES + _table_bytes(built, scored)  # an estimate from above: files are compressed
    for kind, plan in plans.items():
        reused, planned = plan.record.reused_prompts, plan.record.prompts
        done = sum(shard.prompts for shard in scored.scores.manifest.shards_of([plan.key]))  # by an interrupted run
        n_prompts, n_scored = n_prompts + reused + planned, n_scored + reused + done
        n_rows = plan.rows.height * (planned - done) // max(planned, 1)
        n_continuations = plan.rows.column(pl.col("continuations").list.len()).sum()
        numbers = 4 * source.hidden_size if kind == "states" else 12 * n_continuations / max(plan.rows.height, 1)
        to_write += n_rows * (ID_BYTES + round(numbers))
    free = shutil.disk_usage(next(path for path in (data, *data.absolute().parents) if path.exists())).free
    to_score = f"{n_prompts - n_scored:,} prompts to score"
    if n_scored:
        to_score = f"Of {n_prompts:,} prompts {n_scored:,} have scores already, {n_prompts - n_scored:,} to score"
    line = f"{to_score}; at most {size_text(to_write)} to write, {size_text(free)} free"
    yield Progress(stage="Looking ahead", done=n_scored, total=n_prompts, unit="prompts", line=line)
    if to_write > free:
        logger.warning(
            "The disk of %s has %s free, and this run may write %s. Make room (`evaluator clean` says what can go), or "
            "take another disk with --store or --out.",
            data,
            size_text(free),
            size_text(to_write),
        )


def _table_bytes(built: Built, scored: ScoredStore) -> int:
    """Return the bytes of the large tables, and of the rows that measuring keeps on disk meanwhile.

    Predictions have a row for each request, method and definition; queries one for each request, with its text.
    """
    prompts = scored.store.prompts().select(
        labels=pl.col("continuations").list.len(),
        query=pl.col("prompt").str.len_bytes() / pl.col("spans").list.len().clip(1),
    )
    n_labels, query_bytes = (mean or 0 for mean in prompts.mean().collect().row(0))
    n_requests, config = scored.store.manifest.n_requests, built.config
    n_predictions = n_requests * len(config.methods) * len(scored_definitions(config.definitions))
    numbers = 8 * n_labels + 2 * ID_BYTES  # of each row
    return round(n_predictions * numbers + n_requests * (numbers + query_bytes + 2 * (numbers + KEPT_BYTES)))


class _Shown(NamedTuple):
    """Suite, part and definition of the accuracy that is shown."""

    suite: str
    part: str
    definition: Definition


def early_results(built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan]) -> AfterShard:
    """Return a function that shows the accuracy of each dataset once its last prompt is scored.

    It is vanilla's accuracy in the run's first part of classification, as the table of metrics will have it. A run
    without such a part, or one that chooses prompts by scores, shows none.
    """
    shown = _first_part(built)
    return _EarlyResults(built, scored, plans["scores"], shown).after_shard if shown else no_progress


def _first_part(built: Built) -> _Shown | None:
    if REFERENCE_METHOD not in built.config.methods:
        return None
    for suite, parts in built.parts.items():
        if SUITES[suite].family.rounds:
            return None
        for name, part in parts.items():
            shared = [each for each in DEFINITIONS if each in built.config.definitions and each in part.definitions]
            if part.kind == "classification" and shared:
                return _Shown(suite, name, shared[0])
    return None


class _EarlyResults:
    """Yields a line for each dataset whose shards are finished."""

    def __init__(self, built: Built, scored: ScoredStore, plan: Plan, shown: _Shown) -> None:
        self._built, self._scored, self._plan, self._shown = built, scored, plan, shown
        self._unfinished: dict[str, list[str]] | None = None  # dataset -> shards that it waits for, the last first
        self._n_datasets = 0

    def after_shard(self, table: ScoreTable) -> Iterator[Progress]:
        """Yield the accuracies that a finished shard completes."""
        if self._unfinished is None:
            self._unfinished = self._shards_by_dataset(table)
            self._n_datasets = len(self._unfinished)
        for names in self._unfinished.values():
            while names and names[-1] in table.manifest.shards:
                names.pop()
        for dataset in sorted(name for name, names in self._unfinished.items() if not names):
            del self._unfinished[dataset]
            done = self._n_datasets - len(self._unfinished)
            line = f"{dataset}: {self._accuracy(dataset, table)} ({done} of {self._n_datasets} datasets scored)"
            yield Progress(stage=STAGE, done=done, total=self._n_datasets, unit="datasets", line=line)

    def _shards_by_dataset(self, table: ScoreTable) -> dict[str, list[str]]:
        """Return the shards of the plan that have rows of each dataset, the last first.

        A dataset whose scores are all of earlier runs has none.
        """
        shards = replace(self._plan, record=table.manifest.plans[str(self._plan.key)]).shards()
        names, n_rows = pl.Series([*shards], dtype=pl.String), [shard.n_rows for shard in shards.values()]
        ids = self._plan.rows.column(id_numbers("token_id"))
        planned = pl.LazyFrame({"token_id": ids, "shard": np.arange(len(shards)).repeat(n_rows)})
        requests = self._scored.store.requests().filter(suite=self._shown.suite, part=self._shown.part)
        rows = (
            requests.select("dataset", id_numbers("prompt_id"))
            .join(self._scored.tokens.tokens().select(id_numbers("prompt_id"), id_numbers("token_id")), on="prompt_id")
            .join(planned, on="token_id", how="left")
            .select("dataset", "shard")
            .unique()
            .collect(engine="streaming")
        )
        by_dataset = rows.group_by("dataset").agg(pl.col("shard").drop_nulls().sort(descending=True))
        return {dataset: names.gather(numbers).to_list() for dataset, numbers in by_dataset.iter_rows()}

    def _accuracy(self, dataset: str, table: ScoreTable) -> str:
        suite, part, definition = self._shown
        requests = self._scored.store.requests().filter(suite=suite, part=part, dataset=dataset)
        tokens = self._scored.tokens.tokens().join(requests.select(PROMPTS_KEY).unique(), on=PROMPTS_KEY, how="semi")
        rows = requests.join(prompt_scores(tokens, table.read("scores")), on=PROMPTS_KEY, maintain_order="left")
        record = self._built.parts[suite][part]
        parts = {part: MeasuredPart(record.kind, record.definitions)}
        method = methods_of(self._built.config.suites)[REFERENCE_METHOD]
        answers = method.label_probs(
            ScoredRequests(rows=rows, parts=parts, answered_part=part), scored_definitions([definition])[0]
        )
        mass = pl.col("label_log_likelihoods").list.eval(pl.element().exp()).list.sum()
        known = answers.select("position", "query_id", "gold", "label_probs", mass=mass).drop_nulls("gold")
        predicted = known.collect(engine="streaming")
        if predicted.is_empty():
            return "no true options to measure accuracy by"
        n_labels, where = len(predicted["label_probs"][0]), f"{suite}, {part}, {dataset}"
        correct = per_request_columns(predicted, n_labels, definition, where)["correct"]
        accuracy = f"accuracy {correct.sum() / predicted.height:.3f} on {predicted.height:,} requests"
        return f"{accuracy}, label mass {predicted.select(pl.median('mass')).item():.2g} (median)"
