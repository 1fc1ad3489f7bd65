"""All op calls in a trace, grouped by name and recorded inputs, with their times."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from fusetui.gpu.roofline.many import read_inputs_of_ops
from fusetui.trace.model.arrays import Int64s, Rows
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

    def place_of(self, row: int) -> int:
        """Return the index of an op in `rows`. Returns -1 if this row of the trace is
        no op."""
        place = int(np.searchsorted(self.rows, row))
        if place < len(self.rows) and self.rows[place] == row:
            return place
        return -1

    def inputs_at(self, place: int) -> tuple[bytes, ...]:
        """Return the JSON texts of the recorded inputs of the op at an index of `rows`.

        There are four: dims, types, strides and values. A text is b"" where nothing was
        recorded.
        """
        number = int(self.inputs.number[place])
        return (b"", b"", b"", b"") if number < 0 else self.inputs.distinct[number]


@memo()
def call_table(trace: Trace) -> CallTable:
    """Return all calls of ops in a trace, with their inputs, times and groups.

    Calls with the same name and inputs are one group. Of collectives, the args that
    describe them must be equal too. The args of all ops are read from the file once.
    """
    rows = rows_there(trace, Role.OP)
    inputs = read_inputs_of_ops(trace, rows)
    name_number = trace.name[rows].astype(np.int64)
    group_key = name_number * (len(inputs.texts) + 1) + inputs.number + 1
    collective_number = _number_collectives(trace, rows)
    group_key = (
        group_key * (collective_number.max(initial=-1) + 2) + collective_number + 1
    )
    _, group = np.unique(group_key, return_inverse=True)
    cpu_ns = np.where(trace.role[rows] == Role.OP, trace.dur[rows], 0)
    own_gpu_ns = _sum_own_gpu_ns(trace, rows)
    return CallTable(
        rows=rows,
        inputs=inputs,
        group=group.reshape(-1),
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
    collective_numbers = np.full(len(rows), -1, dtype=np.int64)
    if PARAM_COMMS in trace.names:
        name_index = trace.names.index(PARAM_COMMS)
        places = np.flatnonzero(trace.name[rows] == name_index)
        orders = trace.order[rows[places]]
        collective_numbers[places] = arguments(
            trace.elements, orders, COLLECTIVE_ARGS
        ).number
    return collective_numbers


def _sum_own_gpu_ns(trace: Trace, rows: Rows) -> Int64s:
    """Add up the GPU time that each op launched itself, without that of the ops inside
    it. Returns ns for each of `rows`."""
    gpu_rows = trace.gpu_rows
    gpu_rows = gpu_rows[trace.op[gpu_rows] >= 0]
    gpu_ns_of_slice = np.zeros(len(trace), dtype=np.int64)
    np.add.at(gpu_ns_of_slice, trace.op[gpu_rows], trace.dur[gpu_rows])
    own: Int64s = gpu_ns_of_slice[rows]
    return own


def _add_inner_times(trace: Trace, rows: Rows, own_ns: Int64s) -> Int64s:
    """Add to the time of each op the times of all ops inside it, at any depth.

    The ops inside an op follow it in `rows`, up to the end of its subtree. So each sum
    is the difference of two running totals.

    Args:
        trace: The trace.
        rows: The ops, ascending.
        own_ns: The time of each op itself.
    """
    ns_before = np.append(0, np.cumsum(own_ns))
    end_of_subtree = np.searchsorted(rows, trace.end_row[rows])
    with_inner: Int64s = ns_before[end_of_subtree] - ns_before[np.arange(len(rows))]
    return with_inner


def _subtract_inner_cpu_ns(trace: Trace, rows: Rows, cpu_ns: Int64s) -> Int64s:
    """Return the CPU time of each op without that of the ops directly inside it, at
    least 0.

    Args:
        trace: The trace.
        rows: The ops, ascending.
        cpu_ns: The CPU time of each op, including the ops inside it.
    """
    inner_ns = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(inner_ns, trace.parent[rows], cpu_ns)  # -1: no parent, the last entry
    own: Int64s = np.maximum(cpu_ns - inner_ns[rows], 0)
    return own
