"""Configurations of runs, models and commands: frozen dataclasses of options, whose values are checked on construction.

A field that is declared with `option` defines the option of the command line and its row in the documentation
(cli/options.py), the argument of the Python functions, and the check of the value.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache, reduce
from numbers import Integral
from operator import or_
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from evaluator.errors import ConfigError

T = TypeVar("T")


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    name: str | None = None,
    metavar: str | None = None,
    given: Any = None,
    several: bool = False,
    shown: Any = None,
    minimum: int | None = None,
    is_share: bool = False,
    hint: str = "",
) -> Any:
    """Return a dataclass field that declares an option.

    Args:
        default: the default value, or a type that makes it, such as dict; without it the option is required.
        help: a sentence for `--help` and the documentation.
        name: the option's name, if it differs from the field's name: `training_data` is --training-data.
        metavar: placeholder of the value in `--help`; None: made from the type.
        given: type of the command-line value, if the field holds another type that the value is converted to.
        several: whether the option can be repeated.
        shown: the default value that `--help` shows; None: no default is shown.
        minimum: lower limit of a number, itself allowed.
        is_share: whether the value must be above 0 and below 1.
        hint: sentence for the error message about a value below `minimum`.
    """
    metavar = metavar or ("0<X<1" if is_share else None)
    settings = {"help": help, "name": name, "metavar": metavar, "given": given, "several": several}
    metadata = settings | {"shown": shown, "minimum": minimum, "is_share": is_share, "hint": hint}
    return field(**{"default_factory" if isinstance(default, type) else "default": default}, metadata=metadata)


_type_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)
"""Return the types of a class's fields; without the cache, its annotations are compiled for each object."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of dataclasses of options. Checks the values of Literal fields and the ranges of numbers."""

    def __post_init__(self) -> None:
        hints = _type_hints(type(self))
        for entry in [each for each in fields(self) if each.metadata]:
            hint, value, name = hints[entry.name], getattr(self, entry.name), flag(option_name(entry))
            kind = _without_none(hint)
            if get_origin(kind) is Literal and value not in (None, *get_args(kind)):
                raise ConfigError(f"{name} is {' or '.join(get_args(kind))}, got {value!r}.")
            wanted, what = {int: (Integral, "a whole number"), str: (str | Path, "a text")}.get(kind, (object, ""))
            if not isinstance(value, wanted) and (value is not None or kind is hint):
                raise ConfigError(f"{name} is {what}, got {value!r}.")
            if not isinstance(value, int | float):
                continue
            least = entry.metadata["minimum"]
            if least is not None and not least <= value < math.inf:
                hint = f" {entry.metadata['hint']}".rstrip()
                raise ConfigError(f"{name} must be {least} or more, got {value}.{hint}")
            if entry.metadata["is_share"] and not 0 < value < 1:
                raise ConfigError(f"{name} must be above 0 and below 1, got {value}.")


class OptionField(NamedTuple):
    """A dataclass field that declares an option."""

    field: "Field[Any]"
    kind: Any  # type of the command-line value, without None
    flag: str  # name on the command line: "--training-data"
    is_required: bool  # whether the field has no default


def option_name(entry: "Field[Any]") -> str:
    """Return the name of a field's option as an argument of the Python functions: "training_data"."""
    return str(entry.metadata["name"] or entry.name)


def flag(name: str) -> str:
    """Return an option's name on the command line: --training-data for training_data."""
    return f"--{name.replace('_', '-')}"


@cache
def option_fields(kind: Any) -> dict[str, OptionField]:
    """Return the options of a dataclass and of the dataclasses in its fields, by name, in order.

    `kind` None gives an empty dictionary.
    """
    found, hints = dict[str, OptionField](), _type_hints(kind) if kind else {}
    for entry in fields(kind) if kind else ():
        hint = entry.metadata.get("given") or _without_none(hints[entry.name])
        if is_dataclass(hint):
            found |= option_fields(hint)  # type: ignore[arg-type]  # classes have a hash
        elif entry.metadata:
            name, is_required = option_name(entry), entry.default is MISSING and entry.default_factory is MISSING
            found[name] = OptionField(entry, hint, flag(name), is_required)
    return found


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return reduce(or_, kinds) if NoneType in get_args(hint) else hint


