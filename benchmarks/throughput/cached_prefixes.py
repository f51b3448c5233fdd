"""Score with transformers in batches that compute keys and values of shared demonstrations only once."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.throughput.workloads import Job, Score, Scores, requests
from evaluator.engine.devices import device_kind
from evaluator.tokens.boundary import n_shared

_BATCH = 32  # maximum number of texts in a batch that shares a prefix
_MIN_SHARED = 32  # minimum length of a shared prefix in tokens; a shorter one does not justify a separate forward pass


class _Text(NamedTuple):
    """A text to feed to the model, and the tokens whose log-probabilities are needed at its last positions."""

    tokens: list[int]
    choices: list[tuple[int, list[int]]]  # index in the output, and tokens; all but the last token end the text


def transformers_cached(job: Job) -> Score:
    """Load a model with transformers; return the function that scores adjacent prompts in batches.

    The prefix that the prompts of a batch share is computed in one forward pass before the batch.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(job.model), dtype=getattr(torch, job.dtype))
    model.eval().to(device_kind())
    rows = requests(job)
    texts = list(_texts(rows["context"].to_list(), rows["continuations"].to_list()))
    n_scores = sum(len(text.choices) for text in texts)

    def score() -> Scores:
        scores = np.empty(n_scores)
        with torch.inference_mode():
            for n_shared, batch in _batches(texts):
                for place, log_likelihood in _score_batch(model, n_shared, batch):
                    scores[place] = log_likelihood
        return scores

    return score


def _texts(contexts: Sequence[list[int]], continuations: Sequence[list[list[int]]]) -> Iterator[_Text]:
    """Yield the texts to feed: one text per prompt if all its choices have one token, else one text per choice."""
    place = 0
    for context, choices in zip(contexts, continuations, strict=True):
        numbered = list(enumerate(choices, place))
        place += len(choices)
        if choices and max(map(len, choices)) == 1:
            yield _Text(context, numbered)
        else:
            for number, choice in numbered:
                yield _Text([*context, *choice[:-1]], [(number, choice)])


def _batches(texts: Sequence[_Text]) -> Iterator[tuple[int, list[_Text]]]:
    """Yield batches of adjacent texts with the length of their common prefix; 0 if it is not worth a forward pass.

    A batch ends before a text that would halve the common prefix.
    """
    start = 0
    while start < len(texts):
        batch = [texts[start]]
        shared = len(batch[0].tokens) - 1  # the last token is not part of the prefix: every text has a token to compute
        for text in texts[start + 1 : start + _BATCH]:
            common = min(shared, n_shared(batch[0].tokens, text.tokens), len(text.tokens) - 1)
            if len(batch) > 1 and shared >= _MIN_SHARED and common < max(_MIN_SHARED, shared // 2):
                break
            batch.append(text)
            shared = common
        is_worthwhile = len(batch) > 1 and shared >= _MIN_SHARED
        yield (shared if is_worthwhile else 0), batch
        start += len(batch)


def _score_batch(model: Any, n_shared: int, batch: Sequence[_Text]) -> Iterator[tuple[int, float]]:
    """Yield index and log-likelihood of every choice of a batch whose texts share their first n_shared tokens."""
    import torch

    cache = None
    if n_shared:
        prefix = torch.tensor([batch[0].tokens[:n_shared]], device=model.device)
        cache = model(prefix, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(batch))
    rests = [text.tokens[n_shared:] for text in batch]
    longest = max(map(len, rests))
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    mask = torch.zeros((len(batch), n_shared + longest), dtype=torch.long)
    for row, rest in enumerate(rests):  # padding on the right leaves positions unchanged
        ids[row, : len(rest)] = torch.tensor(rest)
        mask[row, : n_shared + len(rest)] = 1
    arguments = {"attention_mask": mask.to(model.device), "past_key_values": cache, "use_cache": cache is not None}
    states = model.base_model(ids.to(model.device), **arguments).last_hidden_state
    for row, (text, rest) in enumerate(zip(batch, rests, strict=True)):
        n_rows = len(text.choices[0][1])  # a text has one choice of several tokens, or several choices of one token
        logits = model.lm_head(states[row, len(rest) - n_rows : len(rest)])
        log_probs = logits.float().log_softmax(-1)
        for place, choice in text.choices:
            yield place, float(log_probs[torch.arange(n_rows), torch.tensor(choice)].sum())
