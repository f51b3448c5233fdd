"""Configurations of a run and of a model: frozen dataclasses, checked when they are made."""

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS, Definition

OptionsT = TypeVar("OptionsT")

LabelBoundary = Literal["separate", "merged"]
"""Where a label begins: prompt and label tokenised apart, or the whole string (tokens/boundary.py)."""

ChatDemonstrations = Literal["turns", "message"]
"""How a conversation shows demonstrations: each as a question and its answer, or all in the message of the query."""

NO_TEMPLATE, OWN_TEMPLATE = "none", "auto"
"""Values of ChatConfig.template that are no file."""

BASE_ALONE = "none"
"""The value of --adapter that stands for the model without any."""

ServerKind = Literal["vllm", "sglang"]

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def prompt_definition(definitions: Collection[Definition]) -> Definition:
    """Return whose prompts to build where the paper's and the released code's differ: the paper's if measured."""
    return "paper" if "paper" in definitions else "released"


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Names of the columns of a user's table; None: the default for its kind of table (datasets/sources.py)."""

    inputs: tuple[str, ...] | None = None
    choices: str | None = None
    gold: str | None = None
    example_id: str | None = None  # None: rows are numbered


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where datasets are read from, in addition to those of installed packages, and how a user's table becomes prompts.

    The fields from `training` on are about labelled tables, whose rows have no choices of their own.
    """

    paths: tuple[Path, ...] = ()  # files and folders
    hub: bool = False  # download the named datasets that no path holds
    repositories: tuple[str, ...] = ()  # of labelled tables on the hub: owner/name (datasets/hub_repository.py)
    columns: TableColumns = TableColumns()
    training: Path | None = None  # table of the demonstrations; None: NAME_train, or rows of the same table
    training_rows: int | None = None  # rows of a table without training rows that are set aside; None: a tenth
    labels: Mapping[str, str] = field(default_factory=dict)  # cell -> label name; empty: cells are the names
    template: Path | None = None  # TOML file (datasets/table_text.py)
    instruction: str | None = None  # before the demonstrations

    def __post_init__(self) -> None:
        if self.training and (n_tables := len(self.paths) + len(self.repositories)) != 1:
            raise ConfigError(
                f"--training-data holds the demonstrations of one table, got {n_tables} paths in --data. Name "
                "one table, or call the file of each table's demonstrations NAME_train."
            )
        if self.training_rows is not None and self.training_rows < 2:
            raise ConfigError(f"--training-rows must be 2 or more, got {self.training_rows}.")
        if self.training and self.training_rows is not None:
            raise ConfigError("--training-rows sets rows of --data aside, and --training-data names others: drop one.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What to evaluate, with any model. Equal configurations and equal data give equal prompts, byte for byte."""

    suites: tuple[str, ...]
    datasets: tuple[str, ...] = ()  # names, in benchmark order
    data: DataOptions = DataOptions()
    n_shots: int = 4  # for suites without an option `shots`
    n_queries: int | None = None  # the first n of the test split; None for all
    methods: tuple[str, ...] = ("vanilla",)
    definitions: tuple[Definition, ...] = DEFINITIONS
    parts: tuple[str, ...] | None = None  # of the suites; None for all
    suite_options: Mapping[str, object] = field(default_factory=dict)  # suite -> an instance of Suite.options

    @property
    def prompt_definition(self) -> Definition:
        return prompt_definition(self.definitions)

    def options_of(self, kind: type[OptionsT]) -> OptionsT:
        """Return the suite options of this type, or their defaults if the run has none."""
        return next((options for options in self.suite_options.values() if isinstance(options, kind)), None) or kind()

    def __post_init__(self) -> None:
        if not self.suites:
            raise ConfigError("No suite was named. `evaluator suites` lists them.")
        if self.data.hub and not self.datasets:
            raise ConfigError(
                "--data hub downloads nothing but what is named: say which with --datasets, as in --datasets snli,rte. "
                "`evaluator datasets` lists them."
            )
        if not self.datasets and not self.data.paths and not self.data.repositories:
            raise ConfigError(
                "No dataset was named. Name some with --datasets (`evaluator datasets` lists them), or files with "
                "--data."
            )
        if self.n_shots < 0:
            raise ConfigError(f"--shots must be 0 or more, got {self.n_shots}.")
        if self.n_queries is not None and self.n_queries < 1:
            raise ConfigError(f"--queries must be 1 or more, got {self.n_queries}. Leave it out to take every query.")
        named = {"SUITE": self.suites, "--datasets": self.datasets, "--methods": self.methods, "--parts": self.parts}
        for option, names in named.items():
            if names is not None and len(set(names)) < len(names):
                raise ConfigError(f"{option} names something twice: {', '.join(names)}.")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server engine finds a served model."""

    urls: tuple[str, ...] = ()  # of vLLM or SGLang servers that serve the same model: http://host:port
    served_name: str | None = None  # None: the server's only model, else the one with the name given by --model
    kind: ServerKind | None = None  # None: what a server calls itself
    concurrency: int = 16  # HTTP requests that a server works on at a time

    def __post_init__(self) -> None:
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"--server-url takes http://HOST:PORT or https://HOST, got {parts.hostname or url}.")
            if parts.username or parts.password or parts.query or parts.fragment:
                # Not shown: the address may hold a secret, and commands are recorded.
                raise ConfigError(
                    f"--server-url for {parts.hostname} holds more than a host, a port and a path. Set a key in the "
                    "environment variable VLLM_API_KEY; it is never written anywhere."
                )
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError(f"--server-url names a server twice: {', '.join(self.urls)}.")
        if self.concurrency < 1:
            raise ConfigError(f"--concurrency must be 1 or more, got {self.concurrency}.")


@dataclass(frozen=True, kw_only=True)
class DevicesConfig:
    """On how many devices a model is loaded, and how often.

    Replicas = devices / (tensor x pipeline parallel) x engines per device.
    """

    n: int | Literal["all"] | None = None  # None: as many as one replica needs, or with ray_address all
    tensor_parallel: int | None = None  # devices that share each layer; None: the fewest that hold the model
    pipeline_parallel: int = 1  # groups of devices that hold consecutive layers
    engines_per_device: int = 1  # replicas that share a GPU, each with an equal part of its memory
    ray_address: str | None = None  # of a Ray cluster; None: this machine

    def __post_init__(self) -> None:
        numbers = {
            "--devices": None if self.n == "all" else self.n,
            "--tensor-parallel": self.tensor_parallel,
            "--pipeline-parallel": self.pipeline_parallel,
            "--engines-per-device": self.engines_per_device,
        }
        for option, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigError(f"{option} must be 1 or more, got {number}.")
        if self.engines_per_device > 1 and self.per_replica > 1:
            raise ConfigError(
                "--engines-per-device is for models that one device holds several times. Drop it, or --tensor-parallel "
                "and --pipeline-parallel."
            )

    @property
    def per_replica(self) -> int:
        """Devices of one replica."""
        return (self.tensor_parallel or 1) * self.pipeline_parallel


@dataclass(frozen=True, kw_only=True)
class ChatConfig:
    """How prompts are put to a model as conversations (docs/chat-templates.md)."""

    template: str = NO_TEMPLATE  # "none": plain prompts; "auto": the model's own; or a Jinja file
    demonstrations: ChatDemonstrations = "turns"
    system_instruction: str | None = None

    def __post_init__(self) -> None:
        is_plain = self.template == NO_TEMPLATE
        if is_plain and (self.demonstrations != ChatConfig.demonstrations or self.system_instruction is not None):
            raise ConfigError(
                "--chat-demonstrations and --system-instruction are about conversations. Add --chat-template auto, or "
                "leave them out."
            )
        if self.system_instruction is not None and not self.system_instruction.strip():
            raise ConfigError("--system-instruction is empty. Leave it out.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model scores the prompts, and how to load it."""

    model: str  # a folder, a hub name, or one of evaluator.models.embedded.EMBEDDED_MODELS
    adapter: str | None = None  # a LoRA adapter of this model: a folder or a hub name
    engine: str | None = None  # None: vllm where it is installed, else transformers
    dtype: Dtype = "auto"
    label_boundary: LabelBoundary | None = None  # None: the default of the suites, or of a chat template
    chat: ChatConfig | None = None  # None: plain prompts, with a warning if the model has a chat template
    quantization: str | None = None  # of weights that were saved without: "fp8"; None: as they were saved
    kv_cache_gib: float | None = None  # None: the engine's own choice
    revision: str | None = None  # of a hub name
    trust_remote_code: bool = False
    server: ServerConfig = ServerConfig()
    devices: DevicesConfig = DevicesConfig()

    def __post_init__(self) -> None:
        if self.kv_cache_gib is not None and not 0 < self.kv_cache_gib < math.inf:
            raise ConfigError(f"--kv-cache-gib must be a number above 0, got {self.kv_cache_gib}.")
        if self.engine == "server" and not self.server.urls:
            raise ConfigError("--engine server needs the address of a server: --server-url http://HOST:PORT.")
        if self.engine != "server" and self.server != ServerConfig():
            raise ConfigError("--server-url, --server-kind, --served-name and --concurrency belong to --engine server.")
        if self.engine == "server" and self.devices != DevicesConfig():
            raise ConfigError(
                "--devices, --tensor-parallel, --pipeline-parallel and --ray-address load a model here, and --engine "
                "server asks one that is loaded elsewhere: drop them, or name several servers with --server-url."
            )


@dataclass(frozen=True, kw_only=True)
class ReceiptConfig:
    """How a sample of a run's prompts is scored again; None: as the run was scored."""

    n_prompts: int = 256
    seed: int = 0
    engine: str | None = None
    dtype: Dtype | None = None
    model: str | None = None  # where the run's model is now
    adapter: str | None = None  # and its LoRA adapter
    kv_cache_gib: float | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.n_prompts < 1:
            raise ConfigError(f"--n must be 1 or more, got {self.n_prompts}.")
        if self.seed < 0:
            raise ConfigError(f"--seed must be 0 or more, got {self.seed}.")


def cache_folder() -> Path:
    """Return the folder for converted datasets and digests: $EVALUATOR_CACHE, else one in the user's cache folder."""
    if folder := os.environ.get("EVALUATOR_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evaluator"
