"""PVI by hand, and from transformers' own log-softmax on the model that ships."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import log_softmax
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.errors import MetricError
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from evaluator.prompts.rows import NO_SPANS
from evaluator.suites.in_context_pvi.pvi import pvi_table
from evaluator.suites.in_context_pvi.schema import PVI, PVI_KEY
from evaluator.tokens.table import tokenise
from tests.suites.in_context_pvi.pvi_answers import Run, answers, random_answers

RUN = ("d", 2, 0)
HALF, QUARTER, EIGHTH = (math.log(share) for share in (1 / 2, 1 / 4, 1 / 8))


def of(table: pl.DataFrame, definition: str) -> list[dict[str, object]]:
    return table.filter(definition=definition).sort("query_id").to_dicts()


def test_bits_are_worked_by_hand() -> None:
    # Label 0: 1/2 after the query and 1/8 without it: log2(1/2) - log2(1/8) = -1 + 3 = 2 bits.
    # Label 1: 1/4 after the query and 1/2 without it: -2 + 1 = -1 bit; label 0 is predicted, 1/2 against 1/4.
    table = pvi_table(answers({RUN: Run([0, 1], [[HALF, QUARTER], [HALF, QUARTER]], [EIGHTH, HALF])}))
    first, second = of(table, "paper")
    assert (first["given_input"], first["given_null"]) == pytest.approx((HALF, EIGHTH))
    assert (first["pvi_bits"], second["pvi_bits"]) == pytest.approx((2, -1))
    assert (first["pvi_nats"], second["pvi_nats"]) == pytest.approx((math.log(4), -math.log(2)))
    assert (first["pred"], first["correct"], second["pred"], second["correct"]) == (0, True, 0, False)
    # Over the labels alone: 1/2 : 1/4 is 2/3, 1/3; 1/8 : 1/2 is 1/5, 4/5.
    first, second = of(table, "label_space")
    assert (first["pvi_bits"], second["pvi_bits"]) == pytest.approx((math.log2(2 / 3 * 5), math.log2(1 / 3 / (4 / 5))))
    assert of(table, "released") == []
    assert table.schema == PVI


def test_every_run_is_held_against_its_own_null_prompt() -> None:
    runs = {
        ("d", n_shots, number): Run([0, 1, 1], np.log([[0.5, 0.1], [0.2, 0.3], [0.4, 0.4]]).tolist(), null)
        for n_shots, number, null in (
            (2, 0, [HALF, HALF]),
            (2, 1, [QUARTER, HALF]),
            (4, 0, [EIGHTH, QUARTER]),
        )
    }
    table = pvi_table(answers(runs)).filter(definition="paper")
    assert table.equals(table.sort(PVI_KEY))
    found = {
        (n, s): own["pvi_bits"].to_list()
        for (n, s), own in table.partition_by("n_shots", "demonstration_set", as_dict=True).items()
    }
    assert found[2, 0] == pytest.approx(np.log2([0.5 / 0.5, 0.3 / 0.5, 0.4 / 0.5]).tolist())
    assert found[2, 1] == pytest.approx(np.log2([0.5 / 0.25, 0.3 / 0.5, 0.4 / 0.5]).tolist())
    assert found[4, 0] == pytest.approx(np.log2([0.5 / 0.125, 0.3 / 0.25, 0.4 / 0.25]).tolist())
    # The first of equally probable labels is predicted, and that it was one of two is said.
    assert table["pred"].to_list() == [0, 1, 0] * 3
    assert table["n_highest_labels"].to_list() == [1, 1, 2] * 3


def test_random_answers_are_those_of_numpy_under_both_definitions() -> None:
    given = random_answers()
    table = pvi_table(given)
    nulls = {
        row["dataset"] + str(row["n_shots"]) + str(row["demonstration_set"]): row
        for row in given.rows.filter(part="null").collect().to_dicts()
    }
    rows = given.rows.filter(part="input").collect().to_dicts()
    assert table.height == 2 * len(rows)
    found = {tuple(row[name] for name in PVI_KEY): row["pvi_bits"] for row in table.to_dicts()}
    for row in rows:
        null = np.array(
            nulls[row["dataset"] + str(row["n_shots"]) + str(row["demonstration_set"])]["label_log_likelihoods"]
        )
        own, key = (
            np.array(row["label_log_likelihoods"]),
            (row["dataset"], "random", row["n_shots"], row["demonstration_set"]),
        )
        expected = {"paper": own - null, "label_space": log_softmax(own) - log_softmax(null)}
        for definition, difference in expected.items():
            bits = difference[row["gold"]] / np.log(2)
            assert found[(*key, definition, row["query_id"])] == pytest.approx(bits, abs=1e-12)


def test_chosen_sets_are_held_against_their_own_null_prompt_beside_the_suites_own() -> None:
    # Both labels: 1/2 after the query; without it 1/4 behind the set of the suite, 1/8 behind the chosen one.
    runs = {RUN: Run([0], [[HALF, HALF]], [QUARTER, QUARTER])}
    chosen = {"hardest_demonstrations": {RUN: Run([0], [[HALF, HALF]], [EIGHTH, EIGHTH])}}
    given = answers(runs, chosen)
    table = pvi_table(given, "published").filter(definition="paper")
    assert table.select("demonstrations", "demonstration_set", "pvi_bits").rows() == [
        ("hardest", 0, pytest.approx(2)),
        ("published", 0, pytest.approx(1)),
    ]
    assert pvi_table(given)["demonstrations"].unique().sort().to_list() == ["hardest", "random"]


def test_what_is_not_finite_has_no_pvi_and_keeps_its_row() -> None:
    nan, inf = math.nan, math.inf
    inputs = [[-1.0, -inf], [-1.0, -inf], [nan, -1.0], [None, -1.0], [-inf, -inf]]
    table = pvi_table(answers({RUN: Run([0, 1, 0, 0, 1], inputs, [-2.0, -2.0])}))
    paper = pl.DataFrame(of(table, "paper"))
    assert paper["pvi_bits"].is_null().to_list() == [False, True, True, True, True]
    assert paper["given_input"].to_list()[1] == -inf
    assert paper["pvi_bits"][0] == pytest.approx(1 / math.log(2))
    # A label that cannot come next is not predicted; where one has no log-likelihood, or none can, nothing is.
    assert paper["pred"].to_list() == [0, 0, None, None, None]
    assert paper["correct"].to_list() == [True, False, None, None, None]
    # With the other label impossible the gold one is certain: log 1 - log 1/2 is one bit.
    assert of(table, "label_space")[0]["pvi_bits"] == pytest.approx(1)
    assert [row["pvi_bits"] for row in of(table, "label_space")[1:]] == [None] * 4


@pytest.mark.parametrize("null", [None, [-math.inf, -math.inf], [math.nan, math.nan]])
def test_without_a_null_prompt_that_can_be_used_no_query_has_a_pvi(null: list[float] | None) -> None:
    table = pvi_table(
        answers({RUN: Run([0, 1], [[-1.0, -2.0]] * 2, null), ("d", 4, 0): Run([0], [[-1.0, -2.0]], [-1, -1])})
    )
    assert table.filter(n_shots=2)["pvi_bits"].to_list() == [None] * 4
    assert table.filter(n_shots=2)["correct"].to_list() == [True, False] * 2
    assert table.filter(n_shots=4)["pvi_bits"].null_count() == 0


def test_a_label_space_of_one_and_gold_labels_outside_it_are_refused() -> None:
    with pytest.raises(MetricError, match="d has 1 label"):
        pvi_table(answers({RUN: Run([0], [[-1.0]], [-1.0])}))
    with pytest.raises(MetricError, match="gold must be a label's index from 0 to 1"):
        pvi_table(answers({RUN: Run([2], [[-1.0, -2.0]], [-1.0, -1.0])}))


def test_the_model_that_ships_gives_the_bits_of_transformers_own_log_softmax() -> None:
    folder = EMBEDDED_MODELS["embedded"]()
    demonstrations = "review: a warm and funny film\nsentiment: 1\n\nreview: dull from start to end\nsentiment: 0\n\n"
    null = "sentiment: 1\n\nsentiment: 0\n\nsentiment:"
    texts = ["a joy to watch", "not worth the ticket", "it is what it is"]
    prompts = [*(f"{demonstrations}review: {text}\nsentiment:" for text in texts), null]
    labels, gold = [" 0", " 1"], [1, 0, 1]

    config = ModelConfig(model=str(folder), engine="transformers", dtype="float32")
    source = find_model(config)
    asked = pl.DataFrame({"prompt_id": list("abcd"), "ask": "labels", "prompt": prompts, "continuations": [labels] * 4})
    tokens = tokenise(source.tokenizer, asked.with_columns(spans=NO_SPANS), "merged")
    engine = load_engine(source, config)
    requests = [ContinuationRequest(*row) for row in tokens.select("context", "continuations").rows()]
    scores = {answer.index: [sum(own) for own in answer.token_log_probs] for answer in engine.log_likelihoods(requests)}
    engine.close()
    table = pvi_table(answers({RUN: Run(gold, [scores[i] for i in range(3)], scores[3])}))

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def log_probability(prompt: str, label: str) -> float:
        # The colon and the space behind it are one token here, so a label begins where the whole strings part.
        whole = [tokenizer(prompt + text).input_ids for text in ("", *labels)]
        n_common = next(place for place, tokens in enumerate(zip(*whole, strict=False)) if len(set(tokens)) > 1)
        ids = whole[1 + labels.index(label)]
        with torch.inference_mode():
            log_probs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        return float(sum(log_probs[place - 1, ids[place]] for place in range(n_common, len(ids))))

    expected = [
        (log_probability(prompt, labels[label]) - log_probability(null, labels[label])) / math.log(2)
        for prompt, label in zip(prompts, gold, strict=False)
    ]
    assert [row["pvi_bits"] for row in of(table, "paper")] == pytest.approx(expected, abs=1e-5)
    assert max(map(abs, expected)) > 0.01
