"""Stores and their scores go in; what methods read of them comes out."""

from collections.abc import Sequence

import polars as pl

from evaluator.methods.base import Answers
from evaluator.run.build import PromptStore
from evaluator.schemas import LABEL_DISTANCES, LABEL_DISTANCES_KEY, PROMPTS_KEY
from evaluator.scores.table import ScoreTable
from evaluator.store import shards

DISTANCES_FILE = "label_distances.arrow"


def answers_of(parts: Sequence[tuple[PromptStore, ScoreTable]]) -> Answers:
    """All that a model answered: the store of a run first, then what followed from its answers."""
    (store, table), *_ = parts
    distances = table.folder / DISTANCES_FILE
    return Answers(
        scored=pl.concat(join_requests(store, table.scores()) for store, table in parts),
        states=pl.concat(join_requests(store, table.states()) for store, table in parts),
        distances=pl.scan_ipc(distances) if distances.is_file() else pl.LazyFrame(schema=LABEL_DISTANCES),
        asked_parts=store.manifest["parts"],
    )


def join_requests(store: PromptStore, answered: pl.LazyFrame) -> pl.LazyFrame:
    """The requests of a store that are answered, in their order, with the answers to their prompts."""
    return store.requests().join(answered, on=PROMPTS_KEY, how="inner", maintain_order="left")


def write_distances(table: ScoreTable, distances: Sequence[pl.DataFrame]) -> None:
    """Keep schemas.LABEL_DISTANCES beside the hidden states they were made of."""
    frame = pl.concat(distances).select(LABEL_DISTANCES.names()).sort(LABEL_DISTANCES_KEY)
    shards.write_shard(table.folder / DISTANCES_FILE, frame)
