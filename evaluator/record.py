"""The record of a run, DIR/run.json, as dataclasses: one section for each stage.

run/folders.py reads and writes the record; a missing field or a value of the wrong type is an error that names the
field.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Any, Literal

from evaluator.config import OWN_TEMPLATE, ChatDemonstrations, Definition
from evaluator.errors import StoreError
from evaluator.files.digests import fingerprint

PartKind = Literal["classification", "choice", "diagnostic", "null"]
"""The kind of a part of a suite. "classification": queries with one label space, which every inference method can
predict; "choice": queries with different choices; "diagnostic": deliberately perturbed prompts; "null": prompts that
methods do not predict, such as prompts without a query."""

ModelKind = Literal["fake", "embedded", "random", "folder", "hub", "imported"]


@dataclass(frozen=True)
class PartRecord:
    """The kind of a part of a suite, and the definitions under which the run measures the part."""

    kind: PartKind
    definitions: Sequence[Definition]
    prompts_differ: bool = False  # whether prompts depend on the definition, so that only one definition is measured


@dataclass(frozen=True, kw_only=True)
class PromptsRecord:
    """The prompts that were built, their data and the requested measures."""

    fingerprint: str  # name of the store's folder
    config: dict[str, Any]  # config.RunConfig as JSON (run.folders.config_to_json)
    suites: list[str]
    datasets: list[str]  # datasets with prompts
    methods: list[str]
    definitions: list[Definition]
    prompt_definition: Definition
    parts: dict[str, dict[str, PartRecord]]  # suite -> part
    shots: str  # numbers of demonstrations for display: "4", "1, 2, 4"
    n_shots: int | None  # demonstrations in a prompt; None if this number differs between prompts
    n_queries: int | None  # queries of each dataset; None: all
    queries: str  # number of queries for display
    notes: dict[str, list[str]]  # dataset -> decisions about its data
    seeds: dict[str, int]
    requests: int  # number of requests
    distinct_prompts: int
    requests_of: dict[str, int] = field(default_factory=dict)  # dataset -> number of requests
    dataset_fingerprints: dict[str, str] = field(default_factory=dict)  # dataset -> digest of rows, labels, templates
    query_fingerprints: dict[str, str] = field(default_factory=dict)  # dataset -> digest of the possible query texts
    inputs: dict[str, str] = field(default_factory=dict)  # dataset -> its input table; several datasets may share one
    left_out: dict[str, str] = field(default_factory=dict)  # dataset without prompts -> reason


FindingLevel = Literal["stop", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """A finding of the checks before a run."""

    name: str  # key of preflight.findings.FINDINGS, also a value of --accept
    level: FindingLevel  # "stop": `evaluator run` stops unless --accept names the finding
    dataset: str  # dataset of the finding; "" for a finding about all datasets
    text: str

    @property
    def about(self) -> str:
        """Return "DATASET: TEXT", or only the text if the finding is about all datasets."""
        return f"{self.dataset}: {self.text}" if self.dataset else self.text


@dataclass(frozen=True, kw_only=True)
class LabelRecord:
    """The tokens of a label after a prompt."""

    text: str  # text that is scored
    tokens: list[int]  # token ids
    pieces: list[str]  # text of each token


@dataclass(frozen=True, kw_only=True)
class CheckedDatasetRecord:
    """Facts about a dataset's prompts, computed before any prompt is scored."""

    labels: list[LabelRecord]  # labels of the one label space; empty if queries have different choices
    label_spaces: int  # number of label spaces that differ in texts or tokens
    queries: int  # number of queries
    class_queries: dict[str, int]  # label -> number of queries; empty if queries have different choices
    demonstration_sets: int  # number of distinct demonstration sets
    sets_without_a_class: int  # number of demonstration sets that lack a label
    detectable: dict[str, float | None]  # share of queries answered differently -> detectable accuracy difference
    longest_prompt_tokens: int  # tokens of the longest prompt with its longest label, among the tokenised prompts


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """Estimated time and price of a run on a device, from the device's specifications."""

    fits: bool  # whether weights and the cache of the longest prompt fit into 90% of the device's memory
    elapsed_s: float
    price_usd: float


@dataclass(frozen=True, kw_only=True)
class ChatRecord:
    """The chat template and settings that turned prompts into conversations (tokens/chat.py)."""

    template: str  # "auto" (the model's own template), or path of a template file
    sha256: str  # SHA-256 of the template
    demonstrations: ChatDemonstrations
    system_instruction: str | None
    thinking: str  # "off", or a note that the template has no such setting
    date: str  # date for templates that write a date
    example: str = ""  # text of one conversation up to the end of the label, as sent to the model

    @property
    def form(self) -> str:
        """Return the template and its settings in words, without the template's text."""
        own = "its chat template" if self.template == OWN_TEMPLATE else f"the chat template {self.template}"
        shown = "turns" if self.demonstrations == "turns" else "one message"
        system = "" if self.system_instruction is None else f", system instruction {self.system_instruction!r}"
        return f"{own}, demonstrations as {shown}{system}"


