"""Define and prepare workloads for races: the distinct prompts of a run, as text and as tokens, in prefix order.

The command whose time is measured also builds the prompts, so that races use the prompts of a user's run.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.harness import ROOT, SHARED_DATA, SHARED_MODELS
from evaluator.config import ModelConfig
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import ModelSource, find_model
from evaluator.progress import finish
from evaluator.run.build import Built
from evaluator.run.folder import BuiltFolder
from evaluator.store import PromptStore
from evaluator.suites import default_label_boundary
from evaluator.tokens.table import TokenTable, tokenise_store

SHAPES = {
    "28M": LlamaSize(hidden_size=512, n_layers=8, n_heads=8, intermediate_size=1408),
    "124M": LlamaSize(hidden_size=768, n_layers=12, n_heads=12, intermediate_size=2048, vocab_size=50_304),
    "1B": LlamaSize(
        hidden_size=2048, n_layers=16, n_heads=32, n_kv_heads=8, intermediate_size=8192, vocab_size=128_256
    ),
    "8B": LlamaSize(
        hidden_size=4096, n_layers=32, n_heads=32, n_kv_heads=8, intermediate_size=14_336, vocab_size=128_256
    ),
}
"""Number of parameters -> sizes of a random Llama. The values of weights do not change the time of a forward pass. The
two largest have the shapes of Llama 3.2 1B and Llama 3.1 8B."""

REAL_MODELS = {"SmolLM2-135M": "smollm2-135m-instruct", "Gemma-3-270M": "gemma-3-270m"}
"""Name of a pretrained model -> its folder in SHARED_MODELS."""

REPEATED_LABELS = 1000  # repetitions of labels in the training texts of the tokenizer, so that they become one token


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A run whose prompts contestants score."""

    words: Sequence[str]  # arguments of `evaluator run`, without model and folder
    queries: int  # default number of queries per dataset
    label_repeats: int = REPEATED_LABELS  # 1: labels are not repeated, so most have several tokens
    states: bool = False  # whether some prompts need hidden states, which only some tools return
    data: str | None = None  # file or folder in SHARED_DATA that the run reads


WORKLOADS: dict[str, Workload] = {
    "one dataset": Workload(words=["staicc-normal", "--datasets", "sst5"], queries=192),
    "all StaICC parts": Workload(words=["staicc", "--datasets", "sst5,trec"], queries=24),
    "all StaICC parts and methods": Workload(
        words=["staicc", "--datasets", "sst5,trec", "--methods", "all"], queries=16, states=True
    ),
    "PVI": Workload(words=["pvi", "--datasets", "snli", "--shots", "6", "--sets", "1"], queries=500, data="pvi"),
    "prompt search": Workload(
        words=["prompt-search", "--shots", "4", "--tries", "10", "--methods", "per_token"],
        queries=50,
        label_repeats=1,
        data="bigbench_lite/hindu_knowledge.parquet",
    ),
}
"""Name -> workload. The queries of prompt search have four to six choices of any length."""


class Job(NamedTuple):
    """The input of a contestant. Prompts are in files, which the contestant's process reads."""

    model: Path
    dtype: str
    tokens: Path  # folder of the token table
    requests: Path  # Parquet file with the result of request_rows for this table
    rows: list[int]  # row numbers in that file which the contestant scores
    kv_cache_gib: float | None = None  # size of vLLM's KV cache; None: as this project chooses


Scores = npt.NDArray[np.float64]
"""Log-likelihoods in nats, one per continuation, in the order of rows; rows for a hidden state have no continuation."""
Score = Callable[[], Scores]


class Prepared(NamedTuple):
    """A workload on disk."""

    name: str
    words: list[str]  # arguments of the whole command, without --out and --dtype
    job: Job  # the job with all rows
    n_requests: int  # number of requests; several requests can have the same prompt
    floor_tokens: int  # number of tokens to compute if shared prefixes are computed once


