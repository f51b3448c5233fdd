"""`evaluator doctor`: measure whether a model's engine gives the right numbers on this machine, and how fast.

Engines are loaded one after the other: transformers in float32, which is the reference, and in the run's dtype; the
engine as a run would load it, and in float32 with a small cache; transformers with logits in the other dtype; vLLM with
its other model runner; all replicas of a run.
"""

import atexit
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator import __version__
from evaluator.config import OWN_TEMPLATE, ChatConfig, DevicesConfig, ModelConfig, cache_folder
from evaluator.engine import ENGINES, engine_name, find_machine, find_source, load_engine, with_devices
from evaluator.engine.base import ContinuationRequest, ContinuationScores, Engine, adapted
from evaluator.engine.devices import device_kind, head_dtype, is_batch_invariant
from evaluator.engine.replicas import EngineLoader, Job
from evaluator.engine.vllm_settings import free_bytes, interpret_triton
from evaluator.errors import ConfigError, EvaluatorError, ModelError, PromptTooLongError, plural
from evaluator.files.json_files import write_record
from evaluator.models.source import ModelSource, loaded_bytes, scoring_dtype
from evaluator.progress import Progress, Stage, finish
from evaluator.record import CheckRecord, CheckStatus, DoctorRecord, EngineRecord
from evaluator.run.stage_records import doctor_file
from evaluator.run_log import now
from evaluator.runs.doctor_prompts import CHAT, EVICTIONS, doctor_prompts
from evaluator.runs.receipt import ScoredAgain, drifts, score_as_job, score_in_one_call, score_shuffled
from evaluator.tokens.rows import floors, ragged

MAX_NATS = 0.002
"""Allowed difference in float32: sums over 40 tokens of a real model were up to 5.4e-4 nats apart (docs/receipt.md)."""
MAX_NATS_WITHOUT_REFERENCE = 1.0  # allowed in 16 bits if no float32 reference tells transformers' own error
ROUNDING = 0.125  # nats, allowed besides twice transformers' error: the bfloat16 step of logits from 16 to 32
MAX_STATE_ERROR = 1e-3  # allowed in float32, relative to the largest absolute value of all hidden states
SMALL_CACHE_TOKENS = 512  # fewer tokens than the different beginnings of the prompts "evictions"
MAX_REPLICA_NATS = 1e-4  # allowed: replicas compute the same in the same order
SECONDS_FOR_REPLICAS = 900.0
BASE = "base after the adapter"  # kind of prompts that the base model scores after the adapter
KIND = pl.col("prompt_id").str.split("/").list.first()  # kind of a prompt, with which its id begins

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_DRIVER = Path("/proc/driver/nvidia/version")

Checks = Iterator[CheckRecord]


class _SkippedError(Exception):
    """Raised to skip a check; the message is the reason."""


class _Answers(NamedTuple):
    """The results of an engine for all prompts."""

    scored: ScoredAgain
    states: npt.NDArray[np.float32]  # [text, hidden size]
    computed_tokens: int  # computed for the log-likelihoods, without cached tokens
    elapsed_s: float


@dataclass(frozen=True)
class _Patient:
    """The model under examination, its prompts, and reference results of transformers."""

    source: ModelSource
    config: ModelConfig  # configuration of one replica
    rows: pl.DataFrame  # schemas.TOKENS
    references: dict[str, _Answers]  # dtype -> results of transformers, if the model fits into memory
    facts: list[EngineRecord] = field(default_factory=list)  # one entry once the engine of a run was loaded

    @property
    def dtype(self) -> str:
        return scoring_dtype(self.source, self.config)

    @property
    def asked(self) -> pl.DataFrame:
        return self.rows.filter(pl.col("ask") != "state")

    @property
    def of_first_kind(self) -> pl.DataFrame:
        return self.rows.filter(KIND.first() == KIND)

    def way_out(self, dtype: str) -> str:
        """Return the command-line option that avoids wrong numbers in a dtype."""
        if dtype != "float32":
            return "--dtype float32"
        return f"--engine {'vllm' if engine_name(self.config) == 'transformers' else 'transformers'}"


