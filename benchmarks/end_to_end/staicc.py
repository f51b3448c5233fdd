"""Time all of StaICC with all methods on SST-5 and TREC with a 28 M-parameter random Llama, in the toolkit's sizes.

Our time is that of the whole command except for loading the model. The toolkit and lm-evaluation-harness score every
n-th request of the same run, warm and loaded, and their time is scaled to all requests. The toolkit gets each request
once, as in our store, although each of its methods would score StaICC-Normal again. lm-evaluation-harness has no hidden
states, so it is compared with our log-likelihoods alone.

    python -m benchmarks.end_to_end.staicc [queries of each dataset] [requests sampled] [runs of the samples]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.end_to_end.contestants import LLAMA_28M, Choices, Requests, contestant, softmax
from benchmarks.harness import Target, append_rows, print_targets
from evaluator.config import Dtype
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.embedded.random_model import tokenizer_texts
from evaluator.run.folder import open_built, open_scored
from evaluator.run.record import read_run
from evaluator.run.scored_run import ScoredStore
from evaluator.scores.prompts import prompt_scores

SUITE = ("staicc", "--methods", "all", "--definition", "released", "--datasets", "sst5,trec")
SMALL_CACHE_GIB = 20_000 * 2 * 8 * 512 * 4 / 2**30
"""Size of the keys and values of 20,000 tokens: 8 layers of 512 float32 numbers each."""

TOLERANCE: dict[Dtype, float] = {"float32": 1e-4, "bfloat16": 0.1}
"""Largest difference between label probabilities of two tools; in bfloat16 they round differently."""


class Run(NamedTuple):
    """Seconds and tokens of one run of the command."""

    phases_s: dict[str, float]  # build, tokenise, score, measure
    log_likelihoods_s: float  # the part of score spent on log-likelihoods
    n_requests: int
    computed_tokens: int
    block_floor_tokens: int
    floor_tokens: int

    @property
    def seconds(self) -> float:
        return sum(self.phases_s.values())


def main(n_queries: int = 64, n_sampled: int = 240, runs: int = 3) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = tokenizer_texts([load_staicc("sst5"), load_staicc("trec")])
        model = make_random_llama(folder / "llama-28m", texts=texts, size=LLAMA_28M)
        fp32 = run(folder / "fp32", model, n_queries, "float32")
        bf16 = run(folder / "bf16", model, n_queries, "bfloat16")
        small = run(folder / "small", model, n_queries, "float32", "--kv-cache-gib", f"{SMALL_CACHE_GIB:.4f}")
        toolkit_s = toolkit_seconds(folder / "fp32", model, n_sampled, runs)
        lm_eval_s = {
            "float32": lm_eval_seconds(folder / "fp32", model, n_sampled, runs, "float32"),
            "bfloat16": lm_eval_seconds(folder / "bf16", model, n_sampled, runs, "bfloat16"),
        }
    write_rows(n_queries, {"fp32": fp32, "bf16": bf16, "fp32, cache of 20,000 tokens": small}, toolkit_s, lm_eval_s)
    print_targets(
        Target(what="fp32, times the toolkit", value=toolkit_s / fp32.seconds, at_least=4),
        Target(what="bf16, times the toolkit in fp32", value=toolkit_s / bf16.seconds, at_least=8.5),
        Target(what="fp32, times lm-eval's vLLM", value=lm_eval_s["float32"] / fp32.log_likelihoods_s, at_least=9),
        Target(what="bf16, times lm-eval's vLLM", value=lm_eval_s["bfloat16"] / bf16.log_likelihoods_s, at_least=9),
        Target(what="computed tokens over the block floor", value=over_block_floor(fp32), at_most=1.02),
        Target(what="the same, cache of 20,000 tokens", value=over_block_floor(small), at_most=1.02),
    )


def run(out: Path, model: Path, n_queries: int, dtype: Dtype, *more: str) -> Run:
    """Run the command in a separate process and return the figures of its record."""
    words = (*SUITE, "--model", model, "--out", out, "--queries", n_queries, "--dtype", dtype, *more)
    subprocess.run([sys.executable, "-m", "evaluator", "run", *map(str, words)], env=os.environ, check=True)
    record, stores = read_run(out), scored_stores(out)
    tokens, scores = record.tokens, record.scores
    assert tokens is not None, "the run was tokenised"
    assert scores is not None, "the run was scored"
    assert tokens.block_floor_tokens is not None, "vLLM shares whole blocks"
    shards = [shard for store in stores for shard in store.scores.manifest.shards.items()]
    return Run(
        phases_s={phase: record.elapsed_s[phase] for phase in ("build", "tokenise", "score", "measure")},
        log_likelihoods_s=sum(shard.elapsed_s for name, shard in shards if name.startswith("scores")),
        n_requests=sum(store.store.manifest.n_requests for store in stores),
        computed_tokens=scores.computed_tokens,
        block_floor_tokens=tokens.block_floor_tokens,
        floor_tokens=tokens.floor_tokens,
    )


def scored_stores(out: Path) -> list[ScoredStore]:
    """Open the stores of a run with their tokens and scores."""
    return open_scored(open_built(out), out)


def over_block_floor(run: Run) -> float:
    return run.computed_tokens / run.block_floor_tokens


def toolkit_seconds(out: Path, model: Path, n_sampled: int, runs: int) -> float:
    """Estimate the toolkit's time for all requests of a run from a sample, after comparing its label probabilities."""
    rows, n_all = sample(out, n_sampled, pl.lit(True))
    requests = Requests(model, "float32", *(rows[name].to_list() for name in ("prompt", "ask", "continuations")))
    with contestant("requests, StaICC toolkit", requests) as score:
        scores = rows.filter(ask="labels")["last_token_log_probs"]
        ours = np.concatenate([softmax(np.array([row.to_list()]))[0] for row in scores])
        np.testing.assert_allclose(score(), ours, atol=TOLERANCE["float32"], rtol=0)
        return median_seconds(score, runs) * n_all / rows.height


