"""A random Llama with a tokenizer of its own: texts enter, a model folder that any engine can load leaves.

Its answers are chance. It is there so that a first run and every test meet a real model, tokenizer and engine.
"""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS = "<s>", "</s>"


def make_random_llama(
    folder: Path,
    *,
    texts: Iterable[str] = (),
    hidden_size: int = 64,
    n_layers: int = 2,
    n_heads: int = 2,  # heads of 32: the narrowest that vLLM takes on a CPU
    intermediate_size: int = 176,
    vocab_size: int = 4096,
    context_length: int = 4096,
    adds_bos: bool = True,
    seed: int = 0,
) -> Path:
    """Write a random fp32 Llama (tied embeddings) with a byte-level BPE tokenizer: same arguments, same bytes.

    Args:
        folder: where it goes; left alone when it is there already, and never seen half-made.
        texts: what the tokenizer's merges are learned from; without any, every byte is a token of its own.
        vocab_size: of the embeddings, and the most tokens the tokenizer may have.
        adds_bos: whether the tokenizer puts a BOS token in front of a text.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tokenizer = byte_level_tokenizer(texts, vocab_size=vocab_size, adds_bos=adds_bos)
        save_tokenizer(unfinished, tokenizer, context_length)
        _save_random_weights(
            unfinished,
            seed,
            hidden_size=hidden_size,
            num_hidden_layers=n_layers,
            num_attention_heads=n_heads,
            num_key_value_heads=n_heads,
            intermediate_size=intermediate_size,
            vocab_size=vocab_size,
            max_position_embeddings=context_length,
        )
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():  # else another process made the same model in the meantime
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def byte_level_tokenizer(texts: Iterable[str] = (), *, vocab_size: int = 258, adds_bos: bool = True) -> Tokenizer:
    """Byte-level BPE with merges learned from the texts; BOS is token 0, EOS token 1, every byte a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def save_tokenizer(folder: Path, tokenizer: Tokenizer, context_length: int) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=context_length
    ).save_pretrained(folder)


def _save_random_weights(folder: Path, seed: int, **sizes: int) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    # A logit is the product of a hidden state of unit variance and an embedding: with this spread logits have a
    # standard deviation of about one nat whatever the size, so that labels differ visibly and none takes all.
    config = LlamaConfig(
        **sizes,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        tie_word_embeddings=True,
        initializer_range=sizes["hidden_size"] ** -0.5,
        bos_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    config.save_pretrained(folder)
    weights = model.state_dict()
    del weights["lm_head.weight"]  # tied: engines look for the embeddings, under the embeddings' name
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
