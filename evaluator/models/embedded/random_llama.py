"""Make a random Llama with its own tokenizer, as a model folder that any engine can load.

Its predictions are at chance. With it a first run and every test use a real model, tokenizer and engine.
"""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from evaluator.models.embedded.byte_level import byte_level_tokenizer
from evaluator.models.embedded.llama import LlamaSize, llama_config
from evaluator.models.embedded.model_folder import save_llama, save_tokenizer

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
        folder: to write; an existing one is left as it is. Created by renaming, so it is always complete.
        texts: to learn the tokenizer's merges from.
        size: of the model.
        adds_bos: whether the tokenizer puts BOS before a text.
        seed: of the weights.
        dtype: that the weights are drawn and saved in; bfloat16 takes half of the memory and of the disk.

    Returns:
        `folder`.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        tokenizer = byte_level_tokenizer(texts, vocab_size=size.vocab_size, adds_bos=adds_bos)
        save_tokenizer(unfinished, tokenizer, size.context_length)
        _save_random_weights(unfinished, size, seed, dtype)
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():  # else another process made the same model in the meantime
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _save_random_weights(folder: Path, size: LlamaSize, seed: int, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    # A logit is the product of a hidden state of unit variance and an embedding. With this standard deviation of the
    # weights, logits have one of about one nat for every size: labels differ visibly and none dominates.
    config = llama_config(size, initializer_range=size.hidden_size**-0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    save_llama(folder, model, getattr(torch, dtype))