def examine(config: ModelConfig) -> Stage[DoctorRecord]:
    """Examine a model on this machine; return the record, and write it to a file that runs of the model read.

    Raises ConfigError for an engine that loads no model on this machine, and what find_source and with_devices raise.
    """
    name = engine_name(config)
    if not ENGINES[name].runs_a_model or ENGINES[name].identity:
        raise ConfigError(f"--engine {name} loads no model here. Choose vllm or transformers.")
    source = find_source(config)
    whole = with_devices(source, config)
    devices = replace(whole.devices, n=whole.devices.per_replica, engines_per_device=1, ray_address=None)
    chat = config.chat or (ChatConfig(template=OWN_TEMPLATE) if source.has_chat_template else ChatConfig())
    rows = doctor_prompts(source, chat, config.label_boundary or "separate")
    patient = _Patient(source, replace(whole, devices=devices), rows, {})
    absent = {CHAT: not rows["prompt_id"].str.starts_with(CHAT).any(), "adapter": source.adapter is None}
    checks = [_check(kind, None, "the model has none, or none is given") for kind, is_so in absent.items() if is_so]
    examinations: dict[str, Callable[[], Iterable[CheckRecord]]] = {
        "transformers in float32, the reference": lambda: _add_reference(patient, "float32"),
        f"transformers in {patient.dtype}": lambda: _add_reference(patient, patient.dtype),
        name: lambda: _as_run(patient),
        "float32, small cache": lambda: _small_cache(patient),
        "effect of logits in float32": lambda: _head_effect(patient),
        "other model runner": lambda: _other_runner(patient),
        "replicas": lambda: _replicas(patient, whole),
    }
    for done, (title, examination) in enumerate(examinations.items()):
        yield Progress(stage=f"Examining: {title}", done=done, total=len(examinations), unit="examinations")
        try:
            checks.extend(examination())
        except (_SkippedError, PromptTooLongError) as error:
            checks.append(_check(title, None, str(error)))
        except EvaluatorError as error:
            agrees = None if title.startswith("transformers ") else False
            checks.append(_check(title, agrees, str(error), patient.way_out(patient.dtype)))
    record = DoctorRecord(
        evaluator=__version__,
        made=now(),
        host=platform.node(),
        model=source.title,
        weights_fingerprint=source.fingerprint,
        engine=patient.facts[0] if patient.facts else None,
        facts=_facts(whole, patient.facts),
        checks=checks,
    )
    write_record(doctor_file(source.fingerprint), record)
    return record


def _check(name: str, agrees: bool | None, text: str, option: str = "") -> CheckRecord:
    """Return the record of a check; `agrees` is None for a skipped check."""
    status: CheckStatus = "skipped" if agrees is None else "agrees" if agrees else "DISAGREES"
    return CheckRecord(name=name, status=status, text=text, option=option if status == "DISAGREES" else "")


def _facts(config: ModelConfig, engines: list[EngineRecord]) -> dict[str, str]:
    """Return the facts of the machine and, once an engine was loaded, its settings and their origins."""
    machine, folder, driver = find_machine(config), cache_folder(), _DRIVER.read_text() if _DRIVER.is_file() else ""
    folder.mkdir(parents=True, exist_ok=True)
    memory = f", {machine.memory_bytes / 2**30:.0f} GiB each" if machine.memory_bytes else ""
    facts = {
        "devices": f"{machine.n_devices} x {machine.name}{memory}; {free_bytes() / 2**30:.1f} GiB free",
        "driver": f"NVIDIA {found[0]}" if (found := re.findall(r"\d+\.[\d.]+", driver)) else "no NVIDIA driver",
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        "disk": f"{shutil.disk_usage(folder).free / 2**30:.0f} GiB free in {folder}",
        "Ray": "installed" if find_spec("ray") else "not installed: one replica only",
    }
    for engine in engines:
        versions = ", ".join(f"{package} {number}" for package, number in engine.versions.items())
        cache = f"{engine.cache_tokens or 0:,} tokens in the cache, shared in units of {engine.prefix_block_tokens}"
        facts |= {
            "engine": f"{engine.name} ({'--engine' if config.engine else 'the default here'}): {versions}",
            "dtype": f"{engine.dtypes} ({'that of the weights' if config.dtype == 'auto' else '--dtype'})",
            "steps": f"{engine.tokens_per_step:,} tokens, {'compiled' if engine.compiled else 'eager'}; "
            f"{cache if engine.prefix_block_tokens else 'no prefix cache'}",
            "replicas": f"{config.devices.n_replicas}, {plural(config.devices.per_replica, 'device')} each",
        }
    return facts