def lm_eval_seconds(out: Path, model: Path, n_sampled: int, runs: int, dtype: Dtype) -> float:
    """Estimate lm-eval's time for all log-likelihood requests of a run from a sample, after comparing the scores."""
    rows, n_all = sample(out, n_sampled, pl.col("ask") != "state")
    choices = Choices(model, dtype, rows["context"].to_list(), rows["continuation_tokens"].to_list())
    with contestant("choices, lm-eval, vLLM", choices) as score:
        expected = rows["label_log_likelihoods"].explode().to_numpy()
        np.testing.assert_allclose(score(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        return median_seconds(score, runs) * n_all / rows.height


def sample(out: Path, n_sampled: int, condition: pl.Expr) -> tuple[pl.DataFrame, int]:
    """Return every n-th request of a run, in the order of the requests' key, and the number of requests."""
    frames = []
    for store in scored_stores(out):
        tokens = store.tokens.tokens()
        token_rows = tokens.filter(pl.col("ask") != "last_tokens").select(
            "prompt_id", "context", continuation_tokens="continuations"
        )
        frames.append(
            store.store.requests()
            .join(store.store.prompts(), on="prompt_id", maintain_order="left")
            .join(token_rows, on="prompt_id", maintain_order="left")
            .join(prompt_scores(tokens, store.scores), on="prompt_id", how="left", maintain_order="left")
            .filter(condition)
            .collect()
        )
    rows = pl.concat(frames)
    return rows.gather_every(max(rows.height // n_sampled, 1)), rows.height


def median_seconds(score: Any, runs: int) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        score()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def write_rows(n_queries: int, ours: dict[str, Run], toolkit_s: float, lm_eval_s: dict[str, float]) -> None:
    """Append one row per contestant; columns that end in _s hold our time per stage."""
    rows: list[dict[str, object]] = [
        {
            "contestant": f"evaluator, {name}",
            "seconds": round(run.seconds, 2),
            **{f"{phase}_s": seconds for phase, seconds in run.phases_s.items()},
            "log_likelihoods_s": round(run.log_likelihoods_s, 2),
            "requests": run.n_requests,
            "computed_tokens": run.computed_tokens,
            "block_floor_tokens": run.block_floor_tokens,
            "floor_tokens": run.floor_tokens,
        }
        for name, run in ours.items()
    ]
    others = {"StaICC toolkit, fp32, scaled": toolkit_s} | {
        f"lm-eval, vLLM, {dtype}, log-likelihoods alone, scaled": seconds for dtype, seconds in lm_eval_s.items()
    }
    rows += [
        dict.fromkeys(rows[0]) | {"contestant": name, "seconds": round(seconds, 2)} for name, seconds in others.items()
    ]
    case = f"StaICC whole, all methods, SST-5 and TREC, k=4, {n_queries} queries each, 28 M random Llama"
    append_rows("staicc", case, ["torch", "transformers", "StaICC", "lm-eval"], rows)
    for row in rows:
        print(", ".join(f"{name}: {value}" for name, value in row.items() if value is not None))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
