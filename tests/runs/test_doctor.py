"""`evaluator doctor` on the model that ships: nothing disagrees on a right engine, and each planted fault is found."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from evaluator.config import DevicesConfig, ModelConfig, cache_folder
from evaluator.engine import ENGINES, EngineKind, find_source
from evaluator.engine.base import ContinuationRequest, ContinuationScores, FakeEngine, versions_for_transformers
from evaluator.engine.transformers_engine import TransformersEngine
from evaluator.errors import ConfigError
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, finish
from evaluator.record import DoctorRecord
from evaluator.run.stage_records import last_verdict
from evaluator.runs import doctor
from evaluator.runs.doctor_prompts import _first_tokens, doctor_prompts
from evaluator.schemas import SCORES
from tests.command_line import command_outputs
from tests.lora import save_adapter
from tests.shared_engines import close_engines

COMPUTED_REFERENCE = doctor._add_reference
REFERENCES: dict[tuple[str, str], Any] = {}
PROMPTS: dict[tuple[str, str], pl.DataFrame] = {}
FEW = {"one-token labels": 3, "long labels": 2, "hidden states": 2, "block edges": 6, "another beginning": 2}
"""Kind -> so many of its prompts find every planted fault; the right vLLM has them all."""

BLOCK = 32
EMBEDDED = str(EMBEDDED_MODELS["embedded"]())


class Right(TransformersEngine):
    """An engine without a fault: transformers, whose calls have `adapter` and `requests` that a fault can change."""

    def __init__(self, source: ModelSource, config: ModelConfig) -> None:
        super().__init__(source, config)
        self.source = source

    def log_likelihoods(self, requests, adapter=None):
        return self.changed(super().log_likelihoods([self.given(request) for request in requests], adapter), requests)

    def given(self, request: ContinuationRequest) -> ContinuationRequest:
        """Return the request that is computed in place of another."""
        return request

    def changed(
        self, answers: Iterator[ContinuationScores], _requests: Sequence[ContinuationRequest]
    ) -> Iterator[ContinuationScores]:
        """Yield the answers that are given in place of others."""
        yield from answers


class SwappedLabels(Right):
    def changed(self, answers, _requests):
        for answer in answers:
            by_length = {}  # those of as many tokens, so that no number is missing
            for place, numbers in enumerate(answer.token_log_probs):
                by_length.setdefault(len(numbers), []).append(place)
            source = {
                place: other for places in by_length.values() for place, other in zip(places, places[::-1], strict=True)
            }
            yield replace(answer, token_log_probs=[answer.token_log_probs[source[p]] for p in range(len(source))])


class RowsOffByOne(Right):
    """Each token's number is that of the token before it in the prompt."""

    def given(self, request):
        return request._replace(context=request.context[:-1]) if len(request.context) > 1 else request


class StalePrefix(Right):
    """A block that is found again holds the tokens of the block that was there before."""

    def log_likelihoods(self, requests, adapter=None):
        self.seen: list[tuple[int, ...]] = []
        return super().log_likelihoods(requests, adapter)

    def given(self, request):
        first = tuple(request.context[:BLOCK])
        if first in self.seen and self.seen[0] != first and len(request.context) > BLOCK:
            return request._replace(context=[*self.seen[0], *request.context[BLOCK:]])
        self.seen.append(first)
        return request


