"""Train byte-level BPE tokenizers, which can tokenise any text."""

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
    """Return a BPE tokenizer over bytes; BOS is token 0, EOS is token 1, and every byte is a token.

    Args:
        texts: to learn merges from.
        vocab_size: maximum number of tokens; with 258 nothing is merged.
        adds_bos: whether the tokenizer puts BOS before a text.
        normalizer: applied to a text first.
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
