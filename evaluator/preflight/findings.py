"""Name what a check before a run can find, and refuse what would spoil results."""

from collections.abc import Collection, Iterable, Iterator

from evaluator.errors import ConfigError, unknown_name
from evaluator.models.source import ModelSource
from evaluator.record import FindingLevel, FindingRecord

FINDINGS: dict[str, tuple[FindingLevel, str]] = {
    "unscorable-labels": ("stop", "labels whose tokens are identical, or that a method of the run cannot score"),
    "prompts-over-context": ("stop", "prompts that are longer, with their longest label, than the model's context"),
    "class-without-queries": ("stop", "a label that no row of the test split has"),
    "class-not-drawn": ("warning", "a label that the test split has, and none of the queries of --queries"),
    "label-begins-label": ("warning", "a label whose tokens are the beginning of another's: the longer one never wins"),
    "repeated-bos": ("warning", "prompts that begin with BOS twice"),
    "engines-differ": ("warning", "a model for which vLLM and transformers compute something else"),
    "imbalanced-classes": ("warning", "a class of four fifths of the queries or more"),
    "first-token-shared": ("note", "labels that begin with the same token"),
    "trailing-space": ("note", "prompts that end in a space, which becomes a token of its own, or labels that do"),
    "chat-template-unused": ("note", "the tokenizer has a chat template, and prompts are sent without it"),
    "demonstrations-lack-class": ("note", "demonstration sets that do not show every class"),
}
"""Finding -> its level and meaning."""

LEAVES_OUT = ("unscorable-labels", "prompts-over-context")
"""Findings with which a dataset cannot be scored: where they are accepted, a run goes on with the others."""

MAJORITY_SHARE = 0.8
"""Share of queries from which one class counts as imbalance; a convention."""


def finding(name: str, text: str, dataset: str = "") -> FindingRecord:
    """Return a finding with the level of its name."""
    return FindingRecord(name=name, level=FINDINGS[name][0], dataset=dataset, text=text)


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
