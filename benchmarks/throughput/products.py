"""Compute a bound on how many times as fast as the StaICC toolkit a tool can be on this machine, by matrix products.

A forward pass multiplies every computed token with the weights of all layers. Tokens of a prefix that prompts share
must be computed once (the token floor of the workload). Scoring takes at least the time of these products; attention,
the LM head and everything else take additional time. The toolkit scores every request separately, and its rate is
measured.

    python -m benchmarks.throughput.products [--workload NAME] [--shape 28M] [--dtype bfloat16]
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import append_rows, seconds
from benchmarks.throughput.contestants import CONTESTANTS
from benchmarks.throughput.processes import turn
from benchmarks.throughput.race import TOLERANCE, part
from benchmarks.throughput.workloads import SHAPES, WORKLOADS, prepare
from evaluator.engine.devices import device_kind
from evaluator.models.embedded.llama import LlamaSize
from evaluator.process import keep_freed_memory

TOOLKIT = "StaICC toolkit"
STEP_TOKENS = (512, 1024, 2048, 4096)
RUNS = 7

Product = Callable[[torch.Tensor], torch.Tensor]
"""Function that multiplies tokens, [tokens, in], with a weight and returns [tokens, out]."""


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        [prepared] = prepare([arguments.workload], arguments.shape, Path(folder), [None])
        job = part(prepared.job._replace(dtype=arguments.dtype), CONTESTANTS[TOOLKIT])
        prompt_s = float(np.median([turn(TOOLKIT, job).score_s / len(job.rows) for _ in range(3)]))
    token_s = seconds_a_token(SHAPES[arguments.shape], getattr(torch, arguments.dtype))
    products_s, toolkit_s = prepared.floor_tokens * token_s, prepared.n_requests * prompt_s
    row = {
        "contestant": "matrix products",
        "requests": prepared.n_requests,
        "floor_tokens": prepared.floor_tokens,
        "products_us_a_token": round(token_s * 1e6, 2),
        "products_s": round(products_s, 2),
        "toolkit_requests_per_s": round(prepared.n_requests / toolkit_s, 2),
        "toolkit_s": round(toolkit_s, 2),
        "at_most_times": round(toolkit_s / products_s, 2),
    }
    append_rows("products", f"{arguments.workload}, {arguments.shape}, {arguments.dtype}", ["torch", "StaICC"], [row])
    print(
        f"{prepared.n_requests:,} requests, at least {prepared.floor_tokens:,} tokens to compute: {products_s:.1f} s "
        f"of products ({token_s * 1e6:.1f} µs a token). The toolkit takes {toolkit_s:.1f} s, so no tool is more than "
        f"{toolkit_s / products_s:.2f} times as fast here."
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.products")
    parser.add_argument("--workload", choices=WORKLOADS, default="all StaICC parts and methods")
    parser.add_argument("--shape", choices=SHAPES, default="28M")
    parser.add_argument("--dtype", choices=TOLERANCE, default="bfloat16")
    return parser.parse_args()


def seconds_a_token(size: LlamaSize, dtype: torch.dtype) -> float:
    """Return the seconds per token of the products with the weights of all layers, for the fastest way to multiply."""
    return min(_step_seconds(size, dtype, n_tokens, way) / n_tokens for n_tokens in STEP_TOKENS for way in ways())


def ways() -> list[Callable[[torch.Tensor], Product]]:
    """Return the ways to multiply with a weight that are tried on this device: functions weight -> Product."""
    if device_kind() == "cuda":
        return [_plain]
    keep_freed_memory()
    return [_plain, _packed]


def _step_seconds(size: LlamaSize, dtype: torch.dtype, n_tokens: int, way: Callable[[torch.Tensor], Product]) -> float:
    """Return the seconds of the products of one step.

    As in vLLM, queries, keys and values are one product, and so are the gate and up projections.
    """
    hidden, inner = size.hidden_size, size.intermediate_size
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, 2 * inner), (inner, hidden)]
    new = partial(torch.randn, dtype=dtype, device=device_kind())
    products = [way(new(n_out, n_in)) for _ in range(size.n_layers) for n_in, n_out in shapes]
    inputs = [new(n_tokens, n_in) for n_in, _ in shapes] * size.n_layers

    def step() -> None:
        for product, tokens in zip(products, inputs, strict=True):
            product(tokens)
        if device_kind() == "cuda":
            torch.cuda.synchronize()

    with torch.inference_mode():
        step()
        return min(seconds(step) for _ in range(RUNS))


def _plain(weight: torch.Tensor) -> Product:
    return partial(torch.nn.functional.linear, weight=weight)


def _packed(weight: torch.Tensor) -> Product:
    """Return a product by oneDNN with reordered weights, the operation that vLLM calls on a CPU."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda tokens: torch.ops.mkldnn._linear_pointwise(tokens, packed, None, "none", [], "")


if __name__ == "__main__":
    main()