class LastBlockIgnored(Right):
    def given(self, request):
        return request._replace(context=request.context[: max(1, (len(request.context) - 1) // BLOCK * BLOCK)])


class HeadInBfloat16(Right):
    """Logits are in bfloat16, and the engine says that they are in float32."""

    def __init__(self, source, config):
        super().__init__(source, config)
        head = self._model.get_output_embeddings()
        head.register_forward_hook(lambda _head, _given, logits: logits.bfloat16().float())


class AdapterNotApplied(Right):
    def log_likelihoods(self, requests, adapter=None):
        del adapter
        return super().log_likelihoods(requests, None)


class WrongRunner(Right):
    def __init__(self, source, config):
        super().__init__(source, config)
        self.facts = replace(self.facts, model_runner="V2")


class DroppedBos(Right):
    def given(self, request):
        return request._replace(context=request.context[request.context[0] == self.source.bos :])


class AnotherSaltsAnswers(Right):
    """A cache that forgets which block comes before: contexts that go on alike are answered alike."""

    def changed(self, answers, requests):
        known: dict[Any, list[list[float]]] = {}
        for answer in sorted(answers, key=lambda answer: answer.index):
            context, labels = requests[answer.index]
            key = (*context[BLOCK:],) or answer.index, str(labels)
            yield replace(answer, token_log_probs=known.setdefault(key, answer.token_log_probs))


class AnotherAdaptersAnswers(Right):
    """A cache that forgets with which adapter it computed."""

    known: dict[str, list[list[float]]]

    def changed(self, answers, requests):
        self.known = getattr(self, "known", {})
        for answer in answers:
            numbers = self.known.setdefault(str(requests[answer.index]), answer.token_log_probs)
            yield replace(answer, token_log_probs=numbers)


class EarlierCallsAnswers(Right):
    """A cache that outlives the call: of what was asked before, nothing is computed."""

    def log_likelihoods(self, requests, adapter=None):
        key = str(list(requests)), adapter
        self.kept = getattr(self, "kept", {})
        if key not in self.kept:
            self.kept[key] = [*super().log_likelihoods(requests, adapter)]
        return iter(self.kept[key])


FAULTS: dict[type[Right], tuple[bool, str]] = {
    SwappedLabels: (False, "float32: one-token labels"),
    RowsOffByOne: (False, "float32: one-token labels"),
    StalePrefix: (False, "float32: evictions"),
    LastBlockIgnored: (False, "float32: one-token labels"),
    HeadInBfloat16: (False, "dtype of the logits"),
    AdapterNotApplied: (True, "float32: one-token labels"),
    WrongRunner: (False, "model runner"),
    DroppedBos: (False, "float32: one-token labels"),
    AnotherSaltsAnswers: (False, "float32: another beginning"),
    AnotherAdaptersAnswers: (True, "float32: base after the adapter"),
    EarlierCallsAnswers: (False, "repeated"),
}
"""Fault -> whether the model has an adapter, and a check that finds it."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with the converted datasets of all tests, and verdicts of its own."""
    datasets = cache_folder() / "datasets"
    datasets.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "datasets").symlink_to(datasets)
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("adapter") / "adapter"
    return str(save_adapter(folder, Path(EMBEDDED), ["q_proj", "v_proj"], rank=4, seed=1))


def few_prompts(source: ModelSource, *options: Any) -> pl.DataFrame:
    """Return what FEW leaves of the doctor's prompts, made once for all tests with the same tokenizer and options."""
    key = source.fingerprint, str(options)
    if key not in PROMPTS:
        kind, number = (pl.col("prompt_id").str.split("/").list.get(place) for place in (0, 1))
        of_kinds = number.cast(int) < kind.replace_strict(FEW, default=64)
        PROMPTS[key] = doctor_prompts(source, *options).filter(of_kinds)
    return PROMPTS[key]


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, adapter: str) -> Callable[..., DoctorRecord]:
    """Return a function that examines the model with an engine."""

    def reference(patient: Any, dtype: str) -> Iterator[Any]:
        """Do what the doctor does, once for all tests with the same prompts."""
        key = dtype, patient.source.fingerprint
        if key not in REFERENCES:
            yield from COMPUTED_REFERENCE(patient, dtype)
            REFERENCES.update({key: patient.references[dtype]} if dtype in patient.references else {})
        else:
            patient.references[dtype] = REFERENCES[key]

    monkeypatch.setattr(doctor, "doctor_prompts", few_prompts)
    monkeypatch.setattr(doctor, "_add_reference", reference)
    monkeypatch.setattr(doctor, "_product_flop_per_s", lambda _dtype: 1e12)  # measured in the test of vLLM

    def examine(engine: type[Right], *, is_adapted: bool = False, **options: Any) -> DoctorRecord:
        kind = EngineKind(summary="", load=engine, versions=versions_for_transformers, takes_adapters=True)
        monkeypatch.setitem(ENGINES, "wrapped", kind)
        config = ModelConfig(model=EMBEDDED, engine="wrapped", adapter=adapter if is_adapted else None, **options)
        shown: list[Progress] = []
        record = finish(doctor.examine(config), shown.append)
        assert [each.done for each in shown] == [*range(shown[0].total)]
        return record

    return examine


@pytest.mark.parametrize("is_adapted", [False, True])
def test_a_right_engine_agrees_and_what_was_skipped_is_said(
    examined, is_adapted: bool, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_DRIVER", tmp_path / "version")
    record = examined(Right, is_adapted=is_adapted)
    assert record.names("DISAGREES") == []
    names = record.names("agrees")
    assert {"float32: block edges", "float32: evictions", "repeated"} <= {*names}
    assert ("float32: base after the adapter" in names) == is_adapted
    skipped = {
        "chat",
        "model runner",
        "prefix hits",
        "float32, small cache",
        "plain vLLM",
        "effect of logits in float32",
        "other model runner",
        "replicas",
    }
    assert skipped <= {*record.names("skipped")}
    assert ("adapter" in record.names("skipped")) != is_adapted
    assert record.verdict.startswith(f"the {len(names)} checks that ran agree. Skipped: chat; ")
    assert record.facts["steps"].endswith("eager; no prefix cache")
    assert record.facts["replicas"] == "1, 1 device each"
    assert record.facts["driver"] == "no NVIDIA driver"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_planted_fault_is_found_and_an_option_avoids_it(examined, fault: type[Right]) -> None:
    is_adapted, found_by = FAULTS[fault]
    record = examined(fault, is_adapted=is_adapted)
    wrong = [check for check in record.checks if check.status == "DISAGREES"]
    assert found_by in {check.name for check in wrong}
    assert all(check.option for check in wrong)
    blamed = {check.name for check in wrong if check.option == "a larger --kv-cache-gib"}
    assert blamed == ({found_by} if fault is StalePrefix else set())  # nothing else disagrees
    assert record.verdict.startswith(f"{len(wrong)} of ")


def test_the_rate_of_products_is_that_of_the_fastest(monkeypatch) -> None:
    clock = iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0, 10.0, 14.0, 14.0, 17.0])
    monkeypatch.setattr(doctor, "device_kind", lambda: "cpu")
    monkeypatch.setattr(doctor, "time", SimpleNamespace(monotonic=partial(next, clock)))
    monkeypatch.setattr(torch, "randn", lambda *_shape, **_how: torch.ones(1, 1))
    assert doctor._product_flop_per_s("float32") == 2048**3  # a product of 2 x 2048^3 operations in 2 s