def require_address(option_flag: str, url: str, key_variable: str) -> None:
    """Raise ConfigError unless `url` is a plain HTTP or HTTPS address without anything that may be a secret.

    User, password, query and fragment are refused, and never repeated in the message.

    Args:
        option_flag: the option that has the address, for messages.
        url: the address.
        key_variable: environment variable for the key, for messages.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or unbalanced brackets of an IPv6 address
        is_address = False
    if not is_address:
        without_secrets = re.sub(r".*@|[?#].*", "", url)
        raise ConfigError(f"{option_flag} takes http://HOST:PORT or https://HOST, got {without_secrets!r}.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"{option_flag} for {parts.hostname} holds more than a host, a port and a path. Set a key in the "
            f"environment variable {key_variable}; it is never written anywhere."
        )


def from_options(kind: type[T], given: Mapping[str, Any], **fixed: Any) -> T:
    """Return a dataclass of options, with the dataclasses in its fields, from the values of a command's options.

    Args:
        kind: the dataclass.
        given: option name -> value; None: the field's default.
        fixed: field name -> value, for fields whose value is not the value of one option.
    """
    values, hints = dict[str, Any](), _type_hints(kind)
    for entry in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(hints[entry.name]):
            values[entry.name] = from_options(hints[entry.name], given)
        elif entry.metadata and (value := given.get(option_name(entry))) is not None:
            values[entry.name] = value
    return kind(**(values | fixed))


Definition = Literal["paper", "released", "published", "floored"]
"""The source of a metric's formula: the paper, the released code, or the published tables. "floored" is the paper's
formula on reported probabilities that are raised to a lower limit (decisions.answers.least_probability)."""
DEFINITIONS: tuple[Definition, ...] = ("paper", "released", "published")  # definitions that a run can request

LabelBoundary = Literal["separate", "merged"]
"""Where a label begins: prompt and label are tokenised separately, or merged as one string (tokens/boundary.py)."""

ChatDemonstrations = Literal["turns", "message"]
"""How a conversation shows demonstrations: as turns of question and answer, or all in the query's message."""

NO_TEMPLATE, OWN_TEMPLATE = "none", "auto"
"""Values of ChatConfig.template that are not a file: no chat template, and the model's own template."""

ServerKind = Literal["vllm", "sglang"]

