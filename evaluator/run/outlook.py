"""Estimate, before scoring, how many prompts are scored, how many have scores of earlier runs, and what is written."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.files.whole import size_text
from evaluator.methods.predictions import scored_definitions
from evaluator.models.source import ModelSource
from evaluator.progress import Progress
from evaluator.run.build import Built
from evaluator.run.scored_run import ScoredStore
from evaluator.schemas import TOKEN_SCORES
from evaluator.scores.plan import Plan
from evaluator.scores.table import Kind

logger = logging.getLogger(__name__)

ID_BYTES = 40  # of a row's key, with its offset
PAGE_BYTES = 5_000_000  # most that a page takes
KEPT_BYTES = 250  # of a scored request without its numbers, on disk while a run is measured: twice where it is sorted


class Outlook(NamedTuple):
    """The work that is left in a run, without the prompts that methods add after the first scores."""

    prompts: int
    scored: int  # of these, those that have scores already
    bytes_to_write: int  # an estimate from above, temporary files included: files are compressed
    bytes_free: int  # on the disk of prompts and scores


def outlook(built: Built, part: ScoredStore, plans: Mapping[Kind, Plan], source: ModelSource, data: Path) -> Outlook:
    """Estimate the work of a run whose prompts are tokenised.

    Args:
        built: the run.
        part: its first store, with the scores that it has.
        plans: of the rows of this store.
        source: the model, for the size of its hidden states.
        data: folder of prompts and scores.
    """
    assert TOKEN_SCORES["log_likelihoods"] == pl.List(pl.Float64), "a continuation has 8 bytes, and 4 of a count"
    prompts, scored, n_bytes = 0, 0, PAGE_BYTES + _table_bytes(built, part)
    for kind, plan in plans.items():
        reused, planned = plan.record.reused_prompts, plan.record.prompts
        done = sum(shard.prompts for shard in part.scores.manifest.shards_of([plan.key]))  # by an interrupted run
        prompts, scored = prompts + reused + planned, scored + reused + done
        n_rows = plan.rows.height * (planned - done) // max(planned, 1)
        n_continuations = plan.rows.column(pl.col("continuations").list.len()).sum()
        numbers = 4 * source.hidden_size if kind == "states" else 12 * n_continuations / max(plan.rows.height, 1)
        n_bytes += n_rows * (ID_BYTES + round(numbers))
    return Outlook(prompts, scored, n_bytes, shutil.disk_usage(_existing(data)).free)


def _table_bytes(built: Built, part: ScoredStore) -> int:
    """Return the bytes of the large tables, and of the rows that measuring keeps on disk meanwhile.

    Predictions have a row for each request, method and definition; queries one for each request, with its text.
    """
    prompts = part.store.prompts().select(
        labels=pl.col("continuations").list.len(),
        query=pl.col("prompt").str.len_bytes() / pl.col("spans").list.len().clip(1),
    )
    n_labels, query_bytes = (mean or 0 for mean in prompts.mean().collect().row(0))
    n_requests, config = part.store.manifest.n_requests, built.config
    n_predictions = n_requests * len(config.methods) * len(scored_definitions(config.definitions))
    numbers = 8 * n_labels + 2 * ID_BYTES  # of each row
    return round(n_predictions * numbers + n_requests * (numbers + query_bytes + 2 * (numbers + KEPT_BYTES)))


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def said(ahead: Outlook, data: Path) -> Iterator[Progress]:
    """Yield one line about what is ahead; warn if the disk may become full."""
    left = ahead.prompts - ahead.scored
    to_score = f"{left:,} prompts to score"
    if ahead.scored:
        to_score = f"Of {ahead.prompts:,} prompts {ahead.scored:,} have scores already, {left:,} to score"
    line = f"{to_score}; at most {size_text(ahead.bytes_to_write)} to write, {size_text(ahead.bytes_free)} free"
    yield Progress(stage="Looking ahead", done=ahead.scored, total=ahead.prompts, unit="prompts", line=line)
    if ahead.bytes_to_write > ahead.bytes_free:
        logger.warning(
            "The disk of %s has %s free, and this run may write %s. Make room (`evaluator clean` says what can go), or "
            "take another disk with --store or --out.",
            data,
            size_text(ahead.bytes_free),
            size_text(ahead.bytes_to_write),
        )
