"""Declare the findings of the checks before a run, stop runs with unaccepted findings, and write findings as text."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from evaluator.errors import ConfigError, plural
from evaluator.files.whole import size_text
from evaluator.models.source import ModelSource
from evaluator.record import CheckedDatasetRecord, FindingLevel, FindingRecord, LabelRecord, PreflightRecord

logger = logging.getLogger(__name__)

FINDINGS: dict[str, tuple[FindingLevel, str]] = {
    "unscorable-labels": ("stop", "labels whose tokens are identical, or that a method of the run cannot score"),
    "tokens-past-embedding": ("stop", "prompts or labels with tokens that the model has no embedding for"),
    "prompts-over-context": ("stop", "prompts that are longer, with their longest label, than the model's context"),
    "class-without-queries": ("stop", "a label that no row of the test split has"),
    "class-not-drawn": ("warning", "a label that the test split has, and none of the queries of --queries"),
    "missing-bos": ("warning", "prompts that do not begin with the token that the model expects first"),
    "repeated-bos": ("warning", "prompts that begin with BOS twice"),
    "control-tokens": ("warning", "texts or labels that contain control tokens, such as the beginning of a turn"),
    "changed-labels": ("warning", "labels whose tokens say something else: an unknown token, a space that they gain"),
    "changed-prompts": ("warning", "prompts whose tokens say something else: unknown tokens, lost characters"),
    "unwritten-thought": ("warning", "a chat template that opens answers with a thought, which labels do not follow"),
    "similar-labels": ("warning", "labels that differ only in case, white space or forms of the same characters"),
    "numeric-labels": ("warning", "labels that are numbers with a fraction, such as 0.0 and 1.0"),
    "label-begins-label": ("warning", "a label whose tokens are the beginning of another's: the longer one never wins"),
    "engines-differ": ("warning", "a model for which vLLM and transformers compute something else"),
    "imbalanced-classes": ("warning", "a class of four fifths of the queries or more"),
    "first-token-shared": ("note", "labels that begin with the same token"),
    "trailing-space": ("note", "prompts that end in a space, which becomes a token of its own, or labels that do"),
    "chat-template-unused": ("note", "the tokenizer has a chat template, and prompts are sent without it"),
    "demonstrations-lack-class": ("note", "demonstration sets that do not show every class"),
}
"""Finding -> its level and meaning."""

LEAVES_OUT = ("unscorable-labels", "tokens-past-embedding", "prompts-over-context")
"""Findings with which a dataset cannot be scored: a run that accepts one leaves the dataset out."""

SHOWN_AT_START = (
    "missing-bos", "repeated-bos", "control-tokens", "changed-labels", "changed-prompts", "unwritten-thought",
    "similar-labels", "numeric-labels",
)  # fmt: skip
"""Findings about prompts that change results, of which a run warns before it scores."""

MAJORITY_SHARE = 0.8
"""Share of queries in one class from which classes count as imbalanced; a convention."""


def finding(name: str, text: str, dataset: str = "") -> FindingRecord:
    """Return a finding with the level of its name."""
    return FindingRecord(name=name, level=FINDINGS[name][0], dataset=dataset, text=text)


def warn(findings: Iterable[FindingRecord], model: str) -> None:
    """Log a warning for each finding of SHOWN_AT_START, with the name of the model, as a command may run several."""
    for one in findings:
        if one.name in SHOWN_AT_START:
            where = f"{model}, {one.dataset}" if one.dataset else model
            logger.warning("%s: %s: %s", one.name, where, one.text)


def in_order(findings: Iterable[FindingRecord]) -> list[FindingRecord]:
    """Return findings sorted by the order of FINDINGS; findings of one name keep their order."""
    return sorted(findings, key=lambda one: list(FINDINGS).index(one.name))


def require_accepted(findings: Iterable[FindingRecord], accepted: Collection[str]) -> None:
    """Raise ConfigError for the first finding of level "stop" that is not accepted, with the number of the others."""
    stopping = [one for one in findings if one.level == "stop" and one.name not in accepted]
    if not stopping:
        return
    first, others = stopping[0], len(stopping) - 1
    more = f" (and {others} more: `evaluator preflight` lists them)" if others else ""
    kept = "leaves the dataset out" if first.name in LEAVES_OUT else "measures it as it is"
    raise ConfigError(f"{first.about} Nothing was scored{more}; --accept {first.name} {kept}.")


def engine_findings(source: ModelSource) -> Iterator[FindingRecord]:
    """Yield a finding for a model whose scores differ between engines by more than rounding.

    Source: measured on random models, docs/models.md.
    """
    if source.architecture == "BloomForCausalLM":
        yield finding(
            "engines-differ",
            "vLLM computes the GELU of BLOOM exactly, transformers and the model's authors by its tanh approximation: "
            "scores differ by 2e-4 to 5e-4 nats. Compare runs of one engine; transformers has the authors' numbers.",
        )
    elif source.architecture == "FalconForCausalLM" and source.has_alibi:
        yield finding(
            "engines-differ",
            "transformers rounds the ALiBi distances of this Falcon to bf16, vLLM does not: scores differ by 0.07 to "
            "0.3 nats after 500 tokens and more. Compare runs of one engine; transformers has the authors' numbers.",
        )


MAX_SHOWN = 12  # maximum number of labels or datasets in a line


def preflight_lines(record: PreflightRecord, utilisation: float) -> Iterator[str]:
    """Yield the lines about one model: datasets, tokens, devices, then findings.

    Args:
        record: results of the checks.
        utilisation: assumed share of a device's peak.
    """
    yield f"{record.model}: {_model(record)}"
    for name, dataset in record.datasets.items():
        yield ""
        yield from dataset_lines(name, dataset)
    yield ""
    yield from token_lines(record)
    yield from _device_lines(record, utilisation)
    yield ""
    yield from finding_lines(record.findings)


def _model(record: PreflightRecord) -> str:
    context = f"{record.context_tokens:,} tokens" if record.context_tokens else "no limit"
    front = record.tokens_in_front
    added = f"{plural(front, 'token')} (BOS)" if front else "no BOS"
    added = "special tokens as the chat template writes them" if record.chat else f"{added} in front of a prompt"
    template = f"chat template: {template_text(record)}"
    return f"context {context}; {added}; {template}; label boundary {record.label_boundary}"


def template_text(record: PreflightRecord) -> str:
    """Return words that say whether the model has a chat template, and whether prompts use one."""
    if record.chat:
        return f"prompts go through {record.chat.form}"
    return "present, not used" if record.has_chat_template else "none"


def dataset_lines(name: str, dataset: CheckedDatasetRecord) -> Iterator[str]:
    """Yield the lines about a dataset's classes, labels, demonstrations and detectable differences."""
    yield f"{name}: {plural(dataset.queries, 'query')}, longest prompt {dataset.longest_prompt_tokens:,} tokens"
    if dataset.class_queries:
        shares = [f"{label} {n:,} ({n / dataset.queries:.0%})" for label, n in dataset.class_queries.items()]
        yield f"  classes: {listed(shares)}"
    if dataset.labels:
        yield f"  label tokens: {listed([label_text(label) for label in dataset.labels])}"
    elif dataset.label_spaces:
        yield f"  label spaces: {dataset.label_spaces:,}"
    if dataset.demonstration_sets:
        yield (
            f"  demonstration sets: {dataset.demonstration_sets:,}, {dataset.sets_without_a_class:,} of them without "
            "every label"
        )
    yield f"  smallest difference of two accuracies (80% power, 5% level): {detectable_text(dataset)}"


