"""Time PVI of SNLI queries after six demonstrations with a 28 M-parameter random Llama in float32.

The baseline is transformers, which scores the input prompt and the null prompt of each query one at a time. The data is
in the folder `pvi` of $EVALUATOR_SHARED_DATA. The race times a number of queries; then the command runs,
and its record says how many tokens were computed.

    python -m benchmarks.end_to_end.pvi [queries] [runs]
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.end_to_end.contestants import LLAMA_28M, Choices, Probs, contestant
from benchmarks.harness import ROOT, SHARED_DATA, Target, Work, print_targets, race
from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.source import find_model
from evaluator.progress import finish
from evaluator.record import RunRecord
from evaluator.run.build import build_prompts
from evaluator.run.record import read_run
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.in_context_pvi.options import PviOptions
from evaluator.tokens.table import tokenise_store

DATA = SHARED_DATA / "pvi"
N_SHOTS = 6
TOLERANCE = 1e-4  # nats


def main(n_queries: int = 1000, runs: int = 3) -> None:
    if not DATA.is_dir():
        raise SystemExit(f"{DATA} is absent; EVALUATOR_SHARED_DATA names the folder that holds it.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = RunConfig(
            suites=("pvi",),
            datasets=("snli",),
            n_queries=n_queries,
            definitions=("paper",),
            data=DataOptions(paths=(DATA,)),
            suite_options={"pvi": PviOptions(shots=(N_SHOTS,), sets=1)},
        )
        store = finish(build_prompts(config, folder / "built")).store
        texts = store.prompts().collect()["prompt"]
        model = make_random_llama(folder / "llama-28m", texts=texts, size=LLAMA_28M)
        times = raced(store, model, n_queries, runs)
        record = command(folder / "run", model, n_queries)
    tokens, scores = record.tokens, record.scores
    assert tokens is not None, "the run was tokenised"
    assert scores is not None, "the run was scored"
    assert tokens.block_floor_tokens is not None, "vLLM shares whole blocks"
    print_targets(
        Target(what="queries per second, times transformers one at a time", value=times, at_least=9),
        Target(
            what="computed tokens over the floor",
            value=scores.computed_tokens / tokens.floor_tokens,
            at_most=1.15,
        ),
        Target(
            what=f"computed tokens over the floor of whole blocks of {tokens.block_tokens}",
            value=scores.computed_tokens / tokens.block_floor_tokens,
            at_most=1.15,
        ),
    )


def raced(store: PromptStore, model: Path, n_queries: int, runs: int) -> float:
    """Return our queries per second over those of the baseline, after comparing the PVI of both."""
    rows = token_rows(store, model)
    null, inputs = rows.filter(part="null"), rows.filter(part="input")
    work = Work(
        benchmark="pvi",
        case=f"SNLI, {N_SHOTS} shots, {n_queries} queries, 28 M random Llama, float32",
        items=n_queries,
        unit="queries",
        packages=["torch", "transformers"],
    )
    null_context = null["context"][0].to_list()
    both = [context for row in inputs["context"] for context in (row.to_list(), null_context)]
    once = [*null["context"].to_list(), *inputs["context"].to_list()]
    labels = null["continuations"][0].to_list()
    contestants = {
        "transformers, one at a time": (both, lambda scores: scores[0::2] - scores[1::2]),
        "evaluator, vLLM": (once, lambda scores: scores[1:] - scores[0]),
    }

    def same(expected: Probs, found: Probs) -> None:
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0)

    with ExitStack() as stack:
        loaded: dict[str, Callable[[], Any]] = {}
        for name, (contexts, gain) in contestants.items():
            choices = Choices(model, "float32", contexts, [labels] * len(contexts))
            score = stack.enter_context(contestant(f"choices, {name}", choices))
            loaded[name] = lambda score=score, gain=gain: gain(score().reshape(-1, len(labels)))  # type: ignore[misc]
        return race(work, loaded, runs=runs, same=same)["evaluator, vLLM"].times_baseline


def token_rows(store: PromptStore, model: Path) -> pl.DataFrame:
    """Return requests with their tokens, in the order in which a run scores them."""
    source = find_model(ModelConfig(model=str(model)))
    table = finish(tokenise_store(store, source.tokenizer, source.tokenizer_fingerprint, "merged", ["paper"]))
    requests = store.requests().select("prompt_id", "part", "position")
    return table.tokens().join(requests, on="prompt_id", maintain_order="left").collect()


def command(out: Path, model: Path, n_queries: int) -> RunRecord:
    """Run the command on the same queries and return its record."""
    what = ["--data", DATA, "--datasets", "snli", "--shots", N_SHOTS, "--sets", 1, "--queries", n_queries]
    words = ["run", "pvi", *what, "--model", model, "--dtype", "float32", "--definition", "paper", "--out", out]
    subprocess.run([sys.executable, "-m", "evaluator", *map(str, words)], cwd=ROOT, check=True)
    return read_run(out)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
