"""Time scoring SST-5 of StaICC-Normal with a 28 M-parameter random Llama, the toolkit and lm-evaluation-harness.

No two of these prompts share demonstrations, so this measures the engine without its prefix cache.

    python -m benchmarks.end_to_end.scoring [n_prompts] [runs]
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.end_to_end.contestants import LLAMA_28M, Prompts, contestant
from benchmarks.harness import Target, Work, print_targets, race
from evaluator.config import Dtype, ModelConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.embedded.random_model import tokenizer_texts
from evaluator.models.source import find_model
from evaluator.prompts.rows import normal_requests
from evaluator.tokens.boundary import tokenize_prompts

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
"""Largest difference between label probabilities of two tools; in bfloat16 they round differently."""


def main(n_prompts: int = 128, runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prompts = sst5_prompts(Path(folder) / "llama-28m", n_prompts)
        fp32 = timed(
            prompts, "float32", ["StaICC toolkit", "lm-eval, vLLM", "evaluator, transformers", "evaluator, vLLM"], runs
        )
        bf16 = timed(prompts, "bfloat16", ["lm-eval, vLLM", "evaluator, vLLM"], runs)
    ours, toolkit = "evaluator, vLLM", "StaICC toolkit"
    print_targets(
        Target(what="fp32, times the toolkit", value=fp32[toolkit] / fp32[ours], at_least=1.9),
        Target(what="bf16, times the toolkit in fp32", value=fp32[toolkit] / bf16[ours], at_least=4.0),
        Target(what="fp32, times lm-eval's vLLM", value=fp32["lm-eval, vLLM"] / fp32[ours], at_least=4.5),
        Target(what="bf16, times lm-eval's vLLM", value=bf16["lm-eval, vLLM"] / bf16[ours], at_least=4.5),
    )


def timed(prompts: Prompts, dtype: Dtype, names: list[str], runs: int) -> dict[str, float]:
    """Return median seconds of each contestant, after comparing their label probabilities."""
    work = Work(
        benchmark="scoring",
        case=f"SST-5, k=4, 28 M random Llama, {dtype}",
        items=len(prompts.texts),
        unit="prompts",
        packages=["torch", "transformers", "StaICC", "lm-eval"],
    )

    def same(expected: np.ndarray, found: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, atol=TOLERANCE[dtype], rtol=0)

    with ExitStack() as stack:
        in_dtype = prompts._replace(dtype=dtype)
        loaded = {name: stack.enter_context(contestant(name, in_dtype)) for name in names}
        return {name: timing.median_s for name, timing in race(work, loaded, runs=runs, same=same).items()}


def sst5_prompts(model: Path, n_prompts: int) -> Prompts:
    dataset = load_staicc("sst5")
    make_random_llama(model, texts=tokenizer_texts([dataset]), size=LLAMA_28M)
    rows = normal_requests(dataset, n_shots=4, n_queries=None).head(n_prompts)
    texts, labels = rows["prompt"].to_list(), list(dataset.verbalizer.label_names)
    tokens = tokenize_prompts(
        find_model(ModelConfig(model=str(model))).tokenizer,
        texts,
        ["labels"] * len(texts),
        [labels] * len(texts),
        "separate",
    )
    return Prompts(
        model=model,
        dtype="float32",
        texts=texts,
        labels=labels,
        contexts=tokens.contexts.to_pylist(),
        label_tokens=tokens.continuations[0].as_py(),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