def _answers(engine: Engine, patient: _Patient) -> _Answers:
    """Score all prompts with an engine in one call, and compute the hidden states.

    With an adapter, the base model scores the prompts of the first kind afterwards, to see that its numbers do not come
    from a cache that the adapter has filled.
    """
    own = adapted(engine, patient.source.adapter)
    before, clock = engine.counts.computed_tokens, time.monotonic()
    scored = score_in_one_call(patient.asked, own.log_likelihoods)
    computed, elapsed_s = engine.counts.computed_tokens - before, time.monotonic() - clock
    states = own.hidden_states(patient.rows.filter(ask="state")["context"].to_list())
    if patient.source.adapter:
        base = score_in_one_call(patient.of_first_kind, engine.log_likelihoods)
        ids = pl.col("prompt_id").str.replace("^[^/]*", BASE)
        tables = zip(scored[:2], base[:2], strict=True)
        tokens, scores = (pl.concat([mine, theirs.with_columns(ids)]) for mine, theirs in tables)
        scored = ScoredAgain(tokens, scores, 2)
    return _Answers(scored, states, computed, elapsed_s)


def _add_reference(patient: _Patient, dtype: str) -> tuple[()]:
    """Score with transformers in a dtype and add the results to `references`. There is no check to return.

    Raises _SkippedError if the model does not fit into memory, or cannot be loaded in the dtype.
    """
    if dtype in patient.references:
        return ()
    config = _of_transformers(patient.config, dtype)
    needed, free = loaded_bytes(patient.source, config), free_bytes()
    if patient.source.quantization and dtype == "float32":
        raise _SkippedError("the saved weights are quantised")
    if needed * 1.2 + 2**30 > free:
        raise _SkippedError(f"{needed / 2**30:.1f} GiB of weights, and {free / 2**30:.1f} GiB are free")
    with closing(load_engine(patient.source, config)) as engine:
        patient.references[dtype] = _answers(engine, patient)
    return ()


def _agreement(name: str, patient: _Patient, answers: _Answers, dtype: str) -> Checks:
    """Compare results of the engine with the reference: for each kind of prompt, and for hidden states."""
    truth, same = (patient.references.get(each) for each in ("float32", dtype))
    reference = truth or same
    if reference is None or engine_name(patient.config) == "transformers":
        why = "the engine is the reference itself" if reference else "no reference fits"
        yield _check(f"{name}: agreement", None, why)
        return
    by_kind = drifts(answers.scored, reference.scored.scores, name).group_by(KIND, maintain_order=True)
    kinds, rest_agrees = {str(kind): rows for (kind,), rows in by_kind}, True
    # Evictions last: a small cache is the likely cause only if no other kind disagrees.
    for kind in sorted(kinds, key=lambda kind: kind == EVICTIONS):
        option = "a larger --kv-cache-gib" if kind == EVICTIONS and rest_agrees else patient.way_out(dtype)
        check = _drift_check(f"{name}: {kind}", kinds[kind], _allowed_nats(patient, dtype, kind), patient, option)
        rest_agrees = rest_agrees and check.status != "DISAGREES"
        yield check
    error, allowed = _state_error(answers, reference), MAX_STATE_ERROR
    if dtype != "float32":
        allowed = 0.02 + (2 * _state_error(same, truth) if truth and same else 0.03)
    text = f"{len(answers.states)} texts, at most {error:.2g} of the largest number off (allowed {allowed:.2g})"
    yield _check(f"{name}: hidden states", error <= allowed, text, patient.way_out(dtype))