@dataclass(frozen=True, kw_only=True)
class PreflightRecord:
    """Results of the checks before a run, which read no weights (evaluator/preflight)."""

    model: str
    label_boundary: Literal["separate", "merged"]
    tokens_in_front: int  # number of tokens that the tokenizer adds before a prompt (BOS)
    has_chat_template: bool
    context_tokens: int | None  # context length of the model; None: no limit
    datasets: dict[str, CheckedDatasetRecord]
    requests: int  # number of requests
    prompts: int  # number of distinct prompts
    tokenised_prompts: int  # number of tokenised prompts; if below `prompts`, token counts are estimates
    request_tokens: int  # tokens of all requests, repeated prompts included
    tokens: int  # tokens of the distinct prompts
    floor_tokens: int  # tokens to compute if no shared prefix is computed twice
    block_floor_tokens: dict[str, int]  # size of a prefix-cache block -> the same if only whole blocks are shared
    n_parameters: int | None
    weight_bytes: int | None
    cache_bytes_per_token: int
    flop_per_token: int | None
    devices: dict[str, DeviceRecord]
    findings: list[FindingRecord]
    chat: ChatRecord | None = None  # None: plain prompts
    accepted: list[str] = field(default_factory=list)  # findings of level "stop" that --accept named


@dataclass(frozen=True, kw_only=True)
class TokensRecord:
    """Token counts of a run's prompts, including those of a second round."""

    request_tokens: int  # tokens of all requests, repeated prompts included
    tokens: int  # tokens of the distinct prompts
    floor_tokens: int  # tokens to compute if no shared prefix is computed twice
    block_tokens: int | None  # tokens in a prefix-cache block of the engine
    block_floor_tokens: int | None  # floor_tokens if only whole blocks are shared


@dataclass(frozen=True, kw_only=True)
class AdapterRecord:
    """The LoRA adapter that a model was scored with."""

    name: str
    rank: int
    fingerprint: str  # digest of the adapter's configuration and weights


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model that was evaluated."""

    name: str
    kind: ModelKind
    revision: str | None
    weights_fingerprint: str  # digest of the weights, the adapter's included
    tokenizer_fingerprint: str = ""
    n_parameters: int | None
    context_tokens: int | None  # context length; None: no limit
    tokens_in_front: int | None = None  # number of tokens that the tokenizer adds before a prompt (BOS); None: unknown
    has_chat_template: bool = False
    flop_per_token: int | None = None  # operations for a prompt token, from the configuration; None: unknown
    quantization: str | None = None  # quantisation of the saved weights: "awq", "gptq", "fp8", "compressed-tensors"
    adapter: AdapterRecord | None = None

    @property
    def title(self) -> str:
        """Return "MODEL + ADAPTER", or the model's name if it has no adapter."""
        return f"{self.name} + {self.adapter.name}" if self.adapter else self.name


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """Properties of the engine that computed a run's numbers."""

    name: str
    versions: dict[str, str]  # package -> version
    device: str
    dtype: str
    head_dtype: str | None = None  # dtype of the logits; None: the dtype of the model, or unknown
    quantization: str | None = None  # quantisation that was applied while the weights were loaded
    prefix_block_tokens: int | None  # tokens in the unit in which prefixes are shared; None without a prefix cache
    tokens_per_step: int  # token capacity of one forward pass; shard sizes are multiples of it
    sequences_per_step: int | None = None  # sequence capacity of one forward pass; None: only tokens are limited
    cache_block_tokens: int | None = None  # tokens in a block of vLLM's prefix cache
    cache_tokens: int | None = field(default=None, compare=False)  # token capacity of the first replica's cache
    model_runner: str | None = None  # vLLM's model runner: "V1" | "V2"
    compiled: bool = False  # whether torch.compile compiled the model; False: eager
    tensor_parallel: int = 1  # devices that share each layer
    pipeline_parallel: int = 1  # groups of such devices, each with consecutive layers
    engines_per_device: int = 1  # engines that share a GPU
    counts_cached_tokens: bool = True  # whether the engine reports how many tokens came from a prefix cache

    @property
    def dtypes(self) -> str:
        """Return the dtype in words, with the dtype of the logits if it differs and the quantisation of weights."""
        logits = f", logits in {self.head_dtype}" if self.head_dtype not in (None, self.dtype) else ""
        return self.dtype + logits + (f", weights in {self.quantization}" if self.quantization else "")


