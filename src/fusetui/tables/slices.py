"""The table of all slices: a row for each, as the trace has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusetui.analysis.questions.search import FROM_NAME
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.tables.public import Table
from fusetui.tables.table import TableColumn, Values
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.categories import GPU_LAYERS, Role
from fusetui.trace.model.columns import Trace

KINDS = tuple(role.name.lower() for role in Role)
"""What a slice is called, by the number of its role."""

FROM_KERNEL_NAME: dict[str, Callable[[KernelName], str | None]] = {
    "short": lambda decoded: decoded.short,
    "family": lambda decoded: decoded.family,
    "kernel_op": lambda decoded: decoded.op,
    "dtype": lambda decoded: FROM_NAME["dtype"](decoded) or None,
    "collective": lambda decoded: decoded.collective,
}
"""Columns that the names of GPU events fill."""


def slices(trace: Trace, first: frozenset[str]) -> Table:
    """`parent` and `launch` are rows of this table; `first`: as in Table."""
    length = trace.recorded()
    track = trace.track[:length]
    launch = trace.launch[:length]
    op = trace.op[:length]
    is_gpu_event = np.zeros(length, dtype=np.bool_)
    is_gpu_event[trace.gpu_rows] = True
    is_gpu_track = np.array(
        [lane.layer in GPU_LAYERS for lane in trace.tracks], dtype=np.bool_
    )
    on_gpu = is_gpu_track[track]
    host_track = np.where(on_gpu, -1, track)
    gpu_track = np.where(on_gpu, track, -1)
    pids = [str(lane.pid) for lane in trace.tracks]
    tids = [str(lane.tid) for lane in trace.tracks]
    columns = (
        TableColumn("row", np.arange(length, dtype=np.int64)),
        _texts("name", trace.name[:length], trace.names),
        _texts("category", trace.cat[:length], trace.categories),
        _texts("kind", trace.role[:length], KINDS),
        TableColumn("start_ns", trace.start[:length] - trace.begin_ns),
        TableColumn("dur_ns", trace.dur[:length]),
        _texts("lane", track, [lane.label for lane in trace.tracks]),
        _optional_texts("process", host_track, pids),
        _optional_texts("thread", host_track, tids),
        _optional_texts("device", gpu_track, pids),
        _optional_texts("stream", gpu_track, tids),
        _numbers("depth", trace.depth[:length]),
        _optional_rows("parent", trace.parent[:length]),
        _optional_rows("correlation", trace.correlation[:length]),
        _optional_rows("launch", launch),
        _optional_texts("op", np.where(op >= 0, trace.name[op], -1), trace.names),
        _steps(trace, is_gpu_event),
        *_decoded(trace, is_gpu_event),
    )
    return Table("slices", columns, first)


def _steps(trace: Trace, is_gpu_event: Flags) -> TableColumn:
    """The number of the step during which each slice begins, or the launch of a GPU
    event; of one without a launch none is known."""
    steps = steps_of(trace)
    rows = np.arange(len(is_gpu_event))
    launch = trace.launch[: len(rows)]
    has_launch = launch >= 0
    place = steps.at(trace.start[np.where(has_launch, launch, rows)])
    known = (place >= 0) & (has_launch | ~is_gpu_event)
    numbers = np.array([*steps.numbers, -1], dtype=np.int64)  # the last of no step
    return _numbers("step", numbers[np.where(known, place, -1)], known)


def _decoded(trace: Trace, is_gpu_event: Flags) -> list[TableColumn]:
    """What the names of GPU events say; every name is decoded once."""
    names = np.where(is_gpu_event, trace.name[: len(is_gpu_event)], -1)
    is_used = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    is_used[names] = True
    decoded_names = [
        decode(name) if used else None
        for name, used in zip(trace.names, is_used[:-1].tolist(), strict=True)
    ]
    columns = []
    for column, text_of in FROM_KERNEL_NAME.items():
        numbers: dict[str, int] = {}  # by text
        of_name = np.full(len(trace.names) + 1, -1, dtype=np.int64)
        for number, decoded in enumerate(decoded_names):
            text = text_of(decoded) if decoded is not None else None
            if text:
                of_name[number] = numbers.setdefault(text, len(numbers))
        columns.append(_optional_texts(column, of_name[names], list(numbers)))
    return columns


def _numbers(name: str, values: Values, known: Flags | None = None) -> TableColumn:
    return TableColumn(name, values.astype(np.int64), texts=None, known=known)


def _optional_rows(name: str, values: Values) -> TableColumn:
    """Numbers of which those below 0 stand for none."""
    return _numbers(name, np.maximum(values, -1), known=values >= 0)


def _texts(name: str, numbers: Values, texts: Sequence[str]) -> TableColumn:
    return TableColumn(name, numbers.astype(np.int32), tuple(texts))


def _optional_texts(name: str, numbers: Values, texts: Sequence[str]) -> TableColumn:
    """The texts with these numbers, of which those below 0 stand for none."""
    known = numbers >= 0
    with_blank = np.where(known, numbers, len(texts)).astype(np.int32)
    return TableColumn(name, with_blank, (*texts, ""), known)
