"""Sums and durations of groups, and totals by name of kernels and of CPU ops.

All times are integer ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    group_numbers,
    prefix_sums,
    running_max,
    summed,
    value_before,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import Groups, grouped
from fusetui.trace.model.intervals import union_length
from fusetui.trace.model.quantiles import percentiles_of_runs


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of at least one duration, in ns rounded down to integers.

    The median and the percentiles are those of trace/model/quantiles.py.
    """

    count: int
    total_ns: int
    mean_ns: int
    min_ns: int
    p10_ns: int
    median_ns: int
    p90_ns: int
    max_ns: int


def summarize_durations(keys: NDArray[np.integer], dur: Int64s) -> list[Spread]:
    """Return the statistics of the durations with each key, in the order of the keys."""
    columns = summarize_durations_as_columns(keys, dur)
    plain_columns = [column.tolist() for column in columns.values()]
    all_spreads = []
    for figures in zip(*plain_columns, strict=True):
        named_figures = dict(zip(columns, figures, strict=True))
        all_spreads.append(Spread(**named_figures))
    return all_spreads


def summarize_durations_as_columns(
    keys: NDArray[np.integer], dur: Int64s
) -> dict[str, Int64s]:
    """Return the statistics of the durations with each key, as columns.

    Args:
        keys: A key for each duration.
        dur: The durations, in ns.

    Returns:
        For each field of Spread a column with one entry per key, in their order.
    """
    groups = grouped(keys, then_by=dur)
    sorted_dur = dur[groups.order]
    first = groups.begins[:-1]

    def percentile(percent: int) -> Int64s:
        """Return a percentile of each group."""
        return percentiles_of_runs(sorted_dur, first, groups.counts, percent)

    total = groups.sums(dur)
    return {
        "count": groups.counts,
        "total_ns": total,
        "mean_ns": total // np.maximum(groups.counts, 1),
        "min_ns": percentile(0),
        "p10_ns": percentile(10),
        "median_ns": percentile(50),
        "p90_ns": percentile(90),
        "max_ns": percentile(100),
    }


class KernelTotal(Spread, frozen=True):
    """All kernels of one name; `rows` are in time order."""

    name: str
    rows: Rows


class OpTotal(msgspec.Struct, frozen=True):
    """All CPU ops of one name.

    An op inside another one of the same name adds only to count and self time.
    """

    name: str
    count: int
    total_ns: int
    self_ns: int
    gpu_ns: int  # of the GPU events launched under it
    kernels: int


class KernelTotals(Sequence[KernelTotal]):
    """Kernels by name, the largest total first; of equal totals, by name.

    A KernelTotal is made when it is asked for, because there may be as many names as
    kernels.
    """

    def __init__(self, trace: Trace, rows: Rows) -> None:
        """Group kernels by name.

        Args:
            trace: The trace.
            rows: The kernels that count.
        """
        self._trace = trace
        self._rows = rows
        self._groups = grouped(trace.name[rows], trace.start[rows])
        self._columns = summarize_durations_as_columns(
            trace.name[rows], trace.dur[rows]
        )
        names = [trace.names[key] for key in self._groups.keys.tolist()]
        groups_by_name = sorted(range(len(names)), key=names.__getitem__)
        alphabetical = np.array(groups_by_name, dtype=np.intp)

        # The sort is stable: equal totals stay in the order of names.
        total_ns = self._columns["total_ns"][alphabetical]
        largest_first = np.argsort(-total_ns, kind="stable")
        self._order = alphabetical[largest_first]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def total_ns(self) -> int:
        """The durations of all kernels together."""
        return int(self._columns["total_ns"].sum())

    @overload
    def __getitem__(self, key: int) -> KernelTotal: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[KernelTotal, ...]: ...

    def __getitem__(self, key: int | slice) -> KernelTotal | tuple[KernelTotal, ...]:
        if isinstance(key, slice):
            return tuple(self._total(number) for number in self._order[key].tolist())
        return self._total(int(self._order[key]))

    def _total(self, group: int) -> KernelTotal:
        """Make the record of one group of kernels, by its index."""
        figures = {field: int(column[group]) for field, column in self._columns.items()}
        return KernelTotal(
            name=self._trace.names[self._groups.keys[group]],
            rows=self._rows[self._groups.members(group)],
            **figures,
        )


def sum_kernels_by_name(trace: Trace, rows: Rows | None = None) -> KernelTotals:
    """Add up kernels by name, the largest total first.

    Args:
        trace: The trace.
        rows: The kernels that count; by default all.
    """
    if rows is None:
        rows = trace.rows_of(Role.KERNEL)
    return KernelTotals(trace, rows)


def sum_ops_by_name(trace: Trace) -> tuple[OpTotal, ...]:
    """Add up the times of CPU ops by name, including the GPU work that they launched.
    The largest total comes first; equal totals are in the order of names."""
    rows = trace.rows_of(Role.OP)
    groups = grouped(trace.name[rows], trace.start[rows])
    totals = []
    for name, count, sums in zip(
        groups.keys.tolist(),
        groups.counts.tolist(),
        sum_op_groups(trace, rows, groups),
        strict=True,
    ):
        total = OpTotal(
            name=trace.names[name],
            count=count,
            total_ns=sums.total_ns,
            self_ns=sums.self_ns,
            gpu_ns=sums.gpu_ns,
            kernels=sums.kernels,
        )
        totals.append(total)
    return tuple(sorted(totals, key=lambda op: (-op.total_ns, op.name)))


class OpSums(NamedTuple):
    """The sums of a group of CPU ops; the fields are as in OpTotal."""

    total_ns: int
    self_ns: int
    gpu_ns: int
    kernels: int


