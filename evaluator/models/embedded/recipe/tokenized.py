"""Rows as token ids, tokenised once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from evaluator.datasets.base import ClassificationDataset
from evaluator.models.embedded.recipe.rows import LabelledTexts


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedRows:
    """The rows of one dataset."""

    dataset: ClassificationDataset
    token_ids: list[np.ndarray]  # of each text with the space that follows it in a prompt
    gold: np.ndarray  # int64, label indices
    label_token_ids: np.ndarray  # int64, the token that each label name is
    with_label: list[np.ndarray]  # for each label index the rows that have it

    @property
    def n_labels(self) -> int:
        return len(self.dataset.verbalizer.label_names)


def tokenized(rows: Sequence[LabelledTexts], tokenizer: Tokenizer) -> list[TokenizedRows]:
    """The rows of each dataset as token ids, without BOS."""
    return [_tokenized(of_dataset, tokenizer) for of_dataset in rows]


def _tokenized(rows: LabelledTexts, tokenizer: Tokenizer) -> TokenizedRows:
    (affix,) = rows.dataset.template.input_affixes
    encodings = tokenizer.encode_batch([text + affix for text in rows.texts], add_special_tokens=False)
    gold = np.array(rows.gold)
    names = tokenizer.encode_batch(list(rows.dataset.verbalizer.label_names), add_special_tokens=False)
    assert all(len(name.ids) == 1 for name in names), "label names stand among the tokenizer's texts often enough"
    return TokenizedRows(
        dataset=rows.dataset,
        token_ids=[np.array(encoding.ids, dtype=np.int32) for encoding in encodings],
        gold=gold,
        label_token_ids=np.array([name.ids[0] for name in names]),
        with_label=[np.flatnonzero(gold == label) for label in range(len(rows.dataset.verbalizer.label_names))],
    )
