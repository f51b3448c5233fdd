"""Resolve the models of a run: their files, their devices, and how prompts become tokens for each.

Find the chat template that a run puts its prompts through, or none. Tokenise the prompts for a model, and find the
datasets that it cannot score.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import polars as pl

from evaluator.config import NO_TEMPLATE, OWN_TEMPLATE, ChatConfig, Definition, LabelBoundary, ModelConfig, RunConfig
from evaluator.engine import ENGINES, engine_name, find_source, with_devices
from evaluator.errors import ConfigError, LabelError, PromptTooLongError
from evaluator.files.digests import fingerprint
from evaluator.files.whole import read_bytes, reason
from evaluator.methods.base import check_labels
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import ModelSource
from evaluator.models.weights import last_part
from evaluator.progress import Stage
from evaluator.record import AdapterRecord, ModelKind, ModelRecord
from evaluator.run.build import Built
from evaluator.run.folders import lock_folder
from evaluator.run_log import seconds_since
from evaluator.scores.table import check_prompt_lengths, check_vocabulary
from evaluator.store import PromptStore
from evaluator.suites import SUITES, chosen_methods, default_label_boundary
from evaluator.tokens.boundary import tokens_around
from evaluator.tokens.chat import ChatForm
from evaluator.tokens.table import TokenTable, tokenise, tokenise_store

T = TypeVar("T")

logger = logging.getLogger(__name__)


def chat_form(source: ModelSource, chat: ChatConfig | None) -> ChatForm | None:
    """Return the chat template of a run, None for plain prompts.

    With "auto", a model without a template gets plain prompts, and a warning says so; without a ChatConfig, a warning
    says that a model has a template which is not applied.

    Raises ConfigError for a file that cannot be read, ModelError for no default among several templates, and for one
    that refuses conversations.
    """
    if chat is None and source.has_chat_template:
        logger.warning(
            "%s has a chat template, and its prompts are plain, as those of published numbers are. Apply it with "
            "--chat-template auto, or compare both with --chat-template none,auto.",
            source.name,
        )
    if chat is None or chat.template == NO_TEMPLATE:
        return None
    if chat.template == OWN_TEMPLATE and not source.has_chat_template:
        without = "" if chat.system_instruction is None else ", without --system-instruction"
        logger.warning("%s has no chat template, so that its prompts are plain%s.", source.name, without)
        return None
    tokenizer = source.transformers_tokenizer
    form = ChatForm(
        model=source.name,
        tokenizer=tokenizer,
        template=source.own_chat_template if chat.template == OWN_TEMPLATE else _template_in(chat.template),
        source=chat.template,
        demonstrations=chat.demonstrations,
        system_instruction=chat.system_instruction,
        bos=(tokenizer.bos_token or "") if source.add_bos else "",
    )
    form.check()
    return form


def _template_in(name: str) -> str:
    path = Path(os.path.expanduser(name))
    try:
        return read_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"--chat-template {name}: the file cannot be read ({reason(error)}). Give auto, none or a Jinja file."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--chat-template {name}: not a text in UTF-8. Give auto, none or a Jinja file.") from error


class PromptForm(NamedTuple):
    """How prompts become tokens."""

    boundary: LabelBoundary
    chat: ChatForm | None = None  # None: plain prompts


class ResolvedModel(NamedTuple):
    """A model, how to load it, and the form in which prompts reach it."""

    source: ModelSource
    config: ModelConfig
    form: PromptForm

    @property
    def has_no_template(self) -> bool:
        """Whether the model's own template was wanted and there is none."""
        chat = self.config.chat
        return chat is not None and chat.template == OWN_TEMPLATE and self.form.chat is None

    @property
    def title(self) -> str:
        """The model's name, of one that ships as `--model` names it, followed by that of its adapter."""
        shipped = self.config.model in EMBEDDED_MODELS
        return self.source.title.replace(self.source.name, self.config.model, 1) if shipped else self.source.title

    @property
    def tokens_in_front(self) -> int:
        """The number of tokens in front of every prompt; a chat template writes its own, except for --add-bos."""
        return int(self.source.add_bos) if self.form.chat else tokens_around(self.source.tokenizer)[0]

    @property
    def record(self) -> ModelRecord:
        """The record of the model. Its `kind` tells a reader whether the scores can mean anything."""
        source, name = self.source, self.config.model
        adapter = source.adapter
        lora = AdapterRecord(name=adapter.name, rank=adapter.rank, fingerprint=adapter.fingerprint) if adapter else None
        kind: ModelKind = "hub" if source.revision else "folder"
        if not ENGINES[engine_name(self.config)].runs_a_model:
            kind = "fake"
        elif name in ("embedded", "random"):
            kind = cast(ModelKind, name)
        return ModelRecord(
            name=name if kind in EMBEDDED_MODELS else source.name,
            kind=kind,
            revision=source.revision,
            weights_fingerprint=source.fingerprint,
            tokenizer_fingerprint=source.tokenizer_fingerprint,
            n_parameters=source.n_parameters,
            context_tokens=source.context_length,
            tokens_in_front=self.tokens_in_front,
            has_chat_template=source.has_chat_template,
            flop_per_token=source.size.flop_per_token if source.size else None,
            quantization=(source.quantization or {}).get("quant_method"),
            adapter=lora,
        )


