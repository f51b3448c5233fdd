"""Train token embeddings whose mean over a text separates the labels of every dataset.

A classifier on averaged embeddings (Joulin et al. 2017, "Bag of tricks for efficient text classification") learns in a
minute what a transformer of this size learns in hours. Here the weights of a label are the embedding of its word, as in
a model with tied embeddings. So attention that averages, as untrained attention does, already maps a text to its label
word.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.embedded_model.tokenized import TokenizedRows

EPOCH_ROWS = 200_000
N_EPOCHS = 3
BATCH_ROWS = 256
LEARNING_RATE = 2e-2
TOKEN_DROPOUT = 0.3
SHARPNESS = 12.0


def train_token_embeddings(rows: Sequence[TokenizedRows], *, vocabulary: int, width: int, seed: int) -> Tensor:
    """Train and return token embeddings, [vocabulary, width], fp32.

    They have unit length, because the first norm of the transformer normalises them.
    """
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    weights = nn.Parameter(torch.randn(vocabulary, width))
    optimizer = torch.optim.AdamW([weights], lr=LEARNING_RATE, weight_decay=0.0)
    n_steps = N_EPOCHS * EPOCH_ROWS // BATCH_ROWS
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=n_steps)
    shares = sampling_shares(rows)
    for dataset in random.choice(len(rows), size=n_steps, p=shares):
        drawn = random.integers(len(rows[dataset].gold), size=BATCH_ROWS)
        token_ids, offsets = _bags([rows[dataset].token_ids[row] for row in drawn], random)
        embeddings = nn.functional.normalize(weights, dim=-1)
        pooled = nn.functional.normalize(nn.functional.embedding_bag(token_ids, embeddings, offsets), dim=-1)
        logits = SHARPNESS * pooled @ embeddings[torch.from_numpy(rows[dataset].label_token_ids)].T
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(rows[dataset].gold[drawn]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return nn.functional.normalize(weights.detach(), dim=-1)


def sampling_shares(rows: Sequence[TokenizedRows]) -> npt.NDArray[np.float64]:
    """Return the probabilities of drawing the datasets: higher for large datasets, but less than in proportion."""
    sizes = np.array([len(dataset_rows.gold) for dataset_rows in rows]) ** 0.35
    return np.asarray(sizes / sizes.sum())


def _bags(texts: list[np.ndarray], random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return the token ids of all texts after dropout, concatenated, and the offsets of the texts."""
    kept = [_with_dropout(text, random) for text in texts]
    offsets = np.cumsum([0, *map(len, kept[:-1])])
    return torch.from_numpy(np.concatenate(kept)).long(), torch.from_numpy(offsets)


def _with_dropout(text: np.ndarray, random: np.random.Generator) -> np.ndarray:
    kept = text[random.random(len(text)) >= TOKEN_DROPOUT]
    return kept if len(kept) else text