def _allowed_nats(patient: _Patient, dtype: str, kind: str = "") -> float:
    """Return the allowed difference in nats; in 16 bits, twice transformers' own error on the kind, plus ROUNDING."""
    if dtype == "float32":
        return MAX_NATS
    truth, same = (patient.references.get(each) for each in ("float32", dtype))
    if truth is None or same is None:
        return MAX_NATS_WITHOUT_REFERENCE
    own = drifts(same.scored, truth.scored.scores, dtype)
    return 2 * _worst(own.filter(pl.col("prompt_id").str.starts_with(kind))) + ROUNDING


def _drift_check(name: str, found: pl.DataFrame, allowed: float, patient: _Patient, option: str) -> CheckRecord:
    """Check drifts (schemas.RECEIPT) against the allowed nats. With weights quantised at loading, report them only."""
    check = _check(name, _worst(found) <= allowed, f"{_drift_text(found)}, {allowed:.2g} allowed", option)
    return replace(check, status="measured", option="") if patient.config.quantization else check


def _worst(found: pl.DataFrame) -> float:
    return float(np.max(found["drift_nats"].to_numpy(), initial=0.0))


def _drift_text(found: pl.DataFrame) -> str:
    flipped = found.filter(pl.col("pred") != pl.col("pred_again")).height
    return f"{found.height} prompts, {plural(flipped, 'prediction')} flipped, at most {_worst(found):.2g} nats apart"


def _state_error(answers: _Answers, reference: _Answers) -> float:
    return float(np.abs(answers.states - reference.states).max() / np.abs(reference.states).max())


def _as_run(patient: _Patient) -> Checks:
    """Examine the engine as a run loads it."""
    with closing(load_engine(patient.source, patient.config)) as engine:
        patient.facts.append(engine.facts)
        first = _answers(engine, patient)
        yield from _agreement(engine.facts.dtype, patient, first, engine.facts.dtype)
        yield _runner(engine)
        yield _logit_steps(engine.facts, first)
        own = adapted(engine, patient.source.adapter)
        again = _answers(engine, patient)
        yield from _repeated(own, patient, first, again)
        yield from _prefix_hits(engine, own, patient)
        yield _throughput(engine.facts.dtype, patient, again)
        yield _plain_vllm(engine, own, patient)


def _runner(engine: Engine) -> CheckRecord:
    """Check that the engine reads answers for the model runner that vLLM uses: V1 and V2 return different rows."""
    said = engine.facts.model_runner
    if said is None:
        return _check("model runner", None, f"{engine.facts.name} has none")
    at_work = getattr(engine, "runner_at_work", lambda: None)() or _usual_runner()
    text = f"{at_work} computes, and the engine reads its answers as those of {said}"
    return _check("model runner", said == at_work, text, f"{RUNNER}={int(said == 'V2')}, a variable,")


def _usual_runner() -> str:
    wanted = os.environ.get(RUNNER)
    return "V2" if wanted == "1" or (wanted is None and device_kind() == "cuda") else "V1"


def _logit_steps(facts: EngineRecord, answers: _Answers) -> CheckRecord:
    """Check that logits are in float32 if the engine says so: in 16 bits, they have steps of 1/256 or more."""
    said = facts.head_dtype or facts.dtype
    if said != "float32":
        return _check("dtype of the logits", None, f"they are in {said}, as the engine says")
    one_token = pl.col("label_token_counts").list.max() == 1
    rows = answers.scored.scores.filter(one_token)["label_log_likelihoods"].to_list()
    steps = np.concatenate([np.diff(row) for row in rows]) * 256
    share = float((np.abs(steps - np.round(steps)) < 256 * 1e-5).mean())
    text = f"{share:.0%} of differences between labels are multiples of 1/256 nat; all would be with 16 bits"
    return _check("dtype of the logits", share < 0.5, text, "--head-dtype float32")