Numbers = Literal["log-likelihoods", "probabilities", "labels"]
"""Content of an imported answer: the log-likelihood of each label in nats, over the whole vocabulary; the probability
of each label; or only the predicted label."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

HeadDtype = Literal["auto", "float32", "model"]
"""Dtype of the logits. "auto": float32 on GPUs if the LM head is not quantised, else the dtype of the model."""


def prompt_definition(definitions: Collection[Definition]) -> Definition:
    """Return the definition of the prompts where the paper's and the released code's prompts differ.

    It is "paper" if the run measures that definition, else "released".
    """
    return "paper" if "paper" in definitions else "released"


@dataclass(frozen=True, kw_only=True)
class TableColumns(Options):
    """Column names of a user's table; None: the default of the table's kind (datasets/sources.py)."""

    inputs: tuple[str, ...] | None = option(None, "Columns with the texts, in a table of --data.", name="input_column")
    choices: str | None = option(
        None, "Column with a list of choices, if each row of a table in --data has its own.", name="choices_column"
    )
    gold: str | None = option(
        None, "Column with the label, or the correct choice's text or number, in a table of --data.", name="gold_column"
    )
    example_id: str | None = option(
        None, "Column with the ids of rows, in a table of --data; rows are numbered if left out.", name="id_column"
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """Sources of datasets beyond installed packages, and the options that turn a user's table into prompts.

    The fields from `labels` on, except `questions`, apply to labelled tables: all rows share one label space.
    """

    paths: tuple[Path, ...] = option(  # files and folders
        (),
        "A table (CSV, TSV, JSON lines, Excel, Parquet, Arrow), a BIG-bench task.json, a folder of either, "
        "hub:OWNER/NAME[/CONFIG[/SPLIT]], or the word hub, which downloads what --datasets names.",
        name="data",
        metavar="PATH",
        given=str,  # not Path: pathlib shortens ./hub to hub, the word for the Hugging Face hub
        several=True,
    )
    hub: bool = False  # whether to download named datasets that are in none of `paths`
    repositories: tuple[str, ...] = ()  # hub repositories of labelled tables: owner/name (datasets/hub_repository.py)
    columns: TableColumns = TableColumns()
    labels: Mapping[str, str] = option(  # cell -> label name; empty: the cells are the label names
        dict,
        "Label names of a table in --data, or of StaICC's: 1=bad,5=great or a TOML file; the cells if left out.",
        metavar="CELL=NAME,...",
        given=str,
    )
    instruction: str | None = option(None, "Text at the start of every prompt, for a table in --data or StaICC's.")
    template: Path | None = option(
        None, "TOML file of the text around examples, for a table in --data or StaICC's datasets (docs/own-data.md)."
    )
    questions: Path | None = option(
        None, "TOML file of typed questions about the rows of --data, for the suite decide (docs/decisions.md)."
    )
    training: Path | None = option(
        None,
        "Table with the demonstrations; if left out, the table NAME_train next to --data, or else rows of --data.",
        name="training_data",
    )
    training_rows: int | None = option(
        None,
        "Number of rows of --data that become demonstrations if no table has them; a tenth if left out.",
        minimum=2,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training and (n_tables := len(self.paths) + len(self.repositories)) != 1:
            raise ConfigError(
                f"--training-data holds the demonstrations of one table, got {n_tables} paths in --data. Name "
                "one table, or call the file of each table's demonstrations NAME_train."
            )
        if self.training and self.training_rows is not None:
            raise ConfigError("--training-rows sets rows of --data aside, and --training-data names others: drop one.")


@dataclass(frozen=True, kw_only=True)
class UntilOptions(Options):
    """The result that ends a run before all queries are scored; `goal` None: every query is scored."""

    goal: Literal["better", "equivalent", "certified"] | None = option(
        None,
        "Score queries in random order, and stop once accuracy is shown to be above or below that of --against "
        "(better), or also equal within --margin (equivalent), or once it is shown whether used answers keep --target.",
        name="until",
    )
    against: Path | None = option(None, "With --until: folder of a run that answered all queries.", metavar="BASE")
    margin: float | None = option(
        None, "With --until equivalent: the largest difference of accuracy that does not matter.", is_share=True
    )
    threshold: float | None = option(
        None, "With --until certified: the smallest probability of a used answer.", metavar="0<P<1", is_share=True
    )
    target: float | None = option(None, "With --until certified: accuracy to show of used answers.", is_share=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        needs = {None: (), "better": ("against",), "equivalent": ("against", "margin")}
        needed = needs.get(self.goal, ("threshold", "target"))
        given = [name for name in ("against", "margin", "threshold", "target") if getattr(self, name) is not None]
        if {*given} != {*needed}:
            goal = f"--until {self.goal}" if self.goal else "A run without --until"
            raise ConfigError(
                f"{goal} takes {' and '.join(f'--{name}' for name in needed) or 'no further option'}, got "
                f"{', '.join(f'--{name}' for name in given) or 'none'}."
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig(Options):
    """The prompts and measures of a run, independent of the model.

    Equal configurations and equal data give equal prompts, byte for byte.
    """

    suites: tuple[str, ...]
    datasets: tuple[str, ...] = option(  # in the order of the benchmark
        (), "Names of datasets (`evaluator datasets` lists them); the suite's own if left out."
    )
    data: DataOptions = DataOptions()
    parts: tuple[str, ...] | None = option(  # None: all parts
        None, "Only these parts of the suites; `evaluator suites` lists them."
    )
    n_shots: int = option(  # for suites without an option `shots`
        4,
        "Demonstrations in a prompt. If left out: 4 or the suite's own number; for your own data one for each label, "
        "up to 16. Some suites take several numbers: 1,2.",
        name="shots",
        metavar="K",
        given=tuple[int, ...],
        minimum=0,
    )
    shots_by_labels: bool = False  # whether n_shots becomes the number of labels, at most MAX_SHOWN, once data are read
    n_queries: int | None = option(  # None: the whole test split
        None,
        "Only the first N queries of each dataset. If left out: all; for your own data up to 1,000.",
        name="queries",
        minimum=1,
        hint="Leave it out to take every query.",
    )
    methods: tuple[str, ...] = option(("vanilla",), "Inference methods, or `all`; the suite's own if left out.")
    definitions: tuple[Definition, ...] = option(
        DEFINITIONS,
        "Source of the formulas: the paper, the released code, or the published tables. If left out: all; for your own "
        "data the paper.",
        name="definition",
        given=Literal["all", "paper", "released", "published"],
    )
    until: UntilOptions = UntilOptions()
    suite_options: Mapping[str, object] = field(default_factory=dict)  # suite -> an instance of Suite.options

    @property
    def prompt_definition(self) -> Definition:
        return prompt_definition(self.definitions)

    @property
    def is_own_data(self) -> bool:
        """Whether the run has only the user's data, so that its prompts need not equal published prompts."""
        return not self.datasets

    def options_of(self, kind: type[T]) -> T:
        """Return the suite options of this type, or their defaults if the run has none."""
        return next((options for options in self.suite_options.values() if isinstance(options, kind)), None) or kind()

    def __post_init__(self) -> None:
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
        super().__post_init__()
        named = {"SUITE": self.suites, "--datasets": self.datasets, "--methods": self.methods, "--parts": self.parts}
        for name, names in named.items():
            if names is not None and len(set(names)) < len(names):
                raise ConfigError(f"{name} names something twice: {', '.join(names)}.")


