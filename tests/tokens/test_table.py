import polars as pl
import pytest

from evaluator.config import RunConfig
from evaluator.files.digests import fingerprint
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.run.build import build_prompts
from evaluator.schemas import TOKENS
from evaluator.tokens.table import _batches, open_tokens, tokenise_store, with_last_tokens, with_token_ids
from tests.tokens.token_frames import token_table


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_queries=8)
    return finish(build_prompts(config, tmp_path_factory.mktemp("store"))).store


@pytest.fixture(scope="module")
def fake_source():
    return fake_model_source()


def tokenised(store, source, boundary, definitions=("paper",)):
    return finish(tokenise_store(store, source.tokenizer, source.tokenizer_fingerprint, boundary, definitions))


def test_tokens_are_in_prefix_order_and_belong_to_their_prompts(store, fake_source):
    table = tokenised(store, fake_source, "separate")
    tokens = table.tokens.collect()
    assert tokens.schema == TOKENS
    contexts = tokens["context"].to_list()
    assert contexts == sorted(contexts)
    texts = dict(store.prompts().select("prompt_id", "prompt").collect().rows())
    sample = tokens.row(3, named=True)
    assert sample["context"] == fake_source.tokenizer.token_ids([texts[sample["prompt_id"]]], special_tokens=True)[0]


def test_existing_tokens_are_not_made_again_unless_damaged(store, fake_source, monkeypatch):
    table = tokenised(store, fake_source, "separate")
    monkeypatch.setattr("evaluator.tokens.table.tokenise", None)
    assert tokenised(store, fake_source, "separate").manifest == table.manifest
    monkeypatch.undo()
    (table.folder / "tokens-00000.arrow").write_bytes(b"damaged")
    assert open_tokens(table.folder) is None
    assert tokenised(store, fake_source, "separate").manifest == table.manifest


@pytest.mark.parametrize(
    ("characters", "n_most", "expected"),
    [
        (40, 4, [2, 2, 1, 4]),  # 10, 30 / 10, 10 / 100 / 10, 10, 10, 0
        (10**6, 4, [4, 4, 1]),
    ],
)
def test_batches_have_few_prompts_and_few_characters_with_all_labels(monkeypatch, characters, n_most, expected):
    monkeypatch.setattr("evaluator.tokens.table.PROMPTS_PER_BATCH", n_most)
    monkeypatch.setattr("evaluator.tokens.table.CHARACTERS_PER_BATCH", characters)
    labels = [[], ["a", "b"], ["a"], ["a"], ["a"] * 9, [], [], [], []]
    prompts = ["x" * n for n in (10, 10, 5, 5, 10, 10, 10, 10, 0)]
    rows = pl.DataFrame(
        {"prompt": prompts, "continuations": labels}, schema_overrides={"continuations": pl.List(pl.String)}
    )
    batches = _batches(rows)
    assert pl.concat(batches).equals(rows)
    assert [batch.height for batch in batches] == expected


def test_another_boundary_or_tokenizer_has_a_folder_of_its_own(store, fake_source):
    separate = tokenised(store, fake_source, "separate")
    merged = tokenised(store, fake_source, "merged")
    assert separate.folder != merged.folder
    assert fingerprint("one tokenizer", "merged") != fingerprint("another", "merged")


def test_equal_tokens_have_the_same_id_unless_their_ask_differs():
    rows = token_table(
        ("a", [1, 2], [[7], [8]]), ("b", [1, 2], [[7], [8]]), ("c", [1, 2, 7], [[8]]), ("d", [1, 2], [[7, 8]])
    )
    ids = rows["token_id"].to_list()
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    as_states = with_token_ids(rows.drop("token_id").with_columns(ask=pl.lit("state")))
    assert not {*as_states["token_id"]} & {*ids}
    # The same tokens, divided among the labels in another way; and tokens that could be lengths.
    cut = token_table(
        ("a", [1], [[7], [8, 9]]), ("b", [1], [[7, 8], [9]]), ("c", [1, 1, 3], [[5]]), ("d", [1], [[1, 1, 5]])
    )
    assert cut["token_id"].n_unique() == 4


def test_only_labels_of_several_tokens_get_a_row_of_last_tokens():
    rows = with_last_tokens(token_table(("a", [1], [[7], [8]]), ("b", [1, 2], [[7], [8, 9]])))
    assert rows["ask"].to_list() == ["labels", "labels", "last_tokens"]
    assert rows.row(2, named=True)["prompt_id"] == "b"
    assert rows["continuations"].to_list()[2] == [[7], [9]]


def test_tokens_are_made_again_when_the_code_that_makes_them_has_changed(store, fake_source, monkeypatch):
    table = tokenised(store, fake_source, "separate")
    monkeypatch.setattr("evaluator.tokens.table.source_fingerprint", lambda *_: "another version")
    assert tokenised(store, fake_source, "separate").folder != table.folder
    # Scores are kept by the tokens themselves, which are the same.
    assert tokenised(store, fake_source, "separate").fingerprint == table.fingerprint
