"""The noisy channel by hand and by the toolkit's own function on the same losses."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import softmax
from StaICC.prefabricate_inference.model_kernel import noisy_channel_ICL_inference_with_torch_Causal_LM

from evaluator.config import DEFINITIONS
from evaluator.methods.base import measured_definitions
from evaluator.methods.scoring_rules import NOISY_CHANNEL, channel_requests, noisy_channel_probs
from evaluator.methods.scoring_rules import NOISY_CHANNEL_PART as PART
from evaluator.schemas import PREDICTIONS
from tests.methods.answered import answers, context, record_scores, table
from tests.toolkit import our_dataset

DEFINITION = {"paper": DEFINITIONS, "released": ("released", "published")}


def channel(log_likelihoods: list[float], n_tokens: list[int]) -> pl.DataFrame:
    """One request, and the score of its query's text, or of the whole prompt, behind each label."""
    names = [chr(ord("a") + label) for label in range(len(n_tokens))]
    rows = table(PART, [[value] for value in log_likelihoods])
    normal = table("normal", [[0.0] * len(names)])
    of_labels = rows.with_columns(
        query_id=pl.lit(0, pl.Int64),
        label_tried="position",
        label_names=pl.lit(names),
        label_token_counts=pl.Series([[n] for n in n_tokens], dtype=pl.List(pl.Int32)),
    )
    return pl.concat([normal, of_labels])


def test_paper_compares_how_likely_each_label_makes_the_query():
    rows = channel([-10.0, -10.0 - np.log(3)], [5, 5])
    found = noisy_channel_probs(answers(rows), "paper").collect()["label_probs"].to_list()
    assert found == [pytest.approx([3 / 4, 1 / 4], abs=1e-12)]  # 3 : 1


def test_released_compares_mean_losses_a_token():
    rows = channel([-10.0, -12.0], [5, 4])
    found = noisy_channel_probs(answers(rows), "released").collect()["label_probs"].to_list()
    assert found == [pytest.approx(softmax([-2.0, -3.0]), abs=1e-12)]


def test_labels_that_change_nothing_about_the_query_are_equally_probable():
    for definition in ("paper", "released"):
        found = noisy_channel_probs(answers(channel([-900.0] * 3, [4] * 3)), definition).collect()["label_probs"]
        assert found.to_list() == [pytest.approx([1 / 3] * 3, abs=1e-12)]


@pytest.mark.parametrize("name", ["glue_sst2", "trec"])
def test_released_is_what_the_toolkit_computes(name: str):
    question = context(name, definitions=DEFINITION["released"])
    (rows,) = channel_requests(question)
    normal = record_scores(question.rows.collect())
    scored = record_scores(rows)
    # The toolkit rounds a loss to float32, so these are multiples of 1/1024.
    losses = np.random.default_rng(4).integers(1000, 6000, rows.height) / 1024
    counts = scored["label_token_counts"].list.first().to_numpy()
    log_likelihoods = pl.Series([[-loss * n] for loss, n in zip(losses, counts, strict=True)])
    scored = scored.with_columns(label_log_likelihoods=log_likelihoods)
    loss_of = dict(zip(rows["prompt"], losses, strict=True))
    texts = list(loss_of)

    def tokenizer(text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.tensor([[texts.index(text)]]))

    def model(ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(loss=torch.tensor(loss_of[texts[int(ids)]]))

    model.device = "cpu"
    n_labels = len(our_dataset(name).verbalizer.label_names)
    prompts = rows.sort("position")["prompt"].to_list()
    expected = [
        noisy_channel_ICL_inference_with_torch_Causal_LM(prompts[first : first + n_labels], model, tokenizer, [], None)
        for first in range(0, len(prompts), n_labels)
    ]
    found = noisy_channel_probs(answers(normal, scored), "released").sort("position").collect()
    np.testing.assert_allclose(found["label_probs"].to_list(), expected, atol=1e-9)


def test_paper_on_many_requests_is_the_softmax_of_numpy():
    question = context("sst5")
    (rows,) = channel_requests(question)
    normal = record_scores(question.rows.collect())
    scored = record_scores(rows, spread=90.0).sort("position")
    expected = softmax(np.array(scored["label_log_likelihoods"].to_list()).reshape(10, 5), axis=1)
    found = noisy_channel_probs(answers(normal, scored), "paper").sort("position").collect()
    np.testing.assert_allclose(found["label_probs"].to_list(), expected, atol=1e-9)
    np.testing.assert_allclose(found["label_probs"].list.sum(), 1, atol=1e-12)


@pytest.mark.parametrize("definition", ["paper", "released"])
@pytest.mark.parametrize(("n_shots", "tries"), [(0, 1), (4, 2)])
def test_each_normal_request_has_one_answer_and_counts_as_one_try(definition: str, n_shots: int, tries: int):
    question = context("trec", n_shots=n_shots, definitions=DEFINITION[definition])
    (rows,) = channel_requests(question)
    found = (
        noisy_channel_probs(answers(record_scores(question.rows.collect()), record_scores(rows)), definition)
        .sort("position")
        .collect()
    )
    kept = ["part", "dataset", "position", "query_id", "demonstration_set", "n_shots", "gold", "label_names"]
    assert found.select(kept).equals(question.rows.collect().select(kept))
    assert {*PREDICTIONS} - {"method", "definition", "pred"} <= {*found.columns}
    assert found.group_by("query_id").agg(pl.col("prompt_id").n_unique())["prompt_id"].to_list() == [tries] * 5


def test_a_run_has_it_under_the_definition_its_prompts_follow():
    assert measured_definitions(NOISY_CHANNEL, DEFINITIONS) == ["paper"]
    assert measured_definitions(NOISY_CHANNEL, ("released",)) == ["released"]
