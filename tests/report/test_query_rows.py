"""Which single queries a page shows."""

from itertools import groupby

import numpy as np
import polars as pl
import pytest

from evaluator.report import query_rows
from evaluator.report.query_rows import _Pieces, chosen_rows
from evaluator.schemas import QUERIES, QUERIES_KEY


def queries(seed: int) -> pl.DataFrame:
    """Queries of two datasets and three parts, with gaps in their numbers; labels differ in number."""
    random = np.random.default_rng(seed)
    rows = [
        {"suite": "s", "part": part, "dataset": dataset, "query_id": int(query), "demonstration_set": number}
        | {"label_names": ["x"] * int(random.integers(2, 5)), "prompt_id": f"{part}-{dataset}-{query}-{number}"}
        for part in ("a", "b", "later")
        for dataset in ("d", "e")
        for query in random.choice(20, 6, replace=False)
        for number in range(2)
    ]
    columns = [pl.lit(None, dtype).alias(name) for name, dtype in QUERIES.items() if name not in rows[0]]
    return pl.DataFrame(rows).with_columns(columns).select(QUERIES.names()).cast(QUERIES).sort(QUERIES_KEY)


def by_hand(rows: pl.DataFrame, n_answers: int, budget: float) -> list[str]:
    """Prompts turn by turn, as long as all of a turn fits; of the first turn those that fit."""
    numbers = {name: sorted({*rows.filter(dataset=name)["query_id"]}) for name in ("d", "e")}
    in_turn = sorted(
        (row["part"] == "later", numbers[row["dataset"]].index(row["query_id"]), row["dataset"], place, row)
        for place, row in enumerate(rows.to_dicts())
    )
    shown: list[str] = []
    used = 0.0
    for turn, group in groupby(in_turn, key=lambda row: row[:2]):
        sizes = {row["prompt_id"]: len(row["label_names"]) + 2 * n_answers / rows.height for *_, row in group}
        if used + sum(sizes.values()) <= budget:
            shown += sizes
        elif turn == (False, 0):
            totals = np.cumsum([*sizes.values()])
            return [name for name, total in zip(sizes, totals, strict=True) if total <= budget]
        else:
            break
        used += sum(sizes.values())
    return shown


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [0, 9, 30, 60, 150, 240, 10_000])
def test_queries_take_turns_as_long_as_they_fit(monkeypatch: pytest.MonkeyPatch, budget: int, seed: int) -> None:
    monkeypatch.setattr(query_rows, "MAX_NUMBERS", budget)
    rows = queries(seed)
    chosen = chosen_rows(rows.lazy(), 2 * rows.height, ["later"])
    assert chosen.rows["prompt_id"].to_list() == by_hand(rows, 2 * rows.height, budget)
    assert chosen.n_rows == rows.height
    assert chosen.n_queries == rows.select("dataset", "query_id").n_unique()


def test_where_all_parts_come_later_and_the_first_turn_is_too_large_its_first_prompts_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_rows, "MAX_NUMBERS", 9)
    rows = queries(0).filter(part="later")
    in_order = rows.sort("dataset", "query_id", *QUERIES_KEY)
    first = in_order.filter(pl.col("query_id") == pl.col("query_id").min().over("dataset"))
    used = (first["label_names"].list.len() + 2).cum_sum()  # an answer of two numbers to each of them
    chosen = chosen_rows(rows.lazy(), rows.height, ["later"])
    assert chosen.rows["prompt_id"].to_list() == first.filter(used <= 9)["prompt_id"].to_list() != []


def test_a_piece_that_prompts_share_is_stored_and_counted_once() -> None:
    prompts = {name: (f"Sort. cat {name}", [6, 10]) for name in "abc"}  # an instruction, a demonstration and a query
    pieces = _Pieces(prompts, len("Sort. ") + len("cat ") + len("a") + len("b"))
    assert [pieces.of(name) for name in "abcd"] == [[0, 1, 2], [0, 1, 3], None, None]
    assert ([*pieces.numbers], pieces.n_whole) == (["Sort. ", "cat ", "a", "b"], 2)
