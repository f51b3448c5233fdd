"""Predict the time of runs on many GPUs, and what limits it."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.simulate.cost_model import Cache, Costs, estimate, limits, shard_costs
from benchmarks.simulate.scenarios import GPU_BLOCK_TOKENS, stores
from evaluator.engine.devices import SHARE_FOR_WEIGHTS
from evaluator.models.skeleton import model_size
from evaluator.preflight.devices import Assumptions, Device, chosen_devices

LLAMAS = {
    "8B": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 14_336, "vocab_size": 128_256},
    "70B": {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
            "intermediate_size": 28_672, "vocab_size": 128_256},
}  # fmt: skip
"""Number of parameters -> shape of a Llama 3.1, as its config.json states it."""


def predicted_table(arguments: argparse.Namespace) -> str:
    """Return a Markdown table: per scenario, model and number of GPUs, the predicted time and its largest parts."""
    device = chosen_devices(Assumptions(devices=(arguments.device,)))[arguments.device]
    heads = ["work", "model", "GPUs", "replicas", "prompts", "tokens computed", "shards", "whole", "most of it"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for store in stores(arguments, Path(folder)):
            for model, shape in LLAMAS.items():
                gpu = Gpu(device, shape, arguments)
                for n_replicas in [*(max(n // gpu.per_replica, 1) for n in arguments.gpus), *arguments.replicas]:
                    shards = shard_costs(store.tokens, gpu.cache, arguments.step_tokens, n_replicas=n_replicas)
                    found = estimate(shards, gpu.costs, n_replicas, store.n_prompts)
                    parts = limits(found, gpu.costs, n_replicas)
                    most = ", ".join(
                        f"{part} {_time(s)}" for part, s in list(parts.items())[:3] if s > 0.05 * found.whole_s
                    )
                    n_gpus = n_replicas * gpu.per_replica
                    cells = [store.name, model, f"{n_gpus:,}", f"{n_replicas:,} of {gpu.per_replica}"]
                    cells.append(f"{store.n_prompts:,}")
                    cells += [
                        f"{found.computed_tokens / 1e6:,.1f} M",
                        f"{found.n_shards:,}",
                        _time(found.whole_s),
                        most,
                    ]
                    lines.append(f"| {' | '.join(cells)} |")
    named = ("utilisation", "bandwidth", "request_s", "tensor_parallel_efficiency", "start_s", "load_bandwidth",
             "prompts_per_s", "step_tokens")  # fmt: skip
    assumed = ", ".join(f"{key} {vars(arguments)[key]:g}" for key in named)
    return "\n".join([*lines, "", f"Assumed: device {arguments.device}, {assumed}.", ""])


def _time(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 300
        else f"{seconds / 60:.0f} min"
        if seconds < 18_000
        else f"{seconds / 3600:.1f} h"
    )


class Gpu:
    """The costs and the cache of one replica of a model on GPUs, under the assumptions in the options."""

    def __init__(self, device: Device, shape: dict[str, int], arguments: argparse.Namespace) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama"} | shape))
            size = model_size(Path(folder))
        assert size is not None, "the shape is complete"
        weight_bytes, memory = 2 * size.n_parameters, device.memory_gib * 2**30
        self.per_replica = next(n for n in (1, 2, 4, 8, 16) if weight_bytes <= SHARE_FOR_WEIGHTS * n * memory)
        efficiency = arguments.tensor_parallel_efficiency ** np.log2(self.per_replica)
        flops = device.flops_16_bit * arguments.utilisation * self.per_replica * efficiency
        weights_s = weight_bytes / arguments.bandwidth / self.per_replica  # a step reads all weights once
        self.costs = Costs(
            token_s=max(size.flop_per_token / flops, weights_s / arguments.step_tokens),
            request_s=arguments.request_s,
            load_s=arguments.start_s + weight_bytes / self.per_replica / arguments.load_bandwidth,
            prompt_s=1 / arguments.prompts_per_s,
        )
        head_size = shape["hidden_size"] // shape["num_attention_heads"]
        kv_bytes = 4 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_size
        room = 0.9 * memory * self.per_replica - weight_bytes
        self.cache = Cache(GPU_BLOCK_TOKENS, int(room // (kv_bytes * GPU_BLOCK_TOKENS)), shares_parts=False)
