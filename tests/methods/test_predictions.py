import math
from dataclasses import replace

import polars as pl
import pytest
from scipy.special import softmax

from evaluator.config import DEFINITIONS
from evaluator.errors import LabelError
from evaluator.methods import METHODS
from evaluator.methods.base import Method, ScoredRequests, check_labels, predict, scored_definitions
from evaluator.record import PartRecord
from evaluator.schemas import PREDICTIONS, TOKENS
from tests.methods.answered import BOTH, NORMAL, named

SCORED = pl.LazyFrame(
    {
        "suite": "s",
        "part": "normal",
        "for_part": None,
        "dataset": "d",
        "position": [1, 0],
        "query_id": [1, 0],
        "demonstration_set": 0,
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "prompt_id": ["b", "a"],
        "gold": [0, 1],
        "label_names": [["bad", "very good", "good"]] * 2,
        "label_log_likelihoods": [[-1.0, -3.0, -2.0], [-700.0, -700.0 - math.log(2), -900.0]],
        "last_token_log_probs": [[-1.0, -2.0, -2.5], [-700.0, -600.0, -900.0]],
    }
)


def answered(scored: pl.LazyFrame) -> ScoredRequests:
    return ScoredRequests(rows=scored, parts=NORMAL)


def test_vanilla_normalises_over_the_label_space_and_takes_the_likeliest_label():
    table = predict(answered(SCORED), named("vanilla"), DEFINITIONS).collect()
    assert table.schema == PREDICTIONS
    assert table.select("definition", "position").rows() == [
        ("paper", 0),
        ("paper", 1),
        ("released", 0),
        ("released", 1),
    ]
    by_hand = table.filter(pl.col("definition") == "paper")["label_probs"]
    # Position 0: the likelihoods stand 2 : 1 : e^-200, however small they are by themselves.
    assert by_hand[0].to_list() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-12)  # 700 has a spacing of 1e-13
    assert by_hand[1].to_list() == pytest.approx(softmax([-1.0, -3.0, -2.0]), abs=1e-15)
    assert table.filter(pl.col("definition") == "paper")["pred"].to_list() == [0, 0]


def test_released_scores_the_last_token_alone():
    table = predict(answered(SCORED), named("vanilla"), ("released",)).collect()
    assert table["definition"].unique().to_list() == ["released"]
    assert table["pred"].to_list() == [1, 0]
    assert table["label_probs"][1].to_list() == pytest.approx(softmax([-1.0, -2.0, -2.5]), abs=1e-15)


def test_equally_likely_labels_give_the_first():
    tied = SCORED.with_columns(label_log_likelihoods=pl.lit([-2.0, -1.0, -1.0]))
    assert predict(answered(tied), named("vanilla"), ("paper",)).collect()["pred"].to_list() == [1, 1]


def test_published_uses_the_scores_of_released():
    assert scored_definitions(DEFINITIONS) == ["paper", "released"]
    assert scored_definitions(("published",)) == ["released"]
    assert scored_definitions(("paper",)) == ["paper"]


def two_parts(**kinds: PartRecord) -> ScoredRequests:
    """The same request in each of these parts."""
    rows = [SCORED.filter(position=0).with_columns(part=pl.lit(part)) for part in kinds]
    return ScoredRequests(rows=pl.concat(rows), parts=kinds)


def test_each_part_has_the_definitions_that_its_prompts_can_be_measured_under():
    answers = two_parts(both=PartRecord("choice", BOTH), differs=PartRecord("diagnostic", ("released",)))
    table = predict(answers, named("vanilla"), DEFINITIONS).collect()
    assert table.select("part", "definition").rows() == [
        ("both", "paper"),
        ("both", "released"),
        ("differs", "released"),
    ]


