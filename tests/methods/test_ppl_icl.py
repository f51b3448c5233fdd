"""PPL-ICL: the toolkit's instructions and the toolkit's choice among them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from StaICC.prefabricate_inference.prompt_template_edit import PPL_ICL as TOOLKIT_PPL_ICL
from StaICC.util.configs import PPL_ICL_INSTRUCTION_SETTINGS
from StaICC.util.dataset_interface import prompt_writter

from evaluator.config import Definition
from evaluator.datasets import SOURCES
from evaluator.errors import ConfigError
from evaluator.methods.base import MethodContext, ScoredRequests, predict
from evaluator.methods.scoring_rules import (
    CANDIDATES_PART,
    PART,
    PPL_ICL,
    VANILLA,
    chosen_instruction,
    follow_up,
    requests,
)
from evaluator.prompts.rows import normal_requests
from tests.methods.answered import answers, context, record_scores, table
from tests.toolkit import our_dataset, toolkit_experiment


def judged(name: str, log_likelihoods: list[float], n_tokens: list[int]) -> ScoredRequests:
    """The candidate instructions of a dataset with these scores."""
    counts = pl.Series([[n] for n in n_tokens], dtype=pl.List(pl.Int32))
    rows = table(CANDIDATES_PART, [[value] for value in log_likelihoods], dataset=name)
    return answers(rows.with_columns(template="position", label_token_counts=counts))


@pytest.mark.parametrize("name", SOURCES)
def test_the_instructions_of_each_dataset_are_those_of_the_toolkit(name: str):
    expected = PPL_ICL_INSTRUCTION_SETTINGS[toolkit_experiment(name).triplet_dataset.get_dataset_name()]
    (rows,) = requests(context(name))
    assert rows.columns == context(name).columns
    assert rows.schema == context(name).rows.collect_schema()
    assert rows.sort("position")["prompt"].to_list() == expected
    assert rows.select("ask", "continuations", "template").rows() == [("text", [], number) for number in range(5)]


def test_the_instruction_of_lowest_loss_a_token_is_chosen_not_the_shortest():
    # Losses a token: 10/5 = 2, 9/3 = 3, 8/2 = 4, 30/16 = 1.875, 4/2 = 2.
    scores = judged("trec", [-10.0, -9.0, -8.0, -30.0, -4.0], [5, 3, 2, 16, 2])
    assert chosen_instruction(our_dataset("trec"), scores) == our_dataset("trec").instructions[3]


def test_of_equally_likely_instructions_the_first_is_chosen():
    assert (
        chosen_instruction(our_dataset("trec"), judged("trec", [-9.0, -4.0, -6.0, -2.0, -8.0], [3, 2, 3, 1, 4]))
        == (our_dataset("trec").instructions[1])
    )


def test_each_dataset_has_its_own_choice():
    trec, sst5 = judged("trec", [-1.0, -2.0], [1, 1]), judged("sst5", [-2.0, -1.0], [1, 1])
    both = dataclasses.replace(trec, rows=pl.concat([trec.rows, sst5.rows]))
    assert chosen_instruction(our_dataset("trec"), both) == our_dataset("trec").instructions[0]
    assert chosen_instruction(our_dataset("sst5"), both) == our_dataset("sst5").instructions[1]


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_the_toolkit(seed: int):
    random = np.random.default_rng(seed)
    losses = random.integers(1000, 6000, 5) / 1024  # exact in float32, to which the toolkit rounds
    counts = random.integers(5, 20, 5)
    texts = list(our_dataset("agnews").instructions)

    def tokenizer(text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.tensor([[texts.index(text)]]))

    def model(ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(loss=torch.tensor(losses[int(ids)]))

    model.device = "cpu"
    expected = TOOLKIT_PPL_ICL(model, tokenizer, instruction_set=texts, cache_empty=lambda: None)
    assert (
        chosen_instruction(our_dataset("agnews"), judged("agnews", (-losses * counts).tolist(), counts.tolist()))
        == expected
    )


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", SOURCES)
def test_prompts_are_those_of_the_toolkit_behind_the_chosen_instruction(name: str, n_shots: int):
    question = context(name, n_shots=n_shots)
    rows = pl.concat(follow_up(question, judged(name, [-5.0, -5.0, -1.0, -5.0, -5.0], [1] * 5)))
    writer = prompt_writter(toolkit_experiment(name).triplet_dataset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_: None)
        writer.change_instruction(our_dataset(name).instructions[2])
    shown = zip(rows["demonstration_ids"].to_list(), rows["query_id"].to_list(), strict=True)
    assert rows["prompt"].to_list() == [writer.write_prompt(ids, query) for ids, query in shown]
    others = pl.exclude("part", "prompt", "spans")
    assert rows.select(others).equals(question.rows.collect().select(others))
    assert rows["part"].unique().to_list() == [PART]


def test_the_chosen_instruction_takes_the_place_of_the_templates_own():
    plain = our_dataset("trec")
    template = dataclasses.replace(plain.template, instruction="Classify. ")
    dataset = dataclasses.replace(plain, template=template)
    rows = pl.concat(normal_requests(dataset, n_shots=1, n_queries=2)).with_columns(part=pl.lit("normal"))
    question = MethodContext(dataset, rows.lazy(), "normal", context("trec").config)
    found = pl.concat(follow_up(question, judged("trec", [-1.0] * 5, [1] * 5)))["prompt"]
    assert found.str.starts_with(our_dataset("trec").instructions[0] + "question: ").all()
    assert not found.str.contains("Classify", literal=True).any()


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_answers_behind_the_instruction_are_read_as_vanilla_reads_them(definition: Definition):
    question = context("trec")
    behind = record_scores(pl.concat(follow_up(question, judged("trec", [-1.0] * 5, [1] * 5))))
    normal = record_scores(question.rows.collect(), seed=9)
    found = predict(answers(behind, normal), {"ppl_icl": PPL_ICL}, (definition,)).collect()
    as_normal = answers(behind.with_columns(part=pl.lit("normal")))
    vanilla = VANILLA.label_probs(as_normal, definition).sort("position").collect()
    assert found["label_probs"].equals(vanilla["label_probs"])
    assert found["part"].unique().to_list() == ["normal"]
    kept = ["position", "query_id", "demonstration_set", "gold", "template", "label_names"]
    assert found.select(kept).equals(question.rows.collect().select(kept))
    assert {*found["prompt_id"]} == {*behind["prompt_id"]}


def test_a_dataset_without_instructions_is_refused_with_a_way_out():
    other = dataclasses.replace(our_dataset("trec"), name="mine", instructions=())
    with pytest.raises(
        ConfigError, match=r"among a dataset's instructions, and mine has none\. Leave the method out \(--methods\)"
    ):
        next(requests(context("trec")._replace(dataset=other)))
