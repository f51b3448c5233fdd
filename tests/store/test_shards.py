import polars as pl
import pytest

from evaluator import store
from evaluator.errors import StoreError


def test_equal_frames_give_equal_bytes_however_they_were_put_together(tmp_path):
    whole = pl.DataFrame({"a": [1, 2, 3, 4], "b": [["x"], [], ["y", "z"], ["w"]]})
    pieces = pl.concat([whole.head(1), whole.slice(1, 2), whole.tail(1)], rechunk=False)
    part = pl.concat([whole, whole, whole], rechunk=True).slice(4, 4)
    digest = store.write_shard(tmp_path / "whole", whole)
    for frame in (pieces, part):
        assert store.write_shard(tmp_path / "again", frame) == digest
        assert (tmp_path / "whole").read_bytes() == (tmp_path / "again").read_bytes()


def test_a_changed_or_missing_shard_is_not_intact(tmp_path):
    digests = store.write_shards(tmp_path, "rows", pl.LazyFrame({"a": range(10)}), rows_per_shard=4)
    assert list(digests) == ["rows-00000.arrow", "rows-00001.arrow", "rows-00002.arrow"]
    assert not store.changed(tmp_path, digests)
    shard = tmp_path / "rows-00001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert store.changed(tmp_path, digests) == ["rows-00001.arrow"]
    shard.unlink()
    assert store.changed(tmp_path, digests) == ["rows-00001.arrow"]
    with pytest.raises(StoreError, match="rows-00001"):
        store.scan_shards(tmp_path, list(digests), pl.Schema({"a": pl.Int64}))


def test_shards_are_read_back_in_the_order_of_the_manifest(tmp_path):
    frame = pl.DataFrame({"a": range(10)})
    names = list(store.write_shards(tmp_path, "rows", frame.lazy(), rows_per_shard=3))
    assert store.scan_shards(tmp_path, names, frame.schema).collect().equals(frame)


def test_an_empty_frame_makes_one_empty_shard(tmp_path):
    frame = pl.DataFrame(schema={"a": pl.Int64})
    names = list(store.write_shards(tmp_path, "rows", frame.lazy(), rows_per_shard=3))
    assert len(names) == 1
    assert store.scan_shards(tmp_path, names, frame.schema).collect().equals(frame)
