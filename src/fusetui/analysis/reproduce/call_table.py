"""All op calls in a trace, grouped by name and recorded inputs, with their times."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from fusetui.gpu.roofline.many import inputs_of_ops
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
        """The place of an op among `rows`, -1 if it is none."""
        place = int(np.searchsorted(self.rows, row))
        if place < len(self.rows) and self.rows[place] == row:
            return place
        return -1

    def inputs_at(self, place: int) -> tuple[bytes, ...]:
        """The JSON texts of the recorded inputs of an op, b"" for what is missing."""
        number = int(self.inputs.number[place])
        return (b"", b"", b"", b"") if number < 0 else self.inputs.distinct[number]


@memo()
def call_table(trace: Trace) -> CallTable:
    """The calls of a trace. Reads the args of all ops from the file."""
    rows = rows_there(trace, Role.OP)
    inputs = inputs_of_ops(trace, rows)
    by_name = trace.name[rows].astype(np.int64)
    key = by_name * (len(inputs.texts) + 1) + inputs.number + 1
    collective = _number_of_collective(trace, rows)
    key = key * (collective.max(initial=-1) + 2) + collective + 1
    _, group = np.unique(key, return_inverse=True)
    cpu_ns = np.where(trace.role[rows] == Role.OP, trace.dur[rows], 0)
    own_gpu_ns = _own_gpu_ns(trace, rows)
    return CallTable(
        rows=rows,
        inputs=inputs,
        group=group.reshape(-1),
        gpu_ns=_with_inner(trace, rows, own_gpu_ns),
        own_gpu_ns=own_gpu_ns,
        cpu_ns=cpu_ns,
        own_cpu_ns=_own_cpu_ns(trace, rows, cpu_ns),
    )


def _number_of_collective(trace: Trace, rows: Rows) -> Int64s:
    """A number for each op that describes a collective, equal for equal ones: other
    collectives may have the same inputs. -1 for all other ops; shape [ops]."""
    number = np.full(len(rows), -1, dtype=np.int64)
    if PARAM_COMMS in trace.names:
        name = trace.names.index(PARAM_COMMS)
        places = np.flatnonzero(trace.name[rows] == name)
        orders = trace.order[rows[places]]
        number[places] = arguments(trace.elements, orders, COLLECTIVE_ARGS).number
    return number


def _own_gpu_ns(trace: Trace, rows: Rows) -> Int64s:
    """The GPU time of each op without that of ops inside it."""
    gpu_rows = trace.gpu_rows
    gpu_rows = gpu_rows[trace.op[gpu_rows] >= 0]
    of_slice = np.zeros(len(trace), dtype=np.int64)
    np.add.at(of_slice, trace.op[gpu_rows], trace.dur[gpu_rows])
    own: Int64s = of_slice[rows]
    return own


def _with_inner(trace: Trace, rows: Rows, own_ns: Int64s) -> Int64s:
    """A time of each op with that of all ops inside it, whose rows follow its own."""
    before = np.append(0, np.cumsum(own_ns))
    end = np.searchsorted(rows, trace.end_row[rows])
    with_inner: Int64s = before[end] - before[np.arange(len(rows))]
    return with_inner


def _own_cpu_ns(trace: Trace, rows: Rows, cpu_ns: Int64s) -> Int64s:
    """The CPU time of each op without the ops directly inside it."""
    inner_ns = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(inner_ns, trace.parent[rows], cpu_ns)  # -1: no parent, the last entry
    own: Int64s = np.maximum(cpu_ns - inner_ns[rows], 0)
    return own
