import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.config import RunConfig
from evaluator.suites import SUITES
from tests.toolkit import our_dataset


def asked(n_queries: int | None, definition) -> pl.DataFrame:
    run = RunConfig(
        suites=("staicc-demonstrations",), datasets=("trec",), n_queries=n_queries, definitions=(definition,)
    )
    return pl.concat(SUITES["staicc-demonstrations"].requests(our_dataset("trec"), run).rows)


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_demonstrations_show_the_query_s_label_or_do_not_as_the_part_says(definition):
    rows = asked(None, definition)
    labels = our_dataset("trec").demonstration["gold"]
    shown = rows.select("part", "gold", id="demonstration_ids").explode("id", keep_nulls=True, empty_as_null=True)
    is_own = shown.with_row_index().with_columns(own=labels.gather(shown["id"]) == pl.col("gold"))
    per_prompt = is_own.group_by(pl.col("index") // 4).agg(pl.col("part").first(), pl.col("own").any())
    counts = {(part, own): n for part, own, n in per_prompt.group_by("part", "own").len().iter_rows()}
    assert counts == {("in_domain", True): 1024, ("out_of_domain", False): 1024}


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_fewer_queries_are_a_part_of_the_full_benchmark(definition):
    full, few = (asked(n_queries, definition) for n_queries in (None, 7))
    assert_frame_equal(few, full.filter(pl.col("query_id") < 7))
    for part in ("in_domain", "out_of_domain"):
        assert full.filter(part=part)["position"].to_list() == list(range(1024))
