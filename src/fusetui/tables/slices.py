"""The table of all slices, with one row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusetui.analysis.questions.search import FROM_NAME
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.tables.public import Table
from fusetui.tables.table import TableColumn, Values
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import NO_ROW, Flags, at, used_ids
from fusetui.trace.model.categories import GPU_LAYERS, Role
from fusetui.trace.model.columns import Trace

NO_TEXT = -1
"""In place of the number of a text: there is none."""

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
    """Make the table of all slices of a trace.

    Row n of the table is row n of the trace; `parent` and `launch` are such rows.

    Args:
        trace: The trace. Rows that it has from the capture of a graph are left out.
        first: The columns that a person sees without asking for any.
    """
    length = trace.recorded()
    is_gpu_event = np.zeros(length, dtype=np.bool_)
    is_gpu_event[trace.gpu_rows] = True
    op = trace.op[:length]
    name_of_op = np.where(op != NO_ROW, trace.name[op], NO_TEXT)
    columns = (
        TableColumn("row", np.arange(length, dtype=np.int64)),
        _text_column("name", trace.name[:length], trace.names),
        _text_column("category", trace.cat[:length], trace.categories),
        _text_column("kind", trace.role[:length], KINDS),
        TableColumn("start_ns", trace.start[:length] - trace.begin_ns),
        TableColumn("dur_ns", trace.dur[:length]),
        *_lane_columns(trace, length),
        _int_column("depth", trace.depth[:length]),
        _optional_int_column("parent", trace.parent[:length]),
        _optional_int_column("correlation", trace.correlation[:length]),
        _optional_int_column("launch", trace.launch[:length]),
        _optional_text_column("op", name_of_op, trace.names),
        _step_column(trace, is_gpu_event),
        *_decoded_columns(trace, is_gpu_event),
    )
    return Table("slices", columns, first)


def _lane_columns(trace: Trace, length: int) -> list[TableColumn]:
    """Make the columns that say where a slice is.

    They are `lane`, its track as the screen names it; `process` and `thread`, which
    only slices of the CPU have; `device` and `stream`, which only those of a GPU have.

    Args:
        trace: The trace.
        length: How many of its slices the table has.
    """
    track_of_slice = trace.track[:length]
    is_gpu_track = [track.layer in GPU_LAYERS for track in trace.tracks]
    is_on_gpu = np.array(is_gpu_track, dtype=np.bool_)[track_of_slice]
    cpu_track = np.where(is_on_gpu, NO_TEXT, track_of_slice)
    gpu_track = np.where(is_on_gpu, track_of_slice, NO_TEXT)

    # The texts of each track.
    labels = [track.label for track in trace.tracks]
    pids = [str(track.pid) for track in trace.tracks]
    tids = [str(track.tid) for track in trace.tracks]
    return [
        _text_column("lane", track_of_slice, labels),
        _optional_text_column("process", cpu_track, pids),
        _optional_text_column("thread", cpu_track, tids),
        _optional_text_column("device", gpu_track, pids),
        _optional_text_column("stream", gpu_track, tids),
    ]


def _step_column(trace: Trace, is_gpu_event: Flags) -> TableColumn:
    """Make the column with the number of the step that each slice belongs to.

    It is the step during which the slice starts; of a GPU event, the one during which
    its launch call starts. A GPU event without a known launch call has none, nor has a
    slice outside all steps.

    Args:
        trace: The trace.
        is_gpu_event: Whether each slice of the table is one.
    """
    steps = steps_of(trace)
    rows = np.arange(len(is_gpu_event))
    launch = trace.launch[: len(rows)]
    has_launch = launch != NO_ROW
    deciding_row = np.where(has_launch, launch, rows)
    step = steps.at(trace.start[deciding_row])
    is_in_some_step = step >= 0
    is_known = is_in_some_step & (has_launch | ~is_gpu_event)
    step_numbers = np.array(steps.numbers, dtype=np.int64)
    number_of_row = at(step_numbers, np.where(is_known, step, -1), missing=-1)
    return _int_column("step", number_of_row, is_known)


def _decoded_columns(trace: Trace, is_gpu_event: Flags) -> list[TableColumn]:
    """Make the columns FROM_KERNEL_NAME, which say what the name of a GPU event means.

    Every name is decoded once. Other slices have no value.

    Args:
        trace: The trace.
        is_gpu_event: Whether each slice of the table is one.
    """
    name_of_row = trace.name[: len(is_gpu_event)]
    decoded_by_name: dict[int, KernelName] = {}
    for name in used_ids(name_of_row[is_gpu_event]):
        decoded = decode(trace.names[name])
        if decoded is not None:
            decoded_by_name[name] = decoded

    columns = []
    for column, text_of in FROM_KERNEL_NAME.items():
        number_of_text: dict[str, int] = {}
        number_of_name = np.full(len(trace.names), NO_TEXT, dtype=np.int64)
        for name, decoded in decoded_by_name.items():
            text = text_of(decoded)
            if text:
                next_number = len(number_of_text)
                number_of_name[name] = number_of_text.setdefault(text, next_number)
        number_of_row = np.where(is_gpu_event, number_of_name[name_of_row], NO_TEXT)
        texts = list(number_of_text)
        columns.append(_optional_text_column(column, number_of_row, texts))
    return columns


def _int_column(name: str, values: Values, known: Flags | None = None) -> TableColumn:
    """Make a column of integers. `known` says which rows have a value; None for all."""
    return TableColumn(name, values.astype(np.int64), texts=None, known=known)


def _optional_int_column(name: str, values: Values) -> TableColumn:
    """Make a column of row numbers or correlation ids. A row with a negative one has no
    value."""
    return _int_column(name, np.maximum(values, -1), known=values >= 0)


def _text_column(name: str, numbers: Values, texts: Sequence[str]) -> TableColumn:
    """Make a column of texts from the index of each row in `texts`."""
    return TableColumn(name, numbers.astype(np.int32), tuple(texts))


def _optional_text_column(
    name: str, numbers: Values, texts: Sequence[str]
) -> TableColumn:
    """Make a column of texts, of which some rows may have none.

    Args:
        name: The name of the column.
        numbers: The index of the text of each row; negative if it has none.
        texts: The texts.
    """
    has_text = numbers >= 0
    blank = len(texts)
    number_or_blank = np.where(has_text, numbers, blank).astype(np.int32)
    return TableColumn(name, number_or_blank, (*texts, ""), known=has_text)
