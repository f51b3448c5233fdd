"""The registry of engines. An engine is imported on first use, so listing names imports neither torch nor vllm."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from evaluator.config import ModelConfig, StepsConfig
from evaluator.engine.base import Engine, EngineIdentity, FakeEngine, versions_for_transformers, versions_for_vllm
from evaluator.engine.devices import Machine, head_dtype, is_batch_invariant, lay_out, this_machine, this_processor
from evaluator.errors import ConfigError, unknown_name
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.fake_source import fake_model_source
from evaluator.models.source import ModelSource, find_model, scoring_dtype
from evaluator.models.weights import Adapter, find_adapter, weight_files
from evaluator.redaction import without_secrets


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """The properties and functions of an engine that are available before it loads a model."""

    summary: str
    find: Callable[..., ModelSource] = find_model
    """Finds the model of a ModelConfig and reads its facts; with `needs_weights=False` its weights may be absent.

    Raises ModelError if the model is missing or does not fit the engine.
    """

    load: Callable[[ModelSource, ModelConfig], Engine]
    versions: Callable[[Sequence[Adapter]], dict[str, str]] = lambda _adapters: {}
    """Returns package -> version, of the packages that affect scores with these adapters."""
    identity: Callable[[ModelSource, ModelConfig], EngineIdentity] | None = None
    """Returns the settings that affect scores; None: engine_identity takes them from this process and its devices."""

    has_hidden_states: bool = True
    takes_adapters: bool = False  # whether the engine scores with LoRA adapters
    quantizes: bool = False  # whether the engine supports `--quantization`
    splits_models: bool = False  # whether a replica can be split over several devices
    runs_a_model: bool = True  # False: no weights are read and `--model` is ignored


def _imported(name: str) -> Callable[..., Any]:
    """Return a function that, when called, imports MODULE:NAME of this folder and calls it."""
    return lambda *arguments: resolve_name(f"evaluator.engine.{name}")(*arguments)


ENGINES: dict[str, EngineKind] = {
    "vllm": EngineKind(
        summary="vLLM with its prefix cache; the fastest engine.",
        find=partial(find_model, generates_text=_imported("vllm_settings:generates_text")),
        load=_imported("vllm_engine:VllmEngine"),
        versions=versions_for_vllm,
        takes_adapters=True,
        quantizes=True,
        splits_models=True,
    ),
    "transformers": EngineKind(
        summary="Hugging Face transformers without a cache; the reference.",
        load=_imported("transformers_engine:TransformersEngine"),
        versions=versions_for_transformers,
        takes_adapters=True,
    ),
    "server": EngineKind(
        summary="vLLM or SGLang servers that already run, over HTTP (--server-url).",
        load=_imported("server_engine:ServerEngine"),
        identity=_imported("server_engine:server_identity"),
        has_hidden_states=False,
    ),
    "fake": EngineKind(
        summary="No model: scores are hashes of the tokens, for tests.",
        find=lambda config, **_: fake_model_source(without_secrets(config.model)),
        load=lambda _source, _config: FakeEngine(),
        runs_a_model=False,
    ),
}


def engine_name(config: ModelConfig) -> str:
    """Return the name of the engine to use: the configured engine, else vllm if it is installed, else transformers.

    Raises ConfigError if there is no engine of the configured name.
    """
    name = config.engine or ("vllm" if find_spec("vllm") else "transformers")
    if name not in ENGINES:
        raise ConfigError(unknown_name("There is no engine", name, ENGINES))
    return name


def find_source(config: ModelConfig, *, needs_weights: bool = True) -> ModelSource:
    """Find the configured model and adapter for the engine; without `needs_weights`, the weights may be absent.

    The random model of EMBEDDED_MODELS is made if it does not exist yet.

    Raises ConfigError for an unknown engine and for options that the engine does not support, ModelError as
    EngineKind.find and find_adapter do.
    """
    name = engine_name(config)
    kind = ENGINES[name]
    for option, ability in (("quantization", "quantizes"), ("adapter", "takes_adapters")):
        if (value := getattr(config, option)) is not None and not getattr(kind, ability):
            able = " or ".join(other for other, each in ENGINES.items() if getattr(each, ability))
            raise ConfigError(f"--{option} {value} needs --engine {able}.")
    if config.steps != StepsConfig() and name != "vllm":
        raise ConfigError("--step-tokens, --step-prompts and --eager are settings of vLLM: add --engine vllm.")
    if kind.runs_a_model and (folder_of := EMBEDDED_MODELS.get(config.model)):
        config = replace(config, model=str(folder_of()))
    source = kind.find(config, needs_weights=needs_weights)
    if name == "vllm" and source.short_context:
        # vLLM uses the same LongRoPE factors for all prompts: the long factors if any prompt may exceed this length.
        source = replace(source, context_length=source.short_context)
    if config.adapter is None:
        return source
    adapter = find_adapter(config.adapter, source.name, () if source.quantization else weight_files(source.folder))
    return replace(source, adapter=adapter, adapters=(adapter,))


def find_machine(config: ModelConfig) -> Machine:
    """Return the devices on which replicas are loaded. Raises ConfigError if a Ray cluster does not answer."""
    if config.devices.ray_address:
        from evaluator.engine.ray_cluster import cluster_machine

        return cluster_machine(config.devices.ray_address)
    return this_machine() if ENGINES[engine_name(config)].runs_a_model else this_processor()


def with_devices(source: ModelSource, config: ModelConfig) -> ModelConfig:
    """Fill in the number of devices, and of devices per replica; for servers, return the configuration unchanged.

    Raises as devices.lay_out does.
    """
    if engine_name(config) == "server":
        return config
    splits_models = ENGINES[engine_name(config)].splits_models
    return lay_out(source, config, find_machine(config), splits_models=splits_models)


def load_engine(source: ModelSource, config: ModelConfig) -> Engine:
    """Load the configured engine, and hash the weights at the same time unless their hash is known.

    Raises ConfigError for an unknown engine, ModelError if the model does not fit or its files change while they load.
    """
    kind = ENGINES[engine_name(config)]
    if not kind.runs_a_model or kind.identity:  # no weights are read here
        return kind.load(source, config)
    before = source.state
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(source.hash)
        engine = kind.load(source, config)
    try:
        hashing.result()
        source.require_unchanged(before)
    except BaseException:
        engine.close()
        raise
    return engine


def engine_identity(source: ModelSource, config: ModelConfig) -> EngineIdentity:
    """Return the settings of the engine that affect scores. Raises ModelError if servers do not answer."""
    name = engine_name(config)
    kind = ENGINES[name]
    if not kind.runs_a_model:
        return EngineIdentity(name=name, versions=kind.versions(()))
    if kind.identity:
        return kind.identity(source, config)
    machine = find_machine(config)
    return EngineIdentity(
        name=name,
        versions=kind.versions(source.adapters),
        device=machine.name,
        dtype=scoring_dtype(source, config),
        head_dtype=head_dtype(source, config, machine.kind),
        quantization=config.quantization,
        tensor_parallel=config.devices.tensor_parallel or 1,
        lora_rank=max((adapter.rank for adapter in source.adapters), default=None),
        runs_own_code=config.trust_remote_code,
        is_batch_invariant=is_batch_invariant(),
    )
