"""Format the record of a run for a page. Values that are missing are shown as not recorded."""

from collections.abc import Mapping
from typing import NamedTuple

from evaluator.record import EngineRecord, MeasuredRecord, ModelRecord, ThroughputRecord

KIND_WARNINGS = {
    "embedded": "This is the small model that ships here: it shows how a run goes, not what models can do.",
    "random": "This model's weights are random: every number here is chance.",
    "fake": "No model was asked: a fake engine made these numbers up, and every one of them is chance.",
}
"""Kind of model whose results say nothing about real models -> warning at the top of the page."""

STAGES = {"build": "Build", "tokenise": "Tokenise", "load": "Load model", "score": "Score", "measure": "Measure"}


class Fact(NamedTuple):
    """One line of the record; None where the run did not record it."""

    name: str
    value: str | None


class TokenCount(NamedTuple):
    """One bar of the token chart."""

    name: str
    meaning: str
    tokens: int
    times_floor: float | None
    share: float  # of the largest count


def warning(run: MeasuredRecord) -> str | None:
    """Return the warning at the top of the page, None for a real model."""
    return KIND_WARNINGS.get(run.model.kind)


def left_out_warnings(run: MeasuredRecord) -> list[str]:
    """Return a warning for each dataset that failed."""
    return [
        f"{dataset} failed and is left out of every number and every mean on this page. {reason}"
        for dataset, reason in run.left_out.items()
    ]


def headline_facts(run: MeasuredRecord) -> list[Fact]:
    """Return the main facts of a run."""
    engine = run.engine
    version = engine.versions.get(engine.name)
    return [
        Fact("Model", run.model.title),
        Fact("Revision", _revision(run.model)),
        Fact("Weights fingerprint", run.model.weights_fingerprint),
        Fact("Parameters", _text(run.model.n_parameters)),
        Fact("Engine", f"{engine.name} {version}" if version else engine.name),
        Fact("Device", engine.device),
        Fact("dtype", engine.dtype + (f", weights in {engine.quantization}" if engine.quantization else "")),
        Fact("Shots", run.prompts.shots),
        Fact("Prompts", _form(run)),
        Fact("Label boundary", run.scores.label_boundary),
        Fact("Seeds", _pairs(run.prompts.seeds)),
        Fact("Started", _time(run.started)),
        Fact("Finished", _time(run.finished)),
    ]


def record_facts(run: MeasuredRecord) -> list[tuple[str, list[Fact]]]:
    """Return the other facts needed to repeat the run, under headings."""
    prompts, scores, engine = run.prompts, run.scores, run.engine
    return [
        (
            "Prompts",
            [
                Fact("Store fingerprint", prompts.fingerprint),
                Fact("Suites", ", ".join(prompts.suites)),
                Fact("Datasets", ", ".join(name for name in prompts.datasets if name not in run.left_out)),
                *([Fact("Left out", ", ".join(run.left_out))] if run.left_out else []),
                Fact("Definition of the prompts", prompts.prompt_definition),
                Fact("Queries of each dataset", prompts.queries),
                Fact("Requests", _text(prompts.requests)),
                Fact("Distinct prompts", _text(prompts.distinct_prompts)),
            ],
        ),
        (
            "Model and engine",
            [
                Fact("Kind of model", run.model.kind),
                Fact("Context", f"{run.model.context_tokens:,} tokens" if run.model.context_tokens else "no limit"),
                Fact("Prefix-cache block", _block(engine)),
                Fact("Prompts scored", _text(scores.prompts)),
                *([Fact("Scored by earlier runs", _text(scores.reused_prompts))] if scores.reused_prompts else []),
                Fact("Throughput", f"{scores.tokens_per_s:,.1f} tokens/s" if scores.tokens_per_s else None),
                *([Fact("Arithmetic rate", arithmetic)] if (arithmetic := arithmetic_rate(scores.throughput)) else []),
                *(Fact(f"Kernel {name}", implementation) for name, implementation in sorted(scores.kernels.items())),
            ],
        ),
        ("Time", [Fact(title, _seconds(run.elapsed_s.get(stage))) for stage, title in STAGES.items()]),
        ("Versions", [Fact("evaluator", run.evaluator), *(Fact(*pair) for pair in sorted(engine.versions.items()))]),
    ]


