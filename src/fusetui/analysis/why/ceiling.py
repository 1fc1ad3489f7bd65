"""The ceiling: how much less time the same kernels' work would need on this device.

A kernel's bound is the longer of FLOP / attainable rate and bytes / attainable bandwidth, and never
below SHORTEST. What is at stake is its effective duration minus that bound: an estimate, because an
attainable rate is measured or assumed, and some kernels exceed it. Only with the full rates of the
data sheet is the sum the most that better kernels could save. It says nothing about idle time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import effective_ns
from fusetui.analysis.why.model import Ceiling
from fusetui.gpu.roofline.many import Jobs, jobs, share_known
from fusetui.gpu.roofline.peaks import NO_PEAKS
from fusetui.gpu.roofline.row import Job
from fusetui.trace.model.columns import Trace

Int64s = NDArray[np.int64]

SHORTEST = 2_000
"""No kernel is expected to take fewer nanoseconds than this."""


class Bounds(msgspec.Struct, frozen=True, eq=False):
    """Columns of shape [kernels], in the order of `rows`."""

    rows: NDArray[np.intp]
    effective_ns: Int64s
    bound_ns: Int64s  # -1: not known
    at_stake_ns: Int64s  # 0 where the bound is not known
    least_ns: Int64s  # by the data sheet; -1: not known
    assumed: NDArray[np.bool_]

    def only(self, which: NDArray[np.bool_]) -> Bounds:
        return Bounds(
            self.rows[which],
            self.effective_ns[which],
            self.bound_ns[which],
            self.at_stake_ns[which],
            self.least_ns[which],
            self.assumed[which],
        )


def ceiling(found: Bounds) -> Ceiling:
    """The sums over these kernels."""
    known = found.bound_ns >= 0
    return Ceiling(
        known_ns=int(found.effective_ns[known].sum()),
        unknown_ns=int(found.effective_ns[~known].sum()),
        at_stake_ns=int(found.at_stake_ns.sum()),
        assumed_ns=int(found.effective_ns[known & found.assumed].sum()),
        at_most_ns=int(np.maximum(found.effective_ns - found.least_ns, 0)[known].sum()),
    )


def bounds(
    trace: Trace, known: Jobs | None = None, given: Mapping[str, float] = NO_PEAKS
) -> Bounds:
    """The bound of every kernel. `known`: the jobs of all kernels, if already computed."""
    found = known or jobs(trace, given=given)
    each = effective_ns(trace)[np.isin(trace.gpu_rows, found.rows)]
    known_ns = found.of_each(_bound_ns)
    least = np.nan_to_num(found.of_each(lambda job: job.limits.least_ns))
    near = share_known(trace, found)
    bound = np.where(near, np.maximum(np.nan_to_num(known_ns), SHORTEST), -1)
    bound_ns = np.rint(bound).astype(np.int64)
    return Bounds(
        rows=found.rows,
        effective_ns=each,
        bound_ns=bound_ns,
        at_stake_ns=np.where(near, np.maximum(each - bound_ns, 0), 0),
        least_ns=np.where(near, np.floor(least), -1).astype(np.int64),
        assumed=near & (found.of_each(lambda job: float(job.assumed)) == 1),
    )


def _bound_ns(job: Job) -> float | None:
    times = (job.attainable.compute_ns, job.attainable.memory_ns)
    return max((ns for ns in times if ns is not None), default=None)
