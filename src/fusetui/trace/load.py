"""From a file to a Trace: read, lay out, nest, link."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import asdict, replace

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
from fusetui.trace.layout.tracks import lay_out
from fusetui.trace.model.arrays import each
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.raw import Raw, converted_from, with_directions
from fusetui.trace.model.report import Progress, Report, Stop, never, silent
from fusetui.trace.read import Callbacks

MANY = 1_000_000  # slices from which on it pays to give memory back
# called with the trace that the first part of a file gives
Preview = Callable[[Trace], None]


def open_trace(
    path: str,
    progress: Progress = silent,
    *,
    stop: Stop = never,
    preview: Preview | None = None,
    cached: bool = True,
    alone: bool = False,
) -> Trace:
    """Reads a trace of any supported form, or takes it from the cache (see
    trace/cache).

    `preview` is called with growing parts of a large trace while the rest is read. Once
    `stop` returns True, the result is the part that was read (see Report.prefix), which
    is not written to the cache. With `cached` False the cache is neither read nor
    written; with `alone` this thread decodes it all, as others are busy with other
    files. Raises TraceError with one plain sentence, or NothingReadError when stopped
    too early."""
    entry = entry_for(path) if cached else None
    known = entry.trace(text_of) if entry else None
    look = None if preview is None else lambda raw: preview(build(raw))
    try:
        asked = Callbacks(progress, stop, look, alone)
        trace = build(read(path, asked)) if known is None else known
    except MemoryError:
        raise CannotReadError(f"{path} needs more memory than there is.") from None
    if entry is None or trace.report.prefix is not None or trace.report.changed:
        return trace
    if known is None:
        entry.store(trace)
        if len(trace) > MANY and (kept := entry.trace(text_of)):
            # pages that the system may drop
            trace = replace(kept, elements=trace.elements)
    trace.elements.keeper = entry
    return trace


def build(raw: Raw) -> Trace:
    """Builds the sorted, nested, linked Trace from raw columns in file order."""
    is_large = len(raw.start) > MANY
    if is_large:
        give_back()
    raw = with_directions(raw)
    layout = lay_out(raw)
    if is_large:
        give_back()
    order, role, start, dur = layout.order, layout.role, layout.start, layout.dur
    tree = nest_tracks(layout.bounds, start, start + dur)
    others = {name: name for name in ("correlation", "external_id", "name", "order")}
    others["cat"] = "category"
    takes = {
        own: partial(getattr(raw, name).take, order) for own, name in others.items()
    }
    sorted_ = each(takes, len(order))
    correlation, external_id = sorted_["correlation"], sorted_["external_id"]
    launch = launch_calls(role, correlation, start)
    cpu_op = enclosing_ops(role, layout.track, tree.parent, tree.depth)
    adopt_overlapping(layout.tracks, start, start + dur, tree.parent, cpu_op)
    linked = launch >= 0
    return Trace(
        report=_report(raw, int((start[linked] < start[launch[linked]]).sum())),
        keys=raw.keys,
        names=raw.names,
        categories=raw.categories,
        tracks=layout.tracks,
        start=start,
        dur=dur,
        role=role,
        track=layout.track,
        launch=launch,
        op=gpu_ops(role, launch, cpu_op, correlation, external_id),
        elements=raw.elements,
        **sorted_,
        **asdict(tree),
    )


def _report(raw: Raw, negative_delays: int) -> Report:
    origin, report = converted_from(raw.keys), raw.report
    names_of_processes = (
        label.value
        for label in raw.labels
        if label.kind in ("process_name", "process_labels")
        and isinstance(label.value, str)
    )
    return replace(
        report,
        negative_delays=negative_delays,
        process_names=tuple(dict.fromkeys(names_of_processes)),
        remarks=(*report.remarks, *origin.remarks),
        cut_ends=report.cut_ends or origin.cut_ends,
        converted_from=origin.format,
    )
