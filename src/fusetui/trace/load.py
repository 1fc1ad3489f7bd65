"""Loads a file into a Trace: reads, lays out, nests and links its slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.own_memory import give_back
from fusetui.trace.cache import entry_for
from fusetui.trace.formats import read, text_of
from fusetui.trace.layout.links import (
    adopt_overlapping,
    enclosing_ops,
    gpu_ops,
    launch_calls,
)
from fusetui.trace.layout.nesting import nest_tracks
from fusetui.trace.layout.tracks import Layout, lay_out
from fusetui.trace.model.arrays import NO_ROW, Int32s, Int64s, each
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.raw import Raw, converted_from, with_directions
from fusetui.trace.model.report import Progress, Report, Stop, never, silent
from fusetui.trace.read import Callbacks

MIN_LARGE_SLICES = 1_000_000  # from which on it pays to give memory back
Preview = Callable[[Trace], None]
"""Called with the trace that the first part of a file gives."""


def open_trace(
    path: str,
    progress: Progress = silent,
    *,
    stop: Stop = never,
    preview: Preview | None = None,
    cached: bool = True,
    alone: bool = False,
) -> Trace:
    """Read a trace of any supported form, or take it from the cache.

    Args:
        path: A path or a URL; "-" is standard input.
        progress: Is called with the bytes that were read, and those there are.
        stop: Is asked repeatedly. Once it returns True, the result is the part that was
            read by then (see Report.prefix), which is not put into the cache.
        preview: Is called with growing parts of a large trace while the rest is read.
        cached: Whether the cache may be used (see trace/cache).
        alone: Whether this thread decodes everything, because others are busy with
            other files.

    Raises TraceError with one plain sentence, or NothingReadError if it was stopped
    before anything was read.
    """
    entry = entry_for(path) if cached else None
    kept = entry.trace(text_of) if entry else None
    if entry and kept is not None:
        kept.elements.keeper = entry
        return kept

    def preview_raw(raw: Raw) -> None:
        assert preview
        preview(build(raw))

    callbacks = Callbacks(
        progress=progress,
        stop=stop,
        preview=preview_raw if preview else None,
        alone=alone,
    )
    try:
        trace = build(read(path, callbacks))
    except MemoryError:
        raise CannotReadError(f"{path} needs more memory than is available.") from None
    is_whole = trace.report.prefix is None and not trace.report.changed
    if entry is None or not is_whole:
        return trace
    entry.store(trace)
    if len(trace) > MIN_LARGE_SLICES and (kept := entry.trace(text_of)):
        # The columns of the entry are mapped: the system may drop their pages.
        trace = replace(kept, elements=trace.elements)
    trace.elements.keeper = entry
    return trace


def build(raw: Raw) -> Trace:
    """Make a Trace of the slices of a file: sorted by track, nested, and linked.

    Each GPU event is linked with its launch call, and each slice with the CPU op around
    it or around its launch.

    Args:
        raw: The slices as columns, in the order of the file.
    """
    is_large = len(raw.start) > MIN_LARGE_SLICES
    if is_large:
        give_back()
    raw = with_directions(raw)
    layout = lay_out(raw)
    if is_large:
        give_back()
    start = layout.start
    end = start + layout.dur
    tree = nest_tracks(layout.bounds, start, end)
    in_order = _columns_in_order(raw, layout)
    correlation = in_order["correlation"]
    launch = launch_calls(layout.role, correlation, start)
    cpu_op = enclosing_ops(layout.role, layout.track, tree.parent, tree.depth)
    adopt_overlapping(layout.tracks, start, end, tree.parent, cpu_op)
    op = gpu_ops(layout.role, launch, cpu_op, correlation, in_order["external_id"])
    return Trace(
        report=_report(
            raw, negative_delays=_count_started_before_launch(start, launch)
        ),
        keys=raw.keys,
        names=raw.names,
        categories=raw.categories,
        tracks=layout.tracks,
        start=start,
        dur=layout.dur,
        role=layout.role,
        track=layout.track,
        launch=launch,
        op=op,
        elements=raw.elements,
        **in_order,
        **asdict(tree),
    )


def _count_started_before_launch(start: Int64s, launch: Int32s) -> int:
    """Count the GPU events that start before their launch call, because the clocks of
    CPU and GPU differ.

    Args:
        start: The start of each slice in ns.
        launch: The row of the launch call of each slice; -1 for none.
    """
    has_launch = launch != NO_ROW
    return int((start[has_launch] < start[launch[has_launch]]).sum())


def _columns_in_order(raw: Raw, layout: Layout) -> dict[str, NDArray[Any]]:
    """Bring columns of the file into the order of the layout.

    Returns:
        The columns that a trace has just as the file has them, by their names in Trace.
    """

    def in_order(column: NDArray[Any]) -> Callable[[], NDArray[Any]]:
        return lambda: column.take(layout.order)

    return each(
        {
            "name": in_order(raw.name),
            "cat": in_order(raw.category),
            "order": in_order(raw.order),
            "correlation": in_order(raw.correlation),
            "external_id": in_order(raw.external_id),
        },
        len(layout.order),
    )


def _report(raw: Raw, negative_delays: int) -> Report:
    """Complete the report of the reading by what the whole trace tells.

    That is the names of processes, and what JSON that was converted from another format
    says about the original file.

    Args:
        raw: The slices, with the report so far.
        negative_delays: How many GPU events start before their launch call.
    """
    report = raw.report
    origin = converted_from(raw.keys)
    process_names: dict[str, None] = {}  # an ordered set
    for label in raw.labels:
        is_of_process = label.kind in ("process_name", "process_labels")
        if is_of_process and isinstance(label.value, str):
            process_names[label.value] = None
    return replace(
        report,
        negative_delays=negative_delays,
        process_names=tuple(process_names),
        remarks=(*report.remarks, *origin.remarks),
        cut_ends=report.cut_ends or origin.cut_ends,
        converted_from=origin.format,
    )
