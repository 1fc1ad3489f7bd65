"""Selects calls of a trace: by op, by kernel, by row, by module, or the most expensive
ones. The calls with the largest total come first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui import Error
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import search, texts_of
from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.calls import call_of_rows, call_without_op, groups_of
from fusetui.analysis.reproduce.model import Call
from fusetui.trace.model.arrays import Int64s, Rows
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
    """The call of an op, of what launched a kernel, or of a row, of which exactly one
    is given; of several distinct calls the one with the largest total. Raises
    NothingToReproduceError."""
    if bool(op) + bool(kernel) + (row is not None) != 1:
        raise NothingToReproduceError("Specify either an op, a kernel or a row.")
    if row is not None:
        return call_of_slice(trace, row)
    return (calls_of_op(trace, op) if op else calls_of_kernel(trace, kernel))[0]


def calls_of_op(trace: Trace, name: str) -> list[Call]:
    """The distinct calls of an op by its name, with or without its namespace, or of a
    node of autograd. Raises NothingToReproduceError."""
    table = call_table(trace)
    for full_name in (name, DEFAULT_NAMESPACE + name, ENGINE + name):
        if full_name in trace.names:
            number = trace.names.index(full_name)
            places = np.flatnonzero(trace.name[table.rows] == number)
            if len(places):
                return _calls(trace, table, places)
    raise NothingToReproduceError(f"No op of this trace is named {name}.")


def calls_of_kernel(trace: Trace, pattern: str) -> list[Call]:
    """The distinct calls that launched kernels or copies with this name, else those
    that a search for the pattern finds. Raises NothingToReproduceError."""
    rows = _gpu_rows_like(trace, pattern)
    if not len(rows):
        raise NothingToReproduceError(f"No kernel of this trace matches {pattern}.")
    calls: list[Call] = []
    table = call_table(trace)
    ops = np.unique(trace.op[rows])
    ops = ops[ops >= 0]
    if len(ops):
        calls = _calls(trace, table, np.searchsorted(table.rows, ops))
    without_op = rows[trace.op[rows] < 0]
    if len(without_op):
        by_name = trace.name[without_op]
        for name in np.unique(by_name).tolist():
            calls.append(call_without_op(trace, without_op[by_name == name]))
    return sorted(calls, key=lambda call: -call.total_ns)


def call_of_slice(trace: Trace, row: int) -> Call:
    """The call that a slice is, lies in, or was launched by. Its times are those of all
    equal calls. Raises NothingToReproduceError for a slice outside ops."""
    if not 0 <= row < len(trace):
        raise NothingToReproduceError(
            f"There is no row {row}: this trace has {len(trace)}."
        )
    table = call_table(trace)
    op = row if table.place_of(row) >= 0 else int(trace.op[row])
    place = table.place_of(op)
    if place >= 0:
        group = np.flatnonzero(table.group == table.group[place])
        return call_of_rows(trace, table.rows[group])
    if trace.role[row] in GPU_ROLES:
        return call_without_op(trace, np.array([row]))
    raise NothingToReproduceError(
        f"Row {row} is neither an op nor work that an op launched."
    )


def most_expensive_calls(trace: Trace, count: int) -> list[Call]:
    """The calls that took the most time themselves, without the ops inside: GPU time if
    there is any, else CPU time. Fewer than `count` if the trace has no more. Raises
    NothingToReproduceError."""
    table = call_table(trace)
    if not len(table.rows):
        raise NothingToReproduceError("This trace has no op.")
    own_ns = own_times(table)
    total_ns = np.bincount(table.group, weights=own_ns)
    largest_first = np.argsort(-total_ns, kind="stable")[:count]
    groups = largest_first[total_ns[largest_first] > 0]
    calls: list[Call] = []
    for group in groups.tolist():
        calls.append(call_of_rows(trace, table.rows[table.group == group]))
    return calls


def own_times(table: CallTable) -> Int64s:
    """The time of each op without those inside, in ns: of the GPU if ops launched work,
    else of the CPU. Shape [ops]."""
    return table.own_gpu_ns if table.has_gpu_work else table.own_cpu_ns


def calls_of_module(trace: Trace, name: str) -> ModuleCalls:
    """The ops of the call of a module or annotation that took the median time, of all
    with this name: Linear_3, or Linear_* for any. Raises NothingToReproduceError."""
    every_origin = origins(trace)
    row = _module_call(every_origin, name)
    table = call_table(trace)
    is_outermost = _outermost_ops(every_origin, table, row)
    places = np.flatnonzero(is_outermost)
    if not len(places):
        raise NothingToReproduceError(f"No op was recorded in the module {name}.")
    calls: list[Call] = []
    order = []
    number_of_group: dict[int, int] = {}
    for place in places.tolist():
        group = int(table.group[place])
        if group not in number_of_group:
            number_of_group[group] = len(calls)
            same = places[table.group[places] == group]
            calls.append(call_of_rows(trace, table.rows[same]))
        order.append(number_of_group[group])
    return ModuleCalls(
        name=label_of(trace.name_of(row), expanded=True),
        row=row,
        calls=tuple(calls),
        order=tuple(order),
    )


def _module_call(every_origin: Origins, name: str) -> int:
    """The row of the module call with the median time. Raises
    NothingToReproduceError."""
    trace = every_origin.trace
    rows = every_origin.regions.rows
    wanted = []
    for row_name in np.unique(trace.name[rows]).tolist():
        text = trace.names[row_name]
        if name in (text, label_of(text), label_of(text, expanded=True)):
            wanted.append(row_name)
    rows = rows[np.isin(trace.name[rows], wanted)]
    if not len(rows):
        raise NothingToReproduceError(
            f"No module or annotation of this trace is named {name}."
        )
    return int(rows[lower_median_index(trace.dur[rows])])


def _outermost_ops(every_origin: Origins, table: CallTable, row: int) -> Rows:
    """Which ops lie in a module call on its thread and in no other op of the call;
    shape [ops]."""
    trace = every_origin.trace
    ops = table.rows
    thread = trace.thread_of_track[trace.track]
    is_inside = thread[ops] == thread[row]
    is_inside &= trace.start[ops] >= trace.start[row]
    is_inside &= trace.end[ops] <= trace.end[row]
    is_of_call = np.zeros(len(trace) + 1, dtype=np.bool_)
    is_of_call[ops[is_inside]] = True
    is_of_call[-1] = False  # of no parent
    outermost: Rows = is_inside & ~is_of_call[trace.parent[ops]]
    return outermost


def _gpu_rows_like(trace: Trace, pattern: str) -> Rows:
    """GPU rows with exactly this name, else those that a search finds. Raises
    NothingToReproduceError."""
    rows = trace.gpu_rows
    if pattern in trace.names:
        is_named_so = trace.name[rows] == trace.names.index(pattern)
        if is_named_so.any():
            named: Rows = rows[is_named_so]
            return named
    try:
        hits = search(trace, texts_of(trace), parse(pattern))
    except WrongQueryError as error:
        raise NothingToReproduceError(f"{error}.".replace("..", ".")) from None
    return np.intersect1d(trace.rows_of(Role.KERNEL), hits)


def _calls(trace: Trace, table: CallTable, places: Rows) -> list[Call]:
    """The distinct calls at these places, the largest total time first."""
    calls = [call_of_rows(trace, rows) for rows in groups_of(table, places)]
    return sorted(calls, key=lambda call: -call.total_ns)
