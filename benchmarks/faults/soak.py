"""Score many random families of prompts with a tiny prefix cache, and compare a sample with transformers.

python -m benchmarks.faults.soak [--requests 1000000]

A prompt of a family extends a prefix of another prompt, of any length, so that blocks are partly shared, waited for,
kept and evicted all the time. The engine checks before every call that cache and index agree (BlockSharing.check_idle).
Print the largest difference and the growth of memory after the first tenth, and append a row to
benchmarks/results/soak.csv.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.harness import MIB, Target, append_rows, print_targets
from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import find_model

CACHED_TOKENS = 1_536  # so few that families evict each other
IN_A_CALL = 512  # number of requests per call
COMPARED_SHARE = 0.005
VOCABULARY = 256  # token ids of the random model are below
SIZE = LlamaSize(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, n_layers=2, n_heads=1, context_length=1024
)
"""The smallest model with two layers that vLLM runs on a CPU, because the cache is tested and not arithmetic."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, clock = Random(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = make_random_llama(Path(folder) / "model", texts=["some text to learn from"], size=SIZE)
        config = ModelConfig(model=str(model), engine="vllm", dtype="float32")
        source = find_model(config)
        cache_gib = CACHED_TOKENS * source.kv_values_per_token * 4 / 2**30
        engine = load_engine(source, replace(config, kv_cache_gib=cache_gib))
        oracle = _Oracle(model)
        done, compared, worst, memory = 0, 0, 0.0, list[float]()
        while done < options.requests:
            requests = family(rng, IN_A_CALL)
            for answer in engine.log_likelihoods(requests):
                if rng.random() < COMPARED_SHARE:
                    worst = max(worst, oracle.difference(requests[answer.index], answer.token_log_probs))
                    compared += 1
            done += len(requests)
            memory.append(psutil.Process().memory_info().rss / MIB)
        engine.close()
    grown = memory[-1] - memory[len(memory) // 10]
    row = {
        "requests": done,
        "compared": compared,
        "worst_difference_nats": worst,
        "grown_mib": round(grown, 1),
        "elapsed_s": round(time.monotonic() - clock),
    }
    print(row)
    append_rows("soak", f"{CACHED_TOKENS} cached tokens", ["torch", "transformers"], [row])
    print_targets(
        Target(what="largest difference from transformers, nats", value=worst, at_most=1e-4),
        Target(what="memory that grew after the first tenth, MiB", value=grown, at_most=64),
    )


def family(rng: Random, n: int) -> list[ContinuationRequest]:
    """Return n requests in prefix order; all contexts except one begin with a part of another context.

    Continuations have 1 to 20 tokens.
    """
    contexts = [_tokens(rng, 60)]
    while len(contexts) < n:
        earlier = rng.choice(contexts)
        contexts.append(earlier[: rng.randrange(1, len(earlier))] + _tokens(rng, rng.randrange(1, 50)))
    return [ContinuationRequest(context[:300], _labels(rng)) for context in sorted(contexts)]


def _labels(rng: Random) -> list[list[int]]:
    longest = rng.choice((1, 1, 1, 1, 2, 20))
    return [_tokens(rng, rng.randint(1, longest)) for _ in range(rng.randint(1, 4))]


def _tokens(rng: Random, n: int) -> list[int]:
    return rng.choices(range(2, VOCABULARY), k=n)


class _Oracle:
    """The same model in transformers, which scores one text at a time."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._model: Any = AutoModelForCausalLM.from_pretrained(str(model), dtype="float32")

    def difference(self, request: ContinuationRequest, scores: Sequence[Sequence[float]]) -> float:
        """Return the largest difference of the log-probability of a token, in nats."""
        import torch

        worst = 0.0
        for continuation, log_probs in zip(request.continuations, scores, strict=True):
            with torch.inference_mode():
                logits = self._model(torch.tensor([[*request.context, *continuation[:-1]]])).logits[0]
            rows = torch.log_softmax(logits[len(request.context) - 1 :].double(), dim=-1)
            expected = rows[torch.arange(len(continuation)), torch.tensor(continuation)]
            worst = max(worst, float((expected - torch.tensor(log_probs, dtype=torch.float64)).abs().max()))
        return worst


if __name__ == "__main__":
    main()
