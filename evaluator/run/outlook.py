"""Say before a run scores anything what it takes from earlier runs, what it scores, and how much it writes."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.files.sizes import size_text
from evaluator.methods.predictions import scored_definitions
from evaluator.models.source import ModelSource
from evaluator.progress import Progress
from evaluator.run.build import Built
from evaluator.run.scored_run import ScoredStore
from evaluator.schemas import TOKEN_SCORES
from evaluator.scores.plan import plan_rows
from evaluator.scores.table import Kind
from evaluator.tokens.rows import TokenRows

logger = logging.getLogger(__name__)

ID_BYTES = 40  # of a row's key, with its offset
PAGE_BYTES = 5_000_000  # most that a page takes


class Outlook(NamedTuple):
    """What a run has before it, without what methods add after the first scores."""

    prompts: int
    scored: int  # of these, those that have scores already
    bytes_to_write: int  # an estimate from above: files are compressed
    bytes_free: int  # on the disk of prompts and scores


def outlook(built: Built, part: ScoredStore, source: ModelSource, data: Path) -> Outlook:
    """Look ahead, with the prompts tokenised and nothing asked.

    Args:
        built: the run.
        part: its first store, with the scores that it has.
        source: the model; how wide hidden states are.
        data: folder of prompts and scores.
    """
    rows = part.tokens.rows()
    is_state = pl.col("ask") == "state"
    kinds: Mapping[Kind, TokenRows] = {"scores": rows.filter(~is_state), "states": rows.filter(is_state)}
    prompts, scored, n_bytes = 0, 0, PAGE_BYTES + _table_bytes(built, part)
    for kind, asked in kinds.items():
        if not asked.height:
            continue
        plan = plan_rows(asked, part.scores, kind)
        reused, planned = plan.record.reused_prompts, plan.record.prompts
        done = sum(shard.prompts for shard in part.scores.manifest.shards_of([plan.key]))  # by an interrupted run
        prompts, scored = prompts + reused + planned, scored + reused + done
        n_rows = plan.rows.height * (planned - done) // max(planned, 1)
        n_bytes += n_rows * (ID_BYTES + (4 * source.hidden_size if kind == "states" else _numbers_bytes(asked)))
    return Outlook(prompts, scored, n_bytes, shutil.disk_usage(_existing(data)).free)


def _numbers_bytes(asked: TokenRows) -> int:
    """Return the bytes of a row of scores: for each continuation a log-likelihood and a number of tokens."""
    assert TOKEN_SCORES["log_likelihoods"] == pl.List(pl.Float64)
    mean = asked.column(pl.col("continuations").list.len()).mean()
    return round(12 * float(mean if isinstance(mean, int | float) else 0))


def _table_bytes(built: Built, part: ScoredStore) -> int:
    """Return the bytes of the predictions, the largest table: a row for each request, method and definition."""
    n_labels = part.store.prompts().select(pl.col("continuations").list.len().mean()).collect().item() or 0
    n_rows = (
        part.store.manifest.n_requests * len(built.config.methods) * len(scored_definitions(built.config.definitions))
    )
    return round(n_rows * (8 * n_labels + 2 * ID_BYTES))


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