@dataclass(frozen=True, kw_only=True)
class ThroughputRecord:
    """Speed at which the scores of this run were computed; time without computation does not count."""

    elapsed_s: float = 0.0
    requests_per_s: float = 0.0
    computed_tokens_per_s: float = 0.0  # without tokens from the prefix cache; 0: unknown
    flop_per_s: float = 0.0  # operations of computed tokens, without attention scores and LM head; 0: unknown
    peak_share: float | None = None  # flop_per_s divided by the peak rate of all devices; None: unknown
    replica_computed_tokens_per_s: list[float] = field(default_factory=list)  # rate of each replica while it computed
    period_s: float = 0.0  # length of the consecutive periods of the two lists below
    period_requests_per_s: list[float] = field(default_factory=list)
    period_computed_tokens_per_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ScoresRecord:
    """The folders of a run's scores, and the tokens and seconds of their computation."""

    stores: list[str]  # prompt store of the first round and, if there is one, of the second round
    tokens: list[str]  # folder of each store's tokens, below the store
    tables: list[str]  # folder of each store's scores, below scores/
    left_out: dict[str, str] = field(default_factory=dict)  # dataset that this model cannot score -> reason
    label_boundary: Literal["separate", "merged"]
    chat: ChatRecord | None = None  # None: plain prompts
    prompts: int  # number of prompts scored by this run or an earlier run
    reused_prompts: int  # number of these prompts that an earlier run scored
    prompt_tokens: int
    cached_tokens: int | None  # prompt tokens from the prefix cache; None: the engine does not report them
    elapsed_s: float
    replicas: int = 1  # number of replicas, busy or idle, that the shard sizes were chosen for
    throughput: ThroughputRecord = ThroughputRecord()
    costs: list[str] = field(default_factory=list)  # lines about the cost of a service's answers
    files: dict[str, str] = field(default_factory=dict)  # path of every file of scores below scores/ -> SHA-256

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that change if any score changes."""
        return fingerprint(self.stores, self.tokens, self.tables, self.files)

    @property
    def computed_tokens(self) -> int | None:
        """Return the number of prompt tokens not from the prefix cache; None: the engine does not report it."""
        return None if self.cached_tokens is None else self.prompt_tokens - self.cached_tokens

    @property
    def tokens_per_s(self) -> float:
        """Return the prompt tokens per second, cached or computed; 0 if no time was recorded."""
        return self.prompt_tokens / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, kw_only=True)
class MeasuresRecord:
    """The tables of the measure stage, and the scores that they were computed from."""

    scores: str  # ScoresRecord.fingerprint of the measured scores
    tables: dict[str, str]  # name in DIR/tables -> SHA-256 of the file
    options: dict[str, Any] = field(default_factory=dict)  # suite -> its options of the measure stage that were given
    decisions: list[str] = field(default_factory=list)  # sentences of a run --until, one for each dataset
    is_stopped: bool = False  # whether a run --until ended before the last query


@dataclass(frozen=True, kw_only=True)
class ReceiptRecord:
    """Drift of a run's log-likelihoods when a sample of its prompts is scored again; runs/receipt.py."""

    scores: str  # ScoresRecord.fingerprint of the re-scored scores
    made: str  # time in ISO 8601, UTC
    seed: int
    engine: EngineRecord  # engine of the second scoring
    threads: int | None  # threads of the process on a CPU; None without a model
    batch_invariant: bool  # whether vLLM's batch-invariant kernels were switched on
    prompts: int  # number of prompts in the sample
    batches: int  # number of engine calls
    max_drift_nats: float  # largest drift_nats of schemas.RECEIPT; the next three are quantiles of the same column
    p99_drift_nats: float
    p95_drift_nats: float
    median_drift_nats: float
    predictions: int  # number of prompts with several labels
    flipped: int  # number of these prompts whose most probable label changed
    verdicts: int | None  # number of compared verdicts; None if earlier scores determined which prompts were built
    changed_verdicts: list[str]  # table, row, and both verdicts


CheckStatus = Literal["agrees", "DISAGREES", "skipped", "measured"]


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """The result of one check of `evaluator doctor`."""

    name: str
    status: CheckStatus  # "measured": a number without a reference to compare it with
    text: str  # the numbers, or the reason why the check was skipped
    option: str = ""  # option of the command that avoids the disagreement


