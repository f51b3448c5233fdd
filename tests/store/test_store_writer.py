"""Request rows that are added frame by frame, and the store that they become."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.errors import WriteError
from evaluator.schemas import PROMPTS, REQUESTS, REQUESTS_KEY
from evaluator.store import sorted_runs, store_writer
from evaluator.store.prompt_ids import with_prompt_ids
from evaluator.store.store_writer import StoreWriter, as_request_rows, write_store

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


def test_a_store_does_not_depend_on_the_frames_in_which_its_requests_are_added(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", 4)
    monkeypatch.setattr(store_writer, "ROWS_PER_SHARD", 16)
    texts = ["".join(row) for row in np.random.default_rng(0).choice(["x", "y", "z", "xy", "é"], size=(100, 3))]
    rows = pl.concat(
        [requests(texts), requests(texts[::-1], part="q", for_part="p"), requests(texts, part="q", for_part="o")]
    )
    whole = write_store(tmp_path / "whole", rows)
    for n_frames in (2, 7):
        writer = StoreWriter(tmp_path / str(n_frames))
        for chosen in np.array_split(np.random.default_rng(n_frames).permutation(rows.height), n_frames):
            writer.add(rows[chosen])
        assert writer.write().manifest == whole.manifest
    # The definition of the tables, in memory.
    named = with_prompt_ids(rows)
    assert_frame_equal(whole.requests().collect(), named.select(REQUESTS.names()).sort(REQUESTS_KEY))
    distinct = named.unique("prompt_id").select(PROMPTS.names()).sort("prompt", "prompt_id")
    assert_frame_equal(whole.prompts().collect(), distinct)
    assert (whole.manifest.n_requests, whole.manifest.n_prompts) == (300, distinct.height)
    assert len(whole.manifest.requests) == 300 // 16 + 1
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "2", "7"}


def test_a_text_that_is_read_in_two_ways_is_two_prompts_in_whichever_frames_they_are(tmp_path: Path):
    one, other = requests(["xy"], spans=[span(2)]), requests(["xy"], spans=[span(1)], first=1)
    again = requests(["xy", "b"], spans=[span(2), span(1)], first=2)
    named = with_prompt_ids(pl.concat([one, other, again])).sort(REQUESTS_KEY)
    for name, frames in (("a", [one, other, again]), ("b", [again, other, one])):
        writer = StoreWriter(tmp_path / name)
        for frame in frames:
            writer.add(frame)
        store = writer.write()
        assert store.requests().collect()["prompt_id"].to_list() == named["prompt_id"].to_list()
        prompts = store.prompts().collect()
        assert prompts["prompt"].to_list() == ["b", "xy", "xy"]
        assert prompts["prompt_id"].to_list()[1:] == sorted(prompts["prompt_id"].to_list()[1:])
        readings = dict(prompts.select("prompt_id", end=pl.col("spans").list.first().struct.field("end")).rows())
        by_position = named["prompt_id"].to_list()
        assert [readings[name] for name in by_position] == [2, 1, 2, 1]


def test_a_request_that_is_added_twice_is_kept_once(tmp_path: Path):
    writer = StoreWriter(tmp_path / "store")
    writer.add(requests(["a", "b"], for_part="p"))
    writer.add(requests(["a", "b", "c"], for_part="p"))
    store = writer.write()
    assert store.requests().collect()["position"].to_list() == [0, 1, 2]
    assert store.manifest.n_requests == store.manifest.n_prompts == 3


def test_two_prompts_at_one_position_are_an_error_of_the_suite(tmp_path: Path):
    writer = StoreWriter(tmp_path / "store")
    writer.add(requests(["a"]))
    writer.add(requests(["b"]))
    with pytest.raises(AssertionError, match=r"one position twice: .*'position': 0"):
        writer.write()


def test_positions_are_in_the_order_of_numbers(tmp_path: Path):
    store = write_store(tmp_path / "store", requests(["a"] * 120))
    assert store.requests().collect()["position"].to_list() == list(range(120))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    writer = StoreWriter(tmp_path / "file" / "store")
    writer.add(requests(["a"]))
    with pytest.raises(WriteError, match=r"sorted in .*file"):
        writer.add(requests(["b"]))
