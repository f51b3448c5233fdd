"""Time a prompt search of hindu_knowledge with a 28 M-parameter random Llama, against lm-evaluation-harness.

The task is of BIG-bench Lite: 4 shots, 50 prompts x 100 queries, four to six choices of any length. The data is in the
folder `bigbench_lite` of $EVALUATOR_SHARED_DATA. The race times the scoring of a slice of the
search by both; then the command runs the whole search, and its record says how many tokens were computed.

    python -m benchmarks.end_to_end.prompt_search [prompts] [queries] [prompts in the race] [runs]
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.end_to_end.contestants import LLAMA_28M, Choices, contestant
from benchmarks.harness import ROOT, SHARED_DATA, Target, Work, print_targets, race
from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.source import find_model
from evaluator.progress import finish
from evaluator.record import RunRecord
from evaluator.run.build import build_prompts
from evaluator.run.record import read_run
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.tokens.table import tokenise_store

TASK = SHARED_DATA / "bigbench_lite" / "hindu_knowledge.parquet"
N_SHOTS = 4
TOLERANCE = 1e-3  # nats, of a choice of several tokens in float32


def main(n_prompts: int = 50, n_queries: int = 100, n_raced: int = 10, runs: int = 3) -> None:
    if not TASK.is_file():
        raise SystemExit(f"{TASK} is absent; EVALUATOR_SHARED_DATA names the folder that holds bigbench_lite.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = finish(build_prompts(search(n_prompts, n_queries), folder / "built")).store
        texts = store.prompts().collect()["prompt"].unique().sort()
        model = make_random_llama(folder / "llama-28m", texts=texts, size=LLAMA_28M)
        times_lm_eval = raced(first_prompts(store, model, n_raced), n_raced, runs)
        record = whole_search(folder / "run", model, n_prompts, n_queries)
    tokens, scores = record.tokens, record.scores
    assert tokens is not None, "the run was tokenised"
    assert scores is not None, "the run was scored"
    assert tokens.block_floor_tokens is not None, "vLLM shares whole blocks"
    computed = scores.computed_tokens
    print(f"\nwhole search: {scores.prompts:,} prompts scored in {scores.elapsed_s:.0f} s")
    print_targets(
        Target(what="choices per second, times lm-eval's vLLM", value=times_lm_eval, at_least=8),
        Target(what="computed tokens over the floor", value=computed / tokens.floor_tokens, at_most=1.25),
        Target(
            what=f"computed tokens over the floor of whole blocks of {tokens.block_tokens}",
            value=computed / tokens.block_floor_tokens,
            at_most=1.25,
        ),
    )


def search(n_prompts: int, n_queries: int) -> RunConfig:
    return RunConfig(
        suites=("prompt-search",),
        data=DataOptions(paths=(TASK,)),
        n_queries=n_queries,
        methods=("per_token",),
        definitions=("paper",),
        suite_options={"prompt-search": SearchOptions(shots=(N_SHOTS,), tries=n_prompts)},
    )


def first_prompts(store: PromptStore, model: Path, n_prompts: int) -> Choices:
    """Return the first prompts of the search with all their queries, in the order in which a run scores them."""
    source = find_model(ModelConfig(model=str(model)))
    table = finish(tokenise_store(store, source.tokenizer, source.tokenizer_fingerprint, "merged", ["paper"]))
    first = store.requests().filter(pl.col("demonstration_set") < n_prompts).select("prompt_id").unique()
    tokens = table.tokens().join(first, on="prompt_id", how="semi", maintain_order="left").collect()
    return Choices(model, "float32", tokens["context"].to_list(), tokens["continuations"].to_list())


def raced(choices: Choices, n_prompts: int, runs: int) -> float:
    """Return our choices per second over those of lm-evaluation-harness, after comparing their scores."""
    n_choices = sum(map(len, choices.choices))
    work = Work(
        benchmark="prompt_search",
        case=f"hindu_knowledge, {N_SHOTS} shots, {n_prompts} prompts, 28 M random Llama, float32",
        items=n_choices,
        unit="choices",
        packages=["torch", "transformers", "lm-eval"],
    )

    def same(expected: np.ndarray, found: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)

    names = ("lm-eval, vLLM", "evaluator, vLLM")
    with ExitStack() as stack:
        loaded = {name: stack.enter_context(contestant(f"choices, {name}", choices)) for name in names}
        timings = race(work, loaded, runs=runs, same=same)
    return timings["evaluator, vLLM"].times_baseline


def whole_search(out: Path, model: Path, n_prompts: int, n_queries: int) -> RunRecord:
    """Run the command on the whole search and return its record."""
    sizes = ["--shots", N_SHOTS, "--tries", n_prompts, "--queries", n_queries]
    words = ["run", "prompt-search", "--data", TASK, *sizes, "--model", model, "--engine", "vllm", "--dtype", "float32"]
    subprocess.run([sys.executable, "-m", "evaluator", *map(str, words), "--out", str(out)], cwd=ROOT, check=True)
    return read_run(out)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
