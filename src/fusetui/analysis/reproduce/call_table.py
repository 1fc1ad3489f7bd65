"""All op calls in a trace, grouped by name and recorded inputs, with their times."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from fusetui.gpu.roofline.many import read_inputs_of_ops
from fusetui.trace.model.arrays import (
    Int64s,
    Rows,
    distinct_rows,
    summed,
    sums_of_ranges,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, arguments
from fusetui.trace.model.joined import rows_there
from fusetui.trace.model.memo import memo

PARAM_COMMS: Final = "record_param_comms"
"""The op with which torch describes a collective by args of its own."""

COLLECTIVE_ARGS: Final = ("Collective name", "dtype", "In msg nelems", "Group size")


class CallTable(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [ops], in the order of rows. Times are in ns."""

    rows: Rows
    inputs: Arguments  # the recorded inputs of each (INPUTS)
    group: Rows  # equal for calls with the same name and inputs
    gpu_ns: Int64s  # of GPU work that the call, or an op inside it, launched
    own_gpu_ns: Int64s  # of GPU work that no op further inside launched
    cpu_ns: Int64s
    own_cpu_ns: Int64s  # without the ops directly inside

    @property
    def has_gpu_work(self) -> bool:
        """Whether any op launched GPU work."""
        return bool(self.own_gpu_ns.any())

    def index_of(self, row: int) -> int | None:
        """Return the index of an op in `rows`; None if this row of the trace is no op."""
        index = int(np.searchsorted(self.rows, row))
        if index < len(self.rows) and self.rows[index] == row:
            return index
        return None

    def inputs_of(self, row: int) -> tuple[bytes, ...]:
        """Return the JSON texts of the recorded inputs of the op in a row of the trace.

        There are four: dims, types, strides and values. A text is b"" where nothing was
        recorded.
        """
        index = self.index_of(row)
        if index is None or self.inputs.number[index] < 0:
            return b"", b"", b"", b""
        return self.inputs.distinct[self.inputs.number[index]]


@memo()
def call_table(trace: Trace) -> CallTable:
    """Return all calls of ops in a trace, with their inputs, times and groups.

    Calls with the same name and inputs are one group. Of collectives, the args that
    describe them must be equal too. The args of all ops are read from the file once.
    """
    rows = rows_there(trace, Role.OP)
    inputs = read_inputs_of_ops(trace, rows)
    collective = _number_collectives(trace, rows)
    _, group = distinct_rows((trace.name[rows], inputs.number, collective))

    # Ops of the capture of a graph have another role; their time is not of this trace.
    is_recorded_here = trace.role[rows] == Role.OP
    cpu_ns = np.where(is_recorded_here, trace.dur[rows], 0)
    own_gpu_ns = _sum_own_gpu_ns(trace, rows)
    return CallTable(
        rows=rows,
        inputs=inputs,
        group=group,
        gpu_ns=_add_inner_times(trace, rows, own_gpu_ns),
        own_gpu_ns=own_gpu_ns,
        cpu_ns=cpu_ns,
        own_cpu_ns=_subtract_inner_cpu_ns(trace, rows, cpu_ns),
    )


def _number_collectives(trace: Trace, rows: Rows) -> Int64s:
    """Number the ops that describe a collective; equal descriptions have the same
    number.

    Different collectives may have the same recorded inputs, so that their args must
    tell them apart.

    Returns:
        A number for each of `rows`; -1 for ops that describe no collective.
    """
    numbers = np.full(len(rows), -1, dtype=np.int64)
    if PARAM_COMMS in trace.names:
        describes_collective = trace.name[rows] == trace.names.index(PARAM_COMMS)
        orders = trace.order[rows[describes_collective]]
        read = arguments(trace.elements, orders, COLLECTIVE_ARGS)
        numbers[describes_collective] = read.number
    return numbers


def _sum_own_gpu_ns(trace: Trace, rows: Rows) -> Int64s:
    """Add up the GPU time that each op launched itself, without that of the ops inside
    it. Returns ns for each of `rows`."""
    op = trace.op[trace.gpu_rows]
    ns = trace.dur[trace.gpu_rows]
    has_op = op >= 0
    ns_of_every_row = summed(op[has_op], ns[has_op], len(trace))
    own: Int64s = ns_of_every_row[rows]
    return own


def _add_inner_times(trace: Trace, rows: Rows, own_ns: Int64s) -> Int64s:
    """Add to the time of each op the times of all ops inside it, at any depth.

    E.g. an op of 5 ns around an op of 3 ns, which is around one of 2 ns: the sums are
    10, 5 and 2 ns. The ops inside an op follow it in `rows`, up to the end of its
    subtree.

    Args:
        trace: The trace.
        rows: The ops, ascending.
        own_ns: The time of each op itself.
    """
    begin_of_subtree = np.arange(len(rows))
    end_of_subtree = np.searchsorted(rows, trace.end_row[rows])
    return sums_of_ranges(own_ns, begin_of_subtree, end_of_subtree)


def _subtract_inner_cpu_ns(trace: Trace, rows: Rows, cpu_ns: Int64s) -> Int64s:
    """Return the CPU time of each op without that of the ops directly inside it, at
    least 0.

    E.g. an op of 10 ns around ops of 3 and 4 ns took 3 ns itself.

    Args:
        trace: The trace.
        rows: The ops, ascending.
        cpu_ns: The CPU time of each op, including the ops inside it.
    """
    parent = trace.parent[rows]
    has_parent = parent >= 0
    inner_ns_of_row = summed(parent[has_parent], cpu_ns[has_parent], len(trace))
    own: Int64s = np.maximum(cpu_ns - inner_ns_of_row[rows], 0)
    return own