def resolve_model(config: RunConfig, model: ModelConfig) -> ResolvedModel:
    """Find a model, its devices and its chat template, if prompts go through one. Raises ModelError or ConfigError."""
    source = find_source(model)
    model = with_chat(config, model, source)
    form = prompt_form(config, model, source)
    return ResolvedModel(source, with_devices(source, model), form)


def with_chat(config: RunConfig, model: ModelConfig, source: ModelSource) -> ModelConfig:
    """Return the configuration with the template of an instruct model, for own data and without --chat-template."""
    word = source.instruct_word if source.has_chat_template else None
    is_asked_alike = all(not SUITES[name].is_exclusive for name in config.suites)  # others have forms of their own
    if model.chat or word is None or not config.is_own_data or not is_asked_alike:
        return model
    logger.warning(
        "%s is an instruct model (%r in its name or card), so its prompts go through its chat template. "
        "--chat-template none leaves them plain, none,auto compares both.",
        source.name,
        word,
    )
    return replace(model, chat=ChatConfig(template=OWN_TEMPLATE))


def prompt_form(config: RunConfig, model: ModelConfig, source: ModelSource) -> PromptForm:
    """Describe the way from prompts to tokens. Conversations and own data have labels tokenised in place by default.

    Raises as chat_form does.
    """
    chat = chat_form(source, model.chat)
    in_place: LabelBoundary | None = "merged" if chat or config.is_own_data else None
    return PromptForm(model.label_boundary or in_place or default_label_boundary(config.suites), chat)


def resolve_models(config: RunConfig, models: Sequence[ModelConfig]) -> list[ResolvedModel]:
    """Find models; with plain prompts once where the chat template is wanted as well and there is none.

    Raises ConfigError if one of several is left or two are the same, and as resolve_model does.
    """
    resolved = [resolve_model(config, model) for model in models]
    plain = {(one.source.title, one.config.dtype) for one in resolved if not one.form.chat and not one.has_no_template}
    kept = [one for one in resolved if not (one.has_no_template and (one.source.title, one.config.dtype) in plain)]
    if len(kept) < min(2, len(models)):
        raise ConfigError(
            f"{kept[0].source.name} has no chat template, so it can only be evaluated with plain prompts. "
            "Leave --chat-template out, or name a file."
        )
    for first, second in combinations(kept, 2):
        # Weights of the same size alone are compared by their hashes, which take long the first time.
        if first.source.weight_bytes == second.source.weight_bytes and _identity(first) == _identity(second):
            raise ConfigError(
                f"{first.title} and {second.title} are the same model: weights "
                f"{first.source.fingerprint}, in the same form. Name it once."
            )
    # Models of one base are loaded with the adapters of all, so that one engine scores with each.
    found = []
    for same in of_one_load(kept, key=lambda one: one):
        adapters = tuple(dict.fromkeys(one.source.adapter for one in same if one.source.adapter))
        found += [one._replace(source=replace(one.source, adapters=adapters)) if adapters else one for one in same]
    return found


