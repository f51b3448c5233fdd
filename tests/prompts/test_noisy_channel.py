"""Prompts with the label first, against those of the toolkit."""

import dataclasses
from typing import Any

import polars as pl
import pytest
from StaICC.util.dataset_interface import prompt_writter

from evaluator.datasets import SOURCES
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.prompts.method_prompts import noisy_channel_requests
from evaluator.prompts.rows import normal_requests
from evaluator.templates.template import MetaTemplate, Verbalizer
from tests.toolkit import our_dataset, toolkit_experiment


def turned(
    dataset: ClassificationDataset, definition: Any, *, n_shots: int, n_queries: int | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Normal requests and what becomes of them."""
    normal = pl.concat(normal_requests(dataset, n_shots=n_shots, n_queries=n_queries)).with_columns(
        part=pl.lit("normal")
    )
    return normal, noisy_channel_requests(dataset, normal, part="p", n_shots=n_shots, definition=definition)


@pytest.mark.parametrize("n_shots", [0, 1, 4])
@pytest.mark.parametrize("name", SOURCES)
def test_prompts_are_those_of_the_toolkit_byte_for_byte(name: str, n_shots: int):
    writer = prompt_writter(toolkit_experiment(name).triplet_dataset, use_noisy_channel=True)
    normal, rows = turned(our_dataset(name), "released", n_shots=n_shots)
    shown = zip(normal["demonstration_ids"].to_list(), normal["query_id"].to_list(), strict=True)
    expected = [prompt for ids, query in shown for prompt in writer.write_prompt(ids, query)]
    assert rows.sort("position")["prompt"].to_list() == expected
    assert rows.select("ask", "continuations").unique().rows() == [("text", [])]


@pytest.mark.parametrize("name", SOURCES)
def test_both_definitions_split_the_same_text(name: str):
    (_, whole), (_, split) = (turned(our_dataset(name), each, n_shots=4) for each in ("released", "paper"))
    assert (split["prompt"] + split["continuations"].list.join("")).equals(whole["prompt"])
    texts = our_dataset(name).test["texts"].list.first().gather(split["query_id"])
    assert split["continuations"].to_list() == [[text + "\n"] for text in texts]


def test_rows_are_placed_by_query_then_label_and_keep_what_they_were_made_from():
    normal, rows = turned(our_dataset("sst5"), "paper", n_shots=4, n_queries=3)
    assert rows.columns == normal.columns
    assert rows.schema == normal.schema
    # 512 queries of 5 labels; the second demonstration set begins at query 512.
    expected = [place * 5 + label for place in (0, 1, 2, 512, 513, 514) for label in range(5)]
    assert rows["position"].to_list() == expected
    assert rows["label_tried"].to_list() == list(range(5)) * 6
    kept = ["query_id", "demonstration_set", "gold", "demonstration_ids", "label_names", "dataset"]
    assert rows.gather_every(5).select(kept).equals(normal.select(kept))


def two_fields(*, instruction: str = "") -> ClassificationDataset:
    examples = pl.DataFrame(
        {"source_row": [0, 1], "texts": [["one", "two"], ["three", ""]], "gold": [1, 0]}, schema=EXAMPLES
    )
    return ClassificationDataset(
        name="two",
        calibration=examples,
        demonstration=examples.head(1),
        test=examples.tail(1),
        text_fields=("premise", "hypothesis"),
        template=MetaTemplate(
            instruction=instruction,
            input_prefixes=("P: ", "H: "),
            input_affixes=(" | ", " |"),
            label_prefix="L: ",
            label_affix=";",
            query_prefix="now ",
        ),
        verbalizer=Verbalizer(label_names=("no", "yes")),
        fingerprint="",
    )


def test_of_several_fields_the_query_is_scored_from_its_first_text_to_the_end_of_the_last():
    _, rows = turned(two_fields(instruction="Say. "), "paper", n_shots=1)
    before = "Say. L: yes P: one | H: two\nL: "
    assert rows.head(2).select("prompt", "continuations").rows() == [
        (f"{before}no now P: ", ["three | H: \n"]),
        (f"{before}yes now P: ", ["three | H: \n"]),
    ]


def test_an_empty_text_still_has_an_end_to_score():
    dataset = our_dataset("sst5")
    empty = dataset.test.head(1).with_columns(texts=pl.lit([""]))
    _, rows = turned(dataclasses.replace(dataset, test=empty), "paper", n_shots=0)
    assert rows["continuations"].to_list() == [["\n"]] * rows.height
