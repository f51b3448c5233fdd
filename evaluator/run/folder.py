"""Reading a run's tables from its output folder: what others script against."""

from os import PathLike
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.methods.base import Answers
from evaluator.run.build import PromptStore, require_store
from evaluator.run.record import data_folder, read_run, stage_fingerprint
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.answers import answers_of
from evaluator.scores.table import ScoreTable, open_scores


def run_store(out: Path) -> PromptStore:
    """The prompt store of the last build in this output folder."""
    return require_store(data_folder(out) / "store" / stage_fingerprint(out, "store"))


def run_stores(out: Path) -> list[PromptStore]:
    """The store of the last build and, once scored, those that followed from a model's answers to it."""
    following = read_run(out)["store"].get("follow_up", [])
    return [run_store(out), *(require_store(data_folder(out) / "store" / name) for name in following)]


def answered_stores(out: Path) -> list[tuple[PromptStore, ScoreTable]]:
    """The stores of a run with their scores. Raises StoreError where nothing was scored."""
    names = [stage_fingerprint(out, "scores"), *read_run(out)["scores"]["follow_up"]]
    return [(store, _score_table(out, name)) for store, name in zip(run_stores(out), names, strict=True)]


def read_requests(out: str | PathLike[str]) -> pl.LazyFrame:
    """Every request of a run with its prompt: the columns of schemas.REQUESTS and `prompt`, in the benchmark's order.

    What methods asked after a model's first answers comes last. Raises StoreError where nothing was built.
    """
    return pl.concat(_with_prompts(store) for store in run_stores(Path(out)))


def _with_prompts(store: PromptStore) -> pl.LazyFrame:
    prompts = store.prompts().select("prompt_id", "prompt")
    return store.requests().join(prompts, on=PROMPTS_KEY, how="left", maintain_order="left")


def read_scores(out: str | PathLike[str]) -> pl.LazyFrame:
    """Every request of a run with its scores: the columns of schemas.REQUESTS and schemas.SCORES (nats).

    Requests that are not scored yet are left out. Raises StoreError where nothing was scored.
    """
    return read_answers(Path(out)).scored


def read_answers(out: Path) -> Answers:
    """All that a run's model answered. Raises StoreError where nothing was scored."""
    return answers_of(answered_stores(out))


def scored_requests(store: PromptStore) -> pl.DataFrame:
    """The requests of a store that ask for log-likelihoods, with `ask` and their continuations."""
    prompts = store.prompts().filter(pl.col("ask") != "state").select("prompt_id", "ask", "continuations")
    return store.requests().join(prompts, on=PROMPTS_KEY, how="inner", maintain_order="left").collect()


def state_requests(store: PromptStore) -> pl.DataFrame:
    """The requests of a store that ask for hidden states."""
    prompts = store.prompts().filter(ask="state").select(PROMPTS_KEY)
    return store.requests().join(prompts, on=PROMPTS_KEY, how="semi", maintain_order="left").collect()


def _score_table(out: Path, name: str) -> ScoreTable:
    folder = data_folder(out) / "scores" / name
    table = open_scores(folder)
    if table is None:
        raise StoreError(f"{folder} holds no scores. Run `evaluator score {out} --model MODEL`.")
    return table


def read_table(out: Path, name: str) -> pl.DataFrame:
    """One of DIR/tables. Raises StoreError where nothing was measured."""
    path = out / "tables" / f"{name}.parquet"
    if not path.is_file():
        raise StoreError(f"{path} is not there. Run `evaluator measure {out}` first.")
    return pl.read_parquet(path)


def current_table(out: Path, name: str) -> pl.DataFrame:
    """As read_table. Raises StoreError as well where it was measured of other scores than those of the last run."""
    table = read_table(out, name)
    if read_run(out).get("measures", {}).get("scores") != stage_fingerprint(out, "scores"):
        raise StoreError(f"The metrics in {out} are those of earlier scores. Run `evaluator measure {out}` first.")
    return table
