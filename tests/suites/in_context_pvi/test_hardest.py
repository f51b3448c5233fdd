"""Which queries are listed as hard, or as wrongly labelled; all by hand."""

import polars as pl
import pytest

from evaluator.suites.in_context_pvi.schema import PVI_HARDEST, PVI_MISLABELLED
from evaluator.suites.in_context_pvi.summary import N_HARDEST, hardest_table, mislabelled_table, runs_of_queries
from tests.suites.in_context_pvi.pvi_answers import queries, run_table


def of_runs(*runs: tuple[list[float | None], list[bool | None]], gold: list[int]) -> pl.DataFrame:
    """The same queries behind as many demonstration sets."""
    return pl.concat(
        run_table(values, right, gold, demonstration_set=place) for place, (values, right) in enumerate(runs)
    )


def test_the_hardest_of_each_gold_label_come_first_by_their_mean_over_runs() -> None:
    # Means: query 0 (1 - 3) / 2 = -1, query 1 (-2 + 1) / 2 = -0.5, query 2 (4 - 1) / 2 = 1.5, query 3 -3 in one run.
    table = of_runs(
        ([1.0, -2, 4, None], [True, False, True, False]),
        ([-3.0, 1, -1, -3], [False, True, True, False]),
        gold=[0, 0, 1, 0],
    )
    found = hardest_table(runs_of_queries(table), queries(table))
    assert found.schema == PVI_HARDEST
    columns = ["gold", "rank", "query_id", "mean_pvi", "n_runs", "n_missing", "n_right"]
    assert found.select(columns).rows() == [
        (0, 1, 3, -3.0, 2, 1, 0),
        (0, 2, 0, -1.0, 2, 0, 1),
        (0, 3, 1, -0.5, 2, 0, 1),
        (1, 1, 2, 1.5, 2, 0, 2),
    ]
    assert found.row(0, named=True)["text"] == "d: text of 3"
    assert found["row"].to_list() == [103, 100, 101, 102]


def test_equal_means_go_by_number_and_only_so_many_are_listed() -> None:
    table = of_runs(([1.0] * 30 + [0.5], [True] * 31), gold=[0] * 31)
    found = hardest_table(runs_of_queries(table), queries(table))
    assert found["query_id"].to_list() == [30, *range(N_HARDEST - 1)]


def test_a_label_is_likely_wrong_where_every_run_prefers_the_same_other_one() -> None:
    # Query 0 qualifies; 1 has a PVI of 0 in one run; 2 is right once; 3 has no PVI in one run; 4 qualifies, and is
    # lower; 5 has no prediction in one run.
    table = of_runs(
        ([-1.0, -5, -5, -5, -2, -5], [False] * 6),
        ([-2.0, 0, -5, None, -3, -5], [False, False, True, False, False, None]),
        gold=[0, 0, 0, 0, 1, 0],
    )
    found = mislabelled_table(runs_of_queries(table), queries(table))
    assert found.schema == PVI_MISLABELLED
    columns = ["rank", "query_id", "gold", "predicted", "mean_pvi", "highest_pvi", "n_runs"]
    assert found.select(columns).rows() == [(1, 4, 1, 0, -2.5, -2.0, 2), (2, 0, 0, 1, -1.5, -1.0, 2)]


def test_runs_that_prefer_different_other_labels_say_nothing() -> None:
    table = of_runs(([-1.0], [False]), ([-1.0], [False]), gold=[0])
    others = table.with_columns(pred=pl.Series([1, 2]))
    assert mislabelled_table(runs_of_queries(table), queries(table)).height == 1
    assert mislabelled_table(runs_of_queries(others), queries(table)).height == 0
    no_label = table.with_columns(pred=pl.Series([1, None]))  # drawn under `released`: a token that is no label
    assert mislabelled_table(runs_of_queries(no_label), queries(table)).height == 0


def test_a_query_without_a_text_is_listed_all_the_same() -> None:
    table = of_runs(([-1.0, -2.0], [False, False]), gold=[0, 0])
    found = hardest_table(runs_of_queries(table), queries(table).filter(query_id=0))
    assert found.select("query_id", "row", "text").rows() == [(1, None, None), (0, 100, "d: text of 0")]


@pytest.mark.parametrize("definition", ["paper", "label_space"])
def test_definitions_and_datasets_are_listed_apart(definition: str) -> None:
    table = pl.concat(
        run_table([-value, value], [False, True], dataset=dataset, definition=own)
        for dataset, value in (("a", 1.0), ("b", 2.0))
        for own in ("paper", "label_space")
    )
    found = hardest_table(runs_of_queries(table), queries(table)).filter(definition=definition)
    assert found.select("dataset", "rank", "mean_pvi").rows() == [("a", 1, -1), ("a", 2, 1), ("b", 1, -2), ("b", 2, 2)]