@dataclass(frozen=True, kw_only=True)
class DoctorRecord:
    """The results of `evaluator doctor` for a model on a machine."""

    evaluator: str  # version
    made: str  # time in ISO 8601, UTC
    host: str
    model: str
    weights_fingerprint: str
    engine: EngineRecord | None  # None: the engine could not be loaded
    facts: dict[str, str]  # facts about the machine and the settings in use
    checks: list[CheckRecord]

    def names(self, status: CheckStatus) -> list[str]:
        """Return the names of the checks with a status."""
        return [check.name for check in self.checks if check.status == status]

    @property
    def verdict(self) -> str:
        """Return one line that says whether all checks agree, and which checks were skipped."""
        wrong, right, skipped = (self.names(status) for status in ("DISAGREES", "agrees", "skipped"))
        n = len(wrong) + len(right)
        found = (
            f"{len(wrong)} of {n} checks DISAGREE: {'; '.join(wrong)}" if wrong else f"the {n} checks that ran agree"
        )
        return f"{found}. " + (f"Skipped: {'; '.join(skipped)}." if skipped else "None was skipped.")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The content of run.json; the section of a stage that has not been run is None."""

    evaluator: str  # version of this package
    started: str  # time in ISO 8601, UTC
    finished: str
    data: str  # folder of store/ and scores/, relative to the output folder
    commands: dict[str, str] = field(default_factory=dict)  # stage -> command line
    elapsed_s: dict[str, float] = field(default_factory=dict)  # stage -> seconds
    prompts: PromptsRecord | None = None
    tokens: TokensRecord | None = None
    model: ModelRecord | None = None  # written before the model scores
    scores_folder: str = ""  # folder of this model's and engine's scores, below scores/
    engine: EngineRecord | None = None
    scores: ScoresRecord | None = None
    form: str = ""  # prompt form of a finished run, kept while an extension of the run has no scores yet
    measures: MeasuresRecord | None = None
    receipts: dict[str, ReceiptRecord] = field(default_factory=dict)  # "ENGINE DTYPE" -> its latest receipt
    receipt_table: str = ""  # SHA-256 of DIR/tables/receipt.parquet
    preflight: PreflightRecord | None = None
    doctor: str = ""  # latest verdict of `evaluator doctor` about this model on this machine


STOPPED_NOTE = (
    "A sequential test chose the number of queries. Other intervals and tests of this run take it as fixed and are too "
    "narrow: use the interval above."
)


@dataclass(frozen=True, kw_only=True)
class MeasuredRecord(RunRecord):
    """The record of a run that was built, scored and measured, for reports and comparisons."""

    prompts: PromptsRecord
    tokens: TokensRecord
    model: ModelRecord
    engine: EngineRecord
    scores: ScoresRecord
    measures: MeasuresRecord

    @property
    def command(self) -> str:
        """Return the command lines of all stages, one per line."""
        return "\n".join(dict.fromkeys(self.commands.values()))

    @property
    def tables(self) -> dict[str, str]:
        """Return the tables: name -> SHA-256."""
        return self.measures.tables

    @property
    def left_out(self) -> dict[str, str]:
        """Return the datasets that failed: name -> reason. No number or mean includes them."""
        return self.prompts.left_out | self.scores.left_out

    @property
    def decisions(self) -> list[str]:
        """Return the decisions of a run --until, with a note about its other intervals if the run stopped early."""
        return [*self.measures.decisions, *([STOPPED_NOTE] if self.measures.is_stopped else [])]


def require_every_query(record: MeasuredRecord, where: str) -> None:
    """Raise StoreError for a run that stopped before its last query: other tests assume a fixed number of queries."""
    if record.measures.is_stopped:
        raise StoreError(
            f"{where} stopped early, and this takes its number of queries as fixed. Run its command without --until, "
            f"which keeps what is scored. Decided was: {' '.join(record.measures.decisions)}"
        )


def command_for(*words: str | Path) -> str:
    """Return a command line of `evaluator` with these words, quoted for a shell."""
    return join(["evaluator", *map(str, words)])


def score_command(record: RunRecord, where: str) -> str:
    """Return the command that scores a run.

    It is the recorded command of the score stage, else the recorded `evaluator run` command, which was interrupted,
    else an `evaluator score` command with MODEL for the model.
    """
    built = record.commands.get("build", "")
    command = built if built.startswith("evaluator run ") else command_for("score", where, "--model", "MODEL")
    return record.commands.get("score", command)


def no_scores(record: RunRecord, where: str) -> str:
    """Return the message that a run has no scores, with the command that scores it."""
    return f"{where} has no scores yet. Run `{score_command(record, where)}` first."


def measured_record(record: RunRecord, where: str) -> MeasuredRecord:
    """Return the record of a measured run, without receipts of earlier scores.

    Raises StoreError, with the command to run, if the run has no scores or its tables are of earlier scores.
    """
    if record.scores is None:
        raise StoreError(no_scores(record, where))
    if record.measures is None or record.measures.scores != record.scores.fingerprint:
        what = f"The tables in {where} are those of earlier scores" if record.measures else f"{where} has no tables yet"
        raise StoreError(f"{what}. Run `{command_for('measure', where)}` first.")
    receipts = {name: one for name, one in record.receipts.items() if one.scores == record.scores.fingerprint}
    return MeasuredRecord(**vars(record) | {"receipts": receipts})
