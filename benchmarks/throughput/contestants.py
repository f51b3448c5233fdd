"""Define the contestants: functions that load a model and return a function that scores all continuations.

All contestants get the same distinct prompts in prefix order, as tokens or as text. vLLM always runs inside the process
of the contestant, with the same step size, cache and block size, on both cores.
"""

import importlib.metadata
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from benchmarks.throughput.cached_prefixes import transformers_cached
from benchmarks.throughput.workloads import Job, Score, Scores, requests
from evaluator.config import DevicesConfig, Dtype, ModelConfig
from evaluator.engine.devices import device_kind, head_dtype
from evaluator.engine.replicas import EngineLoader
from evaluator.models.source import find_model
from evaluator.process import keep_freed_memory, tune_process
from evaluator.progress import finish
from evaluator.schemas import TOKENS
from evaluator.scores.compute import score_rows
from evaluator.scores.plan import plan_rows
from evaluator.scores.table import Kind, open_scores
from evaluator.tokens.rows import TokenRows


@dataclass(frozen=True)
class Contestant:
    """A tool that takes part in races, and its abilities."""

    load: Callable[[Job], Score]
    has_states: bool = False  # whether the tool returns hidden states
    max_rows: int | None = None  # rows that a slow tool scores, in blocks of adjacent rows; None: the whole workload
    last_token_only: bool = False  # whether it scores only the last token of a label; compared for one-token labels


def evaluator(job: Job) -> Score:
    """Load this project's engine; score as a run does: planned, in shards that are checked and written."""
    tune_process()
    loader = _loaded_engine(engine_config(job))
    folder = Path(tempfile.mkdtemp(prefix="evaluator-"))
    rows = requests(job).select(TOKENS.names())
    calls = map(str, count())

    def score() -> Scores:
        table = open_scores(folder / next(calls) / "rows")  # a new folder, without the scores of earlier calls
        states = pl.col("ask") == "state"
        wanted: dict[Kind, pl.Expr] = {"scores": ~states, "states": states}
        for kind, asked in wanted.items():
            plan = plan_rows(TokenRows(rows.filter(asked).lazy()), table, kind)
            if plan.rows.height:
                table = finish(score_rows(plan, table, loader))
        scores = rows.lazy().join(table.read("scores"), on="token_id", how="inner", maintain_order="left")
        return scores.select("log_likelihoods").collect().to_series().explode().to_numpy()

    return score


def engine_config(job: Job) -> ModelConfig:
    """Return the configuration of this project's engine for a job."""
    return ModelConfig(
        model=str(job.model),
        engine="vllm",
        dtype=cast(Dtype, job.dtype),
        kv_cache_gib=job.kv_cache_gib,
        devices=DevicesConfig(n=1),
    )


@lru_cache(maxsize=1)  # one engine for all jobs with the same model
def _loaded_engine(config: ModelConfig) -> EngineLoader:
    loader = EngineLoader(find_model(config), config, Path(tempfile.mkdtemp(prefix="evaluator-")) / "logs")
    finish(loader.replicas())
    return loader


def plain_vllm(job: Job) -> Score:
    """Score with `LLM.generate`: `logprob_token_ids` for labels of one token, else `prompt_logprobs` per choice."""
    llm = _loaded_vllm(engine_config(job))
    from vllm import SamplingParams

    rows = requests(job)
    pairs = list(zip(rows["context"].to_list(), rows["continuations"].to_list(), strict=True))
    common = {"max_tokens": 1, "temperature": 0, "detokenize": False}

    def generate(prompts: Sequence[list[int]], params: list[Any]) -> list[Any]:
        inputs = [{"prompt_token_ids": tokens} for tokens in prompts]
        return list(llm.generate(inputs, params, use_tqdm=False)) if inputs else []

    def score() -> Scores:
        llm.reset_prefix_cache()  # removes the prefixes of earlier calls
        one = [(row, context, [token for (token,) in choices]) for row, (context, choices) in enumerate(pairs)
               if max(map(len, choices)) == 1]  # fmt: skip
        more = [(row, context, choice) for row, (context, choices) in enumerate(pairs) for choice in choices
                if max(map(len, choices)) > 1]  # fmt: skip
        scores: dict[int, list[float]] = {row: [] for row in range(len(pairs))}
        params = [SamplingParams(logprob_token_ids=ids, flat_logprobs=True, **common) for _, _, ids in one]
        for (row, _, ids), output in zip(one, generate([c for _, c, _ in one], params), strict=True):
            scores[row] = output.outputs[0].logprobs.logprobs[1 : 1 + len(ids)]
        params = [SamplingParams(prompt_logprobs=0, **common)] * len(more)
        for (row, _, choice), output in zip(more, generate([c + t for _, c, t in more], params), strict=True):
            tokens = zip(output.prompt_logprobs[-len(choice) :], choice, strict=True)
            scores[row].append(sum(at[token].logprob for at, token in tokens))
        return np.concatenate([scores[row] for row in range(len(pairs))])

    return score


@lru_cache(maxsize=1)
def _loaded_vllm(config: ModelConfig) -> Any:
    """Start a `vllm.LLM` as a script would."""
    prepare_vllm()
    from vllm import LLM

    return LLM(model=config.model, dtype=config.dtype, skip_tokenizer_init=True, **vllm_settings(config))


