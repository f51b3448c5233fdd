"""Format the record of a run for a page. Values that are missing are shown as not recorded."""

import polars as pl

from evaluator.record import EngineRecord, MeasuredRecord, ModelRecord, ThroughputRecord

KIND_WARNINGS = {
    "embedded": "This is the small model that ships here: it shows how a run goes, not what models can do.",
    "random": "This model's weights are random: every number here is chance.",
    "fake": "No model was asked: a fake engine made these numbers up, and every one of them is chance.",
}
"""Kind of model whose results say nothing about real models -> warning at the top of the page."""

STAGES = {"build": "Build", "tokenise": "Tokenise", "load": "Load model", "score": "Score", "measure": "Measure"}


Facts = dict[str, str | None]
"""Names and values of facts; None where a run did not record a fact."""


def warning(run: MeasuredRecord) -> str | None:
    """Return the warning at the top of the page, None for a real model."""
    return KIND_WARNINGS.get(run.model.kind)


def left_out_warnings(run: MeasuredRecord) -> list[str]:
    """Return a warning for each dataset that failed."""
    return [
        f"{dataset} failed and is left out of every number and every mean on this page. {reason}"
        for dataset, reason in run.left_out.items()
    ]


def headline_facts(run: MeasuredRecord) -> Facts:
    """Return the main facts of a run."""
    engine = run.engine
    version = engine.versions.get(engine.name)
    return {
        "Model": run.model.title,
        "Revision": _revision(run.model),
        "Weights fingerprint": run.model.weights_fingerprint,
        "Parameters": _count(run.model.n_parameters),
        "Engine": f"{engine.name} {version}" if version else engine.name,
        "Device": engine.device,
        "dtype": engine.dtypes,
        "Shots": run.prompts.shots,
        "Prompts": _form(run),
        "Label boundary": run.scores.label_boundary,
        "Seeds": ", ".join(f"{name} {value:,}" for name, value in run.prompts.seeds.items()) or None,
        "Started": _time(run.started),
        "Finished": _time(run.finished),
    }


def record_facts(run: MeasuredRecord) -> dict[str, Facts]:
    """Return the other facts needed to repeat the run, by heading."""
    prompts, scores, engine = run.prompts, run.scores, run.engine
    arithmetic = arithmetic_rate(scores.throughput)
    return {
        "Prompts": {
            "Store fingerprint": prompts.fingerprint,
            "Suites": ", ".join(prompts.suites),
            "Datasets": ", ".join(name for name in prompts.datasets if name not in run.left_out),
            **({"Left out": ", ".join(run.left_out)} if run.left_out else {}),
            "Definition of the prompts": prompts.prompt_definition,
            "Queries of each dataset": prompts.queries,
            "Requests": _count(prompts.requests),
            "Distinct prompts": _count(prompts.distinct_prompts),
        },
        "Model and engine": {
            "Kind of model": run.model.kind,
            "Context": context_text(run.model.context_tokens),
            "Prefix-cache block": _block(engine),
            "Prompts scored": _count(scores.prompts),
            **({"Scored by earlier runs": _count(scores.reused_prompts)} if scores.reused_prompts else {}),
            "Throughput": f"{scores.tokens_per_s:,.1f} tokens/s" if scores.tokens_per_s else None,
            **({"Arithmetic rate": arithmetic} if arithmetic else {}),
            **{f"Kernel {name}": implementation for name, implementation in sorted(scores.kernels.items())},
        },
        "Time": {title: _seconds(run.elapsed_s.get(stage)) for stage, title in STAGES.items()},
        "Versions": {"evaluator": run.evaluator, **dict(sorted(engine.versions.items()))},
    }


def context_text(tokens: int | None) -> str:
    """Return the length of a model's context in words."""
    return f"{tokens:,} tokens" if tokens else "no limit"


def token_counts(run: MeasuredRecord) -> pl.DataFrame:
    """Return the token counts of a run, from all tokens of the prompts down to the fewest that must be computed.

    Returns:
        name, meaning, tokens, times_floor (tokens as a multiple of the floor) and share (of the largest count).
    """
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
    schema = {"name": pl.String, "meaning": pl.String, "tokens": pl.Int64}
    counted = pl.DataFrame(counts, schema=schema, orient="row").filter(pl.col("tokens").is_not_null())
    floor = tokens.floor_tokens or None
    return counted.with_columns(
        times_floor=pl.col("tokens") / pl.lit(floor, pl.Float64),
        share=(pl.col("tokens") / pl.col("tokens").max()).fill_nan(0.0),
    )


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


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f} s"


def _time(value: str) -> str:
    return value.replace("T", " ").replace("+00:00", " UTC")
