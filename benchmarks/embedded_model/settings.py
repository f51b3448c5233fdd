"""Sizes and hyperparameters of the embedded model and its training."""

from dataclasses import dataclass

from evaluator.models.embedded.llama import LlamaSize

VOCABULARY = 8_192
"""Number of tokens of the tokenizer."""

SIZE = LlamaSize(
    vocab_size=VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    n_layers=5,
    n_heads=3,
    rope_theta=100_000.0,  # many dimensions of a head rotate so slowly that they compare contents at any distance
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyperparameters of the training; defaults are those of the shipped model."""

    n_steps: int = 1_500
    seed: int = 0
    sequences_per_step: int = 16
    length: int = 512  # tokens
    size: LlamaSize = SIZE
    matrix_learning_rate: float = 0.01  # of Muon, for the matrices inside the layers
    other_learning_rate: float = 5e-4  # of AdamW, for embeddings and norms
    warm_up_steps: int = 50
    cooldown_steps: int = 600  # over which the learning rate falls to zero
    vocabulary_weight: float = 0.1  # of the loss over the whole vocabulary, relative to the loss among labels
    text_tokens_per_step: int = 512  # sample of all text tokens: the LM head over the vocabulary is half of the cost
