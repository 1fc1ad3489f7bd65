"""The work of groups of kernels: FLOP, bytes, share of peak, waves."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.spread import Groups
from fusetui.gpu.roofline.many import Jobs, share_known
from fusetui.trace.model.columns import Trace

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


class GroupWork(msgspec.Struct, frozen=True):
    """The known work of a group of kernels; None where it is known for none of them.

    A share of peak is the minimum time that the limits allow, over all kernels for which it is
    known, divided by the time that they took: by their durations, or their effective ones (at most
    1).
    """

    flop: int | None = None  # of all kernels whose FLOP are known
    flop_ns: int = 0  # the durations of those
    bytes: int | None = None  # minimum traffic of the kernels for which it is known
    bytes_ns: int = 0
    share_of_peak: float | None = None
    share_of_peak_effective: float | None = None
    share_ns: int = 0  # the durations of the kernels whose share is known
    bound: str | None = None  # compute or memory: the limiting resource, if it is the same for all
    waves: float | None = None  # the mean


def work_of_groups(
    trace: Trace, known: Jobs, effective_ns: Int64s, groups: Groups
) -> list[GroupWork]:
    """The work of each group of the kernels of `known`; `effective_ns` of each of them."""
    dur = trace.dur[known.rows]
    near = share_known(trace, known)
    least = np.where(near, np.nan_to_num(known.of_each(lambda job: job.limits.least_ns)), 0)
    waves = known.of_each(lambda job: job.tiles.waves if job.tiles else None)
    counted = ~np.isnan(waves)
    share_ns = groups.sums(np.where(near, dur, 0)).tolist()
    own_ns = groups.sums(np.where(near, effective_ns, 0)).tolist()
    tiled = groups.sums(counted.astype(np.int64)).tolist()
    flop, moved = (_amounts(known, groups, dur, what) for what in ("flop", "bytes"))
    bound = _bounds(known, groups, near)
    least_ns, waves_sum = (_float_sums(groups, x) for x in (least, np.where(counted, waves, 0)))
    return [
        GroupWork(
            flop=flop[n][0],
            flop_ns=flop[n][1],
            bytes=moved[n][0],
            bytes_ns=moved[n][1],
            share_of_peak=least_ns[n] / share_ns[n] if share_ns[n] else None,
            share_of_peak_effective=min(1.0, least_ns[n] / own_ns[n]) if own_ns[n] else None,
            share_ns=share_ns[n],
            bound=bound[n],
            waves=waves_sum[n] / tiled[n] if tiled[n] else None,
        )
        for n in range(len(groups))
    ]


def _amounts(known: Jobs, groups: Groups, dur: Int64s, what: str) -> list[tuple[int | None, int]]:
    """FLOP or bytes of each group, in integers of any size, and the durations behind them."""
    amount = [getattr(job.amount, what) for job in known.distinct]
    has = np.array([*(value is not None for value in amount), False], dtype=np.bool_)[known.number]
    times = groups.sums(np.where(has, dur, 0)).tolist()
    group = np.repeat(np.arange(len(groups)), np.diff(groups.begins))
    pairs = (group * max(len(amount), 1) + known.number[groups.order])[has[groups.order]]
    found: list[int | None] = [None] * len(groups)
    for pair, count in zip(
        *(x.tolist() for x in np.unique(pairs, return_counts=True)), strict=True
    ):
        number, job = divmod(pair, len(amount))
        found[number] = (found[number] or 0) + amount[job] * count
    return list(zip(found, times, strict=True))


def _bounds(known: Jobs, groups: Groups, near: NDArray[np.bool_]) -> list[str | None]:
    memory = known.of_each(lambda job: float(job.limits.bound == "memory")) == 1
    by_memory = groups.sums((near & memory).astype(np.int64)).tolist()
    of_all = groups.sums(near.astype(np.int64)).tolist()
    words = {(True, False): "compute", (False, True): "memory"}
    return [
        words.get((some == 0, some == all_)) if all_ else None
        for some, all_ in zip(by_memory, of_all, strict=True)
    ]


def _float_sums(groups: Groups, amount: Float64s) -> list[float]:
    if not len(groups):
        return []
    found: list[float] = np.add.reduceat(amount[groups.order], groups.begins[:-1]).tolist()
    return found
