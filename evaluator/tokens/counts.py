"""Count the tokens of a store, and those to compute if no shared prefix is computed twice."""

from dataclasses import dataclass

import polars as pl

from evaluator.schemas import TOKENS
from evaluator.store.ids import id_numbers
from evaluator.store.prefix_order import block_floor, prefix_order, token_floor
from evaluator.store.sorted_runs import n_before
from evaluator.tokens.rows import ragged

BLOCK_SIZES = (16, 32, 128)
"""Block sizes for which the manifest has a floor: of vLLM on a GPU, of this package on a CPU, of vLLM on a CPU."""


@dataclass(frozen=True, kw_only=True)
class TokenTotals:
    """Token counts of a store, and the floors: tokens to compute if no shared prefix is computed twice."""

    request_tokens: int  # prompts that several requests share are counted for each
    tokens: int  # each prompt counted once
    floor_tokens: int
    block_floor_tokens: dict[str, int]  # block size -> floor if only whole blocks are shared


def count_tokens(requests: pl.LazyFrame, tokens: pl.DataFrame) -> TokenTotals:
    """Count the tokens of all requests and of the distinct prompts, and compute the floors.

    Args:
        requests: schemas.REQUESTS.
        tokens: schemas.TOKENS, in any order.
    """
    floors = Floors()
    floors.add(tokens)
    return floors.totals(requests, tokens.lazy())


class Floors:
    """Floors of rows that are added range by range, in prefix order."""

    def __init__(self) -> None:
        # Hidden states are computed in a separate pass, which shares no cache with that of the log-likelihoods.
        self._passes = {"scores": _Pass(), "states": _Pass()}

    def add(self, rows: pl.DataFrame, before: list[int] | None = None) -> None:
        """Add rows of schemas.TOKENS.

        Args:
            rows: all whose context is neither in an earlier range nor in a later one.
            before: the first context of the ranges that follow, or one before it; None: none follow.
        """
        for_states = pl.col("ask") == "state"
        self._passes["scores"].add(fed_rows(rows.filter(~for_states)), before)
        self._passes["states"].add(fed_rows(rows.filter(for_states)), before)

    def totals(self, requests: pl.LazyFrame, tokens: pl.LazyFrame) -> TokenTotals:
        """Return the floors, and the tokens of these requests and of all prompts."""
        lengths = tokens.filter(pl.col("ask") != "last_tokens").select(  # they repeat a context that is counted already
            id_numbers("prompt_id"), n=pl.col("context").list.len().cast(pl.Int64)
        )
        asked = requests.select(id_numbers("prompt_id")).join(lengths, on="prompt_id").select(pl.col("n").sum())
        passes = self._passes.values()
        return TokenTotals(
            request_tokens=asked.collect(engine="streaming").item(),
            tokens=lengths.select(pl.col("n").sum()).collect(engine="streaming").item(),
            floor_tokens=sum(each.floor for each in passes),
            block_floor_tokens={str(size): sum(each.block_floors[size] for each in passes) for size in BLOCK_SIZES},
        )


class _Pass:
    """Floors of the token sequences that are fed in one pass over a store."""

    def __init__(self) -> None:
        self.floor = 0
        self.block_floors = dict.fromkeys(BLOCK_SIZES, 0)
        self._above = pl.Series(dtype=TOKENS["context"])  # the last row so far
        self._later = self._above  # rows that come after the first row of the next range

    def add(self, rows: pl.Series, before: list[int] | None) -> None:
        rows = pl.concat([self._later, rows]).unique()
        rows = rows.gather(prefix_order(*ragged(rows)))
        end = len(rows) if before is None else n_before(rows, before)
        rows, self._later = rows[:end], rows[end:]
        if not end:
            return
        # In prefix order, a row shares as much with the row above it as with any earlier one.
        in_order, n_above = ragged(pl.concat([self._above, rows])), int(self._above.list.len().sum())
        self.floor += token_floor(*in_order) - n_above
        for size in BLOCK_SIZES:
            self.block_floors[size] += block_floor(*in_order, size) - n_above
        self._above = rows.tail(1)


def fed_rows(tokens: pl.DataFrame) -> pl.Series:
    """Return the distinct token sequences that a model must process, List[i32].

    These are the contexts, and each context with a continuation of several tokens except the last, which is predicted
    and never fed.
    """
    stem = pl.col("continuations").list.head(pl.col("continuations").list.len() - 1)
    stems = tokens.lazy().explode("continuations").with_columns(stem=stem).filter(pl.col("stem").list.len() > 0)
    with_stems = stems.select(context=pl.concat_list("context", "stem"))
    return pl.concat([tokens.lazy().select("context"), with_stems]).unique().collect()["context"]
