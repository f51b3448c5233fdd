import polars as pl

from evaluator.store.ids import id_numbers


def test_ids_are_the_numbers_that_their_digits_write():
    ids = ["0" * 32, "0" * 31 + "1", "7" + "f" * 31, "80" + "0" * 30, "f" * 32]
    numbers = pl.DataFrame({"id": ids}).select(id_numbers("id")).to_series()
    signed = [int(one, 16) - (2**128 if int(one, 16) >= 2**127 else 0) for one in ids]
    assert numbers.dtype == pl.Int128
    assert numbers.to_list() == signed
