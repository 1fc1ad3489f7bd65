"""The table of all slices: a row for each, as the trace has them."""

from __future__ import annotations

import numpy as np

from fusetui.tables.table import Column, Table, Values, column_of
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

KINDS = tuple(role.name.lower() for role in Role)


def slices(trace: Trace) -> Table:
    """`start_ns` counts from the first start of the trace. Of a GPU event `launch` is the row of its
    launch call, `op` the CPU op that launched it and `step` the step of that; -1 stands nowhere."""
    length = trace.recorded()
    track = trace.track[:length]
    launch, op = trace.launch[:length], trace.op[:length]
    host = np.where(launch >= 0, launch, np.arange(length))
    steps = steps_of(trace)
    step = steps.at(trace.start[host])
    lanes = trace.tracks
    of_track = {
        "lane": [lane.label for lane in lanes],
        "process": [lane.pid for lane in lanes],
        "thread": [lane.tid for lane in lanes],
    }
    return Table(
        "slices",
        (
            Column("row", np.arange(length, dtype=np.int64)),
            _text("name", trace.name[:length], trace.names),
            _text("category", trace.cat[:length], trace.categories),
            _text("kind", trace.role[:length], KINDS),
            Column("start_ns", trace.start[:length] - trace.begin_ns),
            Column("dur_ns", trace.dur[:length]),
            *(column_of(name, values).take(track) for name, values in of_track.items()),
            _number("depth", trace.depth[:length]),
            _some("parent", trace.parent[:length]),
            _some("correlation", trace.correlation[:length]),
            _some("launch", launch),
            Column("op", _codes(trace.name[op], op >= 0), (*trace.names, ""), op >= 0),
            _number("step", np.array([*steps.numbers, -1], dtype=np.int64)[step], step >= 0),
        ),
    )


def _number(name: str, values: Values, known: Flags | None = None) -> Column:
    return Column(name, values.astype(np.int64), None, known)


def _some(name: str, values: Values) -> Column:
    """Numbers of which those below 0 stand for none."""
    return _number(name, values, values >= 0)


def _text(name: str, values: Values, texts: tuple[str, ...]) -> Column:
    return Column(name, values.astype(np.int32), texts)


def _codes(names: Values, known: Flags) -> Int64s:
    return np.where(known, names, -1).astype(np.int32)
