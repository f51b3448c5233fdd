"""Byte-level BPE: texts go in, a tokenizer with merges learned from them comes out, which knows any other text too."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1


def byte_level_tokenizer(
    texts: Iterable[str] = (),
    *,
    vocab_size: int = 258,
    adds_bos: bool = True,
    normalizer: normalizers.Normalizer | None = None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
) -> Tokenizer:
    """BPE over bytes; BOS is token 0, EOS token 1, every byte a token of its own.

    Args:
        texts: what merges are learned from.
        vocab_size: the most tokens there may be; 258 leave no room for a merge.
        adds_bos: whether BOS is put in front of a text.
        normalizer: what is done to a text first.
        pre_tokenizer: cuts a text into bytes that may merge; None: words with the space before them.
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