def _identity(one: ResolvedModel) -> tuple[object, ...]:
    chat = one.form.chat
    return one.source.fingerprint, one.config.dtype, one.config.quantization, chat and chat.fingerprint


def model_folders(resolved: Sequence[ResolvedModel]) -> list[str]:
    """Return a folder name for each model: the end of its name, with that of its adapter after it, "-chat" if prompts
    go through a chat template, and part of its fingerprint, then of the template's, if two names are equal.
    """
    names = [_folder_name(one) for one in resolved]
    for digest_of in (attrgetter("source.fingerprint"), lambda one: fingerprint(*_identity(one))):
        names = [
            name if names.count(name) == 1 else f"{name}-{digest_of(one)[:8]}"
            for name, one in zip(names, resolved, strict=True)
        ]
    return names


def _folder_name(one: ResolvedModel) -> str:
    is_shipped = one.config.model in EMBEDDED_MODELS  # whose source is a folder called "model"
    name = one.config.model if is_shipped else last_part(one.source.name)
    adapter, chat = one.source.adapter, one.form.chat
    if adapter is not None:
        name += f"-{last_part(adapter.name)}"
    if chat is not None:
        name += "-chat" if chat.source == OWN_TEMPLATE else f"-chat-{Path(chat.source).stem}"
    return re.sub(r"[^\w.-]+|^\.+$", "--", name)  # "." and ".." would be other folders


def of_one_load(items: Sequence[T], key: Callable[[T], ResolvedModel]) -> Iterator[list[T]]:
    """Yield neighbours whose models are one base, loaded alike: they differ in adapters and in forms of prompts."""

    def load(item: T) -> tuple[Path, ModelConfig]:
        one = key(item)
        return one.source.folder, replace(one.config, adapter=None, chat=None, label_boundary=None)

    for _, same in groupby(items, key=load):
        yield list(same)


class Tokenised(NamedTuple):
    """The tokens of the datasets that a model can score, and why it cannot score the others."""

    table: TokenTable | None  # None: it can score no dataset
    refused: Mapping[str, LabelError | PromptTooLongError]
    elapsed_s: float  # that tokenising and checking them took


def tokenise_scorable(built: Built, store: PromptStore, resolved: ResolvedModel) -> Stage[Tokenised]:
    """Tokenise the datasets of a store that a model can score."""
    clock = time.monotonic()
    table: TokenTable | None = None
    refused: dict[str, LabelError | PromptTooLongError] = {}
    _check_turns(store, resolved.form)
    try:
        table = yield from _tokenise(built, store, resolved)
    except (LabelError, PromptTooLongError):
        datasets = store.requests().select(pl.col("dataset").unique().sort()).collect()["dataset"].to_list()
        refused = _refusals(built, store, resolved, datasets)
        if not refused:
            raise
        if len(refused) < len(datasets):
            table = yield from _tokenise(built, store.without(refused), resolved)
    return Tokenised(table, refused, seconds_since(clock))


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


def _refusals(
    built: Built, store: PromptStore, resolved: ResolvedModel, datasets: Sequence[str]
) -> dict[str, LabelError | PromptTooLongError]:
    """Return the datasets that cannot be scored, with the reason."""
    form, refused = resolved.form, dict[str, LabelError | PromptTooLongError]()
    for dataset in datasets:
        alone = store.without(other for other in datasets if other != dataset)
        try:
            tokens = tokenise(resolved.source.tokenizer, alone.prompts().collect(), form.boundary, form.chat)
            _check_tokens(built, alone, tokens.lazy(), resolved.source)
        except LabelError as error:
            refused[dataset] = _explained(error, built, alone)
        except PromptTooLongError as error:
            refused[dataset] = error
    return refused


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
    _check_tokens(built, store, table.tokens(), source)
    return table


def _explained(error: LabelError, built: Built, store: PromptStore) -> LabelError:
    return SUITES[built.config.suites[0]].plan.explain(error, store)


def _check_tokens(built: Built, store: PromptStore, tokens: pl.LazyFrame, source: ModelSource) -> None:
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
