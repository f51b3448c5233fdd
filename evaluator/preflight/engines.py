"""Warn of models for which vLLM and transformers compute something else (docs/models.md)."""

from collections.abc import Iterator

from evaluator.models.source import ModelSource
from evaluator.preflight.findings import finding
from evaluator.record import FindingRecord


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
