"""Build the 64 prompts that `evaluator doctor` scores: one kind for each way in which an engine can go wrong.

Also build the prompts of StaICC that `evaluator doctor --tune` scores.
"""

from collections.abc import Sequence
from itertools import chain

import polars as pl

from evaluator.config import ChatConfig, LabelBoundary
from evaluator.datasets.staicc import load_staicc
from evaluator.models.source import ModelSource
from evaluator.prompts.rows import normal_requests
from evaluator.run.resolved_models import chat_form
from evaluator.schemas import TOKENS
from evaluator.tokens.table import tokenise, with_token_ids

EVICTIONS, CHAT, STATES = "evictions", "chat", "hidden states"
"""Kinds of prompts that checks treat separately."""

_DATASETS = ("sst5", "rotten_tomatoes", "trec", "agnews")
_BLOCK = 32  # tokens in a block of the prefix cache on a CPU; two blocks on a GPU
_EDGES = (31, 32, 33, 63, 64, 65, 95, 96)  # tokens of contexts that end near the edge of a block
_N_BEGINNINGS, _N_OTHERS, _N_LONG, _N_CHAT, _N_STATES = 4, 4, 8, 8, 8

_SCHEMA = {name: TOKENS[name] for name in ("prompt_id", "ask", "context", "continuations")}

Prompt = tuple[Sequence[int], Sequence[Sequence[int]]]
"""Token ids of a context, and of the continuations after it."""


def doctor_prompts(source: ModelSource, chat: ChatConfig | None, boundary: LabelBoundary = "separate") -> pl.DataFrame:
    """Return schemas.TOKENS of the 64 prompts, whose ids begin with their kind.

    Args:
        source: the model, whose tokenizer is used.
        chat: its chat template; without a template, there are more prompts of the first kind.
        boundary: where the labels of datasets begin.

    Raises DatasetError if StaICC's datasets are not installed.
    """
    prompts = pl.concat(staicc_prompts(name, n_shots=1, n_queries=3).head(6) for name in _DATASETS)
    plain = tokenise(source.tokenizer, prompts, boundary)
    contexts, labels = plain["context"].to_list(), plain["continuations"].to_list()
    form = chat_form(source, chat)
    n_plain = 12 if form else 12 + _N_CHAT
    kinds: dict[str, list[Prompt]] = {
        "one-token labels": [(contexts[n], _first_tokens(labels[n])) for n in range(n_plain)],
        **_cache_kinds([*chain.from_iterable(contexts)], _first_tokens(labels[0])),
    }
    if form:
        spoken = tokenise(source.tokenizer, prompts.head(_N_CHAT), boundary, form)
        kinds[CHAT] = spoken.select("context", "continuations").rows()
    kinds[STATES] = [(context, []) for context in contexts[-_N_STATES:]]
    rows = [
        (f"{kind}/{number:02d}", "state" if kind == STATES else "labels", context, continuations)
        for kind, of_kind in kinds.items()
        for number, (context, continuations) in enumerate(of_kind)
    ]
    return with_token_ids(pl.DataFrame(rows, schema=_SCHEMA, orient="row"))


def staicc_prompts(name: str, *, n_shots: int, n_queries: int) -> pl.DataFrame:
    """Return prompts of a StaICC dataset, each with a `prompt_id`: the columns of schemas.PROMPTS and others."""
    rows = pl.concat(normal_requests(load_staicc(name), n_shots=n_shots, n_queries=n_queries))
    return rows.with_columns(prompt_id=pl.format("{}/{}", pl.lit(name), pl.int_range(pl.len())))


def _cache_kinds(text: Sequence[int], labels: Sequence[Sequence[int]]) -> dict[str, list[Prompt]]:
    """Return kind -> prompts, whose beginnings a prefix cache can share or must keep apart.

    Args:
        text: token ids from which contexts are cut; the first is the tokenizer's BOS, if it adds one.
        labels: continuations of one token.
    """
    front, body = text[:1], [token for token in text[1:] if token != text[0]]
    endings = [labels[0][0], labels[1][0]]
    stem = [*body[400 : 400 + _BLOCK]]
    # Labels of one or many tokens, most of which share beginnings with each other.
    long = [stem[:1], stem, [*stem, endings[0]], [*stem, *body[40:48]], body[200:220], [stem[0], endings[0]]]
    beginnings = [[*front, *body[100 * n : 100 * n + 6 * _BLOCK]] for n in range(_N_BEGINNINGS)]
    return {
        "long labels": [([*front, *body[: 20 + 5 * n]], long) for n in range(_N_LONG)],
        "block edges": [([*front, *body[: n - 1], ending], labels) for n in _EDGES for ending in endings],
        # The second and third blocks of "block edges", after another first block.
        "another beginning": [
            ([*front, *body[300 + n : 299 + n + _BLOCK], *body[_BLOCK - 1 : 3 * _BLOCK]], labels)
            for n in range(_N_OTHERS)
        ],
        EVICTIONS: [([*beginning, ending], labels) for ending in endings for beginning in beginnings],
    }


def _first_tokens(labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the distinct first tokens of labels; if there is only one, also the last token of the second label."""
    first = [*dict.fromkeys(label[0] for label in labels)]
    return [[token] for token in first] if len(first) > 1 else [[labels[0][0]], [labels[1][-1]]]
