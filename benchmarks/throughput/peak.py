"""Measure which share of the device's rate of matrix products scoring reaches, and how much faster FP8 is.

The rate of products is the fastest of large square products in the same dtype. The rate of scoring counts the
operations for the computed tokens, without attention and LM head. Prompts share nothing. Engines run in separate
processes, with two GiB of cache each, and take turns. On a GPU, one engine computes with FP8 weights and products.

    python -m benchmarks.throughput.peak [--shape 28M] [--dtype bfloat16] [--prompts 256] [--runs 5]
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.engine_work import Answers, engine_process, random_llama, sst5_requests
from benchmarks.harness import Target, append_rows, print_targets, seconds
from benchmarks.throughput.products import Product, ways
from benchmarks.throughput.workloads import SHAPES
from evaluator.config import ModelConfig
from evaluator.engine.devices import device_kind
from evaluator.models.skeleton import model_size
from evaluator.models.source import find_model

SIZES = {"cpu": (1024, 2048), "cuda": (4096, 8192, 16_384)}
"""Device kind -> numbers of rows and columns of square products."""
PRODUCT_RUNS = 7

PLAIN, FP8 = "evaluator", "evaluator, FP8"
FP8_TOLERANCE_NATS = 2.0


def main() -> None:
    arguments = _arguments()
    dtype = getattr(torch, arguments.dtype)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = random_llama(Path(folder), arguments.shape)
        size = model_size(model)
        assert size is not None, "its configuration states its sizes"
        config = ModelConfig(model=str(model), engine="vllm", dtype=arguments.dtype, kv_cache_gib=2.0)
        requests = sst5_requests(find_model(config), arguments.prompts)
        configs = {PLAIN: config}
        if device_kind() == "cuda":
            configs[FP8] = replace(config, quantization="fp8")
        engines = {name: stack.enter_context(engine_process(one, requests)) for name, one in configs.items()}
        first = {name: score() for name, score in engines.items()}  # warms up
        _require_like_scores(first)
        times: dict[str, list[float]] = {name: [] for name in engines}
        peaks = []
        for _ in range(arguments.runs):
            peaks.append(product_flop_per_s(dtype))
            for name, score in engines.items():
                times[name].append(seconds(score))
    peak = float(np.median(peaks))
    measured = {name: measures(times[name], first[name].computed_tokens, size.flop_per_token, peak) for name in engines}
    rows = [{"contestant": name, "items": len(requests), "unit": "prompts", **row} for name, row in measured.items()]
    append_rows("peak", f"{arguments.shape}, {arguments.dtype}, SST-5", ["torch", "transformers"], rows)
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    share = measured[PLAIN]["share_of_products"]
    targets = [Target(what="share of the rate of products", value=share, at_least=0.55)]
    if FP8 in times:
        gain = float(np.median(times[PLAIN]) / np.median(times[FP8]))
        targets.append(Target(what="FP8, times as fast", value=gain, at_least=1.4))
    print_targets(*targets)


def measures(times: Sequence[float], computed_tokens: int, flop_per_token: int, peak: float) -> dict[str, float]:
    """Return the measurements of one engine, as columns of results/peak.csv.

    Args:
        times: seconds per scoring.
        computed_tokens: number of tokens that one scoring computes.
        flop_per_token: operations per token of the model.
        peak: operations per second of matrix products.
    """
    q1, median, q3 = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    flop_per_s = computed_tokens * flop_per_token / median
    return {
        "computed_tokens": computed_tokens,
        "runs": len(times),
        "median_s": round(median, 4),
        "q1_s": round(q1, 4),
        "q3_s": round(q3, 4),
        "tflop_per_s": round(flop_per_s / 1e12, 4),
        "products_tflop_per_s": round(peak / 1e12, 4),
        "share_of_products": round(flop_per_s / peak, 4),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.peak")
    parser.add_argument("--shape", choices=SHAPES, default="28M")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


def _require_like_scores(given: dict[str, Answers]) -> None:
    """Exit if the scores of an engine differ from those of the plain engine by more than FP8_TOLERANCE_NATS."""
    difference = max(float(np.abs(one.log_probs - given[PLAIN].log_probs).max()) for one in given.values())
    if not difference <= FP8_TOLERANCE_NATS:
        raise SystemExit(f"Scores differ by {difference:.2f} nats, so nothing is timed.")


def product_flop_per_s(dtype: torch.dtype) -> float:
    """Return the operations per second of the fastest square product, over all SIZES and ways to multiply."""
    with torch.inference_mode():
        return max(_flop_per_s(n, dtype, way) for n in SIZES[device_kind()] for way in ways())


def _flop_per_s(n: int, dtype: torch.dtype, way: Callable[[torch.Tensor], Product]) -> float:
    given, weight = (torch.randn(n, n, dtype=dtype, device=device_kind()) for _ in range(2))
    product = way(weight)

    def once() -> None:
        product(given)
        if device_kind() == "cuda":
            torch.cuda.synchronize()

    once()
    return 2 * n**3 / min(seconds(once) for _ in range(PRODUCT_RUNS))


if __name__ == "__main__":
    main()
