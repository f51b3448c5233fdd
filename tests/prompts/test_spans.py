"""Where the demonstrations, the query and their labels are in a prompt."""

import numpy as np
import polars as pl
import pytest

from evaluator.config import RunConfig
from evaluator.datasets import SOURCES
from evaluator.methods.base import MethodContext
from evaluator.methods.scoring_rules import PPL_ICL, UNCONDITIONAL
from evaluator.prompts.method_prompts import noisy_channel_requests
from evaluator.prompts.rows import normal_requests, prompt_spans, shifted
from evaluator.store import with_prompt_ids
from evaluator.suites import SUITES
from evaluator.suites.base import Suite
from tests.toolkit import our_dataset


def parts(row: dict[str, object]) -> list[tuple[str, str]]:
    """Cut a prompt into its examples: the text before each label, and the label with what follows it."""
    text, spans = row["prompt"], row["spans"]
    assert isinstance(text, str)
    assert isinstance(spans, list)
    # Examples follow one another up to the end of the prompt.
    assert [span["start"] for span in spans[1:]] == [span["end"] for span in spans[:-1]]
    assert spans[-1]["end"] == len(text)
    return [(text[span["start"] : span["label"]], text[span["label"] : span["end"]]) for span in spans]


def test_spans_are_counted_in_characters_from_the_start_of_the_prompt():
    # "Is it?\n" has 7 characters; "ö: wet\n" has 7, of which 3 are before its label; "fog: " has 5.
    shown = pl.DataFrame({"text": ["ö: wet\n", "sun: dry\n"], "label": [3, 5]})
    (spans,) = prompt_spans("Is it?\n", shown, np.array([[0, 1]]), pl.Series(["fog: "])).to_list()
    assert spans == [
        {"start": 7, "label": 10, "end": 14},
        {"start": 14, "label": 19, "end": 23},
        {"start": 23, "label": 28, "end": 28},
    ]


def test_without_demonstrations_the_query_is_the_only_span():
    shown = pl.DataFrame({"text": [], "label": []}, schema={"text": pl.String, "label": pl.UInt32})
    none = np.empty((2, 0), np.int64)
    spans = prompt_spans("", shown, none, pl.Series(["a", "bc"])).to_list()
    assert spans == [[{"start": 0, "label": 1, "end": 1}], [{"start": 0, "label": 2, "end": 2}]]
    assert prompt_spans("", shown, none).to_list() == [[], []]


@pytest.mark.parametrize("name", SOURCES)
def test_every_demonstration_begins_with_its_input_and_its_label_where_the_span_says(name: str):
    dataset = our_dataset(name)
    template, names = dataset.template, dataset.verbalizer.label_names
    for row in pl.concat(normal_requests(dataset, n_shots=4, n_queries=4)).to_dicts():
        *shown, (query, label) = parts(row)
        assert row["spans"][0]["start"] == len(template.instruction)
        for (before, answer), example in zip(shown, row["demonstration_ids"], strict=True):
            assert answer == names[dataset.demonstration["gold"][example]] + template.label_affix
            assert before.startswith(template.input_prefixes[0] + dataset.demonstration["texts"][example][0])
            assert before.endswith(template.label_prefix)
        assert query.startswith(template.query_prefix + template.input_prefixes[0])
        assert label == ""


@pytest.mark.parametrize("name", [name for name in SUITES if name not in ("prompt-search", "pvi", "decide")])
def test_every_suite_says_where_the_labels_of_its_demonstrations_are(name: str):
    suite: Suite = SUITES[name]
    config = RunConfig(suites=(name,), datasets=("trec",), n_queries=4)
    rows = pl.concat(suite.requests(suite.take(our_dataset("trec"), config), config).rows)
    labels = our_dataset("trec").verbalizer.label_names
    for row in rows.sort("part", "template", "position").gather_every(7).to_dicts():
        *shown, _ = parts(row)
        assert len(shown) == row["n_shots"]
        # Other forms of the label names are those that the row scores.
        names = {text.strip() for text in row["continuations"]} if row["part"] == "verbalizer" else {*labels}
        assert {answer.rstrip() for _, answer in shown} <= names


def test_in_the_noisy_channel_the_text_stands_in_the_place_of_the_label():
    dataset = our_dataset("sst5")
    normal = pl.concat(normal_requests(dataset, n_shots=2, n_queries=2)).with_columns(part=pl.lit("normal"))
    paper, released = (
        noisy_channel_requests(dataset, normal, part="p", n_shots=2, definition=each).row(0, named=True)
        for each in ("paper", "released")
    )
    texts = [dataset.demonstration["texts"][row][0] + "\n" for row in normal["demonstration_ids"][0]]
    assert [answer for _, answer in parts(paper)] == [*texts, ""]
    assert [answer for _, answer in parts(released)] == [*texts, *paper["continuations"]]
    assert all(before.startswith("sentiment: ") for before, _ in parts(paper))


def test_methods_say_where_the_labels_of_their_prompts_are():
    dataset = our_dataset("sst5")
    normal = pl.concat(normal_requests(dataset, n_shots=2, n_queries=2)).with_columns(part=pl.lit("normal"))
    context = MethodContext(dataset, normal.lazy(), "normal", RunConfig(suites=("staicc-normal",), datasets=("sst5",)))
    assert UNCONDITIONAL.prompts.requests is not None
    assert PPL_ICL.prompts.requests is not None
    (unconditional,) = UNCONDITIONAL.prompts.requests(context)
    assert parts(unconditional.row(0, named=True)) == [("Answer: ", "")]
    (instructions,) = PPL_ICL.prompts.requests(context)
    assert instructions["spans"].is_null().all()


def test_a_longer_instruction_moves_all_spans():
    rows = pl.concat(normal_requests(our_dataset("sst5"), n_shots=2, n_queries=1))
    original = our_dataset("sst5").template.instruction
    longer = rows.with_columns(
        prompt=pl.lit("Hello. ") + pl.col("prompt"), spans=shifted(pl.col("spans"), len("Hello. "))
    )
    assert parts(longer.row(0, named=True)) == parts(rows.row(0, named=True))
    assert longer["spans"][0][0]["start"] == len("Hello. " + original)


def test_one_text_that_reads_as_two_prompts_has_two_ids():
    span = [{"start": 0, "label": 4, "end": 4}]
    spans = [span, [{"start": 0, "label": 1, "end": 2}, {"start": 2, "label": 4, "end": 4}], span]
    rows = pl.DataFrame({"row": [0, 1, 2], "ask": "labels", "prompt": "text", "continuations": [["a"]] * 3})
    plain = with_prompt_ids(rows)
    read = with_prompt_ids(rows.with_columns(spans=pl.Series(spans, dtype=plain.schema["spans"]))).sort("row")
    assert plain["prompt_id"].n_unique() == 1
    assert read["prompt_id"][0] == read["prompt_id"][2] != read["prompt_id"][1]
    assert plain["prompt_id"][0] in read["prompt_id"], "the first has the id that the text alone has"