def sum_op_groups(trace: Trace, rows: Rows, groups: Groups) -> list[OpSums]:
    """Add up the times of groups of CPU ops, and of the GPU work that they launched.

    An op inside another one of its name adds only to the self time.

    Args:
        trace: The trace.
        rows: The ops.
        groups: Their groups.

    Returns:
        The sums of each group.
    """
    is_outer = ~mark_nested_in_same_name(trace, rows)
    gpu_work = sum_gpu_work_under_rows(trace)
    all_sums = []
    for total_ns, self_of_group_ns, gpu_of_group_ns, kernels_of_group in zip(
        groups.sums(np.where(is_outer, trace.dur[rows], 0)).tolist(),
        groups.sums(measure_self_ns(trace)[rows]).tolist(),
        groups.sums(np.where(is_outer, gpu_work.ns[rows], 0)).tolist(),
        groups.sums(np.where(is_outer, gpu_work.kernels[rows], 0)).tolist(),
        strict=True,
    ):
        sums = OpSums(
            total_ns=total_ns,
            self_ns=self_of_group_ns,
            gpu_ns=gpu_of_group_ns,
            kernels=kernels_of_group,
        )
        all_sums.append(sums)
    return all_sums


def measure_self_ns(trace: Trace) -> Int64s:
    """Return the duration of each slice minus that of its direct children.

    Children of one slice never overlap.
    """
    children = np.flatnonzero(trace.parent != NO_ROW)
    parent_of_child = trace.parent[children]
    children_ns = summed(parent_of_child, trace.dur[children], len(trace))
    return trace.dur - children_ns


class GpuWorkOfRows(NamedTuple):
    """The GPU work that was launched inside each slice; one entry per row of the
    trace."""

    ns: Int64s  # the durations of kernels, memcpys and memsets
    kernels: Int64s  # the number of kernels


def sum_gpu_work_under_rows(trace: Trace) -> GpuWorkOfRows:
    """Add up for each slice the GPU work that was launched inside it, at any depth.

    A launch counts at its call, or at its op if only that is known. Work of a replayed
    CUDA graph counts at the call that was captured, if the capture is known. A slice
    inside which nothing was launched has 0.
    """
    gpu_rows = trace.gpu_rows
    op = trace.op[gpu_rows]
    call = trace.asked[gpu_rows]
    has_op = op != NO_ROW
    has_call = call != NO_ROW

    # A call on a sub-row lies in the subtree of no op, so its op stands in.
    is_sub_row = np.array([track.subrow > 0 for track in trace.tracks] or [False])
    is_outside_op = has_call & is_sub_row[trace.track[call]]
    counts_at_call = has_call & ~(is_outside_op & has_op)
    issuer = np.where(counts_at_call, call, op)

    has_issuer = issuer != NO_ROW
    rows = gpu_rows[has_issuer]
    issuer = issuer[has_issuer]
    is_kernel = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return GpuWorkOfRows(
        ns=sum_over_subtrees(trace, issuer, trace.dur[rows]),
        kernels=sum_over_subtrees(trace, issuer, is_kernel),
    )


def mark_nested_in_same_name(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Mark the slices that lie, at any depth, inside another one of the same name.

    E.g. the inner `f` of `f > g > f`, but not `g`. Rows of a trace are in the order of
    their tree, so a row lies inside an earlier one if it comes before the end of that
    one's subtree.

    Args:
        trace: The trace.
        rows: The slices, as rows of the trace, ascending.

    Returns:
        A flag for each of `rows`.
    """
    order_by_name = np.argsort(trace.name[rows], kind="stable")
    sorted_rows = rows[order_by_name]
    begins_name = begins_runs(trace.name[sorted_rows])
    subtree_end = trace.end_row[sorted_rows].astype(np.int64)
    latest_end = running_max(subtree_end, group_numbers(begins_name))
    latest_end_before = value_before(latest_end, begins_name, missing=0)

    is_inside = np.zeros(len(rows), dtype=np.bool_)
    is_inside[order_by_name] = sorted_rows < latest_end_before
    return is_inside


class OutermostRows(NamedTuple):
    """The slices whose durations count when times are added up by name."""

    rows: Rows  # those that lie inside no other one of the same name
    # The ns in which at least one of them runs on a thread or stream, over all threads
    # and streams: the whole of which the times of names are shares.
    any_ran_ns: int


def drop_nested_rows(trace: Trace, rows: Rows) -> OutermostRows:
    """Leave out the slices that lie inside another one of the same name, and measure
    the others.

    E.g. of `f` from 0 to 10 ns with another `f` and a `g` inside, the outer `f` and the
    `g` are left. Together they take 10 ns, because what overlaps on a thread counts
    once.

    Args:
        trace: The trace.
        rows: The slices, ascending.
    """
    outer = rows[~mark_nested_in_same_name(trace, rows)]
    thread_of_row = trace.thread_of_track[trace.track[outer]]
    any_ran_ns = 0
    for thread in distinct(thread_of_row).tolist():
        rows_of_thread = outer[thread_of_row == thread]
        start = trace.start[rows_of_thread]
        any_ran_ns += union_length(start, trace.end[rows_of_thread])
    return OutermostRows(rows=outer, any_ran_ns=any_ran_ns)


def sum_over_subtrees(
    trace: Trace, issuer: NDArray[np.int32], amount: Int64s
) -> Int64s:
    """Add up for each slice the amounts of what was issued inside it, at any depth.

    Args:
        trace: The trace.
        issuer: For each amount the row of the slice that issued it.
        amount: The amounts.

    Returns:
        A sum for each row of the trace.
    """
    amount_of_row = summed(issuer, amount, len(trace))
    # The subtree of row n has the rows from n to before end_row[n].
    amount_before: Int64s = prefix_sums(amount_of_row)
    return amount_before[trace.end_row] - amount_before[:-1]
