"""Request rows, and the store that they become."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator import store as module
from evaluator.errors import WriteError
from evaluator.schemas import PROMPTS, REQUESTS, REQUESTS_KEY
from evaluator.store import as_request_rows, kept_requests, with_prompt_ids, write_store

SPANS = PROMPTS["spans"]


def requests(prompts, *, part="p", spans=None, for_part=None, first=0):
    """Requests for these prompts, at one position after the other."""
    rows = pl.DataFrame(
        {
            "suite": "s",
            "part": part,
            "for_part": for_part,
            "dataset": "d",
            "position": range(first, first + len(prompts)),
            "ask": "labels",
            "prompt": prompts,
            "continuations": [["a", "b"]] * len(prompts),
        }
    )
    told = {} if spans is None else {"spans": pl.Series(spans, dtype=SPANS)}
    return as_request_rows(rows.with_columns(**told))


def span(end):
    return [{"start": 0, "label": 1, "end": end}]


def test_a_store_does_not_depend_on_the_order_of_its_requests(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "ROWS_PER_SHARD", 16)
    texts = ["".join(row) for row in np.random.default_rng(0).choice(["x", "y", "z", "xy", "é"], size=(100, 3))]
    rows = pl.concat(
        [requests(texts), requests(texts[::-1], part="q", for_part="p"), requests(texts, part="q", for_part="o")]
    )
    whole = write_store(tmp_path / "whole", rows.lazy())
    shuffled = write_store(tmp_path / "shuffled", rows.sample(fraction=1, shuffle=True, seed=0).lazy())
    assert shuffled.manifest == whole.manifest
    # The definition of the tables, in memory.
    named = with_prompt_ids(rows)
    assert_frame_equal(whole.requests().collect(), named.select(REQUESTS.names()).sort(REQUESTS_KEY))
    distinct = named.unique("prompt_id").select(PROMPTS.names()).sort("prompt", "prompt_id")
    assert_frame_equal(whole.prompts().collect(), distinct)
    assert (whole.manifest.n_requests, whole.manifest.n_prompts) == (300, distinct.height)
    assert len(whole.manifest.requests) == 300 // 16 + 1
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "shuffled"}


def test_a_text_that_is_read_in_two_ways_is_two_prompts_in_whichever_order_they_are(tmp_path: Path):
    one, other = requests(["xy"], spans=[span(2)]), requests(["xy"], spans=[span(1)], first=1)
    again = requests(["xy", "b"], spans=[span(2), span(1)], first=2)
    named = with_prompt_ids(pl.concat([one, other, again])).sort(REQUESTS_KEY)
    for name, frames in (("a", [one, other, again]), ("b", [again, other, one])):
        store = write_store(tmp_path / name, pl.concat(frames).lazy())
        assert store.requests().collect()["prompt_id"].to_list() == named["prompt_id"].to_list()
        prompts = store.prompts().collect()
        assert prompts["prompt"].to_list() == ["b", "xy", "xy"]
        assert prompts["prompt_id"].to_list()[1:] == sorted(prompts["prompt_id"].to_list()[1:])
        readings = dict(prompts.select("prompt_id", end=pl.col("spans").list.first().struct.field("end")).rows())
        by_position = named["prompt_id"].to_list()
        assert [readings[name] for name in by_position] == [2, 1, 2, 1]


def test_a_request_that_is_added_twice_is_kept_once(tmp_path: Path):
    rows = pl.concat([requests(["a", "b"], for_part="p"), requests(["a", "b", "c"], for_part="p")])
    store = write_store(tmp_path / "store", rows.lazy())
    assert store.requests().collect()["position"].to_list() == [0, 1, 2]
    assert store.manifest.n_requests == store.manifest.n_prompts == 3


def test_two_prompts_at_one_position_are_an_error_of_the_suite(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"one position twice: .*'position': 0"):
        write_store(tmp_path / "store", pl.concat([requests(["a"]), requests(["b"])]).lazy())


def test_positions_are_in_the_order_of_numbers(tmp_path: Path):
    store = write_store(tmp_path / "store", requests(["a"] * 120).lazy())
    assert store.requests().collect()["position"].to_list() == list(range(120))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"kept in .*file"), kept_requests([requests(["a"])], tmp_path / "file"):
        pass
