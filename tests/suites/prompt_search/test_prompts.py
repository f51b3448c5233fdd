import dataclasses
import json
import math

import polars as pl
import pytest

from evaluator.datasets.base import MultipleChoiceDataset
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.datasets.multiple_choice import ChoiceRow, choice_examples
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, DatasetError
from evaluator.suites.prompt_search.prompts import SearchOptions, search_requests, split_examples
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.templates.template import ChoiceTemplate


def sums(n_examples: int) -> MultipleChoiceDataset:
    """Example n asks for n + n and has 2 + n % 3 choices, of which the second is right."""
    rows = [
        ChoiceRow(n, f"sum-{n}", f"{n} + {n}?", [str(2 * n + wrong) for wrong in (1, 0, 2, 3)[: 2 + n % 3]], [1])
        for n in range(n_examples)
    ]
    examples, _ = choice_examples(rows, "sums")
    return MultipleChoiceDataset(
        name="sums", examples=examples, template=ChoiceTemplate(), source="sums", fingerprint=""
    )


@pytest.mark.parametrize("n_examples", [8, 46, 100, 266, 1500])
def test_queries_are_drawn_once_and_no_demonstration_is_among_them(n_examples):
    queries, pool = split_examples(sums(n_examples), SearchOptions(), None)
    # A quarter, and at least the four of the longest prompt, is kept for demonstrations; the rest up to 200 is asked.
    kept = max(4, math.ceil(n_examples / 4))
    assert len(queries) == min(200, n_examples - kept)
    assert not set(queries) & set(pool)
    assert sorted([*queries, *pool]) == list(range(n_examples))


def test_fewer_queries_are_the_first_of_more_behind_the_same_demonstrations():
    full, part = (pl.concat(search_requests(sums(100), SearchOptions(tries=3), n).rows) for n in (None, 20))
    assert set(part["prompt"]) < set(full["prompt"])
    assert part["demonstration_ids"].unique().len() == full["demonstration_ids"].unique().len()


def test_more_queries_than_leave_the_demonstrations_are_refused():
    assert len(split_examples(sums(100), SearchOptions(), 96)[0]) == 96
    with pytest.raises(ConfigError, match="--queries 97: sums has 100 examples, which leaves at most 96 queries"):
        split_examples(sums(100), SearchOptions(), 97)
    with pytest.raises(DatasetError, match="sums has 3 examples, too few"):
        split_examples(sums(3), SearchOptions(), None)
    with pytest.raises(DatasetError, match="sums has 3 examples for demonstrations, too few for 4 shots"):
        split_examples(dataclasses.replace(sums(40), demonstrations=sums(3).examples), SearchOptions(), None)


def test_a_search_asks_every_query_behind_every_prompt_in_a_stated_order():
    rows = pl.concat(search_requests(sums(20), SearchOptions(shots=(1, 2), tries=3), 4).rows)
    assert rows["position"].to_list() == list(range(2 * 3 * 4))
    assert rows["demonstration_set"].to_list() == [n for _ in range(2) for n in range(3) for _ in range(4)]
    assert rows["demonstration_ids"].list.len().to_list() == rows["n_shots"].to_list() == [1] * 12 + [2] * 12
    assert rows["template"].unique().to_list() == [0]
    assert rows["query_id"].to_list() == rows["query_id"][:4].to_list() * 6
    assert rows["part"].unique().to_list() == ["demonstrations"]
    assert rows["label_names"].list.len().n_unique() == 3  # ragged, as the examples are