def _repeated(own: Engine, patient: _Patient, first: _Answers, again: _Answers) -> Checks:
    """Check that a second scoring agrees and reuses nothing of the first; then check random order and batches."""
    worst = _worst(drifts(again.scored, first.scored.scores, "again"))
    is_new = again.computed_tokens == first.computed_tokens
    text = f"{'the same bits' if worst == 0 else f'at most {worst:.2g} nats apart'}, {again.computed_tokens:,} tokens "
    text += f"computed, {first.computed_tokens:,} before: {'nothing' if is_new else 'SOME'} from the earlier call"
    yield _check("repeated", is_new and worst <= MAX_NATS, text, patient.way_out("float32"))
    shuffled = finish(score_shuffled(patient.asked, own, patient.asked.height, seed=0))
    found = drifts(shuffled, first.scored.scores, "shuffled")
    invariant = f"batch invariance {'on' if is_batch_invariant() else 'off'}"
    option = "VLLM_BATCH_INVARIANT=1, a variable," if device_kind() == "cuda" else patient.way_out(patient.dtype)
    yield _drift_check(f"shuffled, {invariant}", found, _allowed_nats(patient, patient.dtype), patient, option)


def _prefix_hits(engine: Engine, own: Engine, patient: _Patient) -> Checks:
    """Check that the number of computed tokens is between the floors for sharing by tokens and by whole blocks."""
    unit, labels = engine.facts.prefix_block_tokens, pl.col("continuations").list.eval(pl.element().list.len())
    if unit is None or unit > 128:
        why = f"states are shared in units of {unit} tokens" if unit else f"{engine.facts.name} has no prefix cache"
        yield _check("prefix hits", None, why)
        return
    prompts = patient.asked.filter(labels.list.max() == 1)["context"].sort().to_list()
    body = prompts[-1] * (4 * unit)
    same = [[*body[: 4 * unit], ending] for ending in sorted({*body})[:10]]
    for name, contexts in (("prefix hits", prompts), ("prefix hits of whole blocks", same)):
        rows = ragged(pl.Series(contexts, dtype=pl.List(pl.Int32)))
        least, most = floors(*rows, [unit])
        before = engine.counts.computed_tokens
        list(own.log_likelihoods([ContinuationRequest(context, [[1], [2]]) for context in contexts]))
        computed = engine.counts.computed_tokens - before
        text = f"{computed:,} of {len(rows[0]):,} tokens computed, {least:,} to {most:,} planned in blocks of {unit}"
        yield _check(name, least <= computed <= most, text, "a larger --kv-cache-gib, or --engine transformers")


def _throughput(dtype: str, patient: _Patient, answers: _Answers) -> CheckRecord:
    """Report the rate of scoring, and its share of the measured rate of matrix products."""
    size, peak = patient.source.size, _product_flop_per_s(dtype)
    per_s = answers.computed_tokens / answers.elapsed_s
    share = (size.flop_per_token if size else 0) * per_s / peak
    text = f"{patient.asked.height / answers.elapsed_s:.1f} prompts/s, {per_s:,.0f} tokens computed/s, {share:.0%} of "
    text += f"the rate of matrix products, {peak / 1e12:.2f} TFLOP/s in {dtype}"
    return CheckRecord(name="throughput", status="measured", text=text)


