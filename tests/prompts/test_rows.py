from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.datasets.base import EXAMPLES, ClassificationDataset, OwnDemonstrations
from evaluator.errors import ConfigError, TemplateError
from evaluator.prompts.demonstrations import own_demonstrations
from evaluator.prompts.rows import PromptPlan, normal_requests, requests
from evaluator.schemas import PROMPTS, REQUESTS
from evaluator.templates.template import MetaTemplate, Verbalizer
from tests.toolkit import our_dataset


def split(*examples: tuple[list[str], int]) -> pl.DataFrame:
    rows = [(number, *example) for number, example in enumerate(examples)]
    return pl.DataFrame(rows, schema=EXAMPLES, orient="row")


DATASET = ClassificationDataset(
    name="tiny",
    calibration=split(),
    demonstration=split((["rain", "wet"], 0), (["sun", "wet"], 1), (["snow", "cold"], 0), (["wind", "calm"], 1)),
    test=split((["fog", "grey"], 0), (["ice", "hot"], 1), (["hail", "loud"], 0)),
    text_fields=("premise", "claim"),
    template=MetaTemplate(
        instruction="True or not?\n",
        input_prefixes=("P: ", "C: "),
        input_affixes=(" ", " "),
        label_prefix="L: ",
        label_affix="\n",
        query_prefix="> ",
    ),
    verbalizer=Verbalizer(label_names=("true", "false")),
    fingerprint="0",
)


def test_prompts_hold_the_instruction_the_demonstrations_in_their_order_and_the_query():
    index = pl.Series([2, 0], dtype=pl.Int64).to_numpy()
    ids = pl.Series([[3, 0], [0, 3]], dtype=pl.Array(pl.Int64, 2)).to_numpy()
    rows = pl.concat(requests(DATASET, PromptPlan(demonstration_set=index * 0, query_id=index, demonstration_ids=ids)))
    wind, rain = "P: wind C: calm L: false\n", "P: rain C: wet L: true\n"
    assert rows["prompt"].to_list() == [
        f"True or not?\n{wind}{rain}> P: hail C: loud L: ",
        f"True or not?\n{rain}{wind}> P: fog C: grey L: ",
    ]
    assert rows["gold"].to_list() == [0, 0]
    assert rows["demonstration_ids"].to_list() == [[3, 0], [0, 3]]


def test_without_demonstrations_both_demonstration_sets_ask_the_same():
    rows = pl.concat(normal_requests(DATASET, n_shots=0, n_queries=None))
    assert rows["prompt"].to_list() == 2 * [
        "True or not?\n> P: fog C: grey L: ",
        "True or not?\n> P: ice C: hot L: ",
        "True or not?\n> P: hail C: loud L: ",
    ]
    assert rows["demonstration_ids"].to_list() == 6 * [[]]


def test_rows_come_demonstration_set_by_demonstration_set():
    rows = pl.concat(normal_requests(DATASET, n_shots=1, n_queries=None))
    assert rows["position"].to_list() == [0, 1, 2, 3, 4, 5]
    assert rows["demonstration_set"].to_list() == [0, 0, 0, 1, 1, 1]
    assert rows["query_id"].to_list() == [0, 1, 2, 0, 1, 2]
    assert rows["gold"].to_list() == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("n_shots", [0, 1, 3])
def test_columns_are_those_that_the_schemas_declare(n_shots: int):
    rows = pl.concat(normal_requests(DATASET, n_shots=n_shots, n_queries=None))
    declared = {**REQUESTS, **PROMPTS}
    added_later = {"suite", "part", "for_part", "prompt_id"}
    assert dict(rows.schema) == {name: dtype for name, dtype in declared.items() if name not in added_later}
    nothing_tried = ["label_tried", "ordering", "training_row"]
    assert rows.drop(nothing_tried).null_count().sum_horizontal().item() == 0
    assert rows.select(nothing_tried).unique().rows() == [(None, None, None)]
    assert rows.select("n_shots", "template", "noise_rate", "ask").unique().rows() == [(n_shots, 0, 0.0, "labels")]
    assert rows["continuations"].to_list() == rows["label_names"].to_list() == 6 * [["true", "false"]]


@pytest.mark.parametrize("n_shots", [0, 2])
def test_a_run_of_fewer_queries_is_a_part_of_the_full_one(n_shots: int):
    full = pl.concat(normal_requests(DATASET, n_shots=n_shots, n_queries=None))
    fewer = pl.concat(normal_requests(DATASET, n_shots=n_shots, n_queries=2))
    assert_frame_equal(fewer, full.filter(pl.col("query_id") < 2))
    assert fewer["position"].to_list() == [0, 1, 3, 4]


def test_more_queries_than_the_test_split_has_are_refused():
    with pytest.raises(ConfigError, match="--queries 4: the test split of tiny has 3"):
        pl.concat(normal_requests(DATASET, n_shots=1, n_queries=4))


def test_more_shots_than_demonstrations_are_refused():
    with pytest.raises(TemplateError, match="5 shots"):
        pl.concat(normal_requests(DATASET, n_shots=5, n_queries=None))


def test_a_template_that_leaves_out_a_text_field_is_refused():
    one_field = MetaTemplate(input_prefixes=("P: ",), input_affixes=(" ",), label_prefix="L: ", label_affix="\n")
    with pytest.raises(TemplateError, match=r"2 text fields \['premise', 'claim'\]"):
        pl.concat(normal_requests(replace(DATASET, template=one_field), n_shots=1, n_queries=None))


@pytest.mark.parametrize("how", ["balanced", "cover", "first"])
def test_of_ones_own_data_demonstrations_are_drawn_for_the_queries_that_are_asked_alone(monkeypatch, how):
    # With `cover`, those of 90,000 queries of a large table took minutes, where ten were asked.
    dataset = replace(our_dataset("sst5"), own_demonstrations=OwnDemonstrations(how=how, n_sets=3))
    full = pl.concat(normal_requests(dataset, n_shots=4, n_queries=None))
    drawn = []

    def draw(*words, n_queries, **more):
        drawn.append(n_queries)
        return own_demonstrations(*words, n_queries=n_queries, **more)

    monkeypatch.setattr("evaluator.prompts.rows.own_demonstrations", draw)
    few = pl.concat(normal_requests(dataset, n_shots=4, n_queries=10))
    assert drawn == [10]
    assert_frame_equal(few, full.filter(pl.col("query_id") < 10))
