"""Selects calls of a trace: by op, by kernel, by row, by module, or the most expensive
ones. The calls with the largest total come first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui import Error
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import collect_name_texts, search
from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.calls import (
    describe_call_without_op,
    describe_equal_calls,
    group_rows,
)
from fusetui.analysis.reproduce.model import Call
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median_index
from fusetui.trace.program.backward import ENGINE
from fusetui.trace.program.origin import Origins, origins
from fusetui.trace.program.regions import label_of

DEFAULT_NAMESPACE = "aten::"


class NothingToReproduceError(Error):
    """What was asked for is not in the trace; the message is one plain sentence."""


class ModuleCalls(NamedTuple):
    """The ops of one call of a module: the distinct calls, and for each op in order the
    index of its call."""

    name: str
    row: int  # of the call of the module
    calls: tuple[Call, ...]
    order: tuple[int, ...]


def call_asked(trace: Trace, *, op: str, kernel: str, row: int | None) -> Call:
    """Select the call of an op, of what launched a kernel, or of a row of the trace.

    Exactly one of these must be given. Of several distinct calls the one with the
    largest total time is returned.

    Args:
        trace: The trace.
        op: The name of an op; "" if not given.
        kernel: The name of a kernel, or a search for it; "" if not given.
        row: A slice; None if not given.

    Raises:
        NothingToReproduceError: Not exactly one is given, or the trace does not
            have it.
    """
    is_given = [op != "", kernel != "", row is not None]
    if is_given.count(True) != 1:
        raise NothingToReproduceError("Specify an op, a kernel or a row.")

    if row is not None:
        return call_of_slice(trace, row)
    largest_first = calls_of_op(trace, op) if op else calls_of_kernel(trace, kernel)
    return largest_first[0]


def calls_of_op(trace: Trace, name: str) -> list[Call]:
    """Return the distinct calls of an op, the largest total time first.

    Args:
        trace: The trace.
        name: The name of the op with or without `aten::`, or of a node of
            autograd.

    Raises:
        NothingToReproduceError: The trace has no op of this name.
    """
    table = call_table(trace)
    name_of_op = trace.name[table.rows]
    for full_name in (name, DEFAULT_NAMESPACE + name, ENGINE + name):
        if full_name not in trace.names:
            continue
        indices = np.flatnonzero(name_of_op == trace.names.index(full_name))
        if len(indices):
            return _describe_calls(trace, table, indices)
    raise NothingToReproduceError(f"No op of this trace is named {name}.")


def calls_of_kernel(trace: Trace, pattern: str) -> list[Call]:
    """Return the distinct calls that launched kernels or copies of a name.

    GPU events that no op launched are calls of their own, one for each name.

    Args:
        trace: The trace.
        pattern: The exact name. If no GPU event has it, the text of a search for
            kernels.

    Returns:
        The calls, the largest total time first.

    Raises:
        NothingToReproduceError: Nothing is found, or the search cannot be
            understood.
    """
    rows = _find_gpu_rows(trace, pattern)
    if not len(rows):
        raise NothingToReproduceError(f"No kernel of this trace matches {pattern}.")

    table = call_table(trace)
    op = trace.op[rows]
    has_op = op >= 0
    op_indices = np.searchsorted(table.rows, distinct(op[has_op]))
    calls = _describe_calls(trace, table, op_indices)

    without_op = rows[~has_op]
    name_of_row = trace.name[without_op]
    for name in distinct(name_of_row).tolist():
        rows_of_name = without_op[name_of_row == name]
        calls.append(describe_call_without_op(trace, rows_of_name))

    return sorted(calls, key=lambda call: -call.total_ns)


def call_of_slice(trace: Trace, row: int) -> Call:
    """Return the call that a slice is, lies in, or was launched by.

    Its times are those of all calls with the same name and inputs. GPU work that no op
    launched is a call of its own.

    Raises:
        NothingToReproduceError: The slice is not in the trace, or belongs to no
            op.
    """
    if not 0 <= row < len(trace):
        raise NothingToReproduceError(
            f"There is no row {row}: this trace has {len(trace)}."
        )
    # The slice may be an op itself; else `trace.op` has the op that it belongs to.
    table = call_table(trace)
    index = table.index_of(row)
    if index is None:
        index = table.index_of(int(trace.op[row]))

    if index is not None:
        is_equal_call = table.group == table.group[index]
        return describe_equal_calls(trace, table.rows[is_equal_call])
    if trace.role[row] in GPU_ROLES:
        return describe_call_without_op(trace, np.array([row]))
    raise NothingToReproduceError(
        f"Row {row} is neither an op nor work that an op launched."
    )


def most_expensive_calls(trace: Trace, count: int) -> list[Call]:
    """Return the calls that took the most time themselves, without the ops inside them.

    GPU time counts if ops launched any work, else CPU time. Calls that took no time are
    left out, so there may be fewer than `count`.

    Raises:
        NothingToReproduceError: The trace has no op.
    """
    table = call_table(trace)
    if not len(table.rows):
        raise NothingToReproduceError("This trace has no op.")

    total_ns = np.bincount(table.group, weights=own_times(table))
    largest_groups = np.argsort(-total_ns, kind="stable")[:count]
    calls: list[Call] = []
    for group in largest_groups.tolist():
        if total_ns[group] > 0:
            rows = table.rows[table.group == group]
            calls.append(describe_equal_calls(trace, rows))
    return calls


def own_times(table: CallTable) -> Int64s:
    """Return the time of each op without that of the ops inside it, in ns. It is GPU
    time if any op launched GPU work, else CPU time."""
    return table.own_gpu_ns if table.has_gpu_work else table.own_cpu_ns


def calls_of_module(trace: Trace, name: str) -> ModuleCalls:
    """Return the ops of one call of a module or an annotation, as calls in their order.

    Of all calls of that module, the one with the median time is taken. Only ops that
    lie in no other op count. Equal ops are one call, which the order names several
    times.

    Args:
        trace: The trace.
        name: The name of the module, such as `Linear_3`, or `Linear_*` for any
            number.

    Raises:
        NothingToReproduceError: The trace has no such module, or no op in it.
    """
    every_origin = origins(trace)
    row = _find_median_module_call(every_origin, name)
    table = call_table(trace)
    is_outermost = _mark_outermost_ops(every_origin, table, row)
    if not is_outermost.any():
        raise NothingToReproduceError(f"No op was recorded in the module {name}.")

    # Equal ops are one call, whose index each of them gets.
    rows = table.rows[is_outermost]
    group_of_op = table.group[is_outermost]
    calls: list[Call] = []
    call_of_group: dict[int, int] = {}
    order = []
    for group in group_of_op.tolist():
        if group not in call_of_group:
            call_of_group[group] = len(calls)
            calls.append(describe_equal_calls(trace, rows[group_of_op == group]))
        order.append(call_of_group[group])

    return ModuleCalls(
        name=label_of(trace.name_of(row), expanded=True),
        row=row,
        calls=tuple(calls),
        order=tuple(order),
    )


def _find_median_module_call(every_origin: Origins, name: str) -> int:
    """Return the row of the call of a module that took the median time.

    Args:
        every_origin: The calls of modules and the annotations of the trace.
        name: The name of the module, as the trace or the app shows it.

    Raises:
        NothingToReproduceError: No call has this name.
    """
    trace = every_origin.trace
    rows = every_origin.regions.rows
    wanted_names = []
    for name_index in distinct(trace.name[rows]).tolist():
        recorded = trace.names[name_index]
        if name in (recorded, label_of(recorded), label_of(recorded, expanded=True)):
            wanted_names.append(name_index)

    calls = rows[np.isin(trace.name[rows], wanted_names)]
    if not len(calls):
        raise NothingToReproduceError(
            f"No module or annotation of this trace is named {name}."
        )
    return int(calls[lower_median_index(trace.dur[calls])])


def _mark_outermost_ops(every_origin: Origins, table: CallTable, row: int) -> Flags:
    """Mark the ops that lie in a module call, on its thread, and in no other op of that
    call.

    Args:
        every_origin: The calls of modules of the trace.
        table: The ops of the trace.
        row: The module call.

    Returns:
        A flag for each op of the table.
    """
    trace = every_origin.trace
    ops = table.rows
    thread = trace.thread_of_track[trace.track]
    is_on_thread = thread[ops] == thread[row]
    starts_inside = trace.start[ops] >= trace.start[row]
    ends_inside = trace.end[ops] <= trace.end[row]
    is_inside = is_on_thread & starts_inside & ends_inside

    has_parent_inside = np.isin(trace.parent[ops], ops[is_inside])
    outermost: Flags = is_inside & ~has_parent_inside
    return outermost


def _find_gpu_rows(trace: Trace, pattern: str) -> Rows:
    """Find the GPU events with exactly this name, else the kernels that a search for it
    finds.

    Raises:
        NothingToReproduceError: The text cannot be understood as a search.
    """
    if pattern in trace.names:
        rows = trace.gpu_rows
        has_name = trace.name[rows] == trace.names.index(pattern)
        if has_name.any():
            rows_of_name: Rows = rows[has_name]
            return rows_of_name

    try:
        hits = search(trace, collect_name_texts(trace), parse(pattern))
    except WrongQueryError as error:
        message = str(error).removesuffix(".")
        raise NothingToReproduceError(f"{message}.") from None
    return np.intersect1d(trace.rows_of(Role.KERNEL), hits)


def _describe_calls(trace: Trace, table: CallTable, indices: Rows) -> list[Call]:
    """Return the distinct calls among the ops at some indices of the table, the largest
    total time first."""
    calls = [describe_equal_calls(trace, rows) for rows in group_rows(table, indices)]
    return sorted(calls, key=lambda call: -call.total_ns)
