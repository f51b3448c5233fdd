"""Sizes and hyperparameters of the embedded model and its training."""

from dataclasses import dataclass

from evaluator.models.embedded.llama import LlamaSize

VOCABULARY = 8_192
"""Vocabulary size of the tokenizer."""

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
    """Hyperparameters of the training; the defaults made the shipped model."""

    n_steps: int = 1_500
    seed: int = 0
    sequences_per_step: int = 16
    length: int = 512  # tokens per sequence
    size: LlamaSize = SIZE
    matrix_learning_rate: float = 0.01  # for Muon, which trains the matrices inside the layers
    other_learning_rate: float = 5e-4  # for AdamW, which trains embeddings and norms
    warm_up_steps: int = 50
    cooldown_steps: int = 600  # last steps, over which the learning rate falls to zero
    vocabulary_weight: float = 0.1  # weight of the loss over the whole vocabulary; the loss among labels has weight 1
    text_tokens_per_step: int = 512  # sampled text tokens with a loss, because the LM head is half of the cost
