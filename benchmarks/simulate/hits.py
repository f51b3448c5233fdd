"""Compute which share of the tokens of every scenario prefix caches of several sizes hold."""

import argparse
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl

from benchmarks.simulate.cost_model import Cache, fed, shard_costs
from benchmarks.simulate.scenarios import GPU_BLOCK_TOKENS, stores
from evaluator.tokens.boundary import n_shared

CACHES = (2_048, 32_768, 524_288)  # sizes in tokens


def hits_table(arguments: argparse.Namespace) -> str:
    """Return a Markdown table: per group of prompts, the share of sent tokens that are in caches of several sizes."""
    heads = ["prompts of", "tokens sent", "shared at most", *(f"cache of {size:,} tokens" for size in CACHES)]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for store in stores(arguments, Path(folder)):
            for group, rows in store.groups():
                lines.append(f"| {group} | {' | '.join(_hits(rows, arguments.step_tokens))} |")
    return "\n".join([*lines, ""])


def _hits(rows: pl.DataFrame, step_tokens: int) -> Iterator[str]:
    sequences = list(fed(rows))
    sent = sum(map(len, sequences))
    yield f"{sent / 1e6:,.2f} M"
    yield f"{sum(n_shared(*pair) for pair in pairwise(sequences)) / sent:.1%}"
    for size in CACHES:
        costs = shard_costs(rows, Cache(GPU_BLOCK_TOKENS, size // GPU_BLOCK_TOKENS, shares_parts=False), step_tokens)
        yield f"{1 - sum(one.computed_tokens for one in costs) / sent:.1%}"
