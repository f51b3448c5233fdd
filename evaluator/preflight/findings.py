"""Name what a check before a run can find, and refuse what would spoil results."""

import logging
from collections.abc import Collection, Iterable, Iterator

from evaluator.errors import ConfigError, unknown_name
from evaluator.models.source import ModelSource
from evaluator.record import FindingLevel, FindingRecord

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
    "changed-prompts": (
        "warning",
        "prompts whose tokens say something else: unknown tokens, lost characters",
    ),
    "unwritten-thought": ("warning", "a chat template that opens answers with a thought, which labels do not follow"),
    "similar-labels": ("warning", "labels that differ only in case, white space or forms of the same characters"),
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
"""Findings with which a dataset cannot be scored: where they are accepted, a run goes on with the others."""

SHOWN_AT_START = (
    "missing-bos", "repeated-bos", "control-tokens", "changed-labels", "changed-prompts", "unwritten-thought",
    "similar-labels",
)  # fmt: skip
"""Findings of what changes a measurement, of which a run warns before it scores."""

MAJORITY_SHARE = 0.8
"""Share of queries from which one class counts as imbalance; a convention."""


def finding(name: str, text: str, dataset: str = "") -> FindingRecord:
    """Return a finding with the level of its name."""
    return FindingRecord(name=name, level=FINDINGS[name][0], dataset=dataset, text=text)


def warn(findings: Iterable[FindingRecord], model: str) -> None:
    """Log the findings of SHOWN_AT_START; `model` is named, as a run may have several."""
    for one in findings:
        if one.name in SHOWN_AT_START:
            where = f"{model}, {one.dataset}" if one.dataset else model
            logger.warning("%s: %s: %s", one.name, where, one.text)


def in_order(findings: Iterable[FindingRecord]) -> list[FindingRecord]:
    """Return findings in the order of FINDINGS, those of a dataset as they come."""
    return sorted(findings, key=lambda one: list(FINDINGS).index(one.name))


def check_accepted(names: Collection[str]) -> None:
    """Raise ConfigError for a name in --accept that no finding has."""
    for name in names:
        if name not in FINDINGS:
            raise ConfigError(unknown_name("--accept: there is no finding", name, FINDINGS))


def require_accepted(findings: Iterable[FindingRecord], accepted: Collection[str]) -> None:
    """Raise ConfigError for the first finding that stops a run and is not accepted, with how many others there are."""
    stopping = [one for one in findings if one.level == "stop" and one.name not in accepted]
    if not stopping:
        return
    first, others = stopping[0], len(stopping) - 1
    more = f" (and {others} more: `evaluator preflight` lists them)" if others else ""
    where = f"{first.dataset}: " if first.dataset else ""
    kept = "leaves the dataset out" if first.name in LEAVES_OUT else "measures it as it is"
    raise ConfigError(f"{where}{first.text} Nothing was scored{more}; --accept {first.name} {kept}.")


def engine_findings(source: ModelSource) -> Iterator[FindingRecord]:
    """Yield a finding for a model whose scores depend on the engine by more than rounding.

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
