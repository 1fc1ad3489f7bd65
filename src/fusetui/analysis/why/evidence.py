"""The rows that show what a finding claims."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 5
"""Rows of evidence for one finding."""


def the_most(rows: NDArray[np.integer], ns: NDArray[np.int64]) -> tuple[int, ...]:
    """The rows with the most time, each once; -1 means none."""
    found = rows[np.argsort(-ns, kind="stable")]
    found = found[found >= 0]
    first = np.sort(np.unique(found, return_index=True)[1])
    return tuple(found[first[:MOST]].tolist())
