# ruff: noqa: N806 - tensors carry their axes in their names
"""Time log-sum-exps and centroid divergences from hidden states and an LM head.

Baselines are the reference, which holds a [rows, vocabulary] matrix, and torch.compile of the reference. The benchmark
runs on a CUDA device if there is one; the memory in the table is host memory.

    python -m benchmarks.kernels.label_head [n_rows] [hidden_size] [vocabulary ...]
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch._inductor import config as inductor

from benchmarks.harness import Target, Work, print_targets, race, require_green_tests
from evaluator_kernels import label_head
from evaluator_kernels.label_head import reference

VOCABULARIES = (32_000, 128_256)
N_LABELS, N_ANCHORS = 4, 128  # StaICC allows 128 examples for a method that learns from examples
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPERATIONS = ("log_sum_exp", "centroid_divergences")
OURS = "public (tiled)"


def main(n_rows: int = 1_024, hidden_size: int = 512, *vocabularies: int) -> None:
    require_green_tests("tests/kernels/test_label_head.py")
    inductor.compile_threads = 1  # idle compiler processes would be counted in the memory of the compiled reference
    for n_tokens in vocabularies or VOCABULARIES:
        arguments = make_arguments(n_rows, hidden_size, n_tokens)
        for operation in OPERATIONS:
            case = f"{operation}, {n_rows} rows of {hidden_size}, {n_tokens} tokens"
            race_one(case, operation, arguments[operation], n_rows)


def race_one(case: str, operation: str, arguments: tuple[torch.Tensor, ...], n_rows: int) -> None:
    def answers_of(module: ModuleType, through: Callable[[Any], Any] = lambda run: run) -> Callable[[], Any]:
        run = through(getattr(module, operation))
        return lambda: run(*arguments).cpu()

    contestants = {
        "reference": answers_of(reference),
        "torch.compile": answers_of(reference, torch.compile),
        OURS: answers_of(label_head),
    }
    contestants["torch.compile"]()  # compile before the race, because compilation needs seconds and much memory
    work = Work(benchmark="label_head", case=case, items=n_rows, unit="rows", packages=["torch"])
    timings = race(work, contestants, runs=5, same=same)
    times_compiled = timings["torch.compile"].median_s / timings[OURS].median_s
    print_targets(Target(what="times as fast as torch.compile", value=times_compiled, at_least=1))


def make_arguments(n_rows: int, hidden_size: int, n_tokens: int) -> dict[str, tuple[torch.Tensor, ...]]:
    """Return operation -> random arguments, in fp32; the standard deviation of logits is 4."""
    random = torch.Generator().manual_seed(0)

    def normal(n_rows: int) -> torch.Tensor:
        return torch.randn(n_rows, hidden_size, generator=random).to(DEVICE)

    hidden_TD, anchors_AD, head_VD = normal(n_rows), normal(N_ANCHORS), normal(n_tokens) * 4 / hidden_size**0.5
    weights_CA = torch.eye(N_LABELS, device=DEVICE).repeat(1, N_ANCHORS // N_LABELS) / (N_ANCHORS // N_LABELS)
    return {
        "log_sum_exp": (hidden_TD, head_VD),
        "centroid_divergences": (hidden_TD, anchors_AD, weights_CA, head_VD),
    }


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    """Compare outputs with a tolerance, because the reference sums in fp32."""
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=5e-4)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
