"""The record of a run as lines to read."""

import pytest

from evaluator.preflight.findings import finding
from evaluator.record import PreflightRecord, ThroughputRecord
from evaluator.report import run_record
from tests.report.made_record import made_record


def test_token_counts_are_stated_as_multiples_of_the_floor() -> None:
    # Floor 1,000; requests 2,400, distinct prompts and sent 2,000, computed 1,250, floor in blocks of 32 1,100.
    counts = run_record.token_counts(made_record())
    assert counts.select("name", "times_floor").rows() == [
        ("All requests", 2.4),
        ("Distinct prompts", 2.0),
        ("Sent to the engine", 2.0),
        ("Computed", 1.25),
        ("Floor in blocks of 32", 1.1),
        ("Floor", 1.0),
    ]
    assert counts["share"][3] == 1250 / 2400


def test_an_engine_without_a_prefix_cache_has_no_floor_in_blocks() -> None:
    cacheless = made_record(tokens={"block_tokens": None, "block_floor_tokens": None})
    assert run_record.token_counts(cacheless)["name"].to_list() == [
        "All requests",
        "Distinct prompts",
        "Sent to the engine",
        "Computed",
        "Floor",
    ]


def test_where_it_is_not_told_what_was_cached_nothing_is_said_of_computed_tokens() -> None:
    untold = made_record(scores={"cached_tokens": None})
    assert "Computed" not in run_record.token_counts(untold)["name"].to_list()
    assert run_record.token_summary(untold).endswith(
        "The engine does not tell how many of the tokens sent came from a prefix cache."
    )


def test_the_summary_of_tokens_says_only_what_was_counted() -> None:
    # 750 of 2,000 tokens are 37.5%; no speed was measured.
    requests = "24 requests are 20 distinct prompts."
    assert run_record.token_summary(made_record()) == f"{requests} 37.5% of the tokens sent came from the prefix cache."
    answered_before = made_record(scores={"reused_prompts": 20, "prompt_tokens": 0, "cached_tokens": 0})
    assert run_record.token_summary(answered_before) == f"{requests} Earlier runs had scored 20 of them."


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (ThroughputRecord(flop_per_s=791.2e12, peak_share=0.2), "791 TFLOP/s, 20% of the devices' peak (MFU)"),
        (ThroughputRecord(flop_per_s=0.0213e12), "0.0213 TFLOP/s"),  # a device whose peak is not known
    ],
)
def test_the_arithmetic_rate_stands_beside_the_throughput(rates: ThroughputRecord, said: str) -> None:
    record = made_record(scores={"prompt_tokens": 654_321, "elapsed_s": 100.0, "throughput": rates})
    assert run_record.token_summary(record).endswith(f"Scoring went through 6,543 tokens a second, at {said}.")
    assert run_record.record_facts(record)["Model and engine"]["Arithmetic rate"] == said


def test_a_model_of_unknown_operations_has_no_arithmetic_rate() -> None:
    record = made_record(
        scores={"prompt_tokens": 654_321, "elapsed_s": 100.0, "throughput": ThroughputRecord(requests_per_s=3.0)}
    )
    assert run_record.token_summary(record).endswith("Scoring went through 6,543 tokens a second.")
    assert "Arithmetic rate" not in run_record.record_facts(record)["Model and engine"]


def test_what_was_not_recorded_has_no_value() -> None:
    unknown = made_record(model={"n_parameters": None}, prompts={"seeds": {}})
    assert run_record.headline_facts(unknown)["Parameters"] is None
    assert run_record.headline_facts(unknown)["Seeds"] is None
    groups = run_record.record_facts(made_record())
    assert groups["Model and engine"]["Throughput"] is None
    assert groups["Time"]["Load model"] is None


def test_a_dataset_that_failed_is_named_and_is_not_among_the_datasets() -> None:
    prompts = run_record.record_facts(made_record(prompts={"datasets": ["a", "odd"], "left_out": {"odd": "-"}}))
    assert (prompts["Prompts"]["Datasets"], prompts["Prompts"]["Left out"]) == ("a", "odd")
    assert "Left out" not in run_record.record_facts(made_record())["Prompts"]


def test_null_is_told_where_it_has_a_meaning() -> None:
    cacheless = run_record.record_facts(made_record(engine={"prefix_block_tokens": None}))["Model and engine"]
    assert cacheless["Prefix-cache block"] == "none, no prefix cache"
    served = {"prefix_block_tokens": None, "counts_cached_tokens": False}
    silent = run_record.record_facts(made_record(engine=served))["Model and engine"]
    assert silent["Prefix-cache block"] == "not known"


def test_a_local_folder_has_no_revision_and_a_hub_model_without_one_was_not_recorded() -> None:
    folder, hub = (made_record(model={"kind": kind, "revision": None}) for kind in ("folder", "hub"))
    assert run_record.headline_facts(folder)["Revision"] == "none, a local model"
    assert run_record.headline_facts(hub)["Revision"] is None


def test_the_engine_is_named_with_its_version() -> None:
    assert run_record.headline_facts(made_record())["Engine"] == "vllm 9.9.9"
    unknown = made_record(engine={"name": "fake", "versions": {}})
    assert run_record.headline_facts(unknown)["Engine"] == "fake"


@pytest.mark.parametrize(
    ("has_template", "form"), [(False, "plain"), (True, "plain, though the model has a chat template")]
)
def test_prompts_that_pass_by_a_chat_template_say_so(has_template: bool, form: str) -> None:
    assert run_record.headline_facts(made_record(model={"has_chat_template": has_template}))["Prompts"] == form


def test_a_finding_that_was_accepted_is_a_warning_if_it_stops_a_run() -> None:
    checked = PreflightRecord(
        model="acme/small",
        label_boundary="separate",
        tokens_in_front=0,
        has_chat_template=False,
        context_tokens=None,
        datasets={},
        requests=0,
        prompts=0,
        tokenised_prompts=0,
        request_tokens=0,
        tokens=0,
        floor_tokens=0,
        block_floor_tokens={},
        n_parameters=None,
        weight_bytes=None,
        cache_bytes_per_token=0,
        flop_per_token=None,
        devices={},
        findings=[
            finding("class-without-queries", "No row is 'x'.", "zoo"),
            finding("prompts-over-context", "Two are longer.", "abc"),
            finding("missing-bos", "It has no BOS."),
        ],
        accepted=["class-without-queries", "missing-bos"],
    )
    said = ["Accepted with --accept class-without-queries: zoo: No row is 'x'."]
    assert run_record.accepted_warnings(checked) == said
    assert run_record.accepted_warnings(None) == []
