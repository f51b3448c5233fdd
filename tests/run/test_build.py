from dataclasses import replace

import polars as pl
import pytest

from evaluator import store as module
from evaluator.config import DataOptions, RunConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, StoreError
from evaluator.progress import finish
from evaluator.run import build
from evaluator.run.build import build_prompts, check_config, store_fingerprint
from evaluator.schemas import PROMPTS, REQUESTS
from evaluator.store import PromptStore, open_intact_store, require_store, with_prompt_ids

CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_shots=2, n_queries=8)


def built(config, folder) -> PromptStore:
    return finish(build_prompts(config, folder)).store


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_store_holds_every_request_and_each_distinct_prompt_once(tmp_path):
    store = built(CONFIG, tmp_path)
    requests, prompts = store.requests().collect(), store.prompts().collect()
    assert requests.schema == REQUESTS
    assert prompts.schema == PROMPTS
    assert requests.height == store.manifest.n_requests == 2 * 8 * 2
    assert prompts["prompt_id"].is_unique().all()
    assert set(requests["prompt_id"]) == set(prompts["prompt_id"])


def test_without_demonstrations_both_demonstration_sets_of_a_query_are_one_prompt(tmp_path):
    store = built(replace(CONFIG, n_shots=0), tmp_path)
    assert store.manifest.n_requests == 32
    assert store.manifest.n_prompts == 16


def test_distinct_prompts_stand_in_the_order_of_their_text(tmp_path):
    prompts = built(CONFIG, tmp_path).prompts().collect()["prompt"].to_list()
    assert prompts == sorted(prompts, key=str.encode)


def test_the_same_inputs_give_the_same_folder_and_the_same_bytes(tmp_path):
    first = built(CONFIG, tmp_path / "a")
    second = built(CONFIG, tmp_path / "b")
    assert first.fingerprint == second.fingerprint
    assert contents(first.folder) == contents(second.folder)


def test_a_store_that_is_there_is_not_built_again(tmp_path, monkeypatch):
    built(CONFIG, tmp_path)
    monkeypatch.setattr(build, "write_store", None)
    assert built(CONFIG, tmp_path).manifest.n_requests == 32


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
    monkeypatch.setattr(build, "source_fingerprint", lambda *_: "another version of the code")
    assert store_fingerprint(CONFIG, [dataset]) != before


def test_a_file_of_a_store_is_hashed_once_and_when_it_is_first_read(tmp_path, monkeypatch):
    folder = built(CONFIG, tmp_path).folder
    hashed: list[str] = []
    digest = module.file_digest
    monkeypatch.setattr(module, "file_digest", lambda path: hashed.append(path.name) or digest(path))
    opened = require_store(folder, "Build it.")
    assert not hashed
    for store in (opened, opened.without(["sst5"]), opened):
        store.requests()
        store.table("one that no suite wrote", REQUESTS)
        assert hashed == ["requests-00000.arrow"]
    opened.require_intact()
    assert sorted(hashed) == sorted(opened.manifest.files)


def test_a_damaged_store_is_built_again_and_never_read(tmp_path):
    store = built(CONFIG, tmp_path)
    whole = contents(store.folder)
    shard = store.folder / "prompts-00000.arrow"
    shard.write_bytes(whole[shard.name][:-8])
    assert open_intact_store(store.folder) is None
    opened = require_store(store.folder, "Build it.")
    assert opened.requests().collect().height == store.manifest.n_requests  # of files that are whole
    for read in (opened.prompts, opened.requests_with_prompts, opened.require_intact):
        with pytest.raises(StoreError, match=r"not an intact prompt store: prompts-00000.arrow .* Build it\."):
            read()
    assert contents(built(CONFIG, tmp_path).folder) == whole


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"suites": ("glue",)}, "staicc-normal"),
        ({"datasets": ("imdb",)}, "hate_speech_18"),
        ({"methods": ("x",)}, "vanilla"),
    ],
)
def test_an_unknown_suite_dataset_or_method_is_an_error_that_lists_those_there_are(change, known):
    check_config(CONFIG)
    with pytest.raises(ConfigError, match=known):
        check_config(replace(CONFIG, **change))


