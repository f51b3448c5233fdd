from dataclasses import replace

import polars as pl
import pytest

from evaluator.errors import DatasetError, TemplateError
from evaluator.suites.in_context_pvi.demonstration_choice import (
    candidates,
    candidates_for_set,
    demonstrations_by_pvi,
    first_sets,
    pvi_candidates,
    ranked_sets,
)
from evaluator.suites.in_context_pvi.prompts import PviOptions, as_queries
from evaluator.suites.in_context_pvi.schema import PVI_CANDIDATES
from tests.suites.in_context_pvi.pvi_config import pvi_config, read_dataset
from tests.suites.in_context_pvi.pvi_folder import write_folder


@pytest.fixture
def snli(tmp_path):
    return read_dataset(pvi_config(write_folder(tmp_path)))


# Per label: row 4 is the hardest of label 0 and row 1 the easiest; label 1 has a tie of rows 5 and 6.
MEASURED = pl.DataFrame(
    {
        "query_id": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        "gold": [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        "pvi_bits": [0.5, 2.0, None, -0.5, -3.0, 1.0, 1.0, 0.25, float("-inf"), 4.0],
    }
)


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        # Label 0 from hard to easy: 4 (-3), 3 (-0.5), 0 (0.5), 1 (2). Label 1: 7 (0.25), 5 and 6 (1), 9 (4).
        ("hardest", [[4, 3, 0, 1], [7, 5, 6, 9]]),
        ("easiest", [[1, 0, 3, 4], [9, 5, 6, 7]]),
        # The median of four lies between the second and third, of which the harder comes first; then the outer two.
        ("middle", [[3, 0, 4, 1], [5, 6, 7, 9]]),
    ],
)
def test_rows_are_ranked_by_pvi_within_their_label_and_left_out_without_one(order, rows):
    assert demonstrations_by_pvi(MEASURED, order=order, n_labels=2) == rows
    shuffled = MEASURED.sample(fraction=1.0, shuffle=True, seed=3)
    assert demonstrations_by_pvi(shuffled, order=order, n_labels=2) == rows


def test_of_an_odd_number_the_middle_is_the_median_itself():
    odd = MEASURED.head(1).vstack(MEASURED[[1, 3]])  # 0.5, 2.0, -0.5
    assert demonstrations_by_pvi(odd, order="middle", n_labels=1) == [[0, 3, 1]]


def measured(dataset):
    """The PVI of row n is n."""
    rows = dataset.demonstration.select(query_id=pl.int_range(pl.len()), gold="gold")
    return rows.with_columns(pvi_bits=pl.col("query_id").cast(pl.Float64))


@pytest.mark.parametrize("n_shots", [3, 6])
@pytest.mark.parametrize("order", ["hardest", "easiest"])
def test_the_first_set_shows_the_first_of_each_label_and_the_next_one_those_that_follow(snli, n_shots, order):
    by_label = [[row for row, gold in enumerate(snli.demonstration["gold"]) if gold == label] for label in range(3)]
    if order == "easiest":
        by_label = [rows[::-1] for rows in by_label]
    ranks = [{rows[rank] for rows in by_label} for rank in range(4)]
    sets = ranked_sets(snli, measured(snli), order, n_shots, PviOptions(sets=2))
    assert [(each.n_shots, each.number) for each in sets] == [(n_shots, 0), (n_shots, 1)]
    blocks = [set(each.rows[start : start + 3]) for each in sets for start in range(0, n_shots, 3)]
    assert blocks == ranks[: 2 * n_shots // 3]
    answers = [f"ANSWER: {gold}\n\n" for gold in snli.demonstration["gold"].gather(sets[0].rows)]
    assert sets[0].null_text == "".join(answers)


def test_candidates_are_the_first_training_rows_that_no_query_stands_among(snli):
    size = snli.demonstration.height
    assert candidates(snli, PviOptions())["query_id"].to_list() == list(range(size))
    assert candidates(snli, PviOptions(training_queries=4))["query_id"].to_list() == [0, 1, 2, 3]
    # Row 1 has the texts of a query, under whatever label; it is one of the first four, and no fifth comes for it.
    twice = snli.demonstration.with_columns(
        texts=pl.when(pl.int_range(pl.len()) == 1).then(snli.test["texts"].first()).otherwise("texts")
    )
    mixed = replace(snli, demonstration=twice)
    assert candidates(mixed, PviOptions(training_queries=4))["query_id"].to_list() == [0, 2, 3]
    table = pvi_candidates(mixed, PviOptions(training_queries=4))
    assert table.schema == PVI_CANDIDATES
    assert table["n_training"].to_list() == [size] * 3
    assert table["row"].to_list() == snli.demonstration["source_row"].gather([0, 2, 3]).to_list()
    assert table["text"][0] == "\n".join(snli.demonstration["texts"][0])


def test_what_stands_in_the_set_it_would_be_measured_behind_is_no_candidate(snli):
    pvi = PviOptions(sets=1)
    three, six = first_sets(snli, pvi)
    assert (three.n_shots, six.n_shots) == (3, 6)
    everything = set(range(snli.demonstration.height))
    assert set(candidates_for_set(snli, pvi, three)["query_id"]) == everything - {*three.rows}
    assert set(candidates_for_set(snli, pvi, six)["query_id"]) == everything - {*six.rows}
    # A row of the same texts as a demonstration is the same to the model.
    shown = as_queries(snli, snli.demonstration)["inputs"][three.rows[0]]
    twin = next(iter(everything - {*three.rows}))
    texts = snli.demonstration["texts"].to_list()
    texts[twin] = texts[three.rows[0]]
    copied = replace(snli, demonstration=snli.demonstration.with_columns(texts=pl.Series(texts)))
    assert as_queries(copied, copied.demonstration)["inputs"][twin] == shown
    assert set(candidates_for_set(copied, pvi, three)["query_id"]) == everything - {*three.rows, twin}


def test_too_few_candidates_are_refused_before_anything_is_asked(snli):
    (first,) = first_sets(snli, PviOptions(shots=(3,)))
    pvi = PviOptions(shots=(3,), training_queries=2)
    message = r"3 sets of 3 demonstrations by PVI need 3 rows labelled '\d', and the first 2 training rows have \d "
    with pytest.raises(TemplateError, match=message + "to choose from.*--training-queries"):
        candidates_for_set(snli, pvi, first)


def test_rows_without_a_pvi_are_missed_where_all_are_needed(snli):
    rows = measured(snli)
    n_label = rows.filter(gold=1).height
    pvi = PviOptions(sets=n_label)
    assert len(ranked_sets(snli, rows, "hardest", 3, pvi)) == n_label
    holed = rows.with_columns(
        pvi_bits=pl.when(pl.col("query_id") == rows.filter(gold=1)["query_id"][0]).then(None).otherwise("pvi_bits")
    )
    with pytest.raises(
        TemplateError, match=rf"labelled '1', and the first 500 training rows have {n_label - 1} to choose from"
    ):
        ranked_sets(snli, holed, "hardest", 3, pvi)


def test_a_dataset_without_training_rows_says_how_to_mend_it(snli):
    bare = replace(snli, demonstration=snli.demonstration.clear())
    with pytest.raises(DatasetError, match=r"snli has no training rows.*Add a table of training rows.*--methods"):
        candidates(bare, PviOptions(source="published"))
