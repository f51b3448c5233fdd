"""Score labels after prompts with several tools, each in a separate process.

Every contestant loads its model once and then scores the same prompts on each request, so that a race times only the
scoring, and memory is that of one contestant. All get text or tokens as their users would pass them; unless stated
otherwise they return label probabilities [n_prompts, n_labels], normalised over the label space.
"""

import importlib.metadata
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil
import scipy.special

from evaluator.config import Dtype, ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.device import device_kind
from evaluator.models.embedded.llama import LlamaSize
from evaluator.models.source import find_model
from evaluator.schemas import Ask

Probs = npt.NDArray[np.float64]
Score = Callable[[], Probs]

LLAMA_28M = LlamaSize(hidden_size=512, n_layers=8, n_heads=8, intermediate_size=1408)


class Prompts(NamedTuple):
    """Prompts to score, as text and as tokens."""

    model: Path
    dtype: Dtype
    texts: list[str]
    labels: list[str]
    contexts: list[list[int]]
    label_tokens: list[list[int]]


class Choices(NamedTuple):
    """Prompts with their own choices, as tokens; scored by one log-likelihood (nats) per choice, prompt by prompt."""

    model: Path
    dtype: Dtype
    contexts: list[list[int]]
    choices: list[list[list[int]]]


class Requests(NamedTuple):
    """Requests of a run as text, with the ask of each."""

    model: Path
    dtype: Dtype
    texts: list[str]
    asks: list[Ask]
    continuations: list[list[str]]


def ours(prompts: Prompts, engine: str) -> Score:
    """Score with an engine of this project, with the requests that a run makes."""
    loaded = _our_engine(prompts.model, engine, prompts.dtype)
    requests = [ContinuationRequest(context, prompts.label_tokens) for context in prompts.contexts]

    def score() -> Probs:
        scores = np.empty((len(requests), len(prompts.labels)))
        for answer in loaded.log_likelihoods(requests):
            scores[answer.index] = [sum(token_log_probs) for token_log_probs in answer.token_log_probs]
        return softmax(scores)

    return score


def vllm_engine(prompts: Prompts) -> Score:
    return ours(prompts, "vllm")


def transformers_engine(prompts: Prompts) -> Score:
    return ours(prompts, "transformers")


def staicc_toolkit(prompts: Prompts) -> Score:
    """Score with the StaICC toolkit's inference function, one prompt at a time."""
    import torch
    from StaICC.prefabricate_inference.model_kernel import standard_ICL_inference_with_torch_Causal_LM as infer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(prompts.model))
    model = AutoModelForCausalLM.from_pretrained(str(prompts.model), dtype=getattr(torch, prompts.dtype))
    model.eval().to(device_kind())
    return lambda: np.array(
        [
            infer(prompt=text, model=model, tokenizer=tokenizer, label_space=prompts.labels, cache_empty=None)
            for text in prompts.texts
        ]
    )


def toolkit_requests(requests: Requests) -> Score:
    """Score with the StaICC toolkit's functions, one prompt at a time; return all label probabilities, concatenated."""
    import torch
    from StaICC.prefabricate_inference import model_kernel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(requests.model))
    model = AutoModelForCausalLM.from_pretrained(str(requests.model), dtype=getattr(torch, requests.dtype))
    model.eval().to(device_kind())
    shared = {"model": model, "tokenizer": tokenizer, "cache_empty": None}

    def score() -> Probs:
        probs: list[float] = []
        for text, ask, labels in zip(requests.texts, requests.asks, requests.continuations, strict=True):
            if ask == "text":
                model_kernel.noisy_channel_ICL_inference_with_torch_Causal_LM([text], label_space=[text], **shared)
            elif ask == "state":
                model_kernel.standard_ICL_inference_with_torch_Causal_LM(
                    text, label_space=["a"], return_hidden_state=True, **shared
                )
            else:
                probs += model_kernel.standard_ICL_inference_with_torch_Causal_LM(text, label_space=labels, **shared)
        return np.array(probs)

    return score


def lm_eval_vllm(prompts: Prompts) -> Score:
    """Score our tokens with lm-evaluation-harness and its vLLM backend, one request per label.

    With its defaults except for the share of memory: all contestants are loaded at once.
    """
    harness = _lm_eval_on_vllm(prompts.model, prompts.dtype)
    requests = [
        ((text, label), context, tokens)
        for text, context in zip(prompts.texts, prompts.contexts, strict=True)
        for label, tokens in zip(prompts.labels, prompts.label_tokens, strict=True)
    ]

    def score() -> Probs:
        answers = harness._loglikelihood_tokens(requests, disable_tqdm=True)
        return softmax(np.array([log_likelihood for log_likelihood, _ in answers]).reshape(-1, len(prompts.labels)))

    return score


