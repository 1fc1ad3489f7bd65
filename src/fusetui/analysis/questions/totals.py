"""Totals by name: the kernels of a trace, and its CPU ops."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace


class KernelTotal(msgspec.Struct, frozen=True):
    """All kernels of one name; durations in ns. `rows` are in time order."""

    name: str
    count: int
    total_ns: int
    min_ns: int
    median_ns: int  # of an even count: the mean of the middle two, rounded down
    max_ns: int
    rows: Rows


class OpTotal(msgspec.Struct, frozen=True):
    """All CPU ops of one name; one inside another of the same name adds only to count and self."""

    name: str
    count: int
    total_ns: int
    self_ns: int
    gpu_ns: int  # of the GPU events launched under it
    kernels: int


def kernel_totals(trace: Trace, rows: Rows | None = None) -> tuple[KernelTotal, ...]:
    """Kernels by name, the largest total first. `rows`: only these (default: every kernel)."""
    rows = trace.rows_of(Role.KERNEL) if rows is None else rows
    found = [_kernel_total(trace, group) for group in by_name(trace, rows)]
    return tuple(sorted(found, key=lambda total: (-total.total_ns, total.name)))


def op_totals(trace: Trace) -> tuple[OpTotal, ...]:
    """CPU ops by name, the largest total first."""
    rows = trace.rows_of(Role.OP)
    outer = rows[~inside_same_name(trace, rows)]
    self_time, gpu_ns, kernels = self_ns(trace), *gpu_under(trace)
    size = len(trace.names)
    count = np.bincount(trace.name[rows], minlength=size)
    own = _sums(trace.name[rows], self_time[rows], size)
    total = _sums(trace.name[outer], trace.dur[outer], size)
    on_gpu = _sums(trace.name[outer], gpu_ns[outer], size)
    launched = _sums(trace.name[outer], kernels[outer], size)
    found = [
        OpTotal(
            trace.names[n],
            int(count[n]),
            int(total[n]),
            int(own[n]),
            int(on_gpu[n]),
            int(launched[n]),
        )
        for n in np.flatnonzero(count)
    ]
    return tuple(sorted(found, key=lambda op: (-op.total_ns, op.name)))


def self_ns(trace: Trace) -> Int64s:
    """Duration minus that of the direct children, shape [slices]; siblings never overlap."""
    children = np.flatnonzero(trace.parent >= 0)
    return trace.dur - _sums(trace.parent[children], trace.dur[children], len(trace))


def gpu_under(trace: Trace) -> tuple[Int64s, Int64s]:
    """For each row, the time (ns) and the number of kernels launched in its subtree; shape
    [slices].

    Memcpys and memsets count in the time. A launch counts at its call; if only its op is known, at
    that op; that of a node of a graph which was joined with its capture, at the captured call.
    """
    rows = trace.gpu_rows
    host = np.where(trace.asked[rows] >= 0, trace.asked[rows], trace.op[rows])
    spilled = (host >= 0) & _on_subrow(trace)[host] & (trace.op[rows] >= 0)
    host = np.where(spilled, trace.op[rows], host)
    rows, host = rows[host >= 0], host[host >= 0]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return subtree_sums(trace, host, trace.dur[rows]), subtree_sums(trace, host, kernels)


def inside_same_name(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """For each row, whether it lies, at any depth, inside another one of its name; rows are sorted.

    Of rows with one name, in order, those lie inside an earlier one that come before the end of its
    subtree.
    """
    by_name = np.argsort(trace.name[rows], kind="stable")
    ordered = rows[by_name]
    name = trace.name[ordered].astype(np.int64) * (len(trace) + 1)
    reached = np.maximum.accumulate(name + trace.end_row[ordered])
    found = np.zeros(len(rows), dtype=np.bool_)
    found[by_name[1:]] = name[1:] + ordered[1:] < reached[:-1]
    return found


def _kernel_total(trace: Trace, rows: Rows) -> KernelTotal:
    dur = np.sort(trace.dur[rows])
    middle = int(dur[(len(dur) - 1) // 2]) + int(dur[len(dur) // 2])
    return KernelTotal(
        name=trace.name_of(int(rows[0])),
        count=len(rows),
        total_ns=int(dur.sum()),
        min_ns=int(dur[0]),
        median_ns=middle // 2,
        max_ns=int(dur[-1]),
        rows=rows,
    )


def by_name(trace: Trace, rows: Rows) -> list[Rows]:
    """The rows of each name, by start."""
    ordered = rows[np.lexsort((trace.start[rows], trace.name[rows]))]
    cuts = np.flatnonzero(np.diff(trace.name[ordered])) + 1
    return [group for group in np.split(ordered, cuts) if len(group)]


def _on_subrow(trace: Trace) -> NDArray[np.bool_]:
    return np.array([t.subrow > 0 for t in trace.tracks] or [False])[trace.track]


def subtree_sums(trace: Trace, host: NDArray[np.int32], amount: Int64s) -> Int64s:
    before = np.concatenate(([0], np.cumsum(_sums(host, amount, len(trace)))))
    return before[trace.end_row] - before[:-1]


def _sums(where: NDArray[np.integer], amount: Int64s, size: int) -> Int64s:
    """Integer sums by index: np.bincount would go through floats."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, where, amount)
    return sums
