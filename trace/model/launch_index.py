"""GPU events in order of the rows that launched them: those under a range of rows are a range."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]


class LaunchIndex(msgspec.Struct, frozen=True, eq=False):
    """One entry per GPU event, sorted by `host`, then by row."""

    host: NDArray[np.int32]  # the launch call, else the op that it belongs to, else -1
    rows: Rows
    ns: Int64s  # of the events before each, and of all; shape [n + 1]
    kernels: NDArray[np.int32]  # likewise, how many are kernels

    def within(self, first_row: int, end_row: int) -> slice:
        """The entries that were launched by a range of rows."""
        rows = np.array([first_row, end_row], dtype=self.host.dtype)
        first, end = self.host.searchsorted(rows).tolist()
        return slice(first, end)


def launch_index(
    host: NDArray[np.int32], rows: Rows, ns: Int64s, is_kernel: NDArray[np.bool_]
) -> LaunchIndex:
    """`ns` and `is_kernel` are those of each of `rows`."""
    order = np.argsort(host, kind="stable")
    before = np.concatenate(([0], np.cumsum(ns[order])))
    kernels = np.concatenate(([0], np.cumsum(is_kernel[order], dtype=np.int32)))
    return LaunchIndex(host[order], rows[order], before, kernels.astype(np.int32))
