"""Turn scored requests into predictions: one row a request, method and definition."""

from collections.abc import Mapping, Sequence

import polars as pl

from evaluator.config import prompt_definition
from evaluator.errors import LabelError
from evaluator.methods.base import Method, ScoredRequests
from evaluator.schemas import PREDICTIONS, PREDICTIONS_KEY, Definition


def scored_definitions(definitions: Sequence[Definition]) -> list[Definition]:
    """Return the definitions that score different tokens: `published` differs from `released` in its metrics alone."""
    return list(dict.fromkeys("released" if name == "published" else name for name in definitions))


def predict(scored: ScoredRequests, methods: Mapping[str, Method], definitions: Sequence[Definition]) -> pl.LazyFrame:
    """Return label probabilities and predictions of each method under each definition, sorted by key.

    Args:
        scored: the scores of all requests of a run.
        methods: by name.
        definitions: of the run; only `paper` and `released` have predictions, as they score different tokens.
    """
    tables = [
        method.label_probs(scored.answering(part), definition).with_columns(
            part=pl.lit(part), method=pl.lit(name), definition=pl.lit(definition)
        )
        for name, method in methods.items()
        for definition in measured_definitions(method, definitions)
        for part, about in scored.parts.items()
        if about.kind in method.part_kinds and about.kind != "null" and definition in about.definitions
    ]
    none = pl.LazyFrame(schema=PREDICTIONS).drop("pred")
    rows = pl.concat([none, *tables], how="diagonal_relaxed")
    predictions = rows.with_columns(pred=pl.col("label_probs").list.arg_max())
    return predictions.select(pl.col(name).cast(dtype) for name, dtype in PREDICTIONS.items()).sort(PREDICTIONS_KEY)


def measured_definitions(method: Method, definitions: Sequence[Definition]) -> list[Definition]:
    """Return the requested definitions under which a run has probabilities by this method."""
    possible = {prompt_definition(definitions)} if method.prompts.differ else {*method.definitions}
    return [name for name in scored_definitions(definitions) if name in possible and name in method.definitions]


def check_labels(
    methods: Mapping[str, Method],
    definitions: Sequence[Definition],
    tokens: pl.LazyFrame,
    prompts: pl.LazyFrame,
) -> None:
    """Check, before anything is scored, that every method and definition can score all labels.

    Args:
        methods, definitions: of the run.
        tokens, prompts: schemas.TOKENS and schemas.PROMPTS of one store.

    Raises LabelError for a label with more tokens than a method allows, or labels with the same score under `released`.
    """
    limits = {name: method.max_label_tokens for name, method in methods.items() if method.max_label_tokens is not None}
    released = any("released" in method.definitions for method in methods.values())
    scores_last = released and "released" in scored_definitions(definitions)
    most = min(limits.values(), default=2**31)
    is_long = pl.col("continuations").list.eval(pl.element().list.len()).list.max() > most
    last = pl.col("continuations").list.eval(pl.element().list.last())
    is_alike = (last.list.n_unique() < last.list.len()) & scores_last
    # Without the single continuation of noisy channel, which is no label space.
    wrong = tokens.filter(pl.col("continuations").list.len() > 1, is_long | is_alike, ask="labels")
    if wrong.head(1).collect(engine="streaming").is_empty():
        return
    # Texts are joined only here, where something is wrong: joins of all prompts take much memory.
    # One row a distinct label of a distinct label space: `space`, `label`, and its `tokens`.
    labels = (
        wrong.select("prompt_id", tokens="continuations")
        .join(prompts.select("prompt_id", space="continuations"), on="prompt_id")
        .select("space", "tokens", label="space")
        .unique()
        .explode("label", "tokens")
        .sort("space", "label", maintain_order=True)
        .collect(engine="streaming")
    )
    for name, limit in limits.items():
        _refuse_long_labels(name, limit, labels)
    if scores_last:
        _refuse_equal_last_tokens(labels)


def _refuse_long_labels(method: str, limit: int, labels: pl.DataFrame) -> None:
    too_long = labels.filter(pl.col("tokens").list.len() > limit)
    if not too_long.is_empty():
        named = ", ".join(f"{row['label']!r} ({len(row['tokens'])} tokens)" for row in too_long.head(5).to_dicts())
        raise LabelError(
            f"The method {method} scores labels of at most {limit} token{'s' * (limit != 1)}, and this tokenizer makes "
            f"more of {named}. Choose other label names, or leave the method out (--methods)."
        )


def _refuse_equal_last_tokens(labels: pl.DataFrame) -> None:
    last = pl.col("tokens").list.last().alias("last")
    alike = labels.group_by("space", last, maintain_order=True).agg("label").filter(pl.col("label").list.len() > 1)
    if not alike.is_empty():
        space, _, (first, second, *_) = alike.row(0)
        raise LabelError(
            f"Labels {first!r} and {second!r} of {space} end in the same token, and the definitions `released` and "
            "`published` score the last token alone, so no score can tell them apart there. Take --definition paper, "
            "or other label names."
        )
