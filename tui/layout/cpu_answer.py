"""The lists of the answer for a trace without GPU events: what its devices and CPU threads did."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.totals import inside_same_name, kernel_totals, op_totals
from fusetui.analysis.why.model import Why
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import union_length
from fusetui.tui.layout.answer import AnswerList, Timed, ToSlice, longest, of_name, timed
from fusetui.tui.layout.kinds import kind_of, label_of, narrow


def cpu_lists(why: Why, trace: Trace) -> tuple[AnswerList, ...]:
    """Time by name of device events, ops and annotations, and by thread; none of them is empty."""
    found = (
        _by_name(trace, Role.DEVICE, "device time by name"),
        timed("self time by CPU op", _ops(trace)),
        _by_name(trace, Role.ANNOTATION, "time in annotations"),
        timed("time by CPU thread", _threads(why, trace)),
    )
    return tuple(one for one in found if one.entries)


def _by_name(trace: Trace, role: Role, title: str) -> AnswerList:
    """As shares of the time in which any of them ran, as they lie inside each other; a slice inside
    another one of its name adds nothing."""
    rows = trace.rows_of(role)
    outer = rows[~inside_same_name(trace, rows)]
    whole = _covered(trace, outer)
    return timed(
        title,
        (
            of_name(total, role, whole, ToSlice(longest(trace, total)))
            for total in kernel_totals(trace, outer)
        ),
    )


def _covered(trace: Trace, rows: NDArray[np.intp]) -> int:
    """The time (ns) that slices cover, added up over threads or streams."""
    thread = trace.thread_of_track[trace.track[rows]]
    each = (rows[thread == number] for number in np.unique(thread).tolist())
    return sum(union_length(trace.start[own], trace.end[own]) for own in each)


def _ops(trace: Trace) -> Iterator[Timed]:
    """The time in ops, without the slices directly inside them."""
    rows, role = trace.rows_of(Role.OP), int(Role.OP)
    row_of = {one.name: longest(trace, one) for one in kernel_totals(trace, rows)}
    totals = op_totals(trace)
    whole = sum(op.self_ns for op in totals)
    for op in totals:
        label, kind = label_of(role, op.name), kind_of(role, op.name)
        yield Timed(op.self_ns, whole, label, ToSlice(row_of[op.name]), kind)


def _threads(why: Why, trace: Trace) -> Iterator[Timed]:
    """How much of each thread's time anything was recorded, from its first slice to its last."""
    rows = _longest_of_threads(trace)
    for one in why.cpu:
        ns = one.op_ns + one.python_ns + one.wait_ns + one.annotation_ns
        way = ToSlice(rows[one.process, one.thread])
        yield Timed(ns, one.span_ns, narrow(one.label), way)


def _longest_of_threads(trace: Trace) -> dict[tuple[Id, Id], int]:
    """The longest slice of each CPU thread."""
    found: dict[tuple[Id, Id], int] = {}
    for track in trace.tracks:
        if track.layer not in CPU_LAYERS or not len(track):
            continue
        row = track.first_row + int(np.argmax(trace.dur[track.rows]))
        key = exact_id(track.pid), exact_id(track.tid)
        if key not in found or trace.dur[row] > trace.dur[found[key]]:
            found[key] = row
    return found