def _plain_vllm(engine: Any, own: Engine, patient: _Patient) -> CheckRecord:
    """Time vLLM's own prompt_logprobs on the same prompts, and compare the log-likelihoods."""
    if not hasattr(engine, "generate"):
        return _check("plain vLLM", None, f"the engine is {engine.facts.name}")
    rows, clock = patient.of_first_kind, time.monotonic()
    ours = score_in_one_call(rows, own.log_likelihoods)
    ours_s, clock = time.monotonic() - clock, time.monotonic()

    def plainly(requests: Any) -> Iterator[ContinuationScores]:
        whole = [[*context, *each] for context, continuations in requests for each in continuations]
        outputs = iter(engine.generate(whole, prompt_logprobs=0))
        for index, (_, continuations) in enumerate(requests):
            tails = [(each, next(outputs).prompt_logprobs[-len(each) :]) for each in continuations]
            scores = [[place[token].logprob for token, place in zip(*tail, strict=True)] for tail in tails]
            yield ContinuationScores(index, scores)

    plain = score_in_one_call(rows, plainly)
    times = f"{ours_s:.2f} s, vLLM's own prompt_logprobs {time.monotonic() - clock:.2f} s"
    found, allowed = drifts(ours, plain.scores, "plain"), _allowed_nats(patient, patient.dtype)
    check = _drift_check("plain vLLM", found, allowed, patient, "--engine transformers")
    return replace(check, text=f"{times}; {check.text}")


def _product_flop_per_s(dtype: str) -> float:
    """Measure the rate of square matrix products in a dtype, in FLOP/s: the fastest of five."""
    import torch

    kind, n = device_kind(), {"cpu": 2048, "cuda": 8192}[device_kind()]
    a, b = (torch.randn(n, n, dtype=getattr(torch, dtype), device=kind) for _ in range(2))
    times = []
    for _ in range(5):
        clock = time.monotonic()
        (a @ b)[0, 0].item()  # waits for a GPU
        times.append(time.monotonic() - clock)
    return float(2 * n**3 / min(times))


