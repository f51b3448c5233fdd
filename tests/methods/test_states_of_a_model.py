"""A real model, once by the toolkit from text to probabilities and once by an engine, its hidden states and LM head."""

from dataclasses import replace
from functools import cache, partial

import polars as pl
import pytest
from StaICC.prefabricate_inference.model_kernel import standard_ICL_inference_with_torch_Causal_LM
from StaICC.prefabricate_inference.standard_calibration import hidden_calibration, knn_prompt, knn_prompt_centroid
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluator.methods.hidden_states import HIDDEN_CALIBRATION, KNN_CENTROID, KNN_NEIGHBOURS
from evaluator.models.skeleton import load_lm_head
from tests.methods.answered import context
from tests.methods.state_answers import answer, toolkit_experiment
from tests.methods.toolkit_retrieval import quietly

METHODS = {
    "hidden": (HIDDEN_CALIBRATION, hidden_calibration),
    "centroid": (KNN_CENTROID, knn_prompt_centroid),
    "neighbours": (KNN_NEIGHBOURS, knn_prompt),
}
N_SHOTS = 0  # short prompts: the toolkit takes one at a time


@pytest.fixture(scope="module")
def said(tiny_model):
    """What the toolkit has of the model after a prompt: label probabilities, logits and hidden state."""
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(tiny_model).eval(),
        AutoTokenizer.from_pretrained(tiny_model),
    )
    infer = partial(
        standard_ICL_inference_with_torch_Causal_LM,
        model=model,
        tokenizer=tokenizer,
        label_space=toolkit_experiment("sst5", N_SHOTS).get_label_space(),
        cache_empty=None,
    )
    return cache(lambda prompt: infer(prompt, calibration_function=lambda *said: said))


def with_states(answers, tokenizer, engine):
    rows = answers.states.drop("hidden_state").collect()
    distinct = rows["prompt_id"].unique(maintain_order=True)  # the prompt itself, in these answers
    states = engine.hidden_states(tokenizer.token_ids(distinct.to_list(), special_tokens=True))
    frame = pl.DataFrame({"prompt_id": distinct, "hidden_state": pl.Series(states.tolist(), dtype=pl.List(pl.Float32))})
    return replace(answers, states=rows.join(frame, on="prompt_id", maintain_order="left").lazy())


@pytest.mark.parametrize("name", METHODS)
def test_released_is_the_toolkit_from_text_to_probabilities(name, said, tiny_source, loaded_engine):
    method, toolkit_class = METHODS[name]
    experiment = toolkit_experiment("sst5", N_SHOTS)
    toolkit = toolkit_class(experiment.get_label_space())
    write, last = experiment.prompt_former.write_prompt_from_dataline, 2 if name == "hidden" else 1

    def feedforward(prompt, label_space):  # noqa: ARG001
        return None, said(prompt)[last]

    quietly(lambda: toolkit.train(write, feedforward, experiment.calibration_set(), k=N_SHOTS))
    assert not toolkit.failed

    question = context("sst5", n_shots=N_SHOTS, n_queries=6)
    answers = answer([question.rows.collect(), *method.prompts.requests(question)])
    answers = with_states(answers, tiny_source.tokenizer, loaded_engine("transformers"))
    if method.distances:
        answers = replace(answers, distances=method.distances(answers, load_lm_head(tiny_source)).lazy())
    probs = method.label_probs(answers, "released").sort("position").collect()["label_probs"]
    for prompt, ours in zip(question.rows.collect().sort("position")["prompt"], probs, strict=True):
        assert ours.to_list() == pytest.approx(toolkit(*said(prompt)), abs=1e-4)
