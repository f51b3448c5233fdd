"""Reading a run's tables from its output folder: what others script against."""

from os import PathLike
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.run_record import stage_fingerprint
from evaluator.scores.table import open_scores
from evaluator.store.prompt_store import PromptStore, require_store
from evaluator.store.shards import replacing


def run_store(out: Path) -> PromptStore:
    """The prompt store of the last build in this output folder."""
    return require_store(out / "store" / stage_fingerprint(out, "store"))


def read_requests(out: str | PathLike[str]) -> pl.LazyFrame:
    """Every request of a run with its prompt: the columns of schemas.REQUESTS and `prompt`, in the benchmark's order.

    Raises StoreError where nothing was built.
    """
    store = run_store(Path(out))
    prompts = store.prompts().select("prompt_id", "prompt")
    return store.requests().join(prompts, on="prompt_id", how="left", maintain_order="left")


def read_scores(out: str | PathLike[str]) -> pl.LazyFrame:
    """Every request of a run with its scores: the columns of schemas.REQUESTS and schemas.SCORES (nats).

    Requests that are not scored yet are left out. Raises StoreError where nothing was scored.
    """
    out = Path(out)
    scores = prompt_scores(out)
    return run_store(out).requests().join(scores, on="prompt_id", how="inner", maintain_order="left")


def prompt_scores(out: Path) -> pl.LazyFrame:
    """The scores of a run's distinct prompts, schemas.SCORES. Raises StoreError where nothing was scored."""
    folder = out / "scores" / stage_fingerprint(out, "scores")
    table = open_scores(folder)
    if table is None:
        raise StoreError(f"{folder} holds no scores. Run `evaluator score {out} --model MODEL`.")
    return table.scores()


def read_table(out: Path, name: str) -> pl.DataFrame:
    """One of DIR/tables. Raises StoreError where nothing was measured."""
    path = out / "tables" / f"{name}.parquet"
    if not path.is_file():
        raise StoreError(f"{path} is not there. Run `evaluator measure {out}` first.")
    return pl.read_parquet(path)


def write_table(out: Path, name: str, frame: pl.DataFrame) -> None:
    """Write one of DIR/tables, whole or not at all."""
    with replacing(out / "tables" / f"{name}.parquet") as file:
        frame.rechunk().write_parquet(file, compression="zstd")
