"""The architecture of the embedded models: Llamas with tied embeddings."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluator.models.embedded.byte_level import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True, kw_only=True)
class LlamaSize:
    """The size of a Llama; defaults are those of the random model."""

    vocab_size: int = 4096  # rows of the embeddings, and maximum number of tokens of the tokenizer
    hidden_size: int = 64
    intermediate_size: int = 176
    n_layers: int = 2
    n_heads: int = 2  # heads of size 32, the smallest that vLLM supports on a CPU
    n_kv_heads: int | None = None  # heads of keys and values, which several heads share; None: as many as n_heads
    context_length: int = 4096
    rope_theta: float = 10_000.0


def llama_config(size: LlamaSize, *, initializer_range: float = 0.02) -> "LlamaConfig":
    """Return the configuration of a Llama whose embeddings are also its LM head.

    Args:
        size: of the model.
        initializer_range: standard deviation of random weights.
    """
    from transformers import LlamaConfig

    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.n_layers,
        num_attention_heads=size.n_heads,
        num_key_value_heads=size.n_kv_heads or size.n_heads,
        max_position_embeddings=size.context_length,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": size.rope_theta},
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
