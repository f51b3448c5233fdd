from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.config import RunConfig
from evaluator.errors import DatasetError
from evaluator.prompts.rows import normal_requests
from evaluator.suites import SUITES
from tests.toolkit import our_dataset


def asked(name="financial_phrasebank", n_shots=4, suites=("staicc-bias",), dataset=None, **config) -> pl.DataFrame:
    run = RunConfig(suites=suites, datasets=(name,), n_shots=n_shots, **config)
    return pl.concat(SUITES["staicc-bias"].requests(dataset or our_dataset(name), run).rows)


def texts_between(prompts: pl.Series, dataset) -> list[str]:
    """The query of each prompt: what stands in its last line between the prefixes."""
    opening, closing = dataset.template.input_prefixes[0], " " + dataset.template.label_prefix
    return [prompt.rsplit("\n", 1)[-1].removeprefix(opening).removesuffix(closing) for prompt in prompts]


def test_normal_rows_are_those_of_staicc_normal_and_left_to_it_where_it_runs_too():
    alone, together = asked(), asked(suites=("staicc-normal", "staicc-bias"))
    assert together["part"].unique(maintain_order=True).to_list() == ["contextual", "domain"]
    assert_frame_equal(alone.filter(pl.col("part") != "normal"), together)
    normal = pl.concat(normal_requests(our_dataset("financial_phrasebank"), n_shots=4, n_queries=None))
    assert_frame_equal(alone.filter(part="normal").drop("part"), normal)


@pytest.mark.parametrize("definition", ["paper", "released"])
@pytest.mark.parametrize("n_shots", [0, 1, 4, 16])
def test_pseudo_queries_take_the_place_of_queries_and_nothing_else_changes(n_shots, definition):
    dataset = our_dataset("financial_phrasebank")
    rows = asked(n_shots=n_shots, definitions=(definition,))
    normal = rows.filter(part="normal")
    for part in ("contextual", "domain"):
        replaced = rows.filter(part=part)
        assert_frame_equal(replaced.drop("prompt", "spans", "part"), normal.drop("prompt", "spans", "part"))
        shown = replaced["prompt"].str.split("\n").list.head(n_shots)
        assert shown.to_list() == normal["prompt"].str.split("\n").list.head(n_shots).to_list()
    assert set(texts_between(rows.filter(part="contextual")["prompt"], dataset)) == {""}
    domain = texts_between(rows.filter(part="domain")["prompt"], dataset)
    assert {len(query.split(" ")) for query in domain} == {128}
    assert len(set(domain)) == 1024


@pytest.mark.parametrize(("definition", "split"), [("paper", "calibration"), ("released", "demonstration")])
def test_domain_queries_are_of_the_words_of_one_split(definition, split):
    dataset = our_dataset("financial_phrasebank")
    marked = getattr(dataset, split).with_columns(texts=pl.concat_list(pl.lit("marked words")))
    queries = texts_between(
        asked(dataset=replace(dataset, **{split: marked}), definitions=(definition,)).filter(part="domain")["prompt"],
        dataset,
    )
    # The toolkit never draws a row's last word.
    assert {word for query in queries for word in query.split(" ")} == (
        {"marked", "words"} if definition == "paper" else {"marked"}
    )


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_fewer_queries_are_a_part_of_the_full_benchmark(definition):
    full, few = (asked(definitions=(definition,), n_queries=n_queries) for n_queries in (None, 5))
    assert_frame_equal(few, full.filter(pl.col("query_id") < 5))
    assert few.height == 3 * 2 * 5
    assert full.group_by("part").agg(pl.col("position").sort())["position"].to_list() == 3 * [list(range(1024))]


def test_a_dataset_without_calibration_rows_is_refused_by_name_where_they_are_needed():
    dataset = our_dataset("financial_phrasebank")
    bare = replace(dataset, calibration=dataset.calibration.clear())
    with pytest.raises(DatasetError, match="financial_phrasebank: the calibration split has no words"):
        asked(dataset=bare, definitions=("paper",))
    assert asked(dataset=bare, definitions=("released",), n_queries=1).height == 6


def test_queries_of_two_text_fields_are_replaced_in_both():
    dataset = our_dataset("financial_phrasebank")
    two = {
        split: getattr(dataset, split).with_columns(texts=pl.concat_list(pl.lit("left"), pl.lit("right")))
        for split in ("calibration", "demonstration", "test")
    }
    template = replace(dataset.template, input_prefixes=("A: ", "B: "), input_affixes=(" ", " "))
    paired = replace(dataset, **two, text_fields=("a", "b"), template=template)
    rows = asked(dataset=paired, n_shots=0, n_queries=1).sort("part", "position")
    words = [f"A: {' '.join(['left'] * 128)} B: {' '.join(['right'] * 128)} sentiment: "]
    assert rows["prompt"].to_list() == 2 * ["A:  B:  sentiment: "] + 2 * words + 2 * ["A: left B: right sentiment: "]
    assert rows.select("template", "noise_rate").unique().rows() == [(0, 0.0)]