def vllm_settings(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of vLLM for other contestants: the same step size, block size and cache as this project."""
    from evaluator.engine import vllm_settings

    source = find_model(config)
    step = vllm_settings.step_settings()
    settings = {
        "hf_overrides": {"head_dtype": head_dtype(source, config, device_kind())},
        "enable_prefix_caching": True,
        "max_num_batched_tokens": vllm_settings.tokens_per_step(source, step),
        "max_num_seqs": step.max_sequences,
        "block_size": step.block_tokens,
        "enforce_eager": not step.compiled,
        "max_model_len": 4096,
        "disable_log_stats": True,
        "kv_cache_memory_bytes": vllm_settings.kv_cache_bytes(source, config),
        "gpu_memory_utilization": vllm_settings.device_share(config),
    }
    return {name: value for name, value in settings.items() if value is not None}  # None: vLLM chooses


def prepare_vllm() -> None:
    """Make vLLM fast on this machine: no separate engine process, all cores, freed memory kept by the process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    import torch

    if device_kind() == "cpu":
        torch.compiler.set_stance("force_eager")  # as in this project: compiling the sampler's helper gains nothing
        keep_freed_memory()


def lm_eval_vllm(job: Job) -> Score:
    """Score with lm-evaluation-harness on vLLM, one request per continuation."""
    prepare_vllm()
    _report_vllm_version()
    from lm_eval.models.vllm_causallms import VLLM

    settings = vllm_settings(engine_config(job))
    harness = VLLM(pretrained=str(job.model), dtype=cast(Any, job.dtype), batch_size="auto", **settings)

    def score() -> Scores:
        harness.model.reset_prefix_cache()  # removes the prefixes of earlier calls
        return _lm_eval_scores(harness, job)

    return score


def lm_eval_transformers(job: Job) -> Score:
    """Score with lm-evaluation-harness on transformers, `batch_size="auto"`; loading determines the batch size."""
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=str(job.model), device=device_kind(), dtype=job.dtype, batch_size="auto")
    longest = sorted(lm_eval_requests(job), key=lambda request: -len(request[1] + request[2]))
    size = harness._detect_batch_size(longest)
    return lambda: _lm_eval_scores(harness, job, override_bs=size)


def lm_eval_requests(job: Job) -> list[tuple[tuple[str, str], list[int], list[int]]]:
    """Return one request per continuation: placeholder names of context and choice, and the tokens of both."""
    rows = requests(job)
    return [
        ((f"context {row}", f"choice {number}"), context, tokens)
        for row, (context, choices) in enumerate(zip(rows["context"], rows["continuations"].to_list(), strict=True))
        for context in [context.to_list()]
        for number, tokens in enumerate(choices)
    ]


def _lm_eval_scores(harness: Any, job: Job, **options: Any) -> Scores:
    answers = harness._loglikelihood_tokens(lm_eval_requests(job), disable_tqdm=True, **options)
    return np.array([log_likelihood for log_likelihood, _ in answers])


def staicc_toolkit(job: Job) -> Score:
    """Score with the functions of the StaICC toolkit, one prompt at a time, as its benchmark does."""
    import torch
    from StaICC.prefabricate_inference import model_kernel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(job.model))
    model = AutoModelForCausalLM.from_pretrained(str(job.model), dtype=getattr(torch, job.dtype))
    model.eval().to(device_kind())
    shared = {"model": model, "tokenizer": tokenizer, "cache_empty": None}
    rows = requests(job)
    triples = list(zip(rows["prompt"].to_list(), rows["ask"].to_list(), rows["labels"].to_list(), strict=True))

    def score() -> Scores:
        scores: list[float] = []
        for text, ask, labels in triples:
            if ask == "text":
                model_kernel.noisy_channel_ICL_inference_with_torch_Causal_LM([text], label_space=[text], **shared)
                scores.append(np.nan)  # the toolkit returns a number relative to other labels, which is not comparable
            elif ask == "state":
                model_kernel.standard_ICL_inference_with_torch_Causal_LM(
                    text, label_space=["a"], return_hidden_state=True, **shared
                )
            else:
                scores += model_kernel.standard_ICL_inference_with_torch_Causal_LM(text, label_space=labels, **shared)
        return np.array(scores)

    return score


def _report_vllm_version() -> None:
    """Make importlib.metadata return the version of the CPU build `vllm-cpu` as the version of `vllm`."""
    installed = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return installed(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{installed('vllm-cpu')}+cpu"  # vLLM recognises a CPU build by this suffix

    importlib.metadata.version = version


CONTESTANTS: dict[str, Contestant] = {
    "evaluator": Contestant(evaluator, has_states=True),
    "plain vLLM": Contestant(plain_vllm),
    "transformers, cached prefixes": Contestant(transformers_cached, max_rows=192),
    "lm-eval, vLLM": Contestant(lm_eval_vllm, max_rows=48),
    "lm-eval, transformers": Contestant(lm_eval_transformers, max_rows=48),
    "StaICC toolkit": Contestant(staicc_toolkit, has_states=True, max_rows=480, last_token_only=True),
}
"""Name -> contestant. EuroEval is not included: version 16.11 needs scikit-learn 1.6.1 exactly, and version 1.9 is
installed."""
