"""Hand-worked boundaries: a tokenizer whose every merge is known, so that each expected id can be read off."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from evaluator.errors import LabelError, ModelError
from evaluator.models.embedded.llama import byte_level_tokenizer
from evaluator.schemas import Ask
from evaluator.tokens.boundary import tokenise_prompts
from evaluator.tokens.tokenizer import FastTokenizer

# "Ġ" is how byte-level tokenizers write a space. Merges in order: ab, then Ġab: " ab" is one token, "ab" another.
VOCABULARY = {"<s>": 0, "</s>": 1, ":": 2, "Ġ": 3, "a": 4, "b": 5, "c": 6, "ab": 7, "Ġab": 8, "x": 9}
MERGES = [("a", "b"), ("Ġ", "ab")]


def tokenizer(template: str = "<s> $A") -> FastTokenizer:
    backend = Tokenizer(models.BPE(VOCABULARY, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    return FastTokenizer(backend)


def tokenized(
    prompt: str, labels: list[str], boundary: str, template: str = "<s> $A", ask: Ask = "labels"
) -> tuple[list[int], list[list[int]]]:
    rows = tokenise_prompts(tokenizer(template), [prompt], [ask], [labels], boundary)  # type: ignore[arg-type]
    return rows.contexts.to_pylist()[0], rows.continuations.to_pylist()[0]


def test_separate_scores_a_label_after_the_lone_space_that_ends_the_prompt():
    # "x: " alone is x, :, Ġ; "ab" alone is one token; "c" another.
    assert tokenized("x: ", ["ab", "c"], "separate") == ([0, 9, 2, 3], [[7], [6]])


def test_merged_moves_the_space_into_the_label():
    # "x: ab" is x, :, Ġab, and "x: c" is x, :, Ġ, c: common to both and to "x: " (x, :, Ġ) are x and :.
    assert tokenized("x: ", ["ab", "c"], "merged") == ([0, 9, 2], [[8], [3, 6]])


def test_merged_keeps_a_stem_that_all_labels_share_in_the_labels():
    # Both begin with c behind the prompt's own tokens x, : — c belongs to the labels, though both have it.
    assert tokenized("x:", ["cx", "ca"], "merged") == ([0, 9, 2], [[6, 9], [6, 4]])


def test_merged_takes_back_a_prompt_token_that_the_only_continuation_merges_with():
    # "xa" ends in a, "xab" in ab: only x is common.
    assert tokenized("xa", ["b"], "merged") == ([0, 9], [[7]])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_bos_is_added_once_where_the_tokenizer_adds_it_and_never_where_it_does_not(boundary):
    assert tokenized("x:", ["a", "c"], boundary) == ([0, 9, 2], [[4], [6]])
    assert tokenized("x:", ["a", "c"], boundary, template="$A") == ([9, 2], [[4], [6]])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_an_eos_that_the_tokenizer_appends_is_dropped(boundary):
    assert tokenized("x:", ["a", "c"], boundary, template="<s> $A </s>") == ([0, 9, 2], [[4], [6]])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_a_tokenizer_without_the_letter_that_shows_where_a_text_begins_is_refused(boundary):
    # Without it BOS would be taken for an EOS: moved to the end, and dropped there.
    backend = Tokenizer(models.BPE({"<s>": 0, "x": 1, ":": 2, "b": 3}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    letters = FastTokenizer(backend)
    assert letters.token_ids(["x:"], special_tokens=True) == [[0, 1, 2]]
    with pytest.raises(ModelError, match="unclear where a text begins"):
        tokenise_prompts(letters, ["x:"], ["labels"], [["x", "b"]], boundary)


def test_an_empty_prompt_is_scored_after_bos_alone():
    assert tokenized("", ["a", "c"], "separate") == ([0], [[4], [6]])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_an_empty_prompt_without_bos_is_refused(boundary):
    with pytest.raises(LabelError, match="no token before its labels"):
        tokenized("", ["a", "c"], boundary, template="$A")


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_labels_that_tokenise_identically_are_refused_by_name(boundary):
    # The vocabulary has no q and no z: without an unknown token both vanish.
    with pytest.raises(LabelError, match=r"'aq' and 'az' of .* tokenise identically"):
        tokenized("x:", ["aq", "c", "az"], boundary)


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_a_label_named_twice_is_refused(boundary):
    with pytest.raises(LabelError, match=r"'a' and 'a' of .* tokenise identically"):
        tokenized("x:", ["c", "a", "a"], boundary)


@pytest.mark.parametrize("boundary", ["separate", "merged"])
@pytest.mark.parametrize("label", ["", "q"])
def test_a_label_without_tokens_is_refused(boundary, label):
    with pytest.raises(LabelError, match=r"has no tokens.*cannot be scored"):
        tokenized("x:", [label, "a"], boundary)


def test_prompts_with_different_label_spaces_keep_their_own():
    rows = tokenise_prompts(tokenizer(), ["x", "a", "x"], ["labels"] * 3, [["a", "b"], ["c"], ["a", "b"]], "separate")
    assert rows.contexts.to_pylist() == [[0, 9], [0, 4], [0, 9]]
    assert rows.continuations.to_pylist() == [[[4], [5]], [[6]], [[4], [5]]]


def test_no_prompts_give_no_rows():
    rows = tokenise_prompts(tokenizer(), [], [], [], "separate")
    assert rows.contexts.to_pylist() == rows.continuations.to_pylist() == []


def test_more_prompts_than_one_batch_come_back_in_order():
    prompts = ["x" * (place % 7) + ":" for place in range(10_000)]
    rows = tokenise_prompts(tokenizer(), prompts, ["labels"] * 10_000, [["a"]] * 10_000, "separate")
    assert rows.contexts.to_pylist() == [[0, *[9] * (place % 7), 2] for place in range(10_000)]


def test_truncation_in_a_tokenizer_file_is_ignored():
    backend = byte_level_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    (ids,) = FastTokenizer(backend).token_ids(["twelve bytes"], special_tokens=True)
    assert len(ids) == 13  # and BOS


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_a_text_by_itself_is_scored_after_its_first_token(boundary):
    # "x: ab" is x, :, Ġab; with a BOS every token of the text is scored, without one all but the first.
    assert tokenized("x: ab", [], boundary, ask="text") == ([0], [[9, 2, 8]])
    assert tokenized("x: ab", [], boundary, template="$A", ask="text") == ([9], [[2, 8]])
    assert tokenized("x:", [], boundary, template="$A", ask="text") == ([9], [[2]])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_a_prompt_that_asks_for_a_state_is_a_context_without_continuations(boundary):
    assert tokenized("x: ab", [], boundary, ask="state") == ([0, 9, 2, 8], [])


@pytest.mark.parametrize("boundary", ["separate", "merged"])
def test_a_text_of_one_token_is_refused(boundary):
    with pytest.raises(LabelError, match=r"The text 'x' is one token"):
        tokenized("x", [], boundary, template="$A", ask="text")
