"""Each rule on the same scores: it is the rule that decides which label wins."""

import math

import polars as pl
import pytest
from scipy.special import softmax

from evaluator.config import RunConfig
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError
from evaluator.methods.base import MethodContext, ScoredRequests, predict
from evaluator.methods.scoring_rules import unconditional_requests
from evaluator.record import PartRecord
from evaluator.run.build import check_config
from evaluator.schemas import PREDICTIONS
from tests.methods.answered import BOTH, named

NAMES = ["no", "é", "certainly so"]  # 2, 2 and 12 bytes: é has two
SCORES = [-3.0, -4.0, -9.0]
TOKENS = [1, 2, 6]
UNCONDITIONAL = [-2.0, -6.0, -7.0]


def answered(scored: pl.LazyFrame) -> ScoredRequests:
    return ScoredRequests(rows=scored, parts={"demonstrations": PartRecord("choice", BOTH)})


def scored() -> pl.LazyFrame:
    request = {"suite": "s", "dataset": "d", "label_names": NAMES, "last_token_log_probs": [-1.0, -1.0, -1.0]}
    context = {
        "part": "demonstrations",
        "for_part": None,
        "position": 0,
        "query_id": 7,
        "demonstration_set": 0,
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "gold": 1,
        "prompt_id": "a",
    }
    beside = {
        "part": "unconditional",
        "for_part": "demonstrations",
        "position": 0,
        "query_id": None,
        "demonstration_set": 0,
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
        "gold": None,
        "prompt_id": "b",
    }
    return pl.LazyFrame(
        [
            request | context | {"label_log_likelihoods": SCORES, "label_token_counts": TOKENS},
            request | beside | {"label_log_likelihoods": UNCONDITIONAL, "label_token_counts": TOKENS},
        ]
    )


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("vanilla", [-3, -4, -9]),
        ("per_token", [-3, -2, -1.5]),  # -9 over 6 tokens
        ("per_byte", [-1.5, -2, -0.75]),  # -9 over 12 bytes
        ("unconditional", [-1, 2, -2]),  # -4 - -6
    ],
)
def test_a_rule_normalises_the_log_likelihoods_as_it_is_defined(method, values):
    table = predict(answered(scored()), named(method), ("paper",)).collect()
    assert table.schema == PREDICTIONS
    assert table["label_probs"][0].to_list() == pytest.approx(softmax(values), abs=1e-15)
    assert table["pred"][0] == values.index(max(values))


def test_what_a_method_asks_besides_is_no_prediction_of_any_method():
    table = predict(answered(scored()), named("vanilla", "unconditional"), ("paper",)).collect()
    assert table["part"].unique().to_list() == ["demonstrations"]
    assert table.height == 2


def test_without_the_label_space_alone_no_unconditional_probability_is_made_up():
    other = scored().with_columns(
        label_names=pl.when(pl.col("part") == "unconditional").then(pl.lit(["x", "y", "z"])).otherwise("label_names")
    )
    table = predict(answered(other), named("unconditional"), ("paper",)).collect()
    assert table["label_probs"].to_list() == [None]


def test_each_label_space_is_asked_for_once_with_the_space_it_is_scored_with():
    context = pl.DataFrame(
        {
            "dataset": "d",
            "part": "demonstrations",
            "position": [0, 1, 2],
            "query_id": [0, 1, 2],
            "demonstration_set": 0,
            "n_shots": 2,
            "template": 0,
            "noise_rate": 0.0,
            "n_wrong_labels": 0,
            "label_tried": None,
            "ordering": None,
            "training_row": None,
            "demonstration_ids": [[4]] * 3,
            "gold": 0,
            "label_names": [["a", "b"], ["a", "b"], ["c", "d"]],
            "prompt": ["p", "q", "r"],
            "ask": "labels",
            "continuations": [[" a", " b"], [" a", " b"], ["c", "d"]],
        }
    )
    config = RunConfig(suites=("prompt-search",), datasets=("d",))
    (beside,) = unconditional_requests(
        MethodContext(as_multiple_choice(load_staicc("sst5")), context.lazy(), "demonstrations", config)
    )
    assert beside.columns == context.columns
    assert beside.select("prompt", "continuations", "position").rows() == [
        ("Answer:", [" a", " b"], 0),
        ("Answer: ", ["c", "d"], 1),
    ]
    assert beside["query_id"].to_list() == beside["gold"].to_list() == [None, None]


def test_rules_without_a_released_definition_give_no_rows_under_it():
    table = predict(answered(scored()), named("vanilla", "per_token"), ("paper", "released")).collect()
    assert table.select("method", "definition").rows() == [
        ("per_token", "paper"),
        ("vanilla", "paper"),
        ("vanilla", "released"),
    ]


def test_a_definition_that_leaves_a_method_without_rows_is_refused():
    config = RunConfig(
        suites=("staicc-normal",), datasets=("sst5",), methods=("per_token",), definitions=("published",)
    )
    with pytest.raises(ConfigError, match=r"per_token has the definitions paper .*--definition published"):
        check_config(config)


def test_probabilities_do_not_depend_on_how_unlikely_all_labels_are_together():
    far = scored().with_columns(pl.col("label_log_likelihoods").list.eval(pl.element() - 800))
    probs = predict(answered(far), named("vanilla"), ("paper",)).collect()["label_probs"][0].to_list()
    assert probs == pytest.approx(softmax(SCORES), abs=1e-12)
    assert math.isclose(sum(probs), 1)
