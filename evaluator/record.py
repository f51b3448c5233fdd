"""The record of a run, DIR/run.json, as dataclasses: one section for each stage.

run/folders.py reads and writes it; a missing field or one of the wrong type is an error that names the field.
"""

from dataclasses import dataclass, field
from shlex import join
from typing import Any, Literal

from evaluator.config import OWN_TEMPLATE, ChatDemonstrations, Definition
from evaluator.errors import StoreError
from evaluator.files.digests import fingerprint

PartKind = Literal["classification", "choice", "diagnostic", "null"]
"""The kind of a part of a suite: queries with one label space, which every inference method can predict; queries whose
choices differ; prompts that are perturbed on purpose; prompts that methods do not predict, such as those without a
query."""

ModelKind = Literal["fake", "embedded", "random", "folder", "hub", "imported"]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """How this run measures one part of a suite."""

    kind: PartKind
    definitions: list[Definition]
    prompts_differ: bool  # between definitions, so that the part is measured under only one of them


@dataclass(frozen=True, kw_only=True)
class PromptsRecord:
    """The prompts that were built, from which data and for which measures."""

    fingerprint: str  # name of the store's folder
    config: dict[str, Any]  # config.RunConfig, as run/folders.py writes it
    suites: list[str]
    datasets: list[str]  # with prompts
    methods: list[str]
    definitions: list[Definition]
    prompt_definition: Definition
    parts: dict[str, dict[str, PartRecord]]  # suite -> part
    shots: str  # for display: "4", "1, 2, 4"
    n_shots: int | None  # None if the prompts differ in their number of demonstrations
    n_queries: int | None  # None: all
    queries: str  # for display
    notes: dict[str, list[str]]  # dataset -> decisions about its data
    seeds: dict[str, int]
    requests: int
    distinct_prompts: int
    requests_of: dict[str, int] = field(default_factory=dict)  # dataset -> its requests
    dataset_fingerprints: dict[str, str] = field(default_factory=dict)  # dataset -> of its rows, labels and templates
    query_fingerprints: dict[str, str] = field(default_factory=dict)  # dataset -> of the texts that may be queries
    inputs: dict[str, str] = field(default_factory=dict)  # dataset -> table that it and others of the table ask about
    left_out: dict[str, str] = field(default_factory=dict)  # dataset without prompts -> why