def test_prompts_that_differ_only_in_where_a_label_ends_have_different_ids():
    rows = pl.DataFrame(
        {"ask": "labels", "prompt": "p", "continuations": [["ab", "c"], ["a", "bc"], ["abc"], ["ab", "c"]]}
    )
    ids = (
        rows.with_row_index().join(with_prompt_ids(rows).unique(), on=["ask", "prompt", "continuations"]).sort("index")
    )
    assert ids["prompt_id"].n_unique() == 3
    assert ids["prompt_id"][0] == ids["prompt_id"][3]


def test_the_log_likelihood_of_a_text_and_its_state_are_different_questions():
    rows = pl.DataFrame(
        {"ask": ["text", "state"], "prompt": "p", "continuations": pl.Series([[], []], dtype=pl.List(pl.String))}
    )
    assert with_prompt_ids(rows)["prompt_id"].n_unique() == 2


def test_an_unknown_part_is_an_error_that_lists_those_of_the_suites():
    check_config(replace(CONFIG, parts=("normal",)))
    with pytest.raises(ConfigError, match=r"no part 'gler' in staicc-normal\. There are: normal"):
        check_config(replace(CONFIG, parts=("gler",)))


def test_only_the_chosen_parts_are_requested(tmp_path):
    config = replace(CONFIG, suites=("staicc-bias",), parts=("contextual",))
    assert set(built(config, tmp_path).requests().collect()["part"]) == {"contextual"}


def test_parts_without_prompts_are_an_error_and_leave_no_store(tmp_path):
    config = replace(CONFIG, suites=("prompt-search",), datasets=("trec",), parts=("instructions",))
    with pytest.raises(ConfigError, match=r"prompt-search has no prompts in the parts instructions with these options"):
        built(config, tmp_path)
    assert not list(tmp_path.glob("store/*/*"))


def test_a_method_that_answers_no_chosen_part_is_refused():
    bias = replace(CONFIG, suites=("staicc-bias",), parts=("contextual",), methods=("topk",))
    with pytest.raises(ConfigError, match="topk answers queries of classification"):
        check_config(bias)
    check_config(replace(bias, parts=("normal",)))


def test_every_suite_of_classification_takes_a_published_dataset_that_it_was_not_made_for(tmp_path):
    (tmp_path / "data").mkdir()
    rows = [
        {"premise": f"p{i}", "hypothesis": f"h{i}", "label": ["entailment", "not_entailment"][i % 2]} for i in range(60)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "data" / "rte_dev.parquet")
    data = DataOptions(paths=(tmp_path / "data",))
    requests = built(replace(CONFIG, datasets=("rte",), data=data), tmp_path).requests().collect()
    assert set(requests["dataset"]) == {"rte"}


def test_a_suite_that_needs_templates_makes_nine_for_a_dataset_without_them(tmp_path):
    pl.DataFrame({"text": [f"t{i}" for i in range(60)], "label": ["a", "b"] * 30}).write_csv(tmp_path / "mine.csv")
    config = replace(
        CONFIG, suites=("staicc-robustness",), datasets=(), data=DataOptions(paths=(tmp_path / "mine.csv",))
    )
    requests = built(config, tmp_path).requests().filter(part="template").collect()
    # Nine templates of eight queries after two demonstration sets.
    assert dict(requests["template"].value_counts().iter_rows()) == dict.fromkeys(range(9), 16)


def test_a_method_of_a_suite_answers_each_of_its_parts_of_classification_by_itself(tmp_path):
    config = replace(CONFIG, suites=("staicc-demonstrations",), datasets=("sst5",), methods=("contextual_calibration",))
    requests = built(config, tmp_path).requests().collect()
    added = requests.filter(pl.col("for_part").is_not_null()).group_by("part", "for_part").len().sort("for_part")
    assert added.rows() == [
        ("contextual_calibration", "in_domain", 128),
        ("contextual_calibration", "out_of_domain", 128),
    ]
