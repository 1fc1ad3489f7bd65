"""Names for the arrays that columns and answers are made of."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]  # times in ns, counts, keys
Int32s = NDArray[np.int32]
Rows = NDArray[np.intp]  # numbers of rows, of steps, of items
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


def distinct(values: NDArray[Number]) -> NDArray[Number]:
    """The different values of an array of one dimension, sorted. np.unique does the same, but its
    first call imports numpy.ma, which takes longer than a small trace."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), dtype=np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]
