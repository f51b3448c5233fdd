"""What the embedded tokenizer was made for: a label is the same token in a demonstration and behind a query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.config import ModelConfig
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from evaluator.tokens.boundary import tokenise_prompts
from evaluator.tokens.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return find_model(ModelConfig(model=str(EMBEDDED_MODELS["embedded"]()))).tokenizer


def test_every_label_of_the_benchmark_is_one_token(tokenizer):
    names = [name for dataset in SOURCES for name in load_staicc(dataset).verbalizer.label_names]
    assert {len(ids) for ids in tokenizer.token_ids(names, special_tokens=False)} == {1}


def test_it_does_not_matter_whether_prompts_and_labels_are_tokenised_apart(tokenizer, real_prompts):
    texts = [real_prompts[name].to_list() for name in ("prompt", "ask", "continuations")]
    separate, merged = (tokenise_prompts(tokenizer, *texts, how) for how in ("separate", "merged"))
    assert separate.contexts.equals(merged.contexts)
    assert separate.continuations.equals(merged.continuations)


@given(text=st.text(max_size=60), label=st.text(st.characters(categories=["Ll"]), min_size=1, max_size=8))
def test_a_demonstration_holds_the_tokens_of_its_query_and_of_its_label(tokenizer, text, label):
    query = f"sentence: {text} sentiment: "
    demonstration, of_query, of_label, of_end = tokenizer.token_ids(
        [f"{query}{label}\n", query, label, "\n"], special_tokens=False
    )
    assert demonstration == of_query + of_label + of_end


@given(text=st.text(max_size=60))
def test_case_does_not_matter(tokenizer, text):
    ascii_text = text.encode("ascii", "ignore").decode()
    upper, lower = tokenizer.token_ids([ascii_text.upper(), ascii_text.lower()], special_tokens=False)
    assert upper == lower
