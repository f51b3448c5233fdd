from itertools import chain

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from evaluator.errors import ModelError
from evaluator.models.embedded.llama import byte_level_tokenizer
from evaluator.models.fake_source import WordTokenizer
from evaluator.tokens.boundary import tokenise_prompts
from evaluator.tokens.tokenizer import FastTokenizer, cut, cuts_exactly

# As they stand in the tokenizer files of these models.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace("{1,3}", "")
PIECES = [
    "a",
    "Q",
    "s",
    "'",
    "'S",
    "\n",
    "\n\n",
    "\r\n",
    " ",
    "  ",
    "\t",
    "?",
    ".\n",
    "7",
    "123",
    "é",
    "\u0301",
    "猫",
    "\u2003",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def backend(kind):
    split = {"llama-3": LLAMA_3, "qwen-2": QWEN_2}.get(kind)
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    texts = ["a\nQ a?\nQ '\n\n  \n 's 123 .\n\nQ \r\na \t猫 é"] * 50
    return byte_level_tokenizer(
        texts,
        vocab_size=330,
        normalizer=normalizers.NFC() if kind == "qwen-2" else None,
        pre_tokenizer=pre_tokenizers.Sequence([*steps, last]) if steps else last,
    )


def with_lines_as_tokens() -> Tokenizer:
    """As Gemma's: merges of whole texts whose spaces are replaced, and added tokens for one or more line ends."""
    pairs = [("a", "s"), ("\u2581", "a"), ("\u2581a", "s"), ("Q", "\u2581"), ("?", "Q"), (".", "Q")]
    words = [*dict.fromkeys(chain("".join(PIECES).replace(" ", "\u2581"), chain(*pairs), map("".join, pairs)))]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, pairs))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in (1, 2, 3)])
    return tokenizer


BACKENDS = {kind: backend(kind) for kind in ("gpt-2", "llama-3", "qwen-2")} | {"gemma": with_lines_as_tokens()}


@pytest.mark.parametrize("kind", BACKENDS)
@given(text=TEXTS)
@example("What? \nQUESTION: Is\nANSWER: 1\n\nSENTENCE1: a\nANSWER: 0")
@example("")
def test_the_tokens_of_the_pieces_are_those_of_the_text(kind, text):
    assert cuts_exactly(BACKENDS[kind])
    ids = [BACKENDS[kind].encode(piece, add_special_tokens=False).ids for piece in cut(text)]
    assert [token for piece in ids for token in piece] == BACKENDS[kind].encode(text, add_special_tokens=False).ids
    assert FastTokenizer(BACKENDS[kind]).token_ids([text], special_tokens=True) == [BACKENDS[kind].encode(text).ids]


def test_texts_are_cut_after_a_lone_line_end_between_a_character_and_a_letter():
    assert cut("S: a\nQ: b?\nA: 1\n\nS: c \nQ: d\n7\nA:") == ["S: a\n", "Q: b?\n", "A: 1\n\nS: c \nQ: d\n7\n", "A:"]
    assert cut("") == [""]
    assert cut("\nA") == ["\nA"]


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex("x+"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        ),
        None,
    ],
)
def test_tokenizers_that_may_merge_across_a_cut_are_given_whole_texts(pre_tokenizer):
    tokenizer = byte_level_tokenizer(["a\nb"] * 50, vocab_size=270)
    tokenizer.pre_tokenizer = pre_tokenizer
    assert not cuts_exactly(tokenizer)
    whole = tokenizer.encode("a\nb a\nb").ids
    assert FastTokenizer(tokenizer).token_ids(["a\nb a\nb"], special_tokens=True) == [whole]


def test_an_added_token_that_takes_the_line_end_before_it_forbids_cuts():
    tokenizer = backend("gpt-2")
    tokenizer.add_tokens([AddedToken("ANSWER", lstrip=True)])
    assert not cuts_exactly(tokenizer)
    (ids,) = FastTokenizer(tokenizer).token_ids(["a\nANSWER"], special_tokens=False)
    assert ids == tokenizer.encode("a\nANSWER", add_special_tokens=False).ids


