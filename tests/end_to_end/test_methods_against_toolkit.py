"""The command on a real model under `released`, held against the toolkit's own functions on the same model.

One dataset, 4 prompts (2 queries, two demonstration sets) of one demonstration, on the model that ships: enough to
distinguish formulas, and no more than that. PPL-ICL, TopK, SA-ICL and the noisy channel are in tests/methods alone.
"""

import contextlib
import io
import warnings
from functools import cache, partial

import polars as pl
import pytest
from StaICC.prefabricate_inference import standard_calibration as toolkit
from StaICC.prefabricate_inference.model_kernel import standard_ICL_inference_with_torch_Causal_LM
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from evaluator.models.embedded import EMBEDDED_MODELS
from tests.command_line import command
from tests.toolkit import toolkit_experiment

pytestmark = pytest.mark.usefixtures("without_pages")

CALIBRATIONS = {
    "contextual_calibration": toolkit.contextual_calibration,
    "domain_calibration": toolkit.domain_calibration,
    "hidden_calibration": toolkit.hidden_calibration,
    "knn_centroid": toolkit.knn_prompt_centroid,
    "knn_neighbours": toolkit.knn_prompt,
}
LEARNS_FROM = {"hidden_calibration": 2, "knn_centroid": 1, "knn_neighbours": 1}
"""What of (label probabilities, logits, hidden state) one is trained on; label probabilities where it is not named."""

METHODS = ("vanilla", "batch_calibration", *CALIBRATIONS)
N_SHOTS = 1  # short prompts: the toolkit takes one at a time


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("released") / "out"
    words = ("run", "staicc-normal", "--model", "embedded", "--dtype", "float32", "--definition", "released")
    what = ("--datasets", "sst5", "--queries", 2, "--shots", N_SHOTS, "--methods", ",".join(METHODS))
    command(*words, *what, "--out", out)
    return out


@pytest.fixture(scope="module")
def said():
    """What the toolkit has of the model after a prompt: label probabilities, logits and hidden state."""
    folder = EMBEDDED_MODELS["embedded"]()
    infer = partial(
        standard_ICL_inference_with_torch_Causal_LM,
        model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval(),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        label_space=toolkit_experiment("sst5").get_label_space(),
        cache_empty=None,
    )
    return cache(lambda prompt: infer(prompt, calibration_function=lambda *said: said))


def of_method(out, method: str) -> list[list[float]]:
    predictions = pl.read_parquet(out / "tables" / "predictions.parquet").filter(method=method, definition="released")
    return predictions.sort("position")["label_probs"].to_list()


def prompts(out) -> list[str]:
    return evaluator.read_requests(out).filter(part="normal").sort("position").collect()["prompt"].to_list()


def assert_equal(ours: list[list[float]], expected: list[list[float]]) -> None:
    assert len(ours) == len(expected) == 4
    for row, expected_row in zip(ours, expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-4)


@pytest.mark.slow
def test_vanilla_and_batch_calibration_are_the_toolkits(finished, said):
    probs = [said(prompt)[0] for prompt in prompts(finished)]
    assert_equal(of_method(finished, "vanilla"), probs)
    assert_equal(of_method(finished, "batch_calibration"), toolkit.batch_calibration(probs))


@pytest.mark.slow
@pytest.mark.parametrize("method", CALIBRATIONS)
def test_what_learns_from_calibration_examples_is_the_toolkits(finished, said, method):
    experiment = toolkit_experiment("sst5")
    calibration = CALIBRATIONS[method](experiment.get_label_space())
    place = LEARNS_FROM.get(method, 0)

    def feedforward(prompt, label_space):  # noqa: ARG001
        return said(prompt)[place] if place == 0 else (None, said(prompt)[place])

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write = experiment.prompt_former.write_prompt_from_dataline
        calibration.train(write, feedforward, experiment.calibration_set(), k=N_SHOTS)
    assert not getattr(calibration, "failed", False)
    assert_equal(of_method(finished, method), [calibration(*said(prompt)) for prompt in prompts(finished)])
