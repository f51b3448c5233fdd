"""What decides the weights besides the rows."""

from dataclasses import dataclass

from evaluator.models.embedded.llama import LlamaSize

VOCABULARY = 8_192
"""Tokens of the tokenizer."""

SIZE = LlamaSize(
    vocab_size=VOCABULARY,
    hidden_size=192,
    intermediate_size=512,
    n_layers=5,
    n_heads=3,
    rope_theta=100_000.0,  # much of a head turns so slowly that it compares what places hold, near or far
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Sizes and rates; the defaults are those of the model that ships."""

    n_steps: int = 1_500
    seed: int = 0
    sequences_per_step: int = 16
    length: int = 512  # tokens
    size: LlamaSize = SIZE
    matrix_learning_rate: float = 0.01  # of Muon, for the matrices inside the layers
    other_learning_rate: float = 5e-4  # of AdamW, for embeddings and norms
    warm_up_steps: int = 50
    cooldown_steps: int = 600  # over which the learning rate falls to nothing
    vocabulary_weight: float = 0.1  # of finding texts and labels in the whole vocabulary, beside one label among all
    text_tokens_per_step: int = 512  # drawn out of all: the head over the vocabulary is half of the cost
