"""Resolve the models of a run: their files, their devices, their chat templates, and how prompts become tokens.

Tokenise the prompts for a model, and find the datasets that the model cannot score.
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
from evaluator.engine import ENGINES, engine_identity, engine_name, find_source, with_devices
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
    """Return the chat template to apply to the prompts; None: prompts stay plain.

    If the template is "auto" and the model has none, prompts stay plain, and a warning is logged. If `chat` is None and
    the model has a template, a warning says that it is not applied.

    Raises ConfigError for a template file that cannot be read, ModelError if the model has several templates and no
    default, or if the template refuses conversations.
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
    """How prompts become tokens: where a label begins, and the chat template."""

    boundary: LabelBoundary
    chat: ChatForm | None = None  # None: plain prompts


class ResolvedModel(NamedTuple):
    """A model's files, the configuration to load it, and the form of its prompts."""

    source: ModelSource
    config: ModelConfig
    form: PromptForm

    @property
    def has_no_template(self) -> bool:
        """Return whether the model's own chat template is requested but the model has none."""
        chat = self.config.chat
        return chat is not None and chat.template == OWN_TEMPLATE and self.form.chat is None

    @property
    def title(self) -> str:
        """Return the name of the model (of a shipped model, the word for `--model`), then the name of its adapter."""
        shipped = self.config.model in EMBEDDED_MODELS
        return self.source.title.replace(self.source.name, self.config.model, 1) if shipped else self.source.title

    @property
    def tokens_in_front(self) -> int:
        """Return the number of tokens that are put in front of every prompt, such as BOS.

        A chat template writes its special tokens itself: then only the BOS of --add-bos counts.
        """
        return int(self.source.add_bos) if self.form.chat else tokens_around(self.source.tokenizer)[0]

    @property
    def record(self) -> ModelRecord:
        """Return the record of the model. Its `kind` tells a reader whether the scores can mean anything."""
        source, name, tokens_in_front = self.source, self.config.model, self.tokens_in_front
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
            tokens_in_front=tokens_in_front,
            has_chat_template=source.has_chat_template,
            flop_per_token=source.size.flop_per_token if source.size else None,
            quantization=(source.quantization or {}).get("quant_method"),
            adapter=lora,
        )


def resolve_model(config: RunConfig, model: ModelConfig, *, needs_weights: bool = True) -> ResolvedModel:
    """Find a model, its devices and its chat template, if prompts go through one. Raises ModelError or ConfigError.

    Without `needs_weights`, for the checks before a run, devices are not looked up.
    """
    source = find_source(model, needs_weights=needs_weights)
    model = with_chat(config, model, source)
    if needs_weights:
        return ResolvedModel(source, with_devices(source, model), prompt_form(config, model, source))
    # Without a ChatConfig, an unused chat template would also be logged; the findings report it already.
    return ResolvedModel(source, model, prompt_form(config, replace(model, chat=model.chat or ChatConfig()), source))


def with_chat(config: RunConfig, model: ModelConfig, source: ModelSource) -> ModelConfig:
    """Apply the chat template of an instruct model to the user's own data, unless --chat-template is given."""
    word = source.instruct_word if source.has_chat_template else None
    is_asked_alike = all(not SUITES[name].is_exclusive for name in config.suites)  # others define the form
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
    """Return the chat template and the label boundary of a run's prompts. Raises as chat_form does.

    By default, labels of conversations and of the user's own data are tokenised in place ("merged").
    """
    chat = chat_form(source, model.chat)
    in_place: LabelBoundary | None = "merged" if chat or config.is_own_data else None
    return PromptForm(model.label_boundary or in_place or default_label_boundary(config.suites), chat)


def resolve_models(config: RunConfig, models: Sequence[ModelConfig]) -> list[ResolvedModel]:
    """Resolve the models of a run.

    Raises ConfigError if two are the same, and as with_forms and resolve_model do.
    """
    kept = with_forms([resolve_model(config, model) for model in models])
    for first, second in combinations(kept, 2):
        _require_own_server(first, second)
        # Hashing takes long the first time: only models with weights of the same size are compared by hashes.
        if first.source.weight_bytes == second.source.weight_bytes and _identity(first) == _identity(second):
            raise ConfigError(
                f"{first.title} and {second.title} are the same model: weights "
                f"{first.source.fingerprint}, in the same form. Name it once."
            )
    # Models with the same base are loaded with all their adapters, so that one engine can score with each adapter.
    found = []
    for same in of_one_load(kept, key=lambda one: one):
        adapters = tuple(dict.fromkeys(one.source.adapter for one in same if one.source.adapter))
        found += [one._replace(source=replace(one.source, adapters=adapters)) if adapters else one for one in same]
    return found


def with_forms(resolved: Sequence[ResolvedModel]) -> list[ResolvedModel]:
    """Return models in the forms in which they can be asked.

    If plain prompts and the chat template of a model are requested and the model has no template, it is kept once, with
    plain prompts. Raises ConfigError if only one of several remains.
    """
    plain = {(one.source.title, one.config.dtype) for one in resolved if not one.form.chat and not one.has_no_template}
    kept = [one for one in resolved if not (one.has_no_template and (one.source.title, one.config.dtype) in plain)]
    if len(kept) < min(2, len(resolved)):
        raise ConfigError(
            f"{kept[0].source.name} has no chat template, so it can only be evaluated with plain prompts. "
            "Leave --chat-template out, or name a file."
        )
    return kept


