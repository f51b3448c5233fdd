"""Try other settings of vLLM than those of evaluator/engine/vllm_settings.py on the device at hand, one at a time.

Each is an engine in a process of its own; all score the same prompts in turns, after their scores were compared. The
first is what a run takes. A row that is faster by more than the spread is a reason to change the table there.

    python -m benchmarks.end_to_end.engine_settings [MODEL] [dtype] [prompts] [runs]

MODEL is a folder or a hub name, or `28m`: a random Llama of 28 million parameters. Every engine needs its weights and
two GiB of cache on the device.
"""

import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.harness import Work, race
from benchmarks.throughput.workloads import SHAPES
from evaluator.config import Dtype, ModelConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.engine.base import ContinuationRequest
from evaluator.engine.device import device_kind, device_name
from evaluator.engine.vllm_settings import SETTINGS, StepSettings
from evaluator.models.embedded.random_llama import make_random_llama
from evaluator.models.embedded.random_model import tokenizer_texts
from evaluator.models.source import find_model
from evaluator.prompts.rows import normal_requests
from evaluator.tokens.boundary import tokenize_prompts

DATASET = "sst5"
TOLERANCE_NATS = {"float32": 1e-4, "bfloat16": 0.5, "float16": 0.1}


def alternatives() -> dict[str, StepSettings]:
    """Return the settings of a run, and others that differ in one of them."""
    chosen = SETTINGS[device_kind()]
    if device_kind() == "cpu":
        others = {
            "blocks of 64": chosen._replace(block_tokens=64),
            "steps of 512 tokens": chosen._replace(max_tokens=512),
            "steps of 1,024 tokens": chosen._replace(max_tokens=1024),
            "64 sequences a step": chosen._replace(max_sequences=64),
        }
    else:
        others = {
            "eager": chosen._replace(compiled=False),
            "blocks of 32": chosen._replace(block_tokens=32),
            "steps of 4,096 tokens": chosen._replace(max_tokens=4096),
            "steps of 8,192 tokens": chosen._replace(max_tokens=8192),
            "steps of 32,768 tokens": chosen._replace(max_tokens=32768),
            "256 sequences a step": chosen._replace(max_sequences=256),
        }
    return {"as in a run": chosen} | others


def main(name: str = "28m", dtype: str = "float32", n_prompts: str = "256", runs: str = "5") -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = name
        if name == "28m":
            made = make_random_llama(
                Path(folder) / name, texts=tokenizer_texts([load_staicc(DATASET)]), size=SHAPES["28M"]
            )
            model = str(made)
        config = ModelConfig(model=model, engine="vllm", dtype=cast(Dtype, dtype), kv_cache_gib=2.0)
        requests = sst5_requests(config, int(n_prompts))
        workers = {
            title: stack.enter_context(worker(config, settings, requests)) for title, settings in alternatives().items()
        }
        work = Work(
            benchmark="engine_settings",
            case=f"{name}, {dtype}, {len(requests)} prompts of SST-5, {device_name()}",
            items=len(requests),
            unit="prompts",
            packages=("torch", "transformers"),
        )
        same = partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE_NATS[dtype])
        race(work, {title: partial(ask, pipe) for title, pipe in workers.items()}, runs=int(runs), same=same)


@contextmanager
def worker(
    config: ModelConfig, settings: StepSettings, requests: Sequence[ContinuationRequest]
) -> Iterator[Connection]:
    """Start a process with an engine; yields what it is asked through, once the engine is loaded."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, config, settings, requests))
    process.start()
    there.close()
    here.recv()
    yield here
    here.close()
    process.join()


def serve(
    pipe: Connection, config: ModelConfig, settings: StepSettings, requests: Sequence[ContinuationRequest]
) -> None:
    """Load an engine with these settings, and score the requests whenever something comes, until the pipe closes."""
    from evaluator.engine import find_source, load_engine

    SETTINGS[device_kind()] = settings
    engine = load_engine(find_source(config), config)
    pipe.send(engine.facts)
    try:
        while True:
            pipe.recv()
            answers = sorted(engine.log_likelihoods(requests), key=lambda answer: answer.index)
            pipe.send([value for answer in answers for label in answer.token_log_probs for value in label])
    except EOFError:
        engine.close()


def ask(pipe: Connection) -> np.ndarray:
    """Return the log-probabilities of all label tokens in order."""
    pipe.send(None)
    return np.array(pipe.recv())


def sst5_requests(config: ModelConfig, n_prompts: int) -> list[ContinuationRequest]:
    """Return prompts of four demonstrations in prefix order, with the label names of the dataset."""
    dataset = load_staicc(DATASET)
    prompts = normal_requests(dataset, n_shots=4, n_queries=None).head(n_prompts)["prompt"].to_list()
    labels = [list(dataset.verbalizer.label_names)] * len(prompts)
    rows = tokenize_prompts(find_model(config).tokenizer, prompts, ["labels"] * len(prompts), labels, "separate")
    pairs = zip(rows.contexts.to_pylist(), rows.continuations.to_pylist(), strict=True)
    return sorted(ContinuationRequest(context, continuations) for context, continuations in pairs)


if __name__ == "__main__":
    main(*sys.argv[1:])