def token_counts(run: MeasuredRecord) -> list[TokenCount]:
    """Return the token counts of a run, from all tokens of the prompts down to the fewest that must be computed."""
    tokens, scores = run.tokens, run.scores
    block = tokens.block_tokens
    counts = [
        ("All requests", "every request's tokens, repeated prompts included", tokens.request_tokens),
        ("Distinct prompts", "each prompt once, nothing shared", tokens.tokens),
        ("Sent to the engine", "contexts, and what labels of several tokens need in addition",
         scores.prompt_tokens),
        ("Computed", "sent, minus those from the prefix cache", scores.computed_tokens),
        (f"Floor in blocks of {block}" if block else "Floor in whole blocks",
         "the fewest when a cache shares whole blocks only", tokens.block_floor_tokens),
        ("Floor", "the fewest when no token is computed twice after the same prefix", tokens.floor_tokens),
    ]  # fmt: skip
    recorded = [(name, meaning, count) for name, meaning, count in counts if count is not None]
    floor, largest = tokens.floor_tokens, max(count for *_, count in recorded)
    return [
        TokenCount(name, meaning, count, count / floor if floor else None, count / largest if largest else 0.0)
        for name, meaning, count in recorded
    ]


def token_summary(run: MeasuredRecord) -> str:
    """Summarise the token counts in sentences."""
    sentences = [f"{run.prompts.requests:,} requests are {run.prompts.distinct_prompts:,} distinct prompts."]
    if run.scores.reused_prompts:
        sentences.append(f"Earlier runs had scored {run.scores.reused_prompts:,} of them.")
    if sent := run.scores.prompt_tokens:
        cached = run.scores.cached_tokens
        sentences.append(
            "The engine does not tell how many of the tokens sent came from a prefix cache."
            if cached is None
            else f"{cached / sent:.1%} of the tokens sent came from the prefix cache."
        )
    if run.scores.tokens_per_s:
        arithmetic = arithmetic_rate(run.scores.throughput)
        at = f", at {arithmetic}" if arithmetic else ""
        sentences.append(f"Scoring went through {run.scores.tokens_per_s:,.0f} tokens a second{at}.")
    return " ".join(sentences)


def arithmetic_rate(rates: ThroughputRecord) -> str | None:
    """Return the rate of floating-point operations, with its share of the devices' peak where that is known."""
    if not rates.flop_per_s:
        return None
    share = "" if rates.peak_share is None else f", {rates.peak_share:.0%} of the devices' peak (MFU)"
    return f"{rates.flop_per_s / 1e12:,.3g} TFLOP/s{share}"


def _form(run: MeasuredRecord) -> str:
    """Return in words how prompts reached the model."""
    if run.scores.chat:
        return f"through {run.scores.chat.form}, thinking {run.scores.chat.thinking}"
    return "plain, though the model has a chat template" if run.model.has_chat_template else "plain"


def _revision(model: ModelRecord) -> str | None:
    return "none, a local model" if model.revision is None and model.kind != "hub" else model.revision


def _block(engine: EngineRecord) -> str:
    if not engine.counts_cached_tokens:
        return "not known"
    tokens = engine.prefix_block_tokens
    return "none, no prefix cache" if tokens is None else f"{tokens:,} tokens"


def _text(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f} s"


def _pairs(values: Mapping[str, int]) -> str | None:
    return ", ".join(f"{name} {value:,}" for name, value in values.items()) or None


def _time(value: str) -> str:
    return value.replace("T", " ").replace("+00:00", " UTC")