def test_a_prompt_shows_its_demonstrations_with_their_correct_choices_and_then_the_query():
    dataset = sums(20)
    row = pl.concat(search_requests(dataset, SearchOptions(shots=(2,), tries=1), 1).rows).row(0, named=True)
    examples = dataset.examples.to_dicts()

    def asked(number):
        listed = "".join(f"\n  choice: {choice}" for choice in examples[number]["shown_choices"])
        return f"Q: {number} + {number}?{listed}\nA:"

    first, second = row["demonstration_ids"]
    expected = f"{asked(first)} {2 * first}\n{asked(second)} {2 * second}\n{asked(row['query_id'])}"
    assert row["prompt"] == expected
    assert row["continuations"] == [f" {choice}" for choice in row["label_names"]]
    assert row["label_names"][row["gold"]] == str(2 * row["query_id"])


def test_the_tables_say_what_was_tried_and_which_choices_are_correct():
    tables = search_requests(sums(20), SearchOptions(shots=(1, 2), tries=3), 4).tables
    tried, examples = tables["tried_prompts"], tables["search_examples"]
    assert tried.schema == TRIED_PROMPTS
    assert examples.schema == SEARCH_EXAMPLES
    assert tried.select("n_shots", "prompt_number").rows() == [(k, n) for k in (1, 2) for n in range(3)]
    assert tried["text"].str.ends_with("Q: {input}\n  choice: {choices}\nA:").all()
    assert tried["text"].n_unique() == 6
    assert examples["correct"].to_list() == [[1]] * 4
    assert examples["source"][0] == f"sums, row {examples['query_id'][0]} (from 0)"


def test_instructions_and_templates_share_one_demonstration_set(tmp_path):
    path = tmp_path / "candidates.json"
    path.write_text(json.dumps({"instructions": ["Add.", "Sum up."], "templates": [{"output_prefix": "\nSum: "}]}))
    rows = pl.concat(search_requests(sums(20), SearchOptions(candidates=path, shots=(0, 2)), 3).rows)
    assert rows.group_by("part", maintain_order=True).len().rows() == [("instructions", 12), ("templates", 6)]
    with_shots = rows.filter(pl.col("demonstration_ids").list.len() == 2)
    assert with_shots["demonstration_ids"].n_unique() == 1
    assert with_shots["demonstration_set"].unique().to_list() == [0]
    starts = with_shots.group_by("part", "template").agg(pl.col("prompt").first()).sort("part", "template")["prompt"]
    assert [text.split("\n")[0] for text in starts][:2] == ["Add.", "Sum up."]
    assert all("\nSum:" in text and "\nA:" not in text for text in starts[2:])
    assert (
        rows.group_by("part")
        .agg(pl.col("position").n_unique(), pl.len())
        .filter(pl.col("position") != pl.col("len"))
        .is_empty()
    )


def test_more_candidates_than_tries_are_refused_rather_than_left_out(tmp_path):
    path = tmp_path / "candidates.json"
    path.write_text(json.dumps({"instructions": ["Add."], "templates": [{"output_prefix": f"\n{n}: "} for n in "abc"]}))
    search = SearchOptions(candidates=path, shots=(0,), tries=2)
    with pytest.raises(ConfigError, match=r"candidates\.json has 3 templates, and --tries 2 .* Give --tries 3, or"):
        search_requests(sums(20), search, 3)
    rows = pl.concat(search_requests(sums(20), dataclasses.replace(search, tries=3), 3).rows)
    assert rows["template"].max() == 2


def test_a_classification_dataset_takes_queries_from_its_test_split_alone():
    dataset = as_multiple_choice(load_staicc("trec"))
    queries, pool = split_examples(dataset, SearchOptions(), None)
    assert len(queries) == 200
    assert dataset.examples.height == 512
    assert len(pool) == dataset.demonstrations.height == 4096
    assert len(split_examples(dataset, SearchOptions(), 512)[0]) == 512


def test_without_demonstrations_every_example_can_be_a_query(tmp_path):
    zero_shot = SearchOptions(shots=(0,), candidates=tmp_path / "instructions.txt")
    assert len(split_examples(sums(20), zero_shot, None)[0]) == 20
    with pytest.raises(ConfigError, match="--queries 21: sums has 20 examples"):
        split_examples(sums(20), zero_shot, 21)
