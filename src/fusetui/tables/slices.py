"""The table of all slices, with one row for each."""

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
    """The table. `parent` and `launch` are rows of this table; `first`: as in
    Table."""
    length = trace.recorded()
    is_gpu_event = np.zeros(length, dtype=np.bool_)
    is_gpu_event[trace.gpu_rows] = True
    op = trace.op[:length]
    name_of_op = np.where(op >= 0, trace.name[op], -1)
    columns = (
        TableColumn("row", np.arange(length, dtype=np.int64)),
        _texts("name", trace.name[:length], trace.names),
        _texts("category", trace.cat[:length], trace.categories),
        _texts("kind", trace.role[:length], KINDS),
        TableColumn("start_ns", trace.start[:length] - trace.begin_ns),
        TableColumn("dur_ns", trace.dur[:length]),
        *_lanes(trace, length),
        _numbers("depth", trace.depth[:length]),
        _optional_rows("parent", trace.parent[:length]),
        _optional_rows("correlation", trace.correlation[:length]),
        _optional_rows("launch", trace.launch[:length]),
        _optional_texts("op", name_of_op, trace.names),
        _steps(trace, is_gpu_event),
        *_decoded(trace, is_gpu_event),
    )
    return Table("slices", columns, first)


def _lanes(trace: Trace, length: int) -> list[TableColumn]:
    """Where each of the first `length` slices is: process and thread of the CPU, or
    device and stream of a GPU."""
    track = trace.track[:length]
    is_gpu_track = [lane.layer in GPU_LAYERS for lane in trace.tracks]
    is_on_gpu = np.array(is_gpu_track, dtype=np.bool_)[track]
    cpu_track = np.where(is_on_gpu, -1, track)
    gpu_track = np.where(is_on_gpu, track, -1)
    labels = [lane.label for lane in trace.tracks]
    pids = [str(lane.pid) for lane in trace.tracks]
    tids = [str(lane.tid) for lane in trace.tracks]
    return [
        _texts("lane", track, labels),
        _optional_texts("process", cpu_track, pids),
        _optional_texts("thread", cpu_track, tids),
        _optional_texts("device", gpu_track, pids),
        _optional_texts("stream", gpu_track, tids),
    ]


def _steps(trace: Trace, is_gpu_event: Flags) -> TableColumn:
    """The number of the step during which each slice begins, or the launch of a GPU
    event; of one without a launch none is known."""
    steps = steps_of(trace)
    rows = np.arange(len(is_gpu_event))
    launch = trace.launch[: len(rows)]
    has_launch = launch >= 0
    begun_by = np.where(has_launch, launch, rows)
    step = steps.at(trace.start[begun_by])  # -1 outside all steps
    known = (step >= 0) & (has_launch | ~is_gpu_event)
    numbers = np.array([*steps.numbers, -1], dtype=np.int64)
    number_of_row = numbers[np.where(known, step, -1)]
    return _numbers("step", number_of_row, known)


def _decoded(trace: Trace, is_gpu_event: Flags) -> list[TableColumn]:
    """What the names of GPU events say; every name is decoded once."""
    name_of_row = np.where(is_gpu_event, trace.name[: len(is_gpu_event)], -1)
    decoded_names = _decoded_names(trace, name_of_row)
    columns = []
    for column, text_of in FROM_KERNEL_NAME.items():
        numbers: dict[str, int] = {}  # by text
        # the number of each name's text; the last place is that of no name
        number_of_name = np.full(len(trace.names) + 1, -1, dtype=np.int64)
        for name, decoded in enumerate(decoded_names):
            text = text_of(decoded) if decoded is not None else None
            if text:
                number_of_name[name] = numbers.setdefault(text, len(numbers))
        number_of_row = number_of_name[name_of_row]
        columns.append(_optional_texts(column, number_of_row, list(numbers)))
    return columns


def _decoded_names(trace: Trace, name_of_row: Values) -> list[KernelName | None]:
    """What each name of the trace says; None for those that are not in `name_of_row`,
    in which -1 stands for no name."""
    is_in_use = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    is_in_use[name_of_row] = True
    decoded: list[KernelName | None] = []
    for name, in_use in zip(trace.names, is_in_use[:-1].tolist(), strict=True):
        decoded.append(decode(name) if in_use else None)
    return decoded


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