FindingLevel = Literal["stop", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """Something that a check before a run found."""

    name: str  # as `--accept` takes it, one of preflight.findings.FINDINGS
    level: FindingLevel  # "stop": `evaluator run` needs it named in --accept
    dataset: str  # "" where it concerns all
    text: str

    @property
    def about(self) -> str:
        """Return the text, after the name of the dataset that it concerns."""
        return f"{self.dataset}: {self.text}" if self.dataset else self.text


@dataclass(frozen=True, kw_only=True)
class LabelRecord:
    """How a label is tokenised after a prompt."""

    text: str  # as it is scored
    tokens: list[int]
    pieces: list[str]  # the tokens as the tokenizer writes them


@dataclass(frozen=True, kw_only=True)
class CheckedDatasetRecord:
    """What is known about a dataset's prompts before any is scored."""

    labels: list[LabelRecord]  # of one label space; empty where every query has choices of its own
    label_spaces: int  # different ones: texts or tokens
    queries: int
    class_queries: dict[str, int]  # label -> queries; empty where every query has choices of its own
    demonstration_sets: int  # different ones
    sets_without_a_class: int
    detectable: dict[str, float | None]  # share of queries answered differently -> smallest difference of accuracies
    longest_prompt_tokens: int  # with its longest label, among the prompts that were tokenised


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """Estimated time and price of a run on a device, from the device's specifications."""

    fits: bool  # weights and the cache of the longest prompt are at most 90% of its memory
    elapsed_s: float
    price_usd: float


@dataclass(frozen=True, kw_only=True)
class ChatRecord:
    """How prompts became conversations, and these text (tokens/chat.py)."""

    template: str  # "auto": the model's own; or its file
    sha256: str  # of the template
    demonstrations: ChatDemonstrations
    system_instruction: str | None
    thinking: str  # "off", or that the template has no such setting
    date: str  # given to templates that write one
    example: str = ""  # a whole conversation up to the end of the label, as the model gets it

    @property
    def form(self) -> str:
        """Return the form in words, without the template's text."""
        own = "its chat template" if self.template == OWN_TEMPLATE else f"the chat template {self.template}"
        shown = "turns" if self.demonstrations == "turns" else "one message"
        system = "" if self.system_instruction is None else f", system instruction {self.system_instruction!r}"
        return f"{own}, demonstrations as {shown}{system}"


@dataclass(frozen=True, kw_only=True)
class PreflightRecord:
    """What was checked before a run, without weights: evaluator/preflight."""

    model: str
    label_boundary: Literal["separate", "merged"]
    tokens_in_front: int  # that the tokenizer puts before a prompt: BOS
    has_chat_template: bool
    context_tokens: int | None  # None: no limit
    datasets: dict[str, CheckedDatasetRecord]
    requests: int
    prompts: int  # different ones
    tokenised_prompts: int  # fewer than `prompts`: token counts are estimates
    request_tokens: int
    tokens: int
    floor_tokens: int
    block_floor_tokens: dict[str, int]
    n_parameters: int | None
    weight_bytes: int | None
    cache_bytes_per_token: int
    flop_per_token: int | None
    devices: dict[str, DeviceRecord]
    findings: list[FindingRecord]
    chat: ChatRecord | None = None  # None: plain prompts
    accepted: list[str] = field(default_factory=list)  # findings of level "stop" that the command named


@dataclass(frozen=True, kw_only=True)
class TokensRecord:
    """Token counts of a run's prompts, including those of a second round."""

    request_tokens: int  # repeated prompts included
    tokens: int  # each prompt once
    floor_tokens: int  # tokens to compute if no shared prefix is computed twice
    block_tokens: int | None  # prefix-cache block of the engine
    block_floor_tokens: int | None  # the floor if only whole blocks are shared


@dataclass(frozen=True, kw_only=True)
class AdapterRecord:
    """The LoRA adapter that a model was scored with."""

    name: str
    rank: int
    fingerprint: str  # of its configuration and weights


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model that was evaluated."""

    name: str
    kind: ModelKind
    revision: str | None
    weights_fingerprint: str  # of an adapter's weights as well
    tokenizer_fingerprint: str = ""
    n_parameters: int | None
    context_tokens: int | None  # None: no limit
    tokens_in_front: int | None = None  # of a prompt: BOS; None: not known
    has_chat_template: bool = False
    flop_per_token: int | None = None  # of a prompt's token, by the configuration; None where it is not known
    quantization: str | None = None  # of the weights as they were saved: "awq", "gptq", "fp8", "compressed-tensors"
    adapter: AdapterRecord | None = None

    @property
    def title(self) -> str:
        """Return the model's name, followed by that of its adapter."""
        return f"{self.name} + {self.adapter.name}" if self.adapter else self.name


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """Properties of the engine that computed a run's numbers."""

    name: str
    versions: dict[str, str]  # package -> version
    device: str
    dtype: str
    head_dtype: str | None = None  # of the logits; None: that of the model, or not known
    quantization: str | None = None  # of weights that were quantised while they were loaded
    prefix_block_tokens: int | None  # unit in which prefixes are shared; None without a prefix cache
    has_hidden_states: bool = True
    tokens_per_step: int  # capacity of one forward pass; a shard holds a multiple of it
    sequences_per_step: int | None = None  # None: no limit but the tokens
    cache_block_tokens: int | None = None  # of a block of vLLM's prefix cache
    cache_tokens: int | None = field(default=None, compare=False)  # that the cache holds: of the first of several
    model_runner: str | None = None  # of vLLM: "V1" | "V2"
    compiled: bool = False  # torch.compile, or eager
    tensor_parallel: int = 1  # devices that share each layer
    pipeline_parallel: int = 1  # groups of such devices that hold consecutive layers
    engines_per_device: int = 1  # engines that share a GPU
    counts_cached_tokens: bool = True  # False: whether tokens came from a prefix cache is not known

    @property
    def dtypes(self) -> str:
        """What numbers were computed in: the dtype, that of the logits if it is another, and that of the weights."""
        logits = f", logits in {self.head_dtype}" if self.head_dtype not in (None, self.dtype) else ""
        return self.dtype + logits + (f", weights in {self.quantization}" if self.quantization else "")


@dataclass(frozen=True, kw_only=True)
class ThroughputRecord:
    """How fast the scores of this run were computed; time in which none was computed does not count."""

    elapsed_s: float = 0.0
    requests_per_s: float = 0.0
    computed_tokens_per_s: float = 0.0  # without tokens from the prefix cache; 0: not known
    flop_per_s: float = 0.0  # of computed tokens, without attention itself and the LM head; 0: not known
    peak_share: float | None = None  # that rate over the peak of all devices; None where that is not known
    replica_computed_tokens_per_s: list[float] = field(default_factory=list)  # each while it computed
    period_s: float = 0.0  # length of the periods below, which follow one another
    period_requests_per_s: list[float] = field(default_factory=list)
    period_computed_tokens_per_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ScoresRecord:
    """Where a run's scores are, and how many tokens and seconds they took."""

    stores: list[str]  # of the first round, then of the second if there is one
    tokens: list[str]  # folder of each store's tokens, within it
    tables: list[str]  # folder of each store's scores, below scores/
    left_out: dict[str, str] = field(default_factory=dict)  # dataset that this model cannot be asked about -> why
    label_boundary: Literal["separate", "merged"]
    chat: ChatRecord | None = None  # None: plain prompts
    prompts: int  # scored by this run or an earlier one
    reused_prompts: int  # by an earlier run
    prompt_tokens: int
    cached_tokens: int | None  # None: the engine does not tell
    elapsed_s: float
    replicas: int = 1  # for which shards were cut, busy or idle
    throughput: ThroughputRecord = ThroughputRecord()
    kernels: dict[str, str] = field(default_factory=dict)  # kernel -> implementation used
    costs: list[str] = field(default_factory=list)  # of answers of a service, line by line
    files: dict[str, str] = field(default_factory=dict)  # every file of scores below scores/ -> SHA-256

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with every number among the scores."""
        return fingerprint(self.stores, self.tokens, self.tables, self.files)

    @property
    def computed_tokens(self) -> int | None:
        """Tokens that no prefix cache served; None: the engine does not tell."""
        return None if self.cached_tokens is None else self.prompt_tokens - self.cached_tokens

    @property
    def tokens_per_s(self) -> float:
        """Prompt tokens a second, cached or computed; 0 if none was scored."""
        return self.prompt_tokens / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, kw_only=True)
class MeasuresRecord:
    """The scores that the tables were computed from, and the tables."""

    scores: str  # ScoresRecord.fingerprint at that time
    tables: dict[str, str]  # name in DIR/tables -> SHA-256 of the file
    options: dict[str, Any] = field(default_factory=dict)  # of the measure stage, by suite; without those left out
    decisions: list[str] = field(default_factory=list)  # of a run --until, a sentence for each dataset
    is_stopped: bool = False  # whether such a decision came before the last query


@dataclass(frozen=True, kw_only=True)
class ReceiptRecord:
    """Drift of a run's log-likelihoods when a sample of its prompts is scored again; runs/receipt.py."""

    scores: str  # ScoresRecord.fingerprint at that time
    made: str  # time in ISO 8601, UTC
    seed: int
    engine: EngineRecord  # that scored again
    threads: int | None  # of the process on a CPU; None without a model
    batch_invariant: bool  # whether vLLM's batch-invariant kernels were switched on
    prompts: int  # in the sample
    batches: int  # calls of the engine
    max_drift_nats: float  # over the prompts of schemas.RECEIPT, as the other three
    p99_drift_nats: float
    p95_drift_nats: float
    median_drift_nats: float
    predictions: int  # prompts with labels to choose from
    flipped: int  # predictions with another most probable label
    verdicts: int | None  # compared; None if prompts were chosen by earlier scores
    changed_verdicts: list[str]  # table, row and both verdicts


CheckStatus = Literal["agrees", "DISAGREES", "skipped", "measured"]


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """What `evaluator doctor` found in one respect."""

    name: str
    status: CheckStatus  # "measured": nothing to agree with
    text: str  # the numbers, or why the check was skipped
    option: str = ""  # that avoids a disagreement


@dataclass(frozen=True, kw_only=True)
class DoctorRecord:
    """All that `evaluator doctor` found about a model on a machine."""

    evaluator: str  # version
    made: str  # time in ISO 8601, UTC
    host: str
    model: str
    weights_fingerprint: str
    engine: EngineRecord | None  # None: it could not be loaded
    facts: dict[str, str]  # of the machine, and what is used of it
    checks: list[CheckRecord]

    def names(self, status: CheckStatus) -> list[str]:
        """Return the names of the checks with a status."""
        return [check.name for check in self.checks if check.status == status]

    @property
    def verdict(self) -> str:
        """Return one line: whether all checks agree, and which were skipped."""
        wrong, right, skipped = (self.names(status) for status in ("DISAGREES", "agrees", "skipped"))
        n = len(wrong) + len(right)
        found = (
            f"{len(wrong)} of {n} checks DISAGREE: {'; '.join(wrong)}" if wrong else f"the {n} checks that ran agree"
        )
        return f"{found}. " + (f"Skipped: {'; '.join(skipped)}." if skipped else "None was skipped.")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All of run.json; the section of a stage that has not been run yet is None."""

    evaluator: str  # version
    started: str  # time in ISO 8601, UTC
    finished: str
    data: str  # folder of store/ and scores/, relative to the output folder
    commands: dict[str, str] = field(default_factory=dict)  # stage -> command line
    elapsed_s: dict[str, float] = field(default_factory=dict)  # stage -> seconds
    prompts: PromptsRecord | None = None
    tokens: TokensRecord | None = None
    model: ModelRecord | None = None  # known before it has scored
    scores_folder: str = ""  # of this model and engine, below scores/
    engine: EngineRecord | None = None
    scores: ScoresRecord | None = None
    form: str = ""  # of the prompts of a finished run, while an extension of it has no scores
    measures: MeasuresRecord | None = None
    receipts: dict[str, ReceiptRecord] = field(default_factory=dict)  # engine and dtype -> the last one
    receipt_table: str = ""  # SHA-256 of DIR/tables/receipt.parquet
    preflight: PreflightRecord | None = None
    doctor: str = ""  # the last verdict of `evaluator doctor` about this model on this machine


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
        """Return the tables by name with their SHA-256."""
        return self.measures.tables

    @property
    def left_out(self) -> dict[str, str]:
        """Return the datasets that failed, with the reason: they are in no number and no mean."""
        return self.prompts.left_out | self.scores.left_out

    @property
    def decisions(self) -> list[str]:
        """Return the decisions of a run --until, and their effect on its other numbers."""
        return [*self.measures.decisions, *([STOPPED_NOTE] if self.measures.is_stopped else [])]


def require_every_query(record: MeasuredRecord, where: str) -> None:
    """Raise StoreError for a run that stopped before its last query: other tests take their number as fixed."""
    if record.measures.is_stopped:
        raise StoreError(
            f"{where} stopped early, and this takes its number of queries as fixed. Run its command without --until, "
            f"which keeps what is scored. Decided was: {' '.join(record.measures.decisions)}"
        )


def score_command(record: RunRecord, where: str) -> str:
    """Return the command that scores a run: the recorded one, the interrupted one, or one of `score`."""
    built = record.commands.get("build", "")
    command = built if built.startswith("evaluator run ") else join(["evaluator", "score", where, "--model", "MODEL"])
    return record.commands.get("score", command)


def no_scores(record: RunRecord, where: str) -> str:
    """Say that a run has no scores, and which command scores it."""
    return f"{where} has no scores yet. Run `{score_command(record, where)}` first."


def measured_record(record: RunRecord, where: str) -> MeasuredRecord:
    """Return the record of a measured run, with the receipts of its scores.

    Raises StoreError, with the command to run, where a stage is missing.
    """
    if record.scores is None:
        raise StoreError(no_scores(record, where))
    if record.measures is None or record.measures.scores != record.scores.fingerprint:
        raise StoreError(f"The tables in {where} are those of earlier scores. Run `evaluator measure {where}` first.")
    receipts = {name: one for name, one in record.receipts.items() if one.scores == record.scores.fingerprint}
    return MeasuredRecord(**vars(record) | {"receipts": receipts})