def test_a_method_answers_only_parts_of_its_kinds_and_nothing_where_no_query_is_asked():
    answers = two_parts(normal=PartRecord("classification", BOTH), null=PartRecord("null", BOTH))
    assert predict(answers, named("vanilla"), ("paper",)).collect()["part"].to_list() == ["normal"]
    answers = two_parts(normal=PartRecord("classification", BOTH), noisy=PartRecord("diagnostic", BOTH))
    assert predict(answers, named("batch_calibration"), ("paper",)).collect()["part"].to_list() == ["normal"]


def test_a_part_is_answered_with_what_a_method_asked_for_it_and_not_for_another():
    answers = two_parts(one=PartRecord("choice", BOTH), two=PartRecord("choice", BOTH))
    unconditional = {"one": [0.0, 0.0, 0.0], "two": [-900.0, -700.0, -900.0]}
    added = [
        SCORED.filter(position=0).with_columns(
            part=pl.lit("unconditional"), for_part=pl.lit(part), label_log_likelihoods=pl.lit(scores)
        )
        for part, scores in unconditional.items()
    ]
    answers = replace(answers, rows=pl.concat([answers.rows, *added], how="vertical_relaxed"))
    table = predict(answers, named("unconditional"), ("paper",)).collect()
    # Less its own unconditional scores, -700, -700.69 and -900 stay as they are, or are 200, -0.69 and 0.
    assert table["part"].to_list() == ["one", "two"]
    assert table["label_probs"][0].to_list() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-12)
    assert table["label_probs"][1].to_list() == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)


def label_tables(labels: dict[str, list[int]]) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    tokens = {
        "prompt_id": ["a", "b"],
        "token_id": ["a", "b"],
        "ask": "labels",
        "context": [[1], [2]],
        "continuations": [list(labels.values())] * 2,
    }
    prompts = {"prompt_id": ["a", "b"], "prompt": ["p", "q"], "continuations": [list(labels)] * 2}
    return pl.LazyFrame(tokens, schema=TOKENS), pl.LazyFrame(prompts)


def test_labels_that_end_in_the_same_token_are_refused_under_released_and_allowed_under_paper():
    labels = label_tables({"very good": [5, 7], "good": [7], "bad": [8]})
    check_labels(named("vanilla"), ("paper",), *labels)
    with pytest.raises(LabelError, match=r"'good' and 'very good'.*--definition paper"):
        check_labels(named("vanilla"), DEFINITIONS, *labels)


def test_labels_that_end_in_the_same_token_after_different_prompts_alone_are_allowed():
    tokens, prompts = label_tables({"good": [7], "bad": [8]})
    swapped = pl.when(pl.col("prompt_id") == "a").then("continuations").otherwise(pl.lit([[8], [9]]))
    check_labels(named("vanilla"), DEFINITIONS, tokens.with_columns(continuations=swapped), prompts)


def test_a_label_longer_than_a_method_takes_is_named_with_its_tokens():
    one_token = Method(summary="", label_probs=METHODS["vanilla"].label_probs, max_label_tokens=1)
    check_labels({"one_token": one_token}, DEFINITIONS, *label_tables({"good": [7], "bad": [8]}))
    with pytest.raises(LabelError, match=r"one_token scores labels of at most 1 token, .* 'very good' \(2 tokens\)"):
        check_labels({"one_token": one_token}, DEFINITIONS, *label_tables({"very good": [5, 7], "bad": [8]}))


def test_a_part_is_answered_with_its_own_added_requests_and_those_of_null_parts():
    kinds = {"normal": "classification", "other": "classification", "null": "null"}
    parts = {name: PartRecord(kind, ("paper",)) for name, kind in kinds.items()}
    rows = pl.LazyFrame({"for_part": [None, "normal", "other", "null", "normal"], "dataset": [*"ddd", "d", "e"]})
    scored = replace(answered(SCORED), parts=parts, rows=rows, states=rows)
    for dataset, expected in ((None, [None, "normal", "null", "normal"]), ("d", [None, "normal", "null"])):
        own = scored.answering("normal", dataset)
        assert own.answered_part == "normal"
        assert own.rows.collect()["for_part"].to_list() == own.states.collect()["for_part"].to_list() == expected
