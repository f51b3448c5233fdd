"""Filtered scores against those that transformers' own logits processors give, and by hand."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper

from evaluator.config import RunConfig
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import LabelError
from evaluator.methods.base import MethodContext, ScoredRequests
from evaluator.schemas import HIDDEN_STATES, REQUESTS, SCORES, TOKENS
from evaluator.suites.in_context_pvi.pvi import DRAWN, NAME, PVI_RELEASED, drawn_labels, filtered, pvi_table
from tests.suites.in_context_pvi.pvi_answers import PARTS

VOCABULARY, WIDTH = 97, 8
RANDOM = np.random.default_rng(5)
HEAD = torch.from_numpy(RANDOM.normal(size=(VOCABULARY, WIDTH)).astype(np.float32))


def notebook(hidden: torch.Tensor, labels: list[int]) -> list[float]:
    """What `generate` samples from, with the replacement of what it leaves out (UKPLab/in-context-pvi)."""
    logits = (hidden @ HEAD.T)[None]
    scores = TopKLogitsWarper(20)(None, TemperatureLogitsWarper(0.8)(None, logits)).log_softmax(-1)[0]
    lowest = scores[scores.isfinite()].min()
    return [float(scores[label]) if scores[label].isfinite() else float(lowest) for label in labels]


def test_filtered_scores_are_those_of_transformers_with_its_own_filters() -> None:
    hidden = torch.from_numpy(RANDOM.normal(size=(50, WIDTH)).astype(np.float32))
    labels = torch.from_numpy(RANDOM.integers(0, VOCABULARY, (50, 3)))
    expected = [notebook(row, own.tolist()) for row, own in zip(hidden, labels, strict=True)]
    found = filtered(hidden, HEAD, labels)[NAME]
    assert found.dtype == torch.float64
    assert found.numpy() == pytest.approx(np.array(expected), abs=1e-5)
    assert len(set(found.flatten().tolist())) < found.numel(), "some label is outside the twenty"


def test_tokens_as_probable_as_the_twentieth_are_kept_as_well() -> None:
    # One logit of 0.8 ln 3, then 24 of 0: weights 3 and 24 ones, all kept, so 1/27 each; the rest are far below.
    logits = torch.tensor([0.8 * math.log(3), *[0.0] * 24, *[-50.0] * 10])
    found = filtered(torch.ones(1, 1), logits[:, None], torch.tensor([[0, 24, 30]]))
    assert found[NAME][0].tolist() == pytest.approx([math.log(3 / 27), math.log(1 / 27), math.log(1 / 27)])
    assert found[DRAWN][0].tolist() == pytest.approx([math.log(3 / 27), math.log(1 / 27), -math.inf])


def test_a_vocabulary_of_fewer_than_twenty_is_kept_whole() -> None:
    logits = torch.tensor([0.0, 0.8 * math.log(2), 0.8 * math.log(5)])
    found = filtered(torch.ones(1, 1), logits[:, None].to(torch.bfloat16).float(), torch.tensor([[0, 1, 2]]))[NAME]
    assert found[0].exp().sum() == pytest.approx(1)
    assert found[0].exp().tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=2e-3)


# Two datasets: d has two labels and e three; the null prompt of both is the same text.
LABELS = {"d": [3, 11], "e": [3, 11, 40]}
N_QUERIES = 300


def made_up(
    labels: dict[str, list[int]] = LABELS, n_context: int = 7
) -> tuple[ScoredRequests, dict[str, torch.Tensor]]:
    """Answers to all parts, and the hidden state of each prompt."""
    states: dict[str, torch.Tensor] = {}
    rows, tokens = [], []
    for dataset, ids in labels.items():
        for part, n in (("input", N_QUERIES), ("null", 1)):
            for place in range(n):
                text = f"{dataset} {place}" if part == "input" else "null"
                states.setdefault(text, torch.from_numpy(RANDOM.normal(size=WIDTH).astype(np.float32)))
                shared = {"suite": "pvi", "dataset": dataset, "position": place, "demonstration_set": 0, "n_shots": 2}
                shared |= {"gold": place % 2 if part == "input" else None, "demonstration_ids": []}
                shared |= {
                    "query_id": place if part == "input" else None,
                    "label_names": list(map(str, range(len(ids)))),
                }
                scored = f"{text} {len(ids)}"
                rows.append(shared | {"part": part, "prompt_id": scored, "label_log_likelihoods": [-1.0] * len(ids)})
                bare = {
                    "part": f"{part}_states",
                    "for_part": part,
                    "prompt_id": text,
                    "hidden_state": states[text].tolist(),
                }
                rows.append(shared | bare)
                tokens.append(
                    {
                        "prompt_id": scored,
                        "ask": "labels",
                        "context": [1] * 7,
                        "continuations": [[label] for label in ids],
                    }
                )
                tokens.append({"prompt_id": text, "ask": "state", "context": [1] * n_context, "continuations": []})
    frame = pl.DataFrame(rows, schema={**REQUESTS, **SCORES, **HIDDEN_STATES})
    is_state = pl.col("part").str.ends_with("_states")
    answers = ScoredRequests(
        rows=frame.filter(~is_state).drop("hidden_state").lazy(),
        states=frame.filter(is_state).select(*REQUESTS, "hidden_state").lazy(),
        tokens=pl.LazyFrame(tokens, schema=TOKENS).unique(),
        parts=PARTS,
        answered_part="input",
    )
    return answers, states


def test_the_hook_gives_every_prompt_its_labels_and_probabilities_follow() -> None:
    answers, states = made_up()
    both = PVI_RELEASED.distances(answers, HEAD)
    assert both.select("method", "definition").unique().sort("method").rows() == [
        (NAME, "released"), (DRAWN, "released")
    ]  # fmt: skip
    found = both.filter(method=NAME)
    assert sorted(found["prompt_id"]) == sorted(states)
    for prompt_id, scores in found.select("prompt_id", "distances").rows():
        own = LABELS["d" if prompt_id.startswith("d") else "e"]
        assert scores == pytest.approx(notebook(states[prompt_id], own), abs=1e-5)
    measured = replace(answers, distances=found.lazy())
    rows = PVI_RELEASED.label_probs(measured, "released").collect()
    assert rows.select("part", "dataset").unique().sort("dataset").rows() == [("input", "d"), ("input", "e")]
    assert rows.height == 2 * N_QUERIES
    for dataset, place, probs in rows.select("dataset", "position", "label_probs").rows():
        weights = np.exp(notebook(states[f"{dataset} {place}"], LABELS[dataset]))
        assert probs == pytest.approx(weights / weights.sum(), abs=1e-6)


def write_distances() -> tuple[ScoredRequests, dict[str, torch.Tensor]]:
    answers, states = made_up()
    return replace(answers, distances=PVI_RELEASED.distances(answers, HEAD).lazy()), states


def test_released_pvi_is_the_difference_in_nats_and_in_bits() -> None:
    answers, states = write_distances()
    table = pvi_table(answers)
    assert table.group_by("definition").len().sort("definition").rows() == [
        ("label_space", 600), ("paper", 600), ("released", 600)
    ]  # fmt: skip
    for row in table.filter(definition="released").to_dicts():
        own = LABELS[row["dataset"]]
        given, null = (notebook(states[text], own) for text in (f"{row['dataset']} {row['query_id']}", "null"))
        assert row["pvi_nats"] == pytest.approx(given[row["gold"]] - null[row["gold"]], abs=1e-5)
        assert row["pvi_bits"] == pytest.approx((given[row["gold"]] - null[row["gold"]]) / math.log(2), abs=1e-5)
        assert row["n_highest_labels"] == np.isclose(given, max(given), rtol=0, atol=1e-9).sum()


def test_released_predictions_are_drawn_as_often_as_generate_draws_them() -> None:
    # Over 400 seeds, each label of a query as often as its share of what the twenty most probable tokens have; with
    # 600 queries and up to three labels the largest of 1,500 deviations is below five standard errors but once in
    # about 1,200 such tests, and the seeds are fixed.
    answers, states = write_distances()
    n_seeds = 400
    drawn = pl.concat(drawn_labels(answers, "input", seed).collect() for seed in range(n_seeds))
    for dataset, ids in LABELS.items():
        for query in range(0, N_QUERIES, 25):
            logits = (states[f"{dataset} {query}"] @ HEAD.T)[None]
            scores = TopKLogitsWarper(20)(None, TemperatureLogitsWarper(0.8)(None, logits))[0].double()
            expected = scores.softmax(0)[ids].numpy()
            of_query = drawn.filter(dataset=dataset, query_id=query)["drawn"].to_numpy()
            shares = np.array([(of_query == label).mean() for label in range(len(ids))])
            reach = 5 * np.sqrt(expected * (1 - expected) / n_seeds)
            assert (np.abs(shares - expected) <= reach + 1e-9).all(), (dataset, query, shares, expected)


def test_a_drawn_token_that_is_no_label_is_a_wrong_prediction() -> None:
    answers, _ = write_distances()
    table = pvi_table(answers, seed=3).filter(definition="released")
    other = table.filter(pl.col("pred").is_null())
    assert 0 < other.height < table.height  # three labels of 97 tokens seldom have all the probability
    assert other["correct"].to_list() == [False] * other.height
    same = pvi_table(answers, seed=3).filter(definition="released")
    assert same.equals(table)
    assert not pvi_table(answers, seed=4).filter(definition="released")["pred"].equals(table["pred"])


def test_fewer_queries_have_the_same_draws() -> None:
    answers, _ = write_distances()
    few = replace(
        answers,
        rows=answers.rows.filter(pl.col("query_id").fill_null(0) < 5),
        states=answers.states.filter(pl.col("query_id").fill_null(0) < 5),
    )
    all_drawn, few_drawn = (
        drawn_labels(each, "input", 1).sort("dataset", "query_id").collect() for each in (answers, few)
    )
    assert few_drawn.equals(all_drawn.filter(pl.col("query_id") < 5))


def test_it_asks_for_the_state_of_every_prompt_of_the_suite() -> None:
    rows = pl.DataFrame(
        {
            "part": ["input", "null"],
            "position": [0, 0],
            "prompt": ["a", "b"],
            "ask": "labels",
            "continuations": [[" 0", " 1"]] * 2,
        }
    )
    config = RunConfig(suites=("pvi",), datasets=("sst5",))
    contexts = [MethodContext(load_staicc("sst5"), rows.lazy(), part, config) for part in ("input", "null")]
    context = pl.concat(frame for each in contexts for frame in PVI_RELEASED.prompts.requests(each))
    assert context.columns == rows.columns
    assert context.select("part", "prompt").rows() == [("input_states", "a"), ("null_states", "b")]
    assert context.select("ask", "continuations").rows() == [("state", []), ("state", [])]
    assert (PVI_RELEASED.max_label_tokens, PVI_RELEASED.definitions) == (1, ("released",))


def test_labels_that_the_next_token_does_not_tell_are_refused() -> None:
    answers, _ = made_up()
    several = answers.tokens.with_columns(
        pl.when(pl.col("continuations").list.len() > 2).then([[3, 4], [3, 5], [6]]).otherwise("continuations")
        .alias("continuations")
    )  # fmt: skip
    with pytest.raises(LabelError, match=r"e, position 0: .* the one token after the prompt"):
        PVI_RELEASED.distances(replace(answers, tokens=several), HEAD)
    with pytest.raises(LabelError, match="or merges it with the end of the prompt"):
        PVI_RELEASED.distances(made_up(n_context=8)[0], HEAD)


def test_a_prompt_that_two_datasets_ask_with_other_labels_is_refused() -> None:
    answers, _ = made_up({"d": [3, 11], "e": [11, 3, 40]})
    with pytest.raises(LabelError, match="Two datasets have the same prompt"):
        PVI_RELEASED.distances(answers, HEAD)


def test_a_label_whose_token_the_head_does_not_have_is_refused() -> None:
    with pytest.raises(LabelError, match="the token 97, and the LM head has 97 rows"):
        PVI_RELEASED.distances(made_up({"d": [3, VOCABULARY]})[0], HEAD)