def test_the_driver_is_told_by_its_version(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "_DRIVER", tmp_path / "version")
    module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (someone@)  \n"
    (tmp_path / "version").write_text(module + "GCC version:  gcc version 14.3.0 (GCC) \n")
    assert doctor._facts(ModelConfig(model=EMBEDDED), [])["driver"] == "NVIDIA 580.159.04"


class TwoReplicas:
    """Replicas in this process, the second with other weights."""

    n = 2

    def __init__(self, source: ModelSource, config: ModelConfig, _logs: Path) -> None:
        self.engines = [TransformersEngine(source, replace(config, devices=DevicesConfig(n=1))) for _ in range(2)]
        with torch.no_grad():
            self.engines[1]._model.get_output_embeddings().weight.mul_(self.factor)

    factor = 1.01

    def replicas(self, _longest: int) -> Iterator[Any]:
        yield from ()
        return self

    def run(self, jobs):
        for number, job in enumerate(jobs):
            yield from job.work(self.engines[number], number, *job.arguments)

    def close(self) -> None: ...


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.01, False)])
def test_a_replica_with_other_weights_is_found(examined, monkeypatch, factor: float, agrees: bool) -> None:
    monkeypatch.setattr(doctor, "EngineLoader", TwoReplicas)
    monkeypatch.setattr(TwoReplicas, "factor", factor)
    record = examined(Right, devices=DevicesConfig(n=2))
    (check,) = (check for check in record.checks if check.name == "replicas")
    assert (check.status, check.option) == (("agrees", "") if agrees else ("DISAGREES", "--devices 1"))