@pytest.mark.parametrize("tokenizer", [backend("gpt-2"), with_lines_as_tokens()], ids=["gpt-2", "gemma"])
def test_a_normalizer_that_may_change_the_beginning_of_a_piece_forbids_cuts(tokenizer):
    tokenizer.normalizer = normalizers.Prepend("_")
    assert not cuts_exactly(tokenizer)


@pytest.mark.parametrize(
    ("added", "pre_tokenizer"), [("\nA", None), (None, pre_tokenizers.Metaspace()), (None, pre_tokenizers.ByteLevel())]
)
def test_lines_as_tokens_forbid_cuts_if_a_token_or_a_step_goes_beyond_a_line(added, pre_tokenizer):
    tokenizer = with_lines_as_tokens()
    assert cuts_exactly(tokenizer)
    tokenizer.add_tokens([added] if added else [])
    tokenizer.pre_tokenizer = pre_tokenizer or tokenizer.pre_tokenizer
    assert not cuts_exactly(tokenizer)


@pytest.mark.parametrize("expression", ["(x+x+)+y", "(x+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_regular_expression_that_explodes_is_one_sentence(expression):
    tokenizer = backend("gpt-2")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(expression), "isolated")
    with pytest.raises(ModelError, match=r"The model's tokenizer gives up on a text \(.*\)\. Choose another model"):
        FastTokenizer(tokenizer).token_ids(["x" * 60 + "-"], special_tokens=False)


@pytest.mark.parametrize(
    "steps",
    [
        [normalizers.Replace("a", "aa")] * 60,
        [normalizers.Replace(Regex("."), "xy")] * 20,
        [normalizers.NFC(), normalizers.Sequence([normalizers.Replace("a", "b" * 40)] * 2)],
        [normalizers.Replace("a", "a" * 1001)],
    ],
)
def test_a_normalizer_that_makes_texts_longer_without_end_is_refused(steps):
    tokenizer = backend("gpt-2")
    tokenizer.normalizer = normalizers.Sequence(steps)
    with pytest.raises(ModelError, match="times as long before it cuts it, and more than 1000 times is refused"):
        FastTokenizer(tokenizer)


@pytest.mark.parametrize(
    "steps",
    [[normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")], [normalizers.Replace("``", '"')] * 60],
)
def test_normalizers_of_published_models_are_taken(steps):
    tokenizer = backend("gpt-2")
    tokenizer.normalizer = normalizers.Sequence(steps)
    assert FastTokenizer(tokenizer).token_ids(["a b"], special_tokens=False)


OF_TRAINING = {
    "dropout": models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=0.5),
    "sampling": models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.0), ("ab", -1.5)], unk_id=0, alpha=0.5),
}


@pytest.mark.parametrize("model", OF_TRAINING.values(), ids=OF_TRAINING)
def test_a_text_has_one_tokenisation_although_the_model_of_the_tokenizer_draws_them_at_random(model):
    tokenizer = Tokenizer(model)
    assert len({tuple(tokenizer.encode("ab" * 9).ids) for _ in range(30)}) > 1
    tokenizer = FastTokenizer(tokenizer)
    assert len({tuple(ids) for _ in range(30) for ids in tokenizer.token_ids(["ab" * 9], special_tokens=False)}) == 1


TOKENIZERS = {kind: FastTokenizer(one) for kind, one in BACKENDS.items()} | {"words": WordTokenizer()}
LABELS = st.lists(st.text("aQ 's\n?", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=TEXTS, labels=LABELS)
@example("S: a\nQ: b?\nA: ", ["a", " a", "\na"])
@example("a\nQ", ["s", "\n"])
def test_contexts_and_labels_are_parts_of_the_tokens_of_whole_texts(kind, text, labels):
    bare, *whole = TOKENIZERS[kind].token_ids([text, *(text + label for label in labels)], special_tokens=True)
    n = max(n for n in range(len(bare) + 1) if all(ids[:n] == bare[:n] for ids in whole))
    rests = [tuple(ids[n:]) for ids in whole]
    assume(n and all(rests) and len({*rests}) == len(labels))  # others are refused
    found = tokenise_prompts(TOKENIZERS[kind], [text], ["labels"], [labels], "merged")
    assert found.contexts.to_pylist() == [bare[:n]]
    assert found.continuations.to_pylist() == [[*map(list, rests)]]
