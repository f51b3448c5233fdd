"""Tools that score labels after prompts, each in a process of its own: token rows go in, label probabilities come out.

Every contestant loads its model once and then scores the same prompts whenever it is told to, so that a race times the
scoring and neither the loading nor another contestant's memory. All of them get text or tokens as their own users would
pass them, and return [n_prompts, n_labels], normalised over the label space.
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
    """What is scored: the same prompts as text and as tokens."""

    model: Path
    dtype: Dtype
    texts: list[str]
    labels: list[str]
    contexts: list[list[int]]
    label_tokens: list[list[int]]


class Choices(NamedTuple):
    """Prompts with choices of their own, any number of any length, as tokens; answered by one number a choice, nats,
    prompt by prompt."""

    model: Path
    dtype: Dtype
    contexts: list[list[int]]
    choices: list[list[list[int]]]


class Requests(NamedTuple):
    """Any requests of a run as text, with what each asks."""

    model: Path
    dtype: Dtype
    texts: list[str]
    asks: list[Ask]
    continuations: list[list[str]]


def ours(prompts: Prompts, engine: str) -> Score:
    """An engine of this project, asked for what a run asks."""
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
    """The StaICC toolkit's own inference function, one prompt at a time."""
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


def toolkit_requests(asked: Requests) -> Score:
    """The StaICC toolkit's own functions, one prompt at a time; the label probabilities of all, behind each other."""
    import torch
    from StaICC.prefabricate_inference import model_kernel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(asked.model))
    model = AutoModelForCausalLM.from_pretrained(str(asked.model), dtype=getattr(torch, asked.dtype))
    model.eval().to(device_kind())
    shared = {"model": model, "tokenizer": tokenizer, "cache_empty": None}

    def score() -> Probs:
        probs: list[float] = []
        for text, ask, labels in zip(asked.texts, asked.asks, asked.continuations, strict=True):
            if ask == "text":
                model_kernel.noisy_channel_ICL_inference_with_torch_Causal_LM([text], label_space=[text], **shared)
            elif ask == "state":
                model_kernel.standard_ICL_inference_with_torch_Causal_LM(
                    text, label_space=["a"], return_hidden_state=True, **shared
                )
            else:
                found = model_kernel.standard_ICL_inference_with_torch_Causal_LM(text, label_space=labels, **shared)
                probs += found
        return np.array(probs)

    return score


def lm_eval_vllm(prompts: Prompts) -> Score:
    """lm-evaluation-harness with its vLLM backend, one request a label, handed our tokens.

    At its defaults, but for the share of memory: all contestants are loaded at once.
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


def choices_by_vllm_engine(asked: Choices) -> Score:
    """Our vLLM engine, asked for what a run asks of choices."""
    loaded = _our_engine(asked.model, "vllm", asked.dtype)
    requests = [ContinuationRequest(*each) for each in zip(asked.contexts, asked.choices, strict=True)]

    def score() -> Probs:
        sums: list[list[float]] = [[]] * len(requests)
        for answer in loaded.log_likelihoods(requests):
            sums[answer.index] = [sum(token_log_probs) for token_log_probs in answer.token_log_probs]
        return np.concatenate(sums)

    return score


def choices_one_at_a_time(asked: Choices) -> Score:
    """transformers with a forward pass a context, as one writes it in ten lines; choices of one token."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(asked.model), dtype=getattr(torch, asked.dtype))
    model.eval().to(device_kind())

    def score() -> Probs:
        found = []
        with torch.inference_mode():
            for context, choices in zip(asked.contexts, asked.choices, strict=True):
                ids = torch.tensor([context], device=model.device)
                log_probs = model(ids, logits_to_keep=1).logits[0, -1].float().log_softmax(-1)
                found.append(log_probs[[token for (token,) in choices]].cpu().numpy())
        return np.concatenate(found)

    return score


def choices_by_lm_eval(asked: Choices) -> Score:
    """lm-evaluation-harness with its vLLM backend: one request a choice, as its multiple-choice tasks make."""
    harness = _lm_eval_on_vllm(asked.model, asked.dtype)
    requests = [
        ((f"context {number}", f"choice {place}"), context, tokens)
        for number, (context, choices) in enumerate(zip(asked.contexts, asked.choices, strict=True))
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
    _answer_for_vllm()
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
"""By what they take: the first four Prompts, the next Requests, the others Choices."""


@contextmanager
def contestant(name: str, prompts: Prompts | Choices | Requests) -> Iterator[Score]:
    """A contestant, loaded in a process of its own that ends with the block."""
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
        # Nothing a contestant could still say matters, and the workers that some start would outlive a polite end.
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            each.kill()
        process.join()


def _answer(connection: Connection, name: str) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise SystemExit(f"{name} died; its own words are above.") from None


def _serve(name: str, prompts: Prompts | Choices | Requests, connection: Connection) -> None:
    score = CONTESTANTS[name](prompts)
    connection.send("loaded")
    while connection.recv() == "score":
        connection.send(score())


def _answer_for_vllm() -> None:
    """Let a tool that asks which version of `vllm` is installed hear that of the CPU build, which has another name."""
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
