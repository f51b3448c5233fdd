from itertools import islice, product

import polars as pl
import pytest

from evaluator.suites.prompt_search.suite import ANSWERS, better_half, round_sizes, rows_of_rounds, with_rounds

SEARCH = {"part": "demonstrations", "dataset": "d", "n_shots": 1}


@pytest.mark.parametrize(
    ("n_queries", "sizes"), [(200, [25, 50, 100, 200]), (75, [19, 38, 75]), (32, [16, 32]), (30, [30]), (1, [1])]
)
def test_rounds_double_up_to_all_queries_and_begin_with_sixteen_or_more(n_queries, sizes):
    assert round_sizes(n_queries) == sizes


def test_each_dataset_is_cut_into_its_own_rounds():
    rows = pl.concat(
        [
            pl.DataFrame({"place": range(n)}).with_columns(dataset=pl.lit(name), prompt_number=number)
            for (name, n), number in product({"a": 32, "b": 30}.items(), [1, 0])
        ]
    ).with_columns(part=pl.lit("demonstrations"), n_shots=1)
    first = with_rounds(rows).filter(round=0)
    # 32 are 16 and then 32; 30 are one round.
    assert [*first.filter(dataset="a", prompt_number=0)["place"]] == [*range(16)]
    assert with_rounds(rows).group_by("dataset", "round").len().sort("dataset", "round").rows() == [
        ("a", 0, 32),
        ("a", 1, 32),
        ("b", 0, 60),
    ]


def plan(n_tries: int = 5) -> pl.DataFrame:
    """Eight queries in rounds that end at 2, 4 and 8."""
    rounds = [0, 0, 1, 1, 2, 2, 2, 2]
    rows = [
        SEARCH
        | {"prompt_number": number, "place": place, "prompt_id": f"{number}-{place}", "position": 8 * number + place}
        | {"round": rounds[place]}
        for number, place in product(range(n_tries), range(8))
    ]
    return pl.DataFrame(rows)


def answered(right: dict[int, list[int]], places: range) -> pl.DataFrame:
    """Answers of each try to these places; `right` holds, of each try, 1 for right and 0 for wrong."""
    rows = [
        SEARCH
        | {"method": "m", "prompt_number": number, "place": place, "is_tied": False}
        | {"is_correct": bool(marks[place])}
        for number, marks in right.items()
        for place in places
    ]
    return pl.DataFrame(rows, schema=ANSWERS)


RIGHT = {
    0: [1, 1, 0, 0, 0, 0, 0, 0],
    1: [1, 1, 1, 1, 1, 1, 1, 1],
    2: [1, 0, 1, 1, 1, 1, 1, 1],
    3: [0, 0, 1, 1, 1, 1, 1, 1],
    4: [1, 0, 0, 0, 0, 0, 0, 0],
}


def rows_of_round(plan: pl.DataFrame, answers_so_far: pl.DataFrame, number: int) -> pl.DataFrame:
    return next(islice(rows_of_rounds(plan, answers_so_far), number, None))


def test_all_prompts_answer_the_first_round():
    first = rows_of_round(plan(), answered({}, range(0)), 0)
    assert first.select("prompt_number", "place").rows() == list(product(range(5), range(2)))


def test_the_better_half_goes_on_with_all_that_are_as_good_as_the_last_of_it():
    # Right of two: 2, 2, 1, 0, 1. Three of five go on, and with the third of them the other that has one right.
    second = rows_of_round(plan(), answered(RIGHT, range(2)), 1)
    assert second["prompt_number"].unique().sort().to_list() == [0, 1, 2, 4]
    assert second["place"].unique().sort().to_list() == [2, 3]


def test_rounds_go_on_until_those_left_have_answered_everything():
    # Right of four: 2, 4, 3, -, 1. Two of four go on.
    third = rows_of_round(plan(), answered(RIGHT, range(4)), 2)
    assert third["prompt_number"].unique().sort().to_list() == [1, 2]
    rounds = list(rows_of_rounds(plan(), answered(RIGHT, range(8))))
    # More answers than were asked for change nothing: prompt 3 would have been good, but was stopped.
    assert rounds[2].equals(third)
    assert pl.concat(rounds).group_by("prompt_number").len().sort("prompt_number").rows() == [
        (0, 4),
        (1, 8),
        (2, 8),
        (3, 2),
        (4, 4),
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_round_that_is_answered_in_part_is_asked_again_as_it_was(number):
    before = answered(RIGHT, range([0, 2, 4][number]))
    in_part = answered({n: RIGHT[n] for n in (0, 1)}, range([0, 2, 4][number], [2, 4, 8][number]))
    again = rows_of_round(plan(), pl.concat([before, in_part]), number)
    assert again.equals(rows_of_round(plan(), before, number))
    assert again["round"].unique().to_list() == [number]


def test_a_prompt_that_can_no_longer_win_is_stopped_even_in_the_better_half():
    n_queries = pl.DataFrame({"dataset": ["d"], "n_queries": [4]})
    right = {0: [1, 1, 1], 1: [1, 0, 0], 2: [0, 0, 0]}
    # Two of three are the better half, but with one query to go the second reaches 2 and the first has 3.
    assert better_half(answered(right, range(3)), n_queries)["prompt_number"].to_list() == [0]
    right[1] = [1, 1, 0]
    assert sorted(better_half(answered(right, range(3)), n_queries)["prompt_number"]) == [0, 1]


def test_searches_are_halved_apart():
    one = answered(RIGHT, range(2))
    two = one.filter(pl.col("prompt_number") > 2).with_columns(n_shots=pl.lit(2, pl.Int64))
    kept = better_half(pl.concat([one, two]), pl.DataFrame({"dataset": ["d"], "n_queries": [8]}))
    assert kept.filter(n_shots=2)["prompt_number"].to_list() == [4]
    assert sorted(kept.filter(n_shots=1)["prompt_number"]) == [0, 1, 2, 4]
