import polars as pl
import pytest

from evaluator.config import ModelConfig, StoreConfig
from evaluator.files import fingerprint
from evaluator.models.source import find_model
from evaluator.progress import finish
from evaluator.run.build import build_store
from evaluator.schemas import TOKENS
from evaluator.tokens.table import count_tokens, fed_rows, open_tokens, tokenise_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    config = StoreConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_queries=8)
    return finish(build_store(config, tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def fake_source():
    return find_model(ModelConfig(model="fake", engine="fake"))


def test_tokens_stand_in_prefix_order_and_belong_to_their_prompts(store, fake_source):
    table = finish(tokenise_store(store, fake_source, "separate"))
    tokens = table.tokens().collect()
    assert tokens.schema == TOKENS
    contexts = tokens["context"].to_list()
    assert contexts == sorted(contexts)
    texts = dict(store.prompts().select("prompt_id", "prompt").collect().rows())
    sample = tokens.row(3, named=True)
    assert sample["context"] == fake_source.tokenizer.token_ids([texts[sample["prompt_id"]]], special_tokens=True)[0]


def test_tokens_that_are_there_are_not_made_again_unless_damaged(store, fake_source, monkeypatch):
    table = finish(tokenise_store(store, fake_source, "separate"))
    monkeypatch.setattr("evaluator.tokens.table.tokenise", None)
    assert finish(tokenise_store(store, fake_source, "separate")).manifest == table.manifest
    monkeypatch.undo()
    (table.folder / "tokens-00000.arrow").write_bytes(b"damaged")
    assert open_tokens(table.folder) is None
    assert finish(tokenise_store(store, fake_source, "separate")).manifest == table.manifest


def test_another_boundary_or_tokenizer_has_a_folder_of_its_own(store, fake_source):
    separate = finish(tokenise_store(store, fake_source, "separate"))
    merged = finish(tokenise_store(store, fake_source, "merged"))
    assert separate.folder != merged.folder
    assert fingerprint("one tokenizer", "merged") != fingerprint("another", "merged")


def token_table(*rows):
    names, contexts, continuations = zip(*rows, strict=True)
    return pl.DataFrame(
        {"prompt_id": names, "ask": "labels", "context": contexts, "continuations": continuations}, schema=TOKENS
    )


def test_the_floor_counts_each_token_after_its_own_prefix_once():
    tokens = token_table(("a", [1, 2, 3], [[9], [8]]), ("b", [1, 2, 4], [[9], [8]]), ("c", [1, 2, 3, 5], [[9], [8]]))
    requests = pl.LazyFrame({"prompt_id": ["a", "a", "b", "c"]})
    counts = count_tokens(requests, tokens)
    assert counts["request_tokens"] == 3 + 3 + 3 + 4
    assert counts["tokens"] == 3 + 3 + 4
    # The trie: 1, 1 2, 1 2 3, 1 2 4, 1 2 3 5.
    assert counts["floor_tokens"] == 5
    # No row fills a block of 16, so nothing can be shared.
    assert counts["block_floor_tokens"]["16"] == 10


def test_a_label_of_several_tokens_adds_all_but_its_last_to_what_is_fed():
    tokens = token_table(("a", [1, 2], [[7], [8, 9, 3], [8, 9, 4]]))
    assert sorted(fed_rows(tokens).to_list()) == [[1, 2], [1, 2, 8, 9]]
    assert count_tokens(pl.LazyFrame({"prompt_id": ["a"]}), tokens)["floor_tokens"] == 4
