"""Llamas with tied embeddings and byte-level tokenizers, saved as folders that every engine can load.

A random Llama classifies at chance level, but lets a first run and the tests use a real model, tokenizer and engine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

if TYPE_CHECKING:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1


@dataclass(frozen=True, kw_only=True)
class LlamaSize:
    """The size of a Llama; the defaults are the size of the random model."""

    vocab_size: int = 4096  # rows of the embeddings, and maximum number of tokens of the tokenizer
    hidden_size: int = 64
    intermediate_size: int = 176
    n_layers: int = 2
    n_heads: int = 2  # heads of size 32, the smallest that vLLM supports on a CPU
    n_kv_heads: int | None = None  # number of key-value heads, shared by groups of attention heads; None: n_heads
    context_length: int = 4096
    rope_theta: float = 10_000.0


TINY = LlamaSize()


def make_random_llama(
    folder: Path,
    *,
    texts: Iterable[str],
    size: LlamaSize = TINY,
    adds_bos: bool = True,
    seed: int = 0,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Path:
    """Write a random Llama (tied embeddings) with a byte-level BPE tokenizer; equal arguments give equal bytes.

    Args:
        folder: folder to write; an existing folder is left unchanged. It gets its name last, so it is always complete.
        texts: texts to learn the tokenizer's merges from.
        size: size of the model.
        adds_bos: whether the tokenizer puts BOS before a text.
        seed: random seed of the weights.
        dtype: dtype in which weights are drawn and saved; bfloat16 needs half of the memory and disk space.

    Returns:
        `folder`.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            unfinished = Path(temporary) / folder.name
            unfinished.mkdir()
            tokenizer = byte_level_tokenizer(texts, vocab_size=size.vocab_size, adds_bos=adds_bos)
            save_tokenizer(unfinished, tokenizer, size.context_length)
            _save_random_weights(unfinished, size, seed, dtype)
            unfinished.rename(folder)
    except OSError:
        if not folder.exists():  # else another process made the same model in the meantime
            raise
    return folder


def _save_random_weights(folder: Path, size: LlamaSize, seed: int, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    # A logit is the product of a hidden state of unit variance and an embedding. With this standard deviation of the
    # weights, logits have a standard deviation of about one nat for every size: labels differ and none dominates.
    config = llama_config(size, initializer_range=size.hidden_size**-0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    save_llama(folder, model, getattr(torch, dtype))


def llama_config(size: LlamaSize, *, initializer_range: float = 0.02) -> "LlamaConfig":
    """Return the configuration of a Llama whose embeddings are also its LM head.

    Args:
        size: size of the model.
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


def byte_level_tokenizer(
    texts: Iterable[str] = (),
    *,
    vocab_size: int = 258,
    adds_bos: bool = True,
    normalizer: normalizers.Normalizer | None = None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
) -> Tokenizer:
    """Return a BPE tokenizer over bytes; BOS is token 0, EOS is token 1, and every byte is a token.

    Args:
        texts: texts to learn merges from.
        vocab_size: maximum number of tokens; with 258 nothing is merged.
        adds_bos: whether the tokenizer puts BOS before a text.
        normalizer: normaliser to apply to a text first; None: no normalisation.
        pre_tokenizer: cuts a text into pieces within which bytes may merge; None: words with the space before them.
    """
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    return tokenizer


def save_llama(folder: Path, model: "LlamaForCausalLM", dtype: "torch.dtype") -> None:
    """Write config.json and model.safetensors; the tied embeddings are saved once.

    The config states fp32 whatever dtype the weights are saved in, so that a run gives the same numbers on every
    machine and engine.
    """
    import torch
    from safetensors.torch import save_file

    model.config.dtype = torch.float32
    model.config.save_pretrained(folder)
    weights = {name: weight.to(dtype).contiguous() for name, weight in model.state_dict().items()}
    del weights["lm_head.weight"]  # tied: engines use the embeddings in its place
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def save_tokenizer(folder: Path, tokenizer: Tokenizer, context_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=context_length
    ).save_pretrained(folder)
