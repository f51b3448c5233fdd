"""The 64 prompts that `evaluator doctor` scores: one kind for each way in which an engine can go wrong.

Make the prompts that --tune scores.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import polars as pl

from evaluator.config import ChatConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.models.source import ModelSource
from evaluator.prompts.rows import normal_requests
from evaluator.run.resolved_models import chat_form
from evaluator.schemas import TOKENS
from evaluator.tokens.boundary import tokenise_prompts
from evaluator.tokens.chat import chat_texts
from evaluator.tokens.table import with_token_ids

EVICTIONS, CHAT, STATES = "evictions", "chat", "hidden states"
"""Kinds that are looked at on their own."""

_DATASETS = ("sst5", "rotten_tomatoes", "trec", "agnews")
_BLOCK = 32  # tokens of a block of the prefix cache on a CPU; two of a GPU's
_EDGES = (31, 32, 33, 63, 64, 65, 95, 96)
_N_BEGINNINGS, _N_OTHERS, _N_LONG, _N_CHAT, _N_STATES = 4, 4, 8, 8, 8

_SCHEMA = {name: TOKENS[name] for name in ("prompt_id", "ask", "context", "continuations")}

Prompt = tuple[Sequence[int], Sequence[Sequence[int]]]
"""Token ids of a context, and of the continuations after it."""


def doctor_prompts(source: ModelSource, chat: ChatConfig | None) -> pl.DataFrame:
    """Return schemas.TOKENS of 64 prompts, whose ids begin with their kind.

    Args:
        source: the model, whose tokenizer is used.
        chat: its chat template; without one, there are more prompts of the first kind.

    Raises DatasetError where StaICC's datasets are not installed.
    """
    requests = (normal_requests(load_staicc(name), n_shots=1, n_queries=3) for name in _DATASETS)
    rows = pl.concat(pl.concat(of_dataset).head(6) for of_dataset in requests)
    texts, names = rows["prompt"].to_list(), rows["continuations"].to_list()
    tokens = tokenise_prompts(source.tokenizer, texts, rows["ask"].to_list(), names, "separate")
    contexts, labels = tokens.contexts.to_pylist(), tokens.continuations.to_pylist()
    form = chat_form(source, chat)
    talk = chat_texts(form, rows[:_N_CHAT]) if form else None
    n_plain = 12 if talk else 12 + _N_CHAT
    kinds: dict[str, list[Prompt]] = {
        "one-token labels": [(contexts[n], _first_tokens(labels[n])) for n in range(n_plain)],
        **_cache_kinds([*chain.from_iterable(contexts)], _first_tokens(labels[0])),
    }
    if talk:
        spoken = tokenise_prompts(
            source.tokenizer, talk[0], rows["ask"].to_list()[:_N_CHAT], talk[1], "separate",
            special_tokens=False,
        )  # fmt: skip
        kinds[CHAT] = [*zip(spoken.contexts.to_pylist(), spoken.continuations.to_pylist(), strict=True)]
    kinds[STATES] = [(context, []) for context in contexts[-_N_STATES:]]
    rows_of_all = [
        (f"{kind}/{number:02d}", "state" if kind == STATES else "labels", context, continuations)
        for kind, prompts in kinds.items()
        for number, (context, continuations) in enumerate(prompts)
    ]
    return with_token_ids(pl.DataFrame(rows_of_all, schema=_SCHEMA, orient="row"))


def staicc_prompts(source: ModelSource, name: str, *, n_shots: int, n_queries: int) -> pl.DataFrame:
    """Return schemas.TOKENS of prompts of a dataset of StaICC, in an order that shares beginnings."""
    rows = pl.concat(normal_requests(load_staicc(name), n_shots=n_shots, n_queries=n_queries))
    texts, asks, labels = (rows[column].to_list() for column in ("prompt", "ask", "continuations"))
    tokens = tokenise_prompts(source.tokenizer, texts, asks, labels, "separate")
    ids = [f"{name}/{number}" for number in range(rows.height)]
    columns: dict[str, Any] = dict(zip(_SCHEMA, (ids, rows["ask"], tokens.contexts, tokens.continuations), strict=True))
    return with_token_ids(pl.DataFrame(columns, schema_overrides=_SCHEMA)).sort("context")


def _cache_kinds(text: Sequence[int], labels: Sequence[Sequence[int]]) -> dict[str, list[Prompt]]:
    """Return prompts whose beginnings a prefix cache shares, or must not share.

    Args:
        text: tokens to cut contexts from, after the tokenizer's BOS if it adds one.
        labels: continuations of one token.
    """
    front, body = text[:1], [token for token in text[1:] if token != text[0]]
    endings = [labels[0][0], labels[1][0]]
    stem = [*body[400 : 400 + _BLOCK]]
    long = [stem[:1], stem, [*stem, endings[0]], [*stem, *body[40:48]], body[200:220], [stem[0], endings[0]]]
    beginnings = [[*front, *body[100 * n : 100 * n + 6 * _BLOCK]] for n in range(_N_BEGINNINGS)]
    return {
        "long labels": [([*front, *body[: 20 + 5 * n]], long) for n in range(_N_LONG)],
        "block edges": [([*front, *body[: n - 1], ending], labels) for n in _EDGES for ending in endings],
        # The same second and third block as those of block edges, after another first one.
        "another beginning": [
            ([*front, *body[300 + n : 299 + n + _BLOCK], *body[_BLOCK - 1 : 3 * _BLOCK]], labels)
            for n in range(_N_OTHERS)
        ],
        EVICTIONS: [([*beginning, ending], labels) for ending in endings for beginning in beginnings],
    }


def _first_tokens(labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the different first tokens of labels; of the second label the last one, where there is no second."""
    first = [*dict.fromkeys(label[0] for label in labels)]
    return [[token] for token in first] if len(first) > 1 else [[labels[0][0]], [labels[1][-1]]]