def prepare(names: Sequence[str], shape: str, folder: Path, queries: Sequence[int | None]) -> list[Prepared]:
    """Build the prompts of workloads, a model for all of them (unless it is a real model), and the prompts' tokens.

    Args:
        names: keys of WORKLOADS.
        shape: key of SHAPES or REAL_MODELS.
        folder: folder for all files.
        queries: number of queries per dataset, for each workload; None: the default of the workload.

    Raises SystemExit if data or a model that are not in the repository are missing.
    """
    if shape in REAL_MODELS and not (path := SHARED_MODELS / REAL_MODELS[shape]).is_dir():
        raise SystemExit(f"{shape}: {path} is absent; EVALUATOR_SHARED_MODELS names the folder that holds it.")
    words = {name: _words(name, n) for name, n in zip(names, queries, strict=True)}
    for name in names:
        evaluator("build", *words[name], "--out", str(folder / name / "built"))
    built = {name: BuiltFolder(folder / name / "built").built for name in names}
    texts = [text for name in names for text in _training_texts(built[name].store, WORKLOADS[name].label_repeats)]
    model = SHARED_MODELS / REAL_MODELS[shape] if shape in REAL_MODELS else random_model(folder / "model", shape, texts)
    source = find_model(ModelConfig(model=str(model)))
    options = ["--model", str(model), "--engine", "vllm", "--chat-template", "none"]
    return [Prepared(name, [*words[name], *options], *_tokenised(built[name], source, folder / name))
            for name in names]  # fmt: skip


def _words(name: str, queries: int | None) -> list[str]:
    """Return the arguments of `evaluator build` and `evaluator run` for a workload, without model and folder."""
    workload = WORKLOADS[name]
    words = [*workload.words, "--queries", str(queries or workload.queries), "--definition", "paper"]
    if workload.data is None:
        return words
    path = SHARED_DATA / workload.data
    if not path.exists():
        raise SystemExit(f"{name}: {path} is absent; EVALUATOR_SHARED_DATA names the folder that holds it.")
    return [*words, "--data", str(path)]


def _training_texts(store: PromptStore, label_repeats: int) -> list[str]:
    prompts = store.prompts().select("prompt", "continuations").collect()
    labels = prompts["continuations"].explode().drop_nulls().unique(maintain_order=True).to_list()
    return [*prompts["prompt"].unique(maintain_order=True), *labels * label_repeats]


def _tokenised(built: Built, source: ModelSource, folder: Path) -> tuple[Job, int, int]:
    """Tokenise a workload's prompts; write requests to the folder, and return the last three fields of `Prepared`."""
    store, config = built.store, built.config
    boundary = default_label_boundary(config.suites)
    table = finish(tokenise_store(store, source.tokenizer, source.tokenizer_fingerprint, boundary, config.definitions))
    rows = request_rows(table, store.prompts().collect())
    rows.write_parquet(folder / "requests.parquet")
    job = Job(source.folder, "float32", table.folder, folder / "requests.parquet", list(range(rows.height)))
    return job, store.manifest.n_requests, table.manifest.counts.floor_tokens


def random_model(folder: Path, shape: str, texts: Iterable[str]) -> Path:
    """Create a random Llama of the given shape, with a tokenizer that is trained on the texts.

    The 8B model is saved in bfloat16 (15 GB), others in float32.
    """
    return make_random_llama(folder, texts=texts, size=SHAPES[shape], dtype="bfloat16" if shape == "8B" else "float32")


def request_rows(table: TokenTable, prompts: pl.DataFrame) -> pl.DataFrame:
    """Return schemas.TOKENS with the columns prompt and labels (texts of continuations); equal token rows once."""
    texts = prompts.select("prompt_id", "prompt", labels="continuations")
    rows = table.tokens.collect().unique("token_id", keep="first", maintain_order=True)
    return rows.join(texts, on="prompt_id", how="left", maintain_order="left")


def requests(job: Job) -> pl.DataFrame:
    """Return the rows that a contestant scores, in prefix order."""
    return pl.read_parquet(job.requests)[job.rows]


def evaluator(*words: str) -> None:
    """Run a command of this project in a separate process. Raises SystemExit, with the end of stderr, on failure."""
    done = subprocess.run(
        [sys.executable, "-m", "evaluator", *words], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"evaluator {' '.join(words)}\n{done.stderr[-2000:]}")
