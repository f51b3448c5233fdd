"""What the methods ask before and after training rows are measured, and what they choose; by hand from the scores."""

import math
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from evaluator.errors import DatasetError, TemplateError
from evaluator.methods.base import MethodContext, ScoredRequests, predict
from evaluator.suites.in_context_pvi.demonstration_choice import (
    CHOSEN,
    CHOSEN_METHODS,
    TRAINING,
    requests,
    training_pvi,
)
from evaluator.suites.in_context_pvi.prompts import pvi_prompts, resolved_options
from tests.methods.answered import record_scores
from tests.suites.in_context_pvi.pvi_answers import PARTS
from tests.suites.in_context_pvi.pvi_config import pvi_config, read_dataset
from tests.suites.in_context_pvi.pvi_folder import write_folder

QUESTION = "QUESTION: Is this (0) unacceptable, or (1) acceptable?\nANSWER:"


class Round(NamedTuple):
    context: MethodContext
    training: pl.DataFrame  # rows that were asked first
    scored: pl.DataFrame  # these and the suite's own
    answers: ScoredRequests


def asked_of(folder, name="cola", n_queries=None, **options):
    config = pvi_config(folder, datasets=(name,), n_queries=n_queries, **options)
    dataset = read_dataset(config)
    rows = pl.concat(pvi_prompts(dataset, resolved_options(config), n_queries).rows)
    return MethodContext(dataset, rows.lazy(), "input", config), rows


def answered(rows, seed):
    """Rows with made-up scores; those that no suite wrote answer the part input."""
    own = pl.col("part").is_in(list(PARTS))
    return record_scores(rows, seed=seed).with_columns(for_part=pl.when(~own).then(pl.lit("input")))


def answers_of(scored):
    return ScoredRequests(rows=scored.lazy(), parts=PARTS, answered_part="input")


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path)
    labels = pl.Series([n % 2 for n in range(40)], dtype=pl.Int8)
    sentences = [f"Shown sentence {n}." for n in range(40)]
    pl.DataFrame({"label": labels, "sentence": sentences}).write_parquet(tmp_path / "cola_in_domain_train.parquet")
    return tmp_path


@pytest.fixture
def first(folder):
    context, own = asked_of(folder, sets=2)
    training = pl.concat(requests(context))
    scored = answered(pl.concat([own, training.select(own.columns)]), seed=5)
    return Round(context, training, scored, answers_of(scored))


def bits_by_hand(scored, n_shots):
    """Training row -> PVI in bits behind set 0, from the scores alone."""
    null = scored.filter(part="null", n_shots=n_shots, demonstration_set=0)["label_log_likelihoods"].item()
    rows = scored.filter(part=TRAINING, n_shots=n_shots).select("prompt", "gold", "label_log_likelihoods").rows()
    return {
        int(prompt.rsplit("Shown sentence ", 1)[1].split(".")[0]): (given[gold] - null[gold]) / math.log(2)
        for prompt, gold, given in rows
    }


def test_every_training_row_that_is_not_shown_is_asked_behind_set_0_of_each_number_of_shots(first):
    dataset = first.context.dataset
    sets = first.context.rows.collect().filter(demonstration_set=0).unique("n_shots").sort("n_shots")
    assert sets["n_shots"].to_list() == [4, 8]
    places = []
    for place, (n_shots, shown, prompt) in enumerate(sets.select("n_shots", "demonstration_ids", "prompt").rows()):
        before = prompt[: prompt.rindex("CONTEXT: ")]
        for row in set(range(40)) - {*shown}:
            place_of = first.training.filter(position=place * 40 + row).row(0, named=True)
            assert place_of["prompt"] == f"{before}CONTEXT: Shown sentence {row}.\n{QUESTION}"
            assert (place_of["n_shots"], place_of["demonstration_set"], place_of["gold"]) == (n_shots, 0, row % 2)
            assert place_of["training_row"] == row
            places.append(place * 40 + row)
    assert sorted(places) == first.training["position"].to_list()
    assert first.training["query_id"].null_count() == first.training.height
    assert first.training.columns == first.context.columns
    assert dataset.demonstration.height == 40