def test_16_bits_are_held_against_what_transformers_is_off(examined) -> None:
    record = examined(Right, dtype="bfloat16")
    assert record.names("DISAGREES") == []
    assert {"bfloat16: long labels", "bfloat16: hidden states", "float32, small cache: long labels"} <= {
        *record.names("agrees")
    }
    (effect,) = (check for check in record.checks if check.name == "effect of logits in float32")
    assert effect.status == "measured"
    assert examined(SwappedLabels, dtype="bfloat16").names("DISAGREES")


def answers_of(first: float, second: float, states: float = 1.0) -> doctor._Answers:
    """Answers to a prompt of each of two kinds, whose second labels have these log-likelihoods."""
    ids = ["one/00", "two/00"]
    numbers: dict[str, Any] = {"label_log_likelihoods": [[-1.0, first], [-1.0, second]]}
    numbers |= {"last_token_log_probs": [None, None], "label_token_counts": [[1, 1], [1, 1]]}
    tokens = pl.DataFrame({"prompt_id": ids, "ask": "labels"})
    scored = doctor.ScoredAgain(tokens, pl.DataFrame({"prompt_id": ids, **numbers}, schema=SCORES), 1)
    return doctor._Answers(scored, np.full((2, 2), states, np.float32), 0, 1.0)


def test_labels_that_tie_are_counted_without_logits_in_float32_and_with_them(monkeypatch) -> None:
    """How many labels tie depends on the processor: here two prompts tie in bfloat16, and one of them still after."""
    references = {"bfloat16": answers_of(-1.0, -1.0)}
    config = ModelConfig(model=EMBEDDED, engine="transformers", dtype="bfloat16", head_dtype="model")
    asked = references["bfloat16"].scored.tokens
    patient = doctor._Patient(find_source(config), config, asked, references)
    monkeypatch.setattr(doctor, "load_engine", lambda _source, _config: FakeEngine())
    monkeypatch.setattr(doctor, "score_in_one_call", lambda *_: answers_of(-1.0, -2.0).scored)
    (effect,) = doctor._head_effect(patient)
    assert effect.text.endswith("; the two best labels tie in 2 prompts without it, in 1 with it")


def test_what_is_allowed_is_twice_what_transformers_is_off_on_the_kind_and_a_step_of_rounding() -> None:
    references = {"float32": answers_of(-2.0, -2.0), "bfloat16": answers_of(-2.25, -1.5, 1.0625)}
    config = ModelConfig(model=EMBEDDED, engine="vllm")
    patient = doctor._Patient(find_source(config), config, pl.DataFrame(), references)
    limits = [doctor._allowed_nats(patient, "bfloat16", kind) for kind in ("one", "two", "")]
    assert limits == [2 * 0.25 + 0.125, 2 * 0.5 + 0.125, 2 * 0.5 + 0.125]
    assert doctor._allowed_nats(patient, "float32", "two") == 0.002
    assert doctor._allowed_nats(replace(patient, references={}), "bfloat16") == 1.0
    # States may be .02 + 2 x .0625 = .145 off, of numbers that are 1 at most.
    for states, wanted in ((1.14, "agrees"), (1.15, "DISAGREES")):
        found = {
            check.name: check for check in doctor._agreement("x", patient, answers_of(-2.7, -2, states), "bfloat16")
        }
        assert found["x: hidden states"].status == wanted
        assert (found["x: one"].status, found["x: two"].status) == ("DISAGREES", "agrees")


