import numpy as np
import pytest

from evaluator.datasets.staicc import SplitSizes, split_rows
from evaluator.errors import DatasetError


def test_splits_are_disjoint_and_of_the_requested_sizes():
    sizes = SplitSizes(calibration=3, demonstration=5, test=2)
    rows = split_rows("tiny", 12, sizes)
    assert [len(split) for split in rows] == [3, 5, 2]
    drawn = np.concatenate(rows)
    assert len(set(drawn.tolist())) == 10
    assert drawn.min() >= 0
    assert drawn.max() < 12


def test_splits_that_need_every_row_take_every_row():
    rows = split_rows("tiny", 10, SplitSizes(calibration=3, demonstration=5, test=2))
    assert sorted(np.concatenate(rows).tolist()) == list(range(10))


def test_a_table_too_small_for_its_splits_is_refused_by_name():
    with pytest.raises(DatasetError, match="tiny: 9 rows, but its splits need 10"):
        split_rows("tiny", 9, SplitSizes(calibration=3, demonstration=5, test=2))