@dataclass(frozen=True, kw_only=True)
class ServerConfig(Options):
    """Addresses of the model servers that the engine "server" uses."""

    urls: tuple[str, ...] = option(  # http://HOST:PORT or https://HOST
        (),
        "With --engine server: address of a vLLM or SGLang server of the model; several share the work. The key is "
        "read from the environment variable VLLM_API_KEY.",
        name="server_url",
        metavar="URL",
        given=str,
        several=True,
    )
    kind: ServerKind | None = option(
        None, "With --engine server: the server's program; found by asking the server if left out.", name="server_kind"
    )
    served_name: str | None = option(  # None: the server's only model or, among several, the model named by --model
        None, "With --engine server: the model's name on the server, if it serves several models."
    )
    concurrency: int = option(16, "With --engine server: HTTP requests in flight to each server.", shown=16, minimum=1)

    def __post_init__(self) -> None:
        for url in self.urls:
            require_address("--server-url", url, "VLLM_API_KEY")
        if len(set(self.urls)) < len(self.urls):
            raise ConfigError(f"--server-url names a server twice: {', '.join(self.urls)}.")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class DevicesConfig(Options):
    """The number of devices and replicas of a model.

    Replicas = devices / (tensor_parallel x pipeline_parallel) x engines_per_device.
    """

    n: int | Literal["all"] | None = option(  # None: the devices of one replica; with ray_address all of the cluster
        None,
        "Number of GPUs; as many as one replica takes if left out. Replicas share the work; each takes "
        "--tensor-parallel times --pipeline-parallel. Without a GPU: number of parts into which the cores are split.",
        name="devices",
        metavar="all|N",
        minimum=1,
    )
    tensor_parallel: int | None = option(
        None,
        "Number of devices that share each layer of a replica; the fewest whose memory holds the model if left out.",
        metavar="M",
        minimum=1,
    )
    pipeline_parallel: int = option(
        1, "Number of device groups in a replica, each with consecutive layers.", metavar="P", shown=1, minimum=1
    )
    engines_per_device: int = option(
        1,
        "Number of replicas on each GPU, which share its memory; for models so small that one replica leaves it idle.",
        metavar="K",
        shown=1,
        minimum=1,
    )
    ray_address: str | None = option(
        None, "Ray cluster (HOST:PORT, or auto) whose devices are used; this machine's devices if left out."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engines_per_device > 1 and self.per_replica > 1:
            raise ConfigError(
                "--engines-per-device is for models that one device holds several times. Drop it, or --tensor-parallel "
                "and --pipeline-parallel."
            )

    @property
    def per_replica(self) -> int:
        """Number of devices of one replica."""
        return (self.tensor_parallel or 1) * self.pipeline_parallel

    @property
    def n_replicas(self) -> int:
        """Number of replicas of a layout that engine.devices.lay_out has filled in."""
        groups = self.n // self.per_replica if isinstance(self.n, int) else 1
        return groups * self.engines_per_device


@dataclass(frozen=True, kw_only=True)
class ChatConfig(Options):
    """The form in which prompts are sent to a model as conversations (docs/chat-templates.md)."""

    template: str = option(
        NO_TEMPLATE,
        "Chat template for the prompts: auto (the model's own), none, or a Jinja file. If left out: none, except for "
        "an instruct model on your own data. Several, as in none,auto, are compared.",
        name="chat_template",
        metavar="auto|none|FILE",
        given=tuple[str, ...],
    )
    demonstrations: ChatDemonstrations = option(
        "turns",
        "With --chat-template: demonstrations as turns of question and answer (if left out), or all in one message.",
        name="chat_demonstrations",
    )
    system_instruction: str | None = option(
        None, 'With --chat-template: text of the system message; the template\'s own if left out, "" for none.'
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_plain = self.template == NO_TEMPLATE
        if is_plain and (self.demonstrations != ChatConfig.demonstrations or self.system_instruction is not None):
            raise ConfigError(
                "--chat-demonstrations and --system-instruction are about conversations. Add --chat-template auto, or "
                "leave them out."
            )


@dataclass(frozen=True, kw_only=True)
class StepsConfig(Options):
    """Limits of a forward pass of vLLM; None: chosen by engine/vllm_settings.py."""

    max_tokens: int | None = option(
        None, "Most tokens in a forward pass of vLLM; automatic if left out.", name="step_tokens", minimum=1
    )
    max_sequences: int | None = option(
        None, "Most prompts in a forward pass of vLLM; automatic if left out.", name="step_prompts", minimum=1
    )
    eager: bool = option(False, "Do not compile the model; vLLM then starts sooner.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Options):
    """The model that scores the prompts, its engine, and its loading options."""

    model: str = option(help="A folder, a hub name, `embedded` (a small model that ships), or `random`.", several=True)
    engine: str | None = option(None, "vllm (if left out and installed), transformers, server or fake.")
    adapter: str | None = option(
        None,
        "A LoRA adapter of the model: a folder or a hub name. Given several times, adapters are compared; `none` is "
        "the model without an adapter.",
        metavar="PATH",
        several=True,
    )
    dtype: Dtype = option("auto", "Dtype of the computation; auto is the dtype of the saved weights.", shown="auto")
    quantization: str | None = option(  # None: no quantisation beyond that of the saved weights
        None, "Quantise the weights while they are loaded, by a method that vLLM names: fp8. Needs --engine vllm."
    )
    head_dtype: HeadDtype = option(
        "auto",
        "Dtype of the logits: float32, or the dtype of the model. auto is float32 on GPUs where the LM head is not "
        "quantised, else the dtype of the model.",
        shown="auto",
    )
    label_boundary: LabelBoundary | None = option(  # None: the default of the suites, or of a chat template
        None,
        "Tokenise prompt and label separately, or merged as one string. If left out: the suite's own; for your own "
        "data merged.",
    )
    add_bos: bool = option(False, "Begin every prompt with the tokenizer's BOS, if the tokenizer does not add it.")
    chat: ChatConfig | None = None  # None: plain prompts, with a warning if the model has a chat template
    kv_cache_gib: float | None = option(None, "Memory for the prefix cache; the engine's choice if left out.")
    max_prompt_tokens: int | None = None  # tokens of the longest prompt plus continuation; None: the model's context
    steps: StepsConfig = StepsConfig()
    devices: DevicesConfig = DevicesConfig()
    revision: str | None = option(None, "Revision of a hub model.")
    trust_remote_code: bool = option(False, "Run Python code of the model's repository.")
    server: ServerConfig = ServerConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_cache_gib is not None and not 0 < self.kv_cache_gib < math.inf:
            raise ConfigError(f"--kv-cache-gib must be a number above 0, got {self.kv_cache_gib}.")
        if self.engine == "server" and not self.server.urls:
            raise ConfigError("--engine server needs the address of a server: --server-url http://HOST:PORT.")
        if self.engine != "server" and self.server != ServerConfig():
            raise ConfigError("--server-url, --server-kind, --served-name and --concurrency belong to --engine server.")
        loads_here = self.devices != DevicesConfig() or self.head_dtype != "auto" or self.kv_cache_gib is not None
        if self.engine == "server" and loads_here:
            raise ConfigError(
                "--devices, --tensor-parallel, --pipeline-parallel, --ray-address, --head-dtype and --kv-cache-gib are "
                "for a model that is loaded here, and --engine server asks one that is loaded elsewhere: drop them. "
                "Several servers have each its --server-url, and their own options for logits and cache."
            )


@dataclass(frozen=True, kw_only=True)
class ReceiptConfig(Options):
    """Sample size and model options of `evaluator receipt`, which re-scores a sample of a run's prompts.

    None: the value that the run was scored with; of `kv_cache_gib`, the engine's choice.
    """

    n_prompts: int = option(256, "Number of prompts to score again.", name="n", shown=256, minimum=1)
    seed: int = option(0, "Seed of the sample, its order and its batches.", shown=0, minimum=0)
    # Without "server": a receipt loads the model on this machine.
    engine: Literal["vllm", "transformers", "fake"] | None = option(
        None, "Engine; the run's own if left out, or the default engine if a server scored the run."
    )
    dtype: Dtype | None = option(None, "Dtype of the computation; the run's own if left out.")
    model: str | None = option(
        None, "Folder or hub name of the model, which must have the weights of the run; the recorded one if left out."
    )
    adapter: str | None = option(None, "Folder or hub name of the LoRA adapter; the recorded one if left out.")
    kv_cache_gib: float | None = option(None, "Memory for the prefix cache; the engine's choice if left out.")
    trust_remote_code: bool = option(False, "Run Python code of the model's repository.")


ThresholdMeasure = Literal["accuracy", "precision", "recall", "false_positive_rate"]
"""The measure that a threshold guarantees: accuracy of the used answers, or a measure of the answer "yes". The target
is a lower limit; for the false-positive rate it is an upper limit."""

ThresholdPer = Literal["all", "question", "class"]


@dataclass(frozen=True, kw_only=True)
class CoherenceOptions(Options):
    """The test cases of `evaluator coherence`, and the form of their questions."""

    suite: Literal["jevbench-mini", "jevbench-240", "examples"] = option(
        "jevbench-mini", "Tests: 1,200 about 240 cases, as in jevbench's results (if left out); all 12,000; or a few."
    )
    form: Literal["letters", "names", "vllm", "vllm-decisions"] = option(
        "letters", "Score the letters of the options (if left out), or their names, or use the text of a vLLM server."
    )


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions(Options):
    """The guarantee of the thresholds that `evaluator threshold` chooses, and the answers that it uses."""

    target: float = option(0.9, "Value that a threshold promises for new answers.", shown=0.9, is_share=True)
    measure: ThresholdMeasure = option(
        "accuracy", "Promised: accuracy of the used answers, or a measure of the answer yes.", shown="accuracy"
    )
    assurance: float = option(0.95, "Probability with which all promises hold together.", shown=0.95, is_share=True)
    per: ThresholdPer = option("question", "Unit of a threshold: all answers, a question or a class.", shown="question")
    yes: str | None = option(None, "Name of the option that means yes; yes, true, 1 or positive if left out.")
    at: tuple[float, ...] = option((), "Also show share and accuracy of answers above these thresholds.", metavar="P,P")
    method: str = option("vanilla", "Inference method whose answers are used.", shown="vanilla")
    part: str | None = option(None, "Part of the suite whose answers are used; the first if left out.")
    group_column: str | None = option(
        None, "Column of the table with groups: rows of one group, such as a user, are not independent."
    )
    slice_column: str | None = option(
        None, "Column of the table: results for each of its values, corrected for their number."
    )
    costs: tuple[float, ...] = option(
        (), "With two runs: cost of a call of the first, of a call of the second, of a wrong answer.", metavar="S,L,W"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure != "accuracy" and self.per == "class":
            raise ConfigError(f"--measure {self.measure} is about the answer yes alone. Leave out --per class.")
        if not all(0 <= threshold <= 1 for threshold in self.at):
            raise ConfigError(f"--at takes probabilities, 0 to 1, got {', '.join(map(str, self.at))}.")
        if self.costs and (len(self.costs) != 3 or not all(0 <= cost < math.inf for cost in self.costs)):
            raise ConfigError("--costs takes three numbers, 0 or more: of a small call, a large one, a wrong answer.")

    @property
    def limit(self) -> float:
        """Return the largest error rate that the target allows: 1 - target, or the target of a false-positive rate."""
        return self.target if self.measure == "false_positive_rate" else round(1 - self.target, 12)


@dataclass(frozen=True, kw_only=True)
class ImportColumns(Options):
    """Columns of a table of imported answers; None: the default names (imports/files.py), where the table has them."""

    gold: str = option("gold", "Column with the true label: its name or its number.", name="gold_column", shown="gold")
    scores: tuple[str, ...] | None = option(
        None,
        "One column of lists, or one column for each label; label_log_likelihoods, label_probs or pred if left out.",
        name="score_column",
        metavar="A[,B]",
    )
    numbers: Numbers | None = option(
        None,
        "Content of the score column: nats over the whole vocabulary, probabilities, or only the predicted label.",
    )
    labels: tuple[str, ...] | None = option(
        None, "The labels, in the order of the numbers; read from the column label_names if left out."
    )
    dataset: str | None = option(
        None, "Column with the dataset; `dataset`, else the file's name, if left out.", name="dataset_column"
    )
    query: str | None = option(
        None, "Column with the query's id; `query_id`, else each row is a query, if left out.", name="id_column"
    )
    prompt: str | None = option(None, "Column with the prompt; `prompt`, if there is one.", name="prompt_column")
    invalid: Literal["wrong", "drop"] | None = option(
        None, "For predictions that name no label: count them as wrong, or drop their rows; an error if left out."
    )


def cache_folder() -> Path:
    """Return the folder for converted datasets and digests.

    It is $EVALUATOR_CACHE, else `evaluator` in $XDG_CACHE_HOME or ~/.cache.
    """
    if folder := os.environ.get("EVALUATOR_CACHE"):
        return Path(os.path.expanduser(folder))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evaluator"
