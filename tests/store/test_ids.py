import polars as pl
import pytest

from evaluator.store.ids import buckets, id_numbers


def test_ids_are_the_numbers_that_their_digits_write():
    names = ["0" * 32, "0" * 31 + "1", "7" + "f" * 31, "80" + "0" * 30, "f" * 32]
    numbers = pl.DataFrame({"id": names}).select(id_numbers("id")).to_series()
    signed = [int(one, 16) - (2**128 if int(one, 16) >= 2**127 else 0) for one in names]
    assert numbers.dtype == pl.Int128
    assert numbers.to_list() == signed


@pytest.mark.parametrize("n_buckets", [1, 3, 7])
def test_buckets_hold_every_id_once_and_about_as_many_each(n_buckets):
    rows = pl.DataFrame({"prompt_id": [f"{number:04x}{'0' * 28}" for number in range(16**4)]})
    heights = [rows.filter(bucket).height for bucket in buckets(rows.height, -(-rows.height // n_buckets))]
    assert len(heights) == n_buckets
    assert sum(heights) == rows.height
    assert max(heights) - min(heights) <= 1
