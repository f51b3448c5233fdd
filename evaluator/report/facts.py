"""run.json to lines a reader sees. What a run did not record is said to be not recorded, never left out or guessed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

MADE_HERE = {
    "embedded": "This is the small model that ships here: it shows how a run goes, not what models can do.",
    "random": "This model's weights are random: every number here is chance.",
    "fake": "No model was asked: a fake engine made these numbers up, and every one of them is chance.",
}
"""Kinds of model that nobody chose for its answers -> what must be said before any number is read."""

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


def look_up(run: Mapping[str, Any], *path: str) -> Any:
    """The value at this path of the record, or None where any step of it is absent."""
    value: Any = run
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def datasets(run: Mapping[str, Any]) -> list[str]:
    """The names of the datasets in the benchmark's order; none where they were not recorded."""
    return list(look_up(run, "store", "datasets") or ())


def commands(run: Mapping[str, Any]) -> str | None:
    """The commands that made the run, a line each, without repetitions."""
    return "\n".join(dict.fromkeys((look_up(run, "commands") or {}).values())) or None


def warning(run: Mapping[str, Any]) -> str | None:
    """What the reader must know before any number."""
    return MADE_HERE.get(look_up(run, "model", "kind"))


def headline_facts(run: Mapping[str, Any]) -> list[Fact]:
    """What was run, in the few lines that name it."""
    versions = look_up(run, "engine", "versions") or {}
    engine = look_up(run, "engine", "name")
    version = versions.get(engine) or versions.get(f"{engine}-cpu")
    return [
        Fact("Model", _text(look_up(run, "model", "name"))),
        Fact("Revision", _revision(run)),
        Fact("Weights fingerprint", _text(look_up(run, "model", "weights_fingerprint"))),
        Fact("Parameters", _text(look_up(run, "model", "n_parameters"))),
        Fact("Engine", f"{engine} {version}" if engine and version else _text(engine)),
        Fact("Device", _text(look_up(run, "engine", "device"))),
        Fact("dtype", _text(look_up(run, "engine", "dtype"))),
        Fact("Shots", _text(look_up(run, "store", "n_shots"))),
        Fact("Label boundary", _text(look_up(run, "scores", "label_boundary"))),
        Fact("Seeds", _pairs(look_up(run, "seeds"))),
        Fact("Started", _time(look_up(run, "started"))),
        Fact("Finished", _time(look_up(run, "finished"))),
    ]


def record(run: Mapping[str, Any]) -> list[tuple[str, list[Fact]]]:
    """The rest of what is needed to repeat the run, under headings."""
    store, scores, engine = (look_up(run, name) or {} for name in ("store", "scores", "engine"))
    datasets = store.get("datasets")
    return [
        (
            "Prompts",
            [
                Fact("Store fingerprint", _text(store.get("fingerprint"))),
                Fact("Suites", _names(store.get("suites"))),
                Fact("Datasets", _names(datasets)),
                Fact("Definition of the prompts", _text(store.get("prompt_definition"))),
                Fact("Queries of each dataset", _queries(store)),
                Fact("Requests", _text(store.get("requests"))),
                Fact("Distinct prompts", _text(store.get("distinct_prompts"))),
            ],
        ),
        (
            "Model and engine",
            [
                Fact("Kind of model", _text(look_up(run, "model", "kind"))),
                Fact("Context", _with_unit(look_up(run, "model", "context_tokens"), "tokens")),
                Fact("Prefix-cache block", _block(engine)),
                Fact("Prompts scored", _text(scores.get("prompts"))),
                Fact("Throughput", _with_unit(scores.get("tokens_per_s"), "tokens/s")),
            ],
        ),
        ("Time", _stage_times(run)),
        (
            "Versions",
            [
                Fact("evaluator", _text(run.get("evaluator"))),
                *(Fact(name, _text(version)) for name, version in sorted((engine.get("versions") or {}).items())),
            ],
        ),
    ]


def token_counts(run: Mapping[str, Any]) -> list[TokenCount]:
    """From all tokens of the prompts down to the fewest that must be computed; counts not recorded are left out."""
    floor = look_up(run, "store", "floor_tokens")
    block = look_up(run, "store", "block_tokens")
    counts = [
        ("All requests", "every request's tokens, repeated prompts included", look_up(run, "store", "request_tokens")),
        ("Distinct prompts", "each prompt once, nothing shared", look_up(run, "store", "tokens")),
        ("Sent to the engine", "contexts, with whatever a label of several tokens asked for besides",
         look_up(run, "scores", "prompt_tokens")),
        ("Computed", "sent, less what the prefix cache served", look_up(run, "scores", "computed_tokens")),
        (f"Floor in blocks of {block}" if block else "Floor in whole blocks",
         "the fewest when a cache shares whole blocks only", look_up(run, "store", "block_floor_tokens")),
        ("Floor", "the fewest when no token is computed twice after the same prefix", floor),
    ]  # fmt: skip
    known = [(name, meaning, tokens) for name, meaning, tokens in counts if tokens is not None]
    largest = max((tokens for *_, tokens in known), default=0)
    return [
        TokenCount(name, meaning, tokens, tokens / floor if floor else None, tokens / largest if largest else 0.0)
        for name, meaning, tokens in known
    ]


def token_summary(run: Mapping[str, Any]) -> str:
    """What the token counts come to, in as many sentences as were recorded."""
    requests, prompts = (look_up(run, "store", name) for name in ("requests", "distinct_prompts"))
    sent, cached, speed = (look_up(run, "scores", name) for name in ("prompt_tokens", "cached_tokens", "tokens_per_s"))
    sentences = []
    if requests is not None and prompts is not None:
        sentences.append(f"{requests:,} requests are {prompts:,} distinct prompts.")
    if sent and cached is not None:
        sentences.append(f"{cached / sent:.1%} of the tokens sent came from the prefix cache.")
    if speed:
        sentences.append(f"Scoring went through {speed:,.0f} tokens a second.")
    return " ".join(sentences)


def _stage_times(run: Mapping[str, Any]) -> list[Fact]:
    elapsed = run.get("elapsed_s") or {}
    return [Fact(title, _with_unit(elapsed.get(stage), "s")) for stage, title in STAGES.items()]


def _revision(run: Mapping[str, Any]) -> str | None:
    named = _text(look_up(run, "model", "revision"))
    local = look_up(run, "model", "kind") in ("folder", *MADE_HERE)
    return "none, a local model" if named is None and local else named


def _queries(store: Mapping[str, Any]) -> str | None:
    # The record holds null where every query was asked for, which is not the same as holding nothing.
    every = "n_queries" in store and store["n_queries"] is None
    return "the whole test split" if every else _text(store.get("n_queries"))


def _block(engine: Mapping[str, Any]) -> str | None:
    cacheless = "prefix_block_tokens" in engine and engine["prefix_block_tokens"] is None
    return "none, no prefix cache" if cacheless else _with_unit(engine.get("prefix_block_tokens"), "tokens")


def _text(value: Any) -> str | None:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return None if value is None else str(value)


def _with_unit(value: Any, unit: str) -> str | None:
    return None if value is None else f"{_text(value)} {unit}"


def _names(values: Any) -> str | None:
    return ", ".join(str(value) for value in values) if values else None


def _pairs(values: Any) -> str | None:
    return ", ".join(f"{name} {value}" for name, value in values.items()) if values else None


def _time(value: Any) -> str | None:
    return str(value).replace("T", " ").replace("+00:00", " UTC") if value else None
