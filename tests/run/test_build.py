from dataclasses import replace

import polars as pl
import pytest

from evaluator.config import StoreConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, StoreError
from evaluator.progress import finish
from evaluator.run import build as prompt_store
from evaluator.run.build import (
    QUESTION,
    build_store,
    check_names,
    open_store,
    require_store,
    store_fingerprint,
    with_prompt_ids,
)
from evaluator.schemas import PROMPTS, REQUESTS

CONFIG = StoreConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_shots=2, n_queries=8)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_store_holds_every_request_and_each_distinct_prompt_once(tmp_path):
    store = finish(build_store(CONFIG, tmp_path))
    requests, prompts = store.requests().collect(), store.prompts().collect()
    assert requests.schema == REQUESTS
    assert prompts.schema == PROMPTS
    assert requests.height == store.manifest["n_requests"] == 2 * 8 * 2
    assert prompts["prompt_id"].is_unique().all()
    assert set(requests["prompt_id"]) == set(prompts["prompt_id"])


def test_without_demonstrations_both_demonstration_sets_of_a_query_are_one_prompt(tmp_path):
    store = finish(build_store(replace(CONFIG, n_shots=0), tmp_path))
    assert store.manifest["n_requests"] == 32
    assert store.manifest["n_prompts"] == 16


def test_distinct_prompts_stand_in_the_order_of_their_text(tmp_path):
    prompts = finish(build_store(CONFIG, tmp_path)).prompts().collect()["prompt"].to_list()
    assert prompts == sorted(prompts, key=str.encode)


def test_the_same_inputs_give_the_same_folder_and_the_same_bytes(tmp_path):
    first = finish(build_store(CONFIG, tmp_path / "a"))
    second = finish(build_store(CONFIG, tmp_path / "b"))
    assert first.fingerprint == second.fingerprint
    assert contents(first.folder) == contents(second.folder)


def test_a_store_that_is_there_is_not_built_again(tmp_path, monkeypatch):
    finish(build_store(CONFIG, tmp_path))
    monkeypatch.setattr(prompt_store, "suite_requests", None)
    assert finish(build_store(CONFIG, tmp_path)).manifest["n_requests"] == 32


@pytest.mark.parametrize(
    "change", [{"n_shots": 1}, {"n_queries": 9}, {"datasets": ("trec", "sst5")}, {"definitions": ("paper",)}]
)
def test_a_changed_configuration_gives_a_new_fingerprint(change):
    datasets = [load_staicc(name) for name in CONFIG.datasets]
    assert store_fingerprint(CONFIG, datasets) != store_fingerprint(
        replace(CONFIG, **change), [load_staicc(name) for name in change.get("datasets", CONFIG.datasets)]
    )


def test_a_changed_template_dataset_or_code_gives_a_new_fingerprint(monkeypatch):
    dataset = load_staicc("sst5")
    before = store_fingerprint(CONFIG, [dataset])
    assert store_fingerprint(CONFIG, [replace(dataset, fingerprint="another template or row")]) != before
    monkeypatch.setattr(prompt_store, "source_fingerprint", lambda *_: "another version of the code")
    assert store_fingerprint(CONFIG, [dataset]) != before


def test_a_damaged_store_is_built_again_and_never_read(tmp_path):
    store = finish(build_store(CONFIG, tmp_path))
    whole = contents(store.folder)
    shard = store.folder / "prompts-00000.arrow"
    shard.write_bytes(whole[shard.name][:-8])
    assert open_store(store.folder) is None
    with pytest.raises(StoreError, match="no whole prompt store"):
        require_store(store.folder)
    assert contents(finish(build_store(CONFIG, tmp_path)).folder) == whole


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"suites": ("glue",)}, "staicc-normal"),
        ({"datasets": ("imdb",)}, "hate_speech_18"),
        ({"methods": ("x",)}, "vanilla"),
    ],
)
def test_an_unknown_suite_dataset_or_method_is_an_error_that_lists_those_there_are(change, known):
    check_names(CONFIG)
    with pytest.raises(ConfigError, match=known):
        check_names(replace(CONFIG, **change))


def test_prompts_that_differ_only_in_where_a_label_ends_have_different_ids():
    rows = pl.DataFrame(
        {"ask": "labels", "prompt": "p", "continuations": [["ab", "c"], ["a", "bc"], ["abc"], ["ab", "c"]]}
    )
    ids = rows.with_row_index().join(with_prompt_ids(rows).unique(), on=QUESTION).sort("index")
    assert ids["prompt_id"].n_unique() == 3
    assert ids["prompt_id"][0] == ids["prompt_id"][3]


def test_the_log_likelihood_of_a_text_and_its_state_are_different_questions():
    rows = pl.DataFrame(
        {"ask": ["text", "state"], "prompt": "p", "continuations": pl.Series([[], []], dtype=pl.List(pl.String))}
    )
    assert with_prompt_ids(rows)["prompt_id"].n_unique() == 2
