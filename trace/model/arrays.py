"""Names for the arrays that columns and answers are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]  # times in ns, counts, keys
Int32s = NDArray[np.int32]
Rows = NDArray[np.intp]  # numbers of rows, of steps, of items
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