def choices_by_vllm_engine(prompts: Choices) -> Score:
    """Score choices with our vLLM engine, with the requests that a run makes."""
    loaded = _our_engine(prompts.model, "vllm", prompts.dtype)
    requests = [ContinuationRequest(*pair) for pair in zip(prompts.contexts, prompts.choices, strict=True)]

    def score() -> Probs:
        sums: list[list[float]] = [[]] * len(requests)
        for answer in loaded.log_likelihoods(requests):
            sums[answer.index] = [sum(token_log_probs) for token_log_probs in answer.token_log_probs]
        return np.concatenate(sums)

    return score


def choices_one_at_a_time(prompts: Choices) -> Score:
    """Score choices of one token with transformers, one forward pass per context, as a short script would."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(prompts.model), dtype=getattr(torch, prompts.dtype))
    model.eval().to(device_kind())

    def score() -> Probs:
        scores = []
        with torch.inference_mode():
            for context, choices in zip(prompts.contexts, prompts.choices, strict=True):
                ids = torch.tensor([context], device=model.device)
                log_probs = model(ids, logits_to_keep=1).logits[0, -1].float().log_softmax(-1)
                scores.append(log_probs[[token for (token,) in choices]].cpu().numpy())
        return np.concatenate(scores)

    return score


def choices_by_lm_eval(prompts: Choices) -> Score:
    """Score choices with lm-evaluation-harness and its vLLM backend, one request per choice as its tasks make them."""
    harness = _lm_eval_on_vllm(prompts.model, prompts.dtype)
    requests = [
        ((f"context {number}", f"choice {place}"), context, tokens)
        for number, (context, choices) in enumerate(zip(prompts.contexts, prompts.choices, strict=True))
        for place, tokens in enumerate(choices)
    ]

    def score() -> Probs:
        answers = harness._loglikelihood_tokens(requests, disable_tqdm=True)
        return np.array([log_likelihood for log_likelihood, _ in answers])

    return score


def _our_engine(model: Path, name: str, dtype: Dtype) -> Engine:
    config = ModelConfig(model=str(model), engine=name, dtype=dtype)
    return load_engine(find_model(config), config)


def _lm_eval_on_vllm(model: Path, dtype: Dtype) -> Any:
    os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"  # both cores, as for us
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    _report_vllm_version()
    from lm_eval.models.vllm_causallms import VLLM

    return VLLM(pretrained=str(model), dtype=dtype, batch_size="auto", max_model_len=2048, gpu_memory_utilization=0.3)


CONTESTANTS: dict[str, Callable[[Any], Score]] = {
    "StaICC toolkit": staicc_toolkit,
    "lm-eval, vLLM": lm_eval_vllm,
    "evaluator, vLLM": vllm_engine,
    "evaluator, transformers": transformers_engine,
    "requests, StaICC toolkit": toolkit_requests,
    "choices, lm-eval, vLLM": choices_by_lm_eval,
    "choices, transformers, one at a time": choices_one_at_a_time,
    "choices, evaluator, vLLM": choices_by_vllm_engine,
}
"""By name. The first four take Prompts, the next takes Requests, the others Choices."""


@contextmanager
def contestant(name: str, prompts: Prompts | Choices | Requests) -> Iterator[Score]:
    """Load a contestant in a separate process, which ends with the block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(name, prompts, there), daemon=False)
    process.start()
    there.close()

    def score() -> Probs:
        here.send("score")
        return np.asarray(_answer(here, name))

    try:
        assert _answer(here, name) == "loaded"
        yield score
    finally:
        # Kill, because worker processes that some contestants start would survive a normal exit.
        for running in (*psutil.Process(process.pid).children(recursive=True), process):
            running.kill()
        process.join()


def _answer(connection: Connection, name: str) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise SystemExit(f"{name} died; its error message is above.") from None


def _serve(name: str, prompts: Prompts | Choices | Requests, connection: Connection) -> None:
    score = CONTESTANTS[name](prompts)
    connection.send("loaded")
    while connection.recv() == "score":
        connection.send(score())


def _report_vllm_version() -> None:
    """Make importlib.metadata return the version of the CPU build, `vllm-cpu`, as that of `vllm`."""
    installed = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return installed(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{installed('vllm-cpu')}+cpu"  # the suffix by which vLLM itself knows where it runs

    importlib.metadata.version = version


def softmax(scores: Probs) -> Probs:
    return np.asarray(scipy.special.softmax(scores, axis=1))
