"""Answers to the cases of jevbench are those of transformers, asked one at a time; the command prints its scores."""

import json
import sys
from functools import cache
from pathlib import Path
from string import ascii_uppercase

import jevbench
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluator.config import CoherenceOptions, ModelConfig
from evaluator.errors import ConfigError
from evaluator.models.source import ModelSource
from evaluator.progress import finish
from evaluator.runs.coherence import coherence
from tests.command_line import command


def test_answers_are_those_of_transformers_asked_one_at_a_time(tiny_source: ModelSource, tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)

    @cache  # most questions are asked by several relations
    def log_likelihood(text: str) -> float:
        (tokens,) = tiny_source.tokenizer.token_ids([text], special_tokens=True)
        with torch.no_grad():
            log_probs = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return sum(log_probs[place, token].item() for place, token in enumerate(tokens[1:]))

    def answer(state, question):
        criteria = question.get("criteria") or {}
        if question["type"] == "noul":
            options = {"yes": criteria.get("true"), "no": criteria.get("false")}
        else:
            options = dict.fromkeys(criteria) if question["type"] == "score" else criteria
        lines = [
            f"{letter}: {name} - {text}" if text else f"{letter}: {name}"
            for letter, (name, text) in zip(ascii_uppercase, options.items(), strict=False)
        ]
        asked = "\n".join([f"{state}\n", f"Question: {question['instructions']}", *lines])
        whole = f"{asked}\nAnswer with the letter of one option only.\nAnswer:"
        # What all options share cancels in the shares of their likelihoods.
        scores = torch.tensor([log_likelihood(f"{whole} {letter}") for letter in ascii_uppercase[: len(options)]])
        shares = scores.softmax(0).tolist()
        if question["type"] == "noul":
            return {"type": "noul", "noul": shares[0]}
        names = map(str, range(len(options))) if question["type"] == "score" else options
        return {"type": question["type"], "probabilities": dict(zip(names, shares, strict=True))}

    expected = jevbench.evaluate(
        lambda state, questions: {name: answer(state, question) for name, question in questions.items()},
        "examples",
        cache=None,
        name="transformers",
    )
    found = finish(
        coherence(ModelConfig(model=str(tiny_model), engine="transformers"), CoherenceOptions(suite="examples"))
    )
    outcomes = [
        [(each["relation"], each["check"], *each["targets"]) for each in report.result["outcomes"]]
        for report in (found, expected)
    ]
    assert outcomes[0] == outcomes[1]
    assert len({relation for relation, *_ in outcomes[0]}) > 20
    deviations = [[each["deviation"] for each in report.result["outcomes"]] for report in (found, expected)]
    assert max(deviations[0]) > 0.01
    assert deviations[0] == pytest.approx(deviations[1], abs=1e-4)


def test_the_command_prints_scores_and_then_writes_the_report(tmp_path: Path) -> None:
    options = ("--model", "fake", "--engine", "fake", "--suite", "examples", "--form", "names")
    output = command("coherence", *options, "--out", tmp_path / "report.json")
    assert "Probability measure coherence" in output
    assert json.loads((tmp_path / "report.json").read_text())["name"] == "fake"
    unwritten = command("coherence", *options, "--out", tmp_path / "report.json" / "no-folder.json", exits=2)
    assert "Probability measure coherence" in unwritten
    assert "coherence measures one model" in command("coherence", *options, "--model", "fake-b", exits=2)


def test_without_jevbench_the_way_to_install_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jevbench", None)
    with pytest.raises(ConfigError, match=r"pip install 'evaluator\[jevbench\]'"):
        finish(coherence(ModelConfig(model="fake", engine="fake"), CoherenceOptions()))
