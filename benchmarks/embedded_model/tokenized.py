"""Tokenise the rows of the training recipe."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from benchmarks.embedded_model.rows import LabelledTexts
from evaluator.datasets.base import ClassificationDataset


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedRows:
    """The tokenised rows of one dataset."""

    dataset: ClassificationDataset
    token_ids: list[np.ndarray]  # token ids per text, with the space that follows it in a prompt
    gold: np.ndarray  # int64, label indices
    label_token_ids: np.ndarray  # int64, the single token of every label name
    with_label: list[np.ndarray]  # row numbers per label index

    @property
    def n_labels(self) -> int:
        return len(self.dataset.verbalizer.label_names)


def tokenized(rows: Sequence[LabelledTexts], tokenizer: Tokenizer) -> list[TokenizedRows]:
    """Tokenise the rows of all datasets, without BOS."""
    return [_tokenized(labelled, tokenizer) for labelled in rows]


def _tokenized(rows: LabelledTexts, tokenizer: Tokenizer) -> TokenizedRows:
    (affix,) = rows.dataset.template.input_affixes
    encodings = tokenizer.encode_batch([text + affix for text in rows.texts], add_special_tokens=False)
    gold = np.array(rows.gold)
    names = tokenizer.encode_batch(list(rows.dataset.verbalizer.label_names), add_special_tokens=False)
    assert all(len(name.ids) == 1 for name in names), (
        "label names occur among the tokenizer's texts often enough to be one token"
    )
    return TokenizedRows(
        dataset=rows.dataset,
        token_ids=[np.array(encoding.ids, dtype=np.int32) for encoding in encodings],
        gold=gold,
        label_token_ids=np.array([name.ids[0] for name in names]),
        with_label=[np.flatnonzero(gold == label) for label in range(len(rows.dataset.verbalizer.label_names))],
    )
