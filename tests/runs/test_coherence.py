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

from evaluator.config import ChatConfig, CoherenceOptions, ModelConfig
from evaluator.errors import ConfigError
from evaluator.models.fake_source import fake_model_source
from evaluator.models.source import ModelSource
from evaluator.progress import finish
from evaluator.runs.coherence import _Requests, _tokens, coherence
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


def test_a_prompt_has_the_meaning_of_yes_and_no_and_inputs_as_they_are_written() -> None:
    requests = _Requests("letters")
    question = {"type": "noul", "instructions": "Late?", "criteria": {"true": "past due", "false": "in time"}}
    requests.reply({"name": "Zoë"}, {"q": question})
    ((text, _answers),) = requests.prompts.values()
    asked = ["Question: Late?", "A: yes - past due", "B: no - in time"]
    assert text.splitlines()[:5] == ['{"name": "Zoë"}', "", *asked]


def test_prompts_have_the_form_and_the_boundary_that_options_choose(tmp_path: Path) -> None:
    source, prompts = fake_model_source(), {"key": ("Late? Answer: ", ["A", "B"])}
    (tmp_path / "chat.jinja").write_text("{% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}")
    chat = ChatConfig(template=str(tmp_path / "chat.jinja"))
    plain, separate, chatted = (
        [*_tokens(source, ModelConfig(model="fake", engine="fake", **options), prompts)["context"][0]]
        for options in ({}, {"label_boundary": "separate"}, {"chat": chat})
    )
    assert separate[:-1] == plain  # the space before the answer is a token by itself, or part of the answer
    assert len(chatted) > len(plain)  # roles, as words of the fake model


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