def _require_own_server(first: ResolvedModel, second: ResolvedModel) -> None:
    """Raise ConfigError if servers would score two different models by one served model."""
    if engine_name(first.config) != "server" or first.source.folder == second.source.folder:
        return
    served, other = (engine_identity(one.source, one.config).served_name for one in (first, second))
    if served == other:
        raise ConfigError(
            f"The servers would score both {first.title} and {second.title} by the model that they serve as {served}. "
            "Serve each by the name that --model has, or run once for each model."
        )


def _identity(one: ResolvedModel) -> tuple[object, ...]:
    chat = one.form.chat
    return one.source.fingerprint, one.config.dtype, one.config.quantization, chat and chat.fingerprint


def model_folders(resolved: Sequence[ResolvedModel]) -> list[str]:
    """Return a distinct folder name for each model.

    A name has the last part of the model's name, the last part of its adapter's name, and "-chat" if prompts go through
    a chat template. Equal names get digits of the weights' fingerprint; if they are still equal, digits of a
    fingerprint of weights, dtype, quantisation and template.
    """
    names = [_folder_name(one) for one in resolved]
    for digest_of in (attrgetter("source.fingerprint"), lambda one: fingerprint(*_identity(one))):
        names = [
            name if names.count(name) == 1 else f"{name}-{digest_of(one)[:8]}"
            for name, one in zip(names, resolved, strict=True)
        ]
    return names


def _folder_name(one: ResolvedModel) -> str:
    is_shipped = one.config.model in EMBEDDED_MODELS  # the source of a shipped model is a folder called "model"
    name = one.config.model if is_shipped else last_part(one.source.name)
    adapter, chat = one.source.adapter, one.form.chat
    if adapter is not None:
        name += f"-{last_part(adapter.name)}"
    if chat is not None:
        name += "-chat" if chat.source == OWN_TEMPLATE else f"-chat-{Path(chat.source).stem}"
    return re.sub(r"[^\w.-]+|^\.+$", "--", name)  # "." and ".." would be other folders


def of_one_load(items: Sequence[T], key: Callable[[T], ResolvedModel]) -> Iterator[list[T]]:
    """Yield groups of neighbouring items that one loaded engine can serve.

    Their models have the same base and settings, and may differ in adapter, chat template and label boundary.

    Args:
        items: items in order.
        key: returns the model of an item.
    """

    def load(item: T) -> tuple[Path, dict[str, object]]:
        one = key(item)
        return one.source.folder, vars(one.config) | dict.fromkeys(("adapter", "chat", "label_boundary"))

    for _, same in groupby(items, key=load):
        yield list(same)


class Tokenised(NamedTuple):
    """The tokens of the datasets that a model can score, and the reasons why it cannot score the others."""

    table: TokenTable | None  # None: the model can score no dataset
    refused: Mapping[str, LabelError | PromptTooLongError]  # dataset -> reason
    elapsed_s: float  # seconds for tokenising and checking


def tokenise_scorable(built: Built, store: PromptStore, resolved: ResolvedModel) -> Stage[Tokenised]:
    """Tokenise the datasets of a store that a model can score; the others are refused, with the reason.

    Raises ConfigError as _check_turns does.
    """
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
    """Raise ConfigError if demonstrations must become turns, but their positions in a prompt are not known."""
    if form.chat is None or form.chat.demonstrations != "turns":
        return
    # `spans` has an entry for each demonstration whose position is known, and one for the query.
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
    """Return dataset -> reason for the datasets that the model cannot score; each dataset is tokenised alone."""
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
    """Tokenise a store, or open its tokens, and check them with _check_tokens."""
    source, form = resolved.source, resolved.form
    with (yield from lock_folder(store.folder / "tokens")):
        try:
            table = yield from tokenise_store(
                store, source.tokenizer, source.tokenizer_fingerprint, form.boundary, _definitions(built), form.chat
            )
        except LabelError as error:
            raise _explained(error, built, store) from error
    _check_tokens(built, store, table.tokens, source)
    return table


def _explained(error: LabelError, built: Built, store: PromptStore) -> LabelError:
    return SUITES[built.config.suites[0]].explain(error, store)


def _check_tokens(built: Built, store: PromptStore, tokens: pl.LazyFrame, source: ModelSource) -> None:
    """Raise an error for prompts or labels that the model cannot score.

    PromptTooLongError: a prompt is longer than the model's context. VocabularyError: a token has no embedding.
    LabelError: a label has more tokens than a method allows, or labels have equal scores under `released`.
    """
    prompts = store.prompts()
    check_prompt_lengths(tokens, prompts, source.context_length)
    check_vocabulary(tokens, prompts, source.tokenizer, source.vocab_size)
    check_labels(chosen_methods(built.config), _definitions(built), tokens, prompts)


def _definitions(built: Built) -> list[Definition]:
    """Return the definitions under which at least one part of the run is measured."""
    parts = (part for parts in built.parts.values() for part in parts.values())
    return list(dict.fromkeys(name for part in parts for name in part.definitions))
