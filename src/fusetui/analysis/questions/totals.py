"""Sums by group, how the durations of groups are distributed (in integer ns), and
totals by name: of the kernels of a trace, and of its CPU ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import percentiles_of_runs


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of at least one duration in nanoseconds, rounded down to integers.
    The median and the percentiles are those of trace/model/quantiles.py."""

    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    p10_ns: int
    median_ns: int
    p90_ns: int
    max_ns: int


class Groups(msgspec.Struct, frozen=True, eq=False):
    """Indices into columns, sorted by group: group n has `order[begins[n]:begins[n +
    1]]`."""

    order: Rows
    begins: Rows
    keys: NDArray[np.integer]  # the number shared by a group, ascending

    def __len__(self) -> int:
        return len(self.keys)

    def places(self, number: int) -> Rows:
        return self.order[self.begins[number] : self.begins[number + 1]]

    def sums(self, amount: NDArray[Any]) -> NDArray[Any]:
        """A column added up by group."""
        if not len(self):
            return amount[:0]
        return np.add.reduceat(amount[self.order], self.begins[:-1])


def grouped(keys: NDArray[np.integer], within: Int64s) -> Groups:
    """Indices grouped by equal keys and sorted by `within`; both of shape [n]."""
    order = np.lexsort((within, keys))
    ordered = keys[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    firsts = np.concatenate(([0], cuts)) if len(keys) else cuts
    return Groups(order, np.append(firsts, len(keys)), ordered[firsts])


def spreads(keys: NDArray[np.integer], dur: Int64s) -> list[Spread]:
    """The spread of each group of equal keys, in the order of the keys."""
    columns = spread_columns(keys, dur)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [Spread(**dict(zip(columns, row, strict=True))) for row in rows]


def spread_columns(keys: NDArray[np.integer], dur: Int64s) -> dict[str, Int64s]:
    """Likewise each field of Spread as a column, shape [groups]."""
    groups = grouped(keys, dur)
    count = np.diff(groups.begins)
    total = groups.sums(dur)
    sorted_dur, first = dur[groups.order], groups.begins[:-1]
    percentiles = {
        "min_ns": 0,
        "p10_ns": 10,
        "median_ns": 50,
        "p90_ns": 90,
        "max_ns": 100,
    }
    columns = {
        "count": count,
        "total_ns": total,
        "mean_ns": total // np.maximum(count, 1),
    }
    for field, percent in percentiles.items():
        columns[field] = percentiles_of_runs(sorted_dur, first, count, percent)
    return columns


class KernelTotal(Spread, frozen=True):
    """All kernels of one name; `rows` are in time order."""

    name: str
    rows: Rows


class OpTotal(msgspec.Struct, frozen=True):
    """All CPU ops of one name; one inside another of the same name adds only to count
    and self."""

    name: str
    count: int
    total_ns: int
    self_ns: int
    gpu_ns: int  # of the GPU events launched under it
    kernels: int


class KernelTotals(Sequence[KernelTotal]):
    """Kernels by name, the largest total first. A total is made when it is asked for:
    there may be as many names as kernels."""

    def __init__(self, trace: Trace, rows: Rows) -> None:
        self._trace, self._rows = trace, rows
        self._groups = grouped(trace.name[rows], trace.start[rows])
        self._columns = spread_columns(trace.name[rows], trace.dur[rows])
        names = [trace.names[key] for key in self._groups.keys.tolist()]
        by_name = np.argsort(sorted(range(len(names)), key=names.__getitem__))
        self._order = np.lexsort((by_name, -self._columns["total_ns"]))

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def total_ns(self) -> int:
        """Of all kernels."""
        return int(self._columns["total_ns"].sum())

    @overload
    def __getitem__(self, key: int) -> KernelTotal: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[KernelTotal, ...]: ...

    def __getitem__(self, key: int | slice) -> KernelTotal | tuple[KernelTotal, ...]:
        if isinstance(key, slice):
            return tuple(self._total(number) for number in self._order[key].tolist())
        return self._total(int(self._order[key]))

    def _total(self, number: int) -> KernelTotal:
        spread = {field: int(column[number]) for field, column in self._columns.items()}
        return KernelTotal(
            name=self._trace.names[self._groups.keys[number]],
            rows=self._rows[self._groups.places(number)],
            **spread,
        )


def kernel_totals(trace: Trace, rows: Rows | None = None) -> KernelTotals:
    """Kernels by name, the largest total first. `rows`: only these (default: every
    kernel)."""
    return KernelTotals(trace, trace.rows_of(Role.KERNEL) if rows is None else rows)


def op_totals(trace: Trace) -> tuple[OpTotal, ...]:
    """CPU ops by name, the largest total first."""
    rows = trace.rows_of(Role.OP)
    groups = grouped(trace.name[rows], trace.start[rows])
    names, counts = groups.keys.tolist(), np.diff(groups.begins).tolist()
    each = zip(names, counts, op_sums(trace, rows, groups), strict=True)
    found = [
        OpTotal(name=trace.names[name], count=count, **sums)
        for name, count, sums in each
    ]
    return tuple(sorted(found, key=lambda op: (-op.total_ns, op.name)))


def op_sums(trace: Trace, rows: Rows, groups: Groups) -> list[dict[str, int]]:
    """Of groups of CPU ops the last fields of OpTotal."""
    outer, (gpu_ns, kernels) = ~inside_same_name(trace, rows), gpu_under(trace)
    columns = {"total_ns": trace.dur, "gpu_ns": gpu_ns, "kernels": kernels}
    sums = {
        name: groups.sums(np.where(outer, of[rows], 0)) for name, of in columns.items()
    }
    sums["self_ns"] = groups.sums(self_ns(trace)[rows])
    rows_of = zip(*(column.tolist() for column in sums.values()), strict=True)
    return [dict(zip(sums, row, strict=True)) for row in rows_of]


def self_ns(trace: Trace) -> Int64s:
    """Duration minus that of the direct children, shape [slices]; siblings never
    overlap."""
    children = np.flatnonzero(trace.parent >= 0)
    return trace.dur - summed(trace.parent[children], trace.dur[children], len(trace))


def gpu_under(trace: Trace) -> tuple[Int64s, Int64s]:
    """For each row, the time (ns) and the number of kernels launched in its subtree;
    shape [slices]. Memcpys and memsets count in the time. A launch counts at its call;
    if only its op is known, at that op; that of a node of a graph which was joined with
    its capture, at the captured call."""
    rows = trace.gpu_rows
    host = np.where(trace.asked[rows] >= 0, trace.asked[rows], trace.op[rows])
    subrow = np.array([t.subrow > 0 for t in trace.tracks] or [False])[trace.track]
    spilled = (host >= 0) & subrow[host] & (trace.op[rows] >= 0)
    host = np.where(spilled, trace.op[rows], host)
    rows, host = rows[host >= 0], host[host >= 0]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return subtree_sums(trace, host, trace.dur[rows]), subtree_sums(
        trace, host, kernels
    )


def inside_same_name(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """For each row, whether it lies, at any depth, inside another one of its name; rows
    are sorted. Of rows with one name, in order, those lie inside an earlier one that
    come before the end of its subtree."""
    by_name = np.argsort(trace.name[rows], kind="stable")
    ordered = rows[by_name]
    name = trace.name[ordered].astype(np.int64) * (len(trace) + 1)
    reached = np.maximum.accumulate(name + trace.end_row[ordered])
    found = np.zeros(len(rows), dtype=np.bool_)
    found[by_name[1:]] = name[1:] + ordered[1:] < reached[:-1]
    return found


def subtree_sums(trace: Trace, host: NDArray[np.int32], amount: Int64s) -> Int64s:
    before = np.concatenate(([0], np.cumsum(summed(host, amount, len(trace)))))
    return before[trace.end_row] - before[:-1]