def test_fewer_tokens_than_the_prompts_have_are_no_prefix_hits_and_neither_are_more_than_in_whole_blocks() -> None:
    class Cached:
        """An engine that says to have computed these numbers of tokens, call by call."""

        def __init__(self, *computed: int) -> None:
            self.facts, self.counts = SimpleNamespace(prefix_block_tokens=4), SimpleNamespace(computed_tokens=0)
            self.computed = iter(computed)

        def log_likelihoods(self, _requests: object) -> tuple[()]:
            self.counts.computed_tokens += next(self.computed)
            return ()

    contexts = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7]]
    rows = pl.DataFrame({"ask": "labels", "context": contexts, "continuations": [[[1], [2]]] * 2})
    patient = doctor._Patient(None, ModelConfig(model=EMBEDDED), rows, {})  # type: ignore[arg-type]
    # The two share five tokens, or a block of four: 6 + 1 to 6 + 2 are computed. Then six contexts of 17 tokens share
    # the first 16, four blocks: 17 + 5 are computed.
    for computed, wanted in (((7, 22), "agrees"), ((8, 22), "agrees"), ((6, 21), "DISAGREES"), ((9, 23), "DISAGREES")):
        engine: Any = Cached(*computed)
        assert [check.status for check in doctor._prefix_hits(engine, engine, patient)] == [wanted] * 2


