"""A run's output folder: its record, its stores and scores, its tables. What others script against is here too."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.errors import StoreError
from evaluator.record import PromptsRecord, RunRecord, ScoresRecord
from evaluator.run.build import Built
from evaluator.run.config_json import config_from_json
from evaluator.run.record import RUN_FILE, read_run
from evaluator.run.scored_run import ScoredStore, scored_run
from evaluator.scores.table import open_scores
from evaluator.store.prompt_store import PromptStore, require_store
from evaluator.tokens.table import require_tokens


class BuiltFolder(NamedTuple):
    """A run of which the prompts are there, opened and verified."""

    record: RunRecord
    data: Path  # folder of prompts and scores
    built: Built


def open_built(out: Path) -> BuiltFolder:
    """Open the prompts of the last build in an output folder. Raises StoreError where there are none."""
    record = read_run(out)
    prompts = built_section(record, out)
    data = out / record.data
    config = config_from_json(prompts.config, where=str(out / RUN_FILE))
    return BuiltFolder(record, data, Built(config, require_store(data / "store" / prompts.fingerprint), {}))


def open_scored(folder: BuiltFolder, out: Path) -> list[ScoredStore]:
    """Open what the model answered: the run's own store, then that of the second round where there is one.

    Raises StoreError where nothing was scored.
    """
    scores = scores_section(folder.record, out)
    parts = []
    for store_name, tokens_name, table_name in zip(scores.stores, scores.tokens, scores.tables, strict=True):
        own = store_name == folder.built.store.fingerprint
        store = folder.built.store if own else require_store(folder.data / "store" / store_name)
        table = open_scores(folder.data / "scores" / table_name)
        if not table.manifest.plans:
            raise StoreError(f"{table.folder} holds no scores. Run `evaluator score {out} --model MODEL`.")
        parts.append(ScoredStore(store, require_tokens(store.folder / tokens_name), table))
    return parts


def built_section(record: RunRecord, out: Path) -> PromptsRecord:
    """What was built. Raises StoreError where nothing was."""
    if record.prompts is None:
        raise StoreError(f"{out} has no prompts yet. Run `evaluator build SUITE --out {out}` first.")
    return record.prompts


def scores_section(record: RunRecord, out: Path) -> ScoresRecord:
    """What was scored. Raises StoreError where nothing was."""
    if record.scores is None:
        raise StoreError(f"{out} has no scores yet. Run `evaluator score {out} --model MODEL` first.")
    return record.scores


def read_requests(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every request of a run with its prompt: the columns of schemas.REQUESTS, and prompt, ask and continuations.

    Rows are in the benchmark's order; those of the second round come last. Raises StoreError where nothing was built.
    """
    folder = open_built(Path(out))
    names = folder.record.scores.stores[1:] if folder.record.scores else []
    stores: list[PromptStore] = [folder.built.store, *(require_store(folder.data / "store" / name) for name in names)]
    return pl.concat(store.requests_with_prompts() for store in stores)


def read_scores(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every request of a run with its prompt and scores: read_requests with the columns of schemas.SCORES (nats).

    Requests that are not scored yet are left out. Raises StoreError where nothing was scored.
    """
    folder = open_built(Path(out))
    parts = open_scored(folder, Path(out))
    rows = scored_run(folder.built, parts).scored.rows
    prompts = pl.concat(part.store.prompts() for part in parts).unique("prompt_id", keep="first", maintain_order=True)
    return rows.join(prompts, on="prompt_id", how="left", maintain_order="left")


def read_table(out: Path, name: str) -> pl.DataFrame:
    """Read one of DIR/tables. Raises StoreError where nothing was measured."""
    path = out / "tables" / f"{name}.parquet"
    if not path.is_file():
        raise StoreError(f"{path} is not there. Run `evaluator measure {out}` first.")
    return pl.read_parquet(path)