def label_text(label: LabelRecord) -> str:
    """Return a label and its tokens as text: 'good' = 1 token [good]."""
    n = len(label.tokens)
    return f"{label.text!r} = {n} token{'s' * (n != 1)} [{' '.join(label.pieces)}]"


def detectable_text(dataset: CheckedDatasetRecord) -> str:
    """Return the detectable differences of accuracy as text, for each share of queries answered differently."""
    return ", ".join(
        f"{'none' if difference is None else f'{difference:.3f}'} where {float(share):.0%} are answered differently"
        for share, difference in dataset.detectable.items()
    )


def token_lines(record: PreflightRecord) -> Iterator[str]:
    """Yield the lines about numbers of prompts and tokens, and about memory."""
    about = "about " if record.tokenised_prompts < record.prompts else ""
    sample = f" (from {record.tokenised_prompts:,} of them)" if about else ""
    prompts = f"{plural(record.requests, 'request')}, {plural(record.prompts, 'distinct prompt')}"
    yield f"{prompts}: {about}{record.tokens:,} tokens{sample}"
    floors = ", ".join(f"{floor:,} in blocks of {size}" for size, floor in record.block_floor_tokens.items())
    yield f"  to compute, shared prefixes once: {about}{record.floor_tokens:,}; {floors}"
    if record.weight_bytes:
        weights, cache = size_text(record.weight_bytes), size_text(record.cache_bytes_per_token)
        parameters = f"; {record.n_parameters:,} parameters" if record.n_parameters else ""
        yield f"  memory: weights {weights}, cache {cache} a token{parameters}"


def _device_lines(record: PreflightRecord, utilisation: float) -> Iterator[str]:
    if not record.devices:
        return
    yield (
        f"Estimates, not measurements: {record.flop_per_token or 0:,} operations a token at {utilisation:.0%} of the "
        "device's peak, and 1 ms a request; prices by the hour as in docs/preflight.md"
    )
    width = max(map(len, record.devices))
    for name, device in record.devices.items():
        fits = "" if device.fits else "  (does not fit in its memory)"
        yield f"  {name:{width}}  {duration(device.elapsed_s):>9}  ${device.price_usd:,.2f}{fits}"


def finding_lines(findings: Sequence[FindingRecord]) -> Iterator[str]:
    """Yield a line for each warning and stop, two at most for all notes of one name, or one line for no findings."""
    if not findings:
        yield "No problem was found."
    for name, group in groupby(findings, key=lambda one: one.name):
        ones = list(group)
        first, n_others = ones[0], len(ones) - 1
        for one in ones if first.level != "note" else ones[:1]:
            yield f"{one.level.capitalize():7}  {name}: {one.about}"
        if first.level == "note" and n_others:
            also = listed([one.dataset for one in ones[1:]])
            yield f"{'':7}  {' ' * len(name)}  also found in {n_others} other dataset{'s' * (n_others > 1)}: {also}"


def duration(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours: "35 s"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listed(parts: Sequence[str], n_shown: int = MAX_SHOWN) -> str:
    """Return the first `n_shown` parts with commas between them, and the number of the others."""
    more = len(parts) - n_shown
    return ", ".join(parts[:n_shown]) + (f" and {more} other{'s' * (more > 1)}" if more > 0 else "")