def test_a_model_too_large_for_float32_is_examined_without_and_the_verdict_says_so(examined, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_add_reference", COMPUTED_REFERENCE)
    monkeypatch.setattr(doctor, "free_bytes", lambda: 2**30 + 12_000_000)  # 15 MB in float32, 7.6 in bfloat16
    record = examined(Right, dtype="bfloat16")
    assert record.names("DISAGREES") == []
    assert "Skipped: chat; adapter; transformers in float32, the reference; " in record.verdict
    assert "bfloat16: one-token labels" in record.names("agrees")


def die(*_: object) -> None:
    """Take the place of what a process is to compute, and end as the kernel ends one without memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_runners_process_that_dies_is_a_check_that_disagrees(examined, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "engine_name", lambda _config: "vllm")
    monkeypatch.setattr(doctor, "find_spec", lambda _name: True)
    monkeypatch.setattr(doctor, "_answers_of_runner", die)
    record = examined(Right)
    assert record.names("DISAGREES") == ["other model runner"]
    (check,) = (check for check in record.checks if check.name == "other model runner")
    assert check.text.startswith("The process of model runner V2 ended before it answered")


@pytest.fixture(scope="module")
def with_vllm(tmp_path_factory: pytest.TempPathFactory) -> DoctorRecord:
    """The model that ships on vLLM, without the other model runner, which `make test-runners` has."""
    close_engines("vllm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALUATOR_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(doctor, "find_spec", lambda name: name != "triton")
        return finish(doctor.examine(ModelConfig(model="embedded", engine="vllm")))


@pytest.mark.slow
def test_vllm_agrees_on_the_model_that_ships(with_vllm: DoctorRecord) -> None:
    assert with_vllm.names("DISAGREES") == []
    names = ["evictions", "prefix hits", "prefix hits of whole blocks", "plain vLLM", "model runner", "repeated"]
    assert {*names} <= {*with_vllm.names("agrees")}
    (other,) = (check for check in with_vllm.checks if check.name == "other model runner")
    assert (other.status, other.text) == ("skipped", "on a CPU, V2 needs Triton, which is not installed")
    (rate,) = (check for check in with_vllm.checks if check.name == "throughput")
    assert "of the rate of matrix products" in rate.text


@pytest.mark.exhaustive
@pytest.mark.slow
def test_both_model_runners_agree() -> None:
    close_engines("vllm")
    record = finish(doctor.examine(ModelConfig(model="embedded", engine="vllm", dtype="bfloat16")))
    assert record.names("DISAGREES") == []
    assert {"model runner V2: in use", "model runner V2: long labels"} <= {*record.names("agrees")}


def test_the_command_prints_the_verdict_and_runs_of_the_model_point_to_it(examined, monkeypatch) -> None:
    record = examined(SwappedLabels)
    monkeypatch.setattr(doctor, "examine", lambda _config: iter_of(record))
    printed = command_outputs("doctor", "--model", "embedded", "--engine", "transformers", exits=1).out
    assert printed.rstrip().endswith(f": {record.verdict}")
    assert f"DISAGREES  float32: one-token labels: {FEW['one-token labels']} prompts, " in printed
    assert ". Use --engine transformers" in printed
    verdict = last_verdict(record.weights_fingerprint, record.engine)
    assert verdict.startswith(record.verdict)
    assert last_verdict(record.weights_fingerprint, replace(record.engine, device="another device")) == ""
    assert last_verdict("another model", record.engine) == ""
    for another in (replace(record.engine, name="vllm"), replace(record.engine, dtype="bfloat16")):
        assert last_verdict(record.weights_fingerprint, another) == (
            f"has not examined {another.name} in {another.dtypes}; its last verdict is about transformers in float32, "
            f"{record.made[:10]}."
        )


def iter_of(record: DoctorRecord) -> Iterator[Any]:
    yield from ()
    return record


def test_an_engine_that_loads_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="loads no model here"):
        finish(doctor.examine(ModelConfig(model="embedded", engine="fake")))


def test_labels_begin_where_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    source = find_source(ModelConfig(model="fake", engine="fake"))
    separate, merged = (doctor_prompts(source, None, where)["context"][0] for where in ("separate", "merged"))
    assert [*merged] == [*separate][:-1]  # the space before the label is a token of its own, or part of the label

    class AskedError(Exception):
        """Ends the examination; its argument is the boundary."""

    def asked(_source: ModelSource, _chat: object, boundary: str) -> None:
        raise AskedError(boundary)

    monkeypatch.setattr(doctor, "doctor_prompts", asked)
    with pytest.raises(AskedError, match="merged"):
        finish(doctor.examine(ModelConfig(model=EMBEDDED, engine="transformers", label_boundary="merged")))


def test_the_prompts_are_64_of_every_kind() -> None:
    rows = doctor_prompts(find_source(ModelConfig(model="embedded", engine="transformers")), None)
    assert rows.height == 64
    kinds = rows["prompt_id"].str.split("/").list.first().value_counts().sort("prompt_id")
    assert dict(kinds.iter_rows()) == {
        "another beginning": 4, "block edges": 16, "evictions": 8, "hidden states": 8, "long labels": 8,
        "one-token labels": 20,
    }  # fmt: skip
    by_kind = rows.with_columns(kind=pl.col("prompt_id").str.split("/").list.first()).group_by("kind").all()
    contexts = dict(by_kind.select("kind", "context").iter_rows())
    # Beginnings that evict each other take turns, and each comes twice.
    beginnings = [context[:-1] for context in contexts["evictions"]]
    assert beginnings[:4] == beginnings[4:]
    assert len({*map(tuple, beginnings)}) == 4
    # After another first block come the second and the third block of the longest prompt near the edge of a block.
    edge = max(contexts["block edges"], key=len)
    for context in contexts["another beginning"]:
        assert (context[BLOCK : 3 * BLOCK], context[:BLOCK] == edge[:BLOCK]) == (edge[BLOCK:-1], False)
    assert _first_tokens([[5, 1], [6, 2]]) == [[5], [6]]
    assert _first_tokens([[5, 1], [5, 2]]) == [[5], [2]]  # labels that begin alike
    lengths = {len(label) for labels in rows["continuations"] for label in labels}
    assert {1, 2, 33, 40} <= lengths
    assert np.unique([len(context) % BLOCK for context in rows["context"]]).size > 10
