"""Type aliases of NumPy arrays, and Arrow lists."""

from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Floats: TypeAlias = npt.NDArray[np.float64]
Floats32: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def arrow_lists(values: pa.Array, lengths: Iterable[int]) -> pa.LargeListArray:
    """Return lists whose i-th takes the next lengths[i] values.

    pyarrow.array makes lists of Python lists as well, but imports pandas, which takes longer than a small run.
    """
    return pa.LargeListArray.from_arrays(pl.Series([0, *accumulate(lengths)], dtype=pl.Int64).to_arrow(), values)
