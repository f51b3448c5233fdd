"""Tokenise the prompts of a run, and find the datasets that a model cannot score."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from evaluator.config import Definition
from evaluator.errors import ConfigError, LabelError, PromptTooLongError
from evaluator.methods.base import check_labels
from evaluator.models.source import ModelSource
from evaluator.progress import Stage
from evaluator.run.build import Built
from evaluator.run.folders import lock_folder
from evaluator.run.resolved_models import PromptForm, ResolvedModel
from evaluator.schemas import TOKENS
from evaluator.scores.table import check_prompt_lengths, check_vocabulary
from evaluator.store import PromptStore
from evaluator.suites import SUITES, chosen_methods
from evaluator.tokens.boundary import TextFault
from evaluator.tokens.rows import TokenTotals
from evaluator.tokens.table import TokenTable, tokenise, tokenise_store

BLOCK_TOKENS = "16"  # of the floor that estimates are made from: vLLM's prefix cache on a GPU


class Examined(NamedTuple):
    """The tokens of all prompts that can be scored."""

    tokens: pl.LazyFrame  # schemas.TOKENS, a row a prompt
    counts: TokenTotals
    refused: Mapping[str, LabelError | PromptTooLongError]  # dataset that cannot be scored -> why
    faults: Sequence[TextFault] = ()  # differences between prompts and their tokens


def examine(built: Built, resolved: ResolvedModel) -> Stage[Examined]:
    """Tokenise all prompts; the tokens stay in the store, where scoring finds them."""
    try:
        table, refused = yield from tokenise_scorable(built, built.store, resolved)
    except (LabelError, PromptTooLongError):
        refused = refusals(built, built.store, resolved)
        if not refused:
            raise
        nothing = TokenTotals(request_tokens=0, tokens=0, floor_tokens=0, block_floor_tokens={BLOCK_TOKENS: 0})
        return Examined(pl.LazyFrame(schema=TOKENS), nothing, refused)
    tokens = table.tokens().filter(pl.col("ask") != "last_tokens")
    return Examined(tokens, table.manifest.counts, refused, table.manifest.faults)


def tokenise_scorable(
    built: Built, store: PromptStore, resolved: ResolvedModel
) -> Stage[tuple[TokenTable, dict[str, LabelError | PromptTooLongError]]]:
    """Tokenise the datasets of a store that can be scored; also return the others, each with the reason.

    Raises the first error where no dataset can be scored.
    """
    _check_turns(store, resolved.form)
    try:
        return (yield from _tokenise(built, store, resolved)), {}
    except (LabelError, PromptTooLongError):
        refused = refusals(built, store, resolved)
        if refused.keys() >= built_datasets(store):
            raise
        return (yield from _tokenise(built, store.without(refused), resolved)), refused


def _check_turns(store: PromptStore, form: PromptForm) -> None:
    """Raise ConfigError for demonstrations that are to be turns and whose places in the prompt are not known."""
    if form.chat is None or form.chat.demonstrations != "turns":
        return
    shown = store.requests_with_prompts().filter(pl.col("n_shots") > pl.col("spans").list.len().cast(pl.Int64) - 1)
    first = shown.select("dataset").head(1).collect()
    if not first.is_empty():
        raise ConfigError(
            f"The demonstrations of {first.item()} are a published text that does not say where each begins, so they "
            "cannot be turns. Choose --chat-demonstrations message."
        )


def refusals(built: Built, store: PromptStore, resolved: ResolvedModel) -> dict[str, LabelError | PromptTooLongError]:
    """Return the datasets that cannot be scored, with the reason."""
    form, datasets = resolved.form, sorted(built_datasets(store))
    refused: dict[str, LabelError | PromptTooLongError] = {}
    for dataset in datasets:
        alone = store.without(other for other in datasets if other != dataset)
        try:
            tokens = tokenise(resolved.source.tokenizer, alone.prompts().collect(), form.boundary, form.chat)
            check_tokens(built, alone, tokens.lazy(), resolved.source)
        except LabelError as error:
            refused[dataset] = _explained(error, built, alone)
        except PromptTooLongError as error:
            refused[dataset] = error
    return refused


def built_datasets(store: PromptStore) -> set[str]:
    """Return the datasets that have requests."""
    return {*store.requests().select("dataset").unique().collect()["dataset"]}


def _tokenise(built: Built, store: PromptStore, resolved: ResolvedModel) -> Stage[TokenTable]:
    """Tokenise a store, and check that no prompt is too long for the model and that labels can be distinguished."""
    source, form = resolved.source, resolved.form
    lock = yield from lock_folder(store.folder / "tokens")
    with lock:
        try:
            table = yield from tokenise_store(
                store, source.tokenizer, source.tokenizer_fingerprint, form.boundary, _definitions(built), form.chat
            )
        except LabelError as error:
            raise _explained(error, built, store) from error
    check_tokens(built, store, table.tokens(), source)
    return table


def _explained(error: LabelError, built: Built, store: PromptStore) -> LabelError:
    return SUITES[built.config.suites[0]].plan.explain(error, store)


def check_tokens(built: Built, store: PromptStore, tokens: pl.LazyFrame, source: ModelSource) -> None:
    """Raise PromptTooLongError for prompts over the context, LabelError for labels that a method cannot score.

    Raises VocabularyError for tokens without an embedding.
    """
    check_prompt_lengths(tokens, store.prompts(), source.context_length)
    check_vocabulary(tokens, store.prompts(), source.tokenizer, source.vocab_size)
    check_labels(chosen_methods(built.config), _definitions(built), tokens, store.prompts())


def _definitions(built: Built) -> list[Definition]:
    """Return the definitions that some part of the run is measured under."""
    parts = (part for parts in built.parts.values() for part in parts.values())
    return list(dict.fromkeys(name for part in parts for name in part.definitions))
