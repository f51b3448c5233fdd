"""Tokenise prompts and labels, and decide where a label begins.

The boundary is a choice, because merges cross it. `separate` tokenises prompt and label separately, as the toolkit does
and as every published StaICC number was computed: after "sentiment: " the label follows a lone space token. `merged`
tokenises the whole string, as a model sees it in running text: the space becomes part of the label's first token.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evaluator.config import LabelBoundary
from evaluator.errors import LabelError, ModelError
from evaluator.schemas import Ask
from evaluator.tokens.tokenizer import TextTokenizer

_PROMPTS_PER_BATCH = 4096  # limits memory; the tokens do not depend on it


class PromptTokens(NamedTuple):
    """Tokens of prompts and their continuations, one row per prompt."""

    contexts: pa.ListArray  # list<int32>; none empty
    continuations: pa.ListArray  # list<list<int32>>; none empty, those of a prompt all different


def tokenise_prompts(
    tokenizer: TextTokenizer,
    prompts: Sequence[str],
    asks: Sequence[Ask],
    continuations: Sequence[Sequence[str]],
    boundary: LabelBoundary,
    *,
    special_tokens: bool = True,
) -> PromptTokens:
    """Tokenise each prompt with the continuations to score after it.

    Under `separate` a context is the tokenised prompt (with BOS if the tokenizer adds one) and a continuation is its
    text alone. Under `merged` each prompt + continuation is tokenised as one string. The context is the longest run of
    leading tokens that these and the bare prompt share, so that a stem shared by all labels is still scored; a
    continuation is the rest. Under both, a prompt with ask "text" has its first token as the context and the rest as
    the continuation; one with ask "state" is a context without continuations.

    An EOS that the tokenizer appends is dropped, because a new text would begin after it.

    Args:
        tokenizer: of the model.
        prompts, asks, continuations: one entry per prompt.
        boundary: where a label begins.
        special_tokens: whether the tokenizer adds those that it puts in front of a text (BOS); not where a chat
            template has written them.

    Raises:
        LabelError: a continuation without tokens, two continuations of a prompt with equal tokens, an empty context.
    """
    tokenize = _tokenise_separately if boundary == "separate" else _tokenise_merged
    as_text = _without_appended_tokens(tokenizer) if special_tokens else partial(_bare_tokens, tokenizer)
    starts = range(0, len(prompts), _PROMPTS_PER_BATCH)
    slices = [slice(start, start + _PROMPTS_PER_BATCH) for start in starts]
    batches = []
    for rows in slices:
        contexts, rests = tokenize(tokenizer, as_text, prompts[rows], continuations[rows])
        _split_texts(prompts[rows], asks[rows], contexts, rests)
        batches.append((_ragged(contexts), _doubly_ragged(rests)))
    return PromptTokens(
        pa.concat_arrays([contexts for contexts, _ in batches]) if batches else _ragged([]),
        pa.concat_arrays([rests for _, rests in batches]) if batches else _doubly_ragged([]),
    )


Tokenize = Callable[[Sequence[str]], list[list[int]]]
ContextsAndContinuations = tuple[list[list[int]], list[list[list[int]]]]
"""Contexts and continuations, one entry per prompt."""


def tokens_around(tokenizer: TextTokenizer) -> tuple[int, int]:
    """Return the numbers of tokens that a tokenizer puts in front of a text (BOS) and appends to it (EOS).

    Raises ModelError if it cannot be seen where the text begins.
    """
    # Find the tokens of "a" within the tokens of "a" as a text.
    (bare,) = tokenizer.token_ids(["a"], special_tokens=False)
    (whole,) = tokenizer.token_ids(["a"], special_tokens=True)
    n_before = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), None)
    if n_before is None:
        raise ModelError(
            f"The tokenizer turns 'a' into {bare} but the text 'a' into {whole}: unclear where a text begins."
        )
    return n_before, len(whole) - n_before - len(bare)


def _without_appended_tokens(tokenizer: TextTokenizer) -> Tokenize:
    """Return a function that tokenises texts with the tokens put in front (BOS), without those appended (EOS)."""
    _, n_after = tokens_around(tokenizer)

    def tokenize(texts: Sequence[str]) -> list[list[int]]:
        rows = tokenizer.token_ids(texts, special_tokens=True)
        return [row[:-n_after] for row in rows] if n_after else rows

    return tokenize


def _bare_tokens(tokenizer: TextTokenizer, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer.token_ids(texts, special_tokens=False)


def _tokenise_separately(
    tokenizer: TextTokenizer, as_text: Tokenize, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> ContextsAndContinuations:
    contexts = as_text(prompts)
    _refuse_empty_contexts(prompts, contexts)
    # Each different continuation is tokenised once, each different label space is looked up once.
    texts = list(dict.fromkeys(chain.from_iterable(continuations)))
    tokens = dict(zip(texts, tokenizer.token_ids(texts, special_tokens=False), strict=True))
    spaces = {tuple(space): [tokens[text] for text in space] for space in continuations}
    for space, space_tokens in spaces.items():
        _refuse_indistinct(space, space_tokens, "")
    return contexts, [spaces[tuple(space)] for space in continuations]


def _tokenise_merged(
    _tokenizer: TextTokenizer, as_text: Tokenize, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> ContextsAndContinuations:
    texts = [prompt + text for prompt, space in zip(prompts, continuations, strict=True) for text in space]
    # In one call, because a tokenizer may tokenise shared pieces only once.
    rows = as_text([*prompts, *texts])
    bare, whole = rows[: len(prompts)], rows[len(prompts) :]
    # Cut the flat list of texts into those of each prompt.
    bounds = pairwise(np.cumsum([0, *map(len, continuations)]).tolist())
    candidates = [whole[start:end] for start, end in bounds]
    contexts = [_common_start([prompt, *rows]) for prompt, rows in zip(bare, candidates, strict=True)]
    _refuse_empty_contexts(prompts, contexts)
    rests = [[row[len(context) :] for row in rows] for context, rows in zip(contexts, candidates, strict=True)]
    for prompt, space, rest in zip(prompts, continuations, rests, strict=True):
        _refuse_indistinct(space, rest, prompt)
    return contexts, rests


def _split_texts(
    prompts: Sequence[str], asks: Sequence[Ask], contexts: list[list[int]], rests: list[list[list[int]]]
) -> None:
    """Make the first token of texts with ask "text" their context and the rest their continuation, in place."""
    for row, ask in enumerate(asks):
        if ask == "text":
            whole = contexts[row]
            if len(whole) < 2:
                raise LabelError(
                    f"The text {prompts[row][:60]!r} is one token, so it has no likelihood. Make it longer."
                )
            contexts[row], rests[row] = whole[:1], [whole[1:]]


def _common_start(rows: Sequence[list[int]]) -> list[int]:
    first, last = min(rows), max(rows)  # in lexicographic order, so all others share what these two share
    n_common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:n_common]


def _refuse_empty_contexts(prompts: Sequence[str], contexts: Sequence[Sequence[int]]) -> None:
    if all(contexts):
        return
    empty = next(i for i, context in enumerate(contexts) if not context)
    raise LabelError(
        f"Prompt {prompts[empty][:60]!r} has no token before its labels, so nothing can be scored after it: it is "
        "empty and the tokenizer adds no BOS. Give it an instruction or demonstrations, or choose another model."
    )


def _refuse_indistinct(texts: Sequence[str], tokens: Sequence[Sequence[int]], prompt: str) -> None:
    after = f" after the prompt that ends {prompt[-60:]!r}" if prompt else ""
    seen: dict[tuple[int, ...], str] = {}
    for text, ids in zip(texts, tokens, strict=True):
        if not ids:
            raise LabelError(
                f"Label {text!r} of {list(texts)} has no tokens{after}, so it cannot be scored. "
                "Choose another verbalizer.",
                texts,
            )
        if tuple(ids) in seen:
            raise LabelError(
                f"Labels {seen[tuple(ids)]!r} and {text!r} of {list(texts)} tokenise identically{after}, so no score "
                "can tell them apart. Choose another verbalizer, or another --label-boundary.",
                texts,
            )
        seen[tuple(ids)] = text


def _ragged(rows: Sequence[Sequence[int]]) -> pa.ListArray:
    values = np.fromiter(chain.from_iterable(rows), np.int32)
    return pa.ListArray.from_arrays(_offsets(rows), values)


def _doubly_ragged(rows: Sequence[Sequence[Sequence[int]]]) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(rows), _ragged(list(chain.from_iterable(rows))))


def _offsets(rows: Iterable[Sequence[object]]) -> npt.NDArray[np.int32]:
    return np.cumsum([0, *map(len, rows)], dtype=np.int32)
