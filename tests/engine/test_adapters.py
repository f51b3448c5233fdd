"""LoRA adapters: one loaded base scores with each as the model does that has it added to its weights."""

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluator.config import DevicesConfig, ModelConfig
from evaluator.engine import engine_identity, find_source, load_engine
from evaluator.engine.base import ContinuationRequest, Engine, adapted
from evaluator.engine.ray_cluster import ReplicaActor, ReplicaSettings, found_here
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.models.weights import Adapter
from evaluator.schemas import TOKENS
from evaluator.scores.compute import shard_job
from evaluator.tokens.rows import TokenRows
from evaluator.tokens.table import with_token_ids
from tests.engine.cpu_only import cpu_only
from tests.engine.test_engine_contract import answers, flat, grown_prompts, tokens
from tests.lora import EVERY_MODULE, merged, save_adapter
from tests.shared_engines import close_engines

LABELS = [[5], [6, 7], [6, 8, 9], tokens(1, 12)]
REQUESTS = [ContinuationRequest(prompt, LABELS) for prompt in grown_prompts(3, 24)]


@pytest.fixture(scope="module")
def folders(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapter -> its folder; beside each the model with its weights added."""
    folder = tmp_path_factory.mktemp("adapters")
    made = {
        "small": save_adapter(folder / "small", tiny_model, ["q_proj", "v_proj"], rank=4, seed=1),
        "large": save_adapter(folder / "large", tiny_model, EVERY_MODULE, rank=20, seed=2),
    }
    for name, adapter in made.items():
        merged(tiny_model, adapter, folder / f"{name}-merged")
    return made


@pytest.fixture(scope="module")
def sources(folders: dict[str, Path], tiny_model: Path) -> dict[str, ModelSource]:
    return {
        name: find_source(ModelConfig(model=str(tiny_model), adapter=str(folder), engine="transformers"))
        for name, folder in folders.items()
    }


@pytest.fixture(scope="module", params=["transformers", "vllm"])
def engine(request: pytest.FixtureRequest, sources: dict[str, ModelSource], tiny_model: Path) -> Iterator[Engine]:
    """An engine that was loaded once, with both adapters."""
    close_engines("vllm")
    adapters = tuple(source.adapter for source in sources.values() if source.adapter)
    config = ModelConfig(model=str(tiny_model), engine=request.param, dtype="float32", kv_cache_gib=0.01)
    engine = load_engine(replace(sources["small"], adapters=adapters), config)
    yield engine
    engine.close()


def expected(model: Path, requests: Sequence[ContinuationRequest]) -> list[float]:
    """Log-probabilities of all label tokens from a plain model folder."""
    loaded = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    given = []
    for context, labels in requests:
        for label in labels:
            with torch.inference_mode():
                logits = loaded(torch.tensor([[*context, *label]])).logits[0, len(context) - 1 : -1].double()
            given += torch.log_softmax(logits, -1)[torch.arange(len(label)), torch.tensor(label)].tolist()
    return given


def test_each_adapter_and_the_base_score_as_models_of_their_own(
    engine: Engine, sources: dict[str, ModelSource], folders: dict[str, Path], tiny_model: Path
) -> None:
    for adapter, model in [
        (sources["small"].adapter, folders["small"].with_name("small-merged")),
        (sources["large"].adapter, folders["large"].with_name("large-merged")),
        (None, tiny_model),
        (sources["small"].adapter, folders["small"].with_name("small-merged")),
    ]:
        got = flat(answers(adapted(engine, adapter), REQUESTS))
        np.testing.assert_allclose(got, expected(model, REQUESTS), rtol=0, atol=2e-5)


@pytest.mark.parametrize("ray_address", [None, "auto"])  # in the second case this may be another host
def test_a_replica_computes_each_job_with_its_adapter(
    sources: dict[str, ModelSource],
    folders: dict[str, Path],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ray_address: str | None,
) -> None:
    """The code of a replica's process, with everything that reaches it pickled, as Ray does it."""
    monkeypatch.setenv("VLLM_PORT", "20000")  # put back afterwards: a replica takes ports of its own
    replica = ReplicaActor(replica_settings(tmp_path))
    config = replica_config(tiny_model, folders["small"], ray_address)
    replica.load(*pickle.loads(pickle.dumps((with_all_adapters(sources), config))))
    rows = {
        "prompt_id": [str(number) for number in range(len(REQUESTS))],
        "ask": ["labels"] * len(REQUESTS),
        "context": [request.context for request in REQUESTS],
        "continuations": [request.continuations for request in REQUESTS],
    }
    token_rows = TokenRows(with_token_ids(pl.DataFrame(rows, schema={name: TOKENS[name] for name in rows})).lazy())
    for adapter, model in [
        (sources["large"].adapter, folders["large"].with_name("large-merged")),
        (None, tiny_model),
        (sources["small"].adapter, folders["small"].with_name("small-merged")),
    ]:
        job = pickle.loads(pickle.dumps(shard_job("scores-0", "scores", token_rows, 1.0, adapter)))
        *_, last = replica.run(0, job)
        by_token = np.array(expected(model, REQUESTS)).reshape(len(REQUESTS), -1)
        ends = np.cumsum([0, *map(len, LABELS)])
        by_label = np.add.reduceat(by_token, ends[:-1], axis=1)
        np.testing.assert_allclose(np.array(last.frame["log_likelihoods"].to_list()), by_label, rtol=0, atol=1e-4)


def test_a_host_with_another_adapter_under_the_same_name_is_refused(
    sources: dict[str, ModelSource], folders: dict[str, Path], tiny_model: Path, tmp_path: Path
) -> None:
    config = replica_config(tiny_model, folders["small"], "auto")
    here = shutil.copytree(folders["large"], tmp_path / "here")
    source = with_all_adapters(sources)
    small, large = source.adapters
    moved = pickle.loads(pickle.dumps(replace(source, adapters=(small, replace(large, name=str(here))))))
    assert [one.fingerprint for one in found_here(moved, config).adapters] == [
        small.fingerprint,
        large.fingerprint,
    ]
    there = replace(large, name=str(folders["small"]))  # where this name leads to the weights of another
    with pytest.raises(ModelError, match=f"{folders['small']} has other weights on "):
        found_here(replace(source, adapters=(small, there)), config)


def with_all_adapters(sources: dict[str, ModelSource]) -> ModelSource:
    adapters = tuple(source.adapter for source in sources.values() if source.adapter)
    return replace(sources["small"], adapters=adapters)


def replica_settings(folder: Path) -> ReplicaSettings:
    """Return the settings of a replica that takes this process as it is and writes to its terminal."""
    log = folder / "not there" / "replica-0.log"
    return ReplicaSettings(number=0, place=0, cores=None, log=log, ports_of=1)


def replica_config(model: Path, adapter: Path, ray_address: str | None) -> ModelConfig:
    devices = DevicesConfig(ray_address=ray_address)
    return ModelConfig(model=str(model), adapter=str(adapter), engine="transformers", dtype="float32", devices=devices)


def test_hidden_states_are_those_of_the_adapted_model(
    engine: Engine, sources: dict[str, ModelSource], folders: dict[str, Path]
) -> None:
    texts = [tokens(seed, n) for seed, n in enumerate([1, 31, 33, 90])]
    model = AutoModelForCausalLM.from_pretrained(str(folders["large"].with_name("large-merged")), dtype=torch.float32)
    with torch.inference_mode():
        rows = [model.model(torch.tensor([text])).last_hidden_state[0, -1].numpy() for text in texts]
    states = adapted(engine, sources["large"].adapter).hidden_states(texts)
    np.testing.assert_allclose(states, np.stack(rows), rtol=0, atol=1e-4)


@cpu_only
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)  # transformers has no cache
def test_no_cache_block_is_shared_between_adapters(
    engine: Engine,
    sources: dict[str, ModelSource],
    folders: dict[str, Path],
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a whole block nor a part of the first one, although the cache is not emptied between the calls."""
    requests = [ContinuationRequest([*tokens(4, n), 9], [[5], [6]]) for n in (20, 28, 40, 75)]
    answers(engine, requests)
    monkeypatch.setattr("evaluator.engine.vllm_engine.empty_cache", lambda _llm: None)
    for name in ("small", "large"):
        before = engine.counts.cached_tokens
        got = flat(answers(adapted(engine, sources[name].adapter), requests))
        model = folders[name].with_name(f"{name}-merged")
        np.testing.assert_allclose(got, expected(model, requests), rtol=0, atol=2e-5)
        assert engine.counts.cached_tokens - before == 20 + 28 + 40, "each prompt is shared with the next, and no more"
    np.testing.assert_allclose(flat(answers(engine, requests)), expected(tiny_model, requests), rtol=0, atol=2e-5)
    monkeypatch.undo()
    answers(engine, requests)  # empties the cache, and checks it


@pytest.mark.parametrize("engine", ["transformers"], indirect=True)  # a process holds one engine of vLLM
def test_the_base_has_the_same_bits_whether_or_not_adapters_are_loaded(
    engine: Engine, loaded_engine: Callable[[str], Engine]
) -> None:
    assert answers(engine, REQUESTS) == answers(loaded_engine("transformers"), REQUESTS)


def test_an_engine_without_adapters_refuses_one(tiny_model: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"--adapter .* needs --engine vllm or transformers"):
        find_source(ModelConfig(model=str(tiny_model), adapter=str(folders["small"]), engine="fake"))


def test_the_digest_of_a_model_has_its_adapter(
    sources: dict[str, ModelSource], tiny_source: ModelSource, folders: dict[str, Path]
) -> None:
    fingerprints = {source.fingerprint for source in (*sources.values(), tiny_source)}
    assert len(fingerprints) == 3
    assert isinstance(sources["small"].adapter, Adapter)
    assert sources["small"].title == f"{tiny_source.name} + {folders['small']}"


def test_scores_with_adapters_hang_on_the_version_of_peft_where_it_computes_them(
    sources: dict[str, ModelSource], tiny_source: ModelSource
) -> None:
    cases = (sources["small"], "transformers"), (tiny_source, "transformers"), (sources["small"], "vllm")
    for (source, engine), has_peft in zip(cases, (True, False, False), strict=True):
        found = engine_identity(source, ModelConfig(model=source.name, engine=engine)).versions
        assert found.get("peft") == (version("peft") if has_peft else None)


def test_without_peft_the_reference_says_what_to_install(
    sources: dict[str, ModelSource], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    config = ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32")
    with pytest.raises(ModelError, match=r"needs PEFT .*evaluator\[adapters\]"):
        load_engine(sources["small"], config)