def test_no_more_training_rows_are_asked_than_the_first_so_many(folder):
    context, _ = asked_of(folder, sets=1, training_queries=18)
    rows = pl.concat(requests(context))
    assert set(rows["training_row"]) <= set(range(18))
    with pytest.raises(TemplateError, match="more --training-queries"):
        list(requests(asked_of(folder, sets=1, training_queries=2)[0]))


def test_the_pvi_of_training_rows_is_the_log2_ratio_to_the_null_prompt_of_set_0(first):
    found = training_pvi(first.answers)
    for n_shots in (4, 8):
        expected = bits_by_hand(first.scored, n_shots)
        rows = found.filter(n_shots=n_shots)
        assert rows["training_row"].to_list() == sorted(expected)
        assert rows["pvi_bits"].to_list() == pytest.approx([expected[row] for row in sorted(expected)])


@pytest.mark.parametrize("method", CHOSEN)
def test_the_same_queries_are_asked_behind_the_rows_of_each_label_that_come_first(first, method):
    rows = pl.concat(CHOSEN_METHODS[method].prompts.follow_up(first.context, first.answers))
    assert rows.columns == first.context.columns
    inputs, null = rows.filter(part=method), rows.filter(part=f"{method}_null")
    same = ["position", "query_id", "demonstration_set", "n_shots", "gold"]
    assert inputs.select(same).equals(first.context.rows.collect().select(same))
    for n_shots in (4, 8):
        bits, per_label = bits_by_hand(first.scored, n_shots), n_shots // 2
        for label in range(2):
            own = sorted((value, row) for row, value in bits.items() if row % 2 == label)
            if method == "easiest_demonstrations":
                own = own[::-1]
            if method == "middle_demonstrations":
                from_median = sorted((abs(2 * place - len(own) + 1), place) for place in range(len(own)))
                own = [own[place] for _, place in from_median]
            for number in range(2):
                window = {row for _, row in own[number * per_label : (number + 1) * per_label]}
                shown = null.filter(n_shots=n_shots, demonstration_set=number)["demonstration_ids"].item().to_list()
                assert {row for row in shown if row % 2 == label} == window
                # Blocks of one of each label.
                assert [{row % 2 for row in shown[start : start + 2]} for start in range(0, n_shots, 2)] == [
                    {0, 1}
                ] * per_label
    for row in inputs.sample(6, seed=1).to_dicts():
        before = "".join(
            f"CONTEXT: Shown sentence {shown}.\n{QUESTION} {shown % 2}\n\n" for shown in row["demonstration_ids"]
        )
        assert row["prompt"] == f"{before}CONTEXT: Asked sentence {row['query_id']}.\n{QUESTION}"
    for row in null.to_dicts():
        assert row["prompt"] == "".join(f"ANSWER: {shown % 2}\n\n" for shown in row["demonstration_ids"]) + "ANSWER:"
    assert null["query_id"].null_count() == null.height == 4


def test_probabilities_are_the_softmax_of_the_part_and_stand_for_the_part_input(first):
    method = "hardest_demonstrations"
    scored = answered(pl.concat(CHOSEN_METHODS[method].prompts.follow_up(first.context, first.answers)), seed=9)
    found = predict(answers_of(scored), {method: CHOSEN_METHODS[method]}, ("paper",)).collect()
    expected = scored.filter(part=method)
    assert found["part"].unique().to_list() == ["input"]
    assert found["position"].to_list() == expected["position"].to_list()
    scores = np.array(expected["label_log_likelihoods"].to_list())
    assert np.array(found["label_probs"].to_list()) == pytest.approx(softmax(scores, axis=1))


def test_fewer_queries_change_nothing_about_what_is_chosen(first, folder):
    few, _ = asked_of(folder, sets=2, n_queries=3)
    rows = pl.concat(CHOSEN_METHODS["hardest_demonstrations"].prompts.follow_up(few, first.answers))
    whole = pl.concat(CHOSEN_METHODS["hardest_demonstrations"].prompts.follow_up(first.context, first.answers))
    assert rows.equals(whole.filter(pl.col("query_id").is_null() | (pl.col("query_id") < 3)))


def test_published_demonstrations_of_a_lone_table_leave_nothing_to_choose_among(folder):
    context, _ = asked_of(folder, "snli", source="published", sets=1)
    with pytest.raises(DatasetError, match=r"snli has no training rows.*--demonstrations random"):
        list(requests(context))
