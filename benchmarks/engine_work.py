"""Provide what races of engines share: a random Llama, prompts for it, and engines in separate processes."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.throughput.workloads import random_model
from evaluator.config import ModelConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.devices import device_kind
from evaluator.engine.vllm_settings import SETTINGS, StepSettings
from evaluator.models.embedded import tokenizer_texts
from evaluator.models.source import ModelSource
from evaluator.process import tune_process
from evaluator.prompts.rows import normal_requests
from evaluator.tokens.boundary import tokenise_prompts

DATASET = "sst5"


class Answers(NamedTuple):
    """The answers of an engine to requests."""

    log_probs: npt.NDArray[np.float64]  # log-probabilities of all label tokens in order, in nats
    computed_tokens: int  # number of tokens that the engine computed


def random_llama(folder: Path, shape: str = "28M", datasets: Sequence[str] = (DATASET,)) -> Path:
    """Create a random Llama in a folder, with a tokenizer that is trained on the given StaICC datasets."""
    texts = tokenizer_texts([load_staicc(name) for name in datasets])
    return random_model(folder / f"llama-{shape}", shape, texts)


def sst5_requests(source: ModelSource, n_prompts: int) -> list[ContinuationRequest]:
    """Return requests in prefix order: SST-5 prompts with four demonstrations, continued by the label names."""
    dataset = load_staicc(DATASET)
    prompts = pl.concat(normal_requests(dataset, n_shots=4, n_queries=None)).head(n_prompts)["prompt"].to_list()
    labels = [list(dataset.verbalizer.label_names)] * len(prompts)
    rows = tokenise_prompts(source.tokenizer, prompts, ["labels"] * len(prompts), labels, "separate")
    pairs = zip(rows.contexts.to_pylist(), rows.continuations.to_pylist(), strict=True)
    return sorted(ContinuationRequest(context, continuations) for context, continuations in pairs)


def answers(engine: Engine, requests: Sequence[ContinuationRequest]) -> Answers:
    """Score requests with an engine."""
    before = engine.counts.computed_tokens
    answered = sorted(engine.log_likelihoods(requests), key=lambda answer: answer.index)
    log_probs = [value for answer in answered for label in answer.token_log_probs for value in label]
    return Answers(np.array(log_probs), engine.counts.computed_tokens - before)


@contextmanager
def engine_process(
    config: ModelConfig, requests: Sequence[ContinuationRequest], settings: StepSettings | None = None
) -> Iterator[Callable[[], Answers]]:
    """Load an engine in a separate process; yield a function that scores the requests there.

    Args:
        config: the model and its engine.
        requests: requests to score.
        settings: step settings of vLLM; None: the settings of a run.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, config, requests, settings))
    process.start()
    there.close()
    here.recv()

    def ask() -> Answers:
        here.send(None)
        given: Answers = here.recv()
        return given

    try:
        yield ask
    finally:
        here.close()
        process.join()


def _serve(
    pipe: Connection,
    config: ModelConfig,
    requests: Sequence[ContinuationRequest],
    settings: StepSettings | None,
) -> None:
    """Load an engine, and score the requests for every message from the pipe, until it closes."""
    if settings:
        SETTINGS[device_kind()] = settings
    tune_process()
    engine = load_engine(find_source(config), config)
    pipe.send(None)
    try:
        while True:
            pipe.recv()
            pipe.send(answers(engine, requests))
    except EOFError:
        engine.close()