def _small_cache(patient: _Patient) -> Checks:
    """Examine the engine in float32, with a cache too small for the beginnings that prompts share."""
    name, source = "float32, small cache", patient.source
    has_cache = any(each.prefix_block_tokens for each in patient.facts)
    if not has_cache and patient.dtype == "float32":
        raise _SkippedError("there is no prefix cache")
    if source.quantization or patient.config.quantization:
        raise _SkippedError("the weights are quantised")
    config = replace(patient.config, dtype="float32", quantization=None)
    if engine_name(config) == "vllm":
        # Room for the longest prompt with its labels, in whole blocks of 32 tokens.
        tokens = max(SMALL_CACHE_TOKENS, *(-(-(len(context) + 64) // 32) * 32 for context in patient.asked["context"]))
        config = replace(_eager(config), kv_cache_gib=tokens * source.kv_values_per_token * 4 / 2**30)
    with closing(load_engine(source, config)) as engine:
        answers = _answers(engine, patient)
        yield from _agreement(name, patient, answers, "float32")
        if not has_cache:
            return
        prompts = patient.asked.filter(pl.col("prompt_id").str.starts_with(EVICTIONS))
        floor = floors(*ragged(prompts["context"].sort()))[0]
        before = engine.counts.computed_tokens
        score_in_one_call(prompts, adapted(engine, source.adapter).log_likelihoods)
        computed = engine.counts.computed_tokens - before
        text = f"{computed:,} tokens computed where {floor:,} suffice, with room for {engine.facts.cache_tokens:,}"
        yield _check("evictions", True if computed > floor + 32 else None, text)


def _head_effect(patient: _Patient) -> Checks:
    """Measure how float32 logits change the numbers of a model in 16 bits; transformers is loaded again."""
    same = patient.references.get(patient.dtype)
    if patient.dtype == "float32" or same is None:
        raise _SkippedError("the model computes in float32" if same else "transformers was not loaded")
    is_single = head_dtype(patient.source, patient.config, device_kind()) == "float32"
    config = _of_transformers(patient.config, patient.dtype, head_dtype="model" if is_single else "float32")
    with closing(load_engine(patient.source, config)) as engine:
        other = score_in_one_call(patient.asked, adapted(engine, patient.source.adapter).log_likelihoods)
    # before: logits in the dtype of the model; after: logits in float32.
    before, after = (other, same.scored) if is_single else (same.scored, other)
    found = drifts(after._replace(tokens=patient.asked), before.scores, "head")
    back = drifts(before._replace(tokens=patient.asked), after.scores, "head")
    ties = [each.filter(margin_nats=0.0).height for each in (found, back)]
    text = f"{_drift_text(found)}; the two best labels tie in {ties[0]} prompts without it, in {ties[1]} with it"
    yield CheckRecord(name="effect of logits in float32", status="measured", text=text)


def _eager(config: ModelConfig) -> ModelConfig:
    """Return the configuration without compilation, which on a GPU takes longer than to score the prompts."""
    return replace(config, steps=replace(config.steps, eager=True))


def _of_transformers(config: ModelConfig, dtype: str, **changes: Any) -> ModelConfig:
    """Return the configuration of the reference in a dtype."""
    options = {"engine": "transformers", "dtype": dtype, "quantization": None, "devices": DevicesConfig(n=1)}
    return replace(config, **(options | changes))


def _other_runner(patient: _Patient) -> Checks:
    """Examine vLLM's other model runner in another process. V2 on a CPU runs in Triton's interpreter."""
    other = "V1" if _usual_runner() == "V2" else "V2"
    name, rows, is_interpreted = f"model runner {other}", patient.rows, device_kind() == "cpu" and other == "V2"
    if engine_name(patient.config) != "vllm":
        raise _SkippedError("the engine is not vllm")
    if is_interpreted and not find_spec("triton"):
        raise _SkippedError("on a CPU, V2 needs Triton, which is not installed")
    if is_interpreted:  # slow: only the first prompt of each kind
        rows = rows.filter(pl.col("prompt_id").str.ends_with("/00"))
    few = replace(patient, rows=rows, config=replace(_eager(patient.config), dtype="float32"), references={})
    variables = {RUNNER: str(int(other == "V2"))} | ({"TRITON_INTERPRET": "1"} if is_interpreted else {})
    with patch.dict(os.environ, variables), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            facts, answers = process.submit(_answers_of_runner, few, is_interpreted).result()
        except BrokenProcessPool as error:
            raise ModelError(f"The process of {name} ended before it answered; its last lines are above.") from error
    yield _check(f"{name}: in use", facts.model_runner == other, f"{facts.model_runner} computes")
    if truth := patient.references.get("float32"):
        few.references["float32"] = truth._replace(states=truth.states[: len(answers.states)])
    yield from _agreement(name, few, answers, "float32")


def _answers_of_runner(patient: _Patient, is_interpreted: bool) -> tuple[EngineRecord, _Answers]:
    atexit.register(os._exit, 0)  # on an H200 the process never ended: it hung when Python freed its memory
    if is_interpreted:
        interpret_triton()
    with closing(load_engine(patient.source, patient.config)) as engine:
        return engine.facts, _answers(engine, patient)


def _replicas(patient: _Patient, whole: ModelConfig) -> Checks:
    """Compare the replicas of a run with each other."""
    n = whole.devices.n_replicas
    if n == 1:
        raise _SkippedError("a run has one here (--devices all for more)")
    rows, answers = patient.of_first_kind, dict[int, ScoredAgain]()
    with TemporaryDirectory() as folder, closing(EngineLoader(patient.source, whole, Path(folder))) as loader:
        replicas = finish(loader.replicas(max(map(len, rows["context"])) + 1))
        jobs = [Job(f"doctor-{each}", 1.0, score_as_job, (rows, patient.source.adapter)) for each in range(n)]
        deadline = time.monotonic() + SECONDS_FOR_REPLICAS
        while len(answers) < n and time.monotonic() < deadline:  # the first loaded replica may take several jobs
            answers |= dict(replicas.run(jobs))
    first, *others = (answers[number] for number in sorted(answers))
    worst = max((_worst(drifts(each, first.scores, "replica")) for each in others), default=math.inf)
    text = f"{len(answers)} of {n} answered, at most {worst:.2g} nats apart, {MAX_REPLICA_NATS} allowed"
    yield _check("replicas", len(answers) == n and worst <= MAX_REPLICA_NATS, text, "--devices 1")
