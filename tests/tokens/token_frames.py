"""Small tables of tokens."""

import polars as pl

from evaluator.schemas import TOKENS
from evaluator.tokens.table import with_token_ids


def token_table(*rows: tuple[str, list[int], list[list[int]]]) -> pl.DataFrame:
    """Return schemas.TOKENS of rows of a prompt's id, its context and its continuations."""
    names, contexts, continuations = zip(*rows, strict=True)
    types = {name: TOKENS[name] for name in ("context", "continuations")}
    columns = {"prompt_id": names, "ask": "labels", "context": contexts, "continuations": continuations}
    return with_token_ids(pl.DataFrame(columns, schema_overrides=types))
