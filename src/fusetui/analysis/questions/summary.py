"""Key figures of a whole trace: counts, GPU times, tracks, steps."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import measure_gpu_times, measure_work_busy_ns
from fusetui.trace.layout.devices import device_names
from fusetui.trace.layout.steps import launched_in_steps, step_wall, steps_of
from fusetui.trace.model.arrays import NO_ROW, summed
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.report import Skipped


class TrackFigures(msgspec.Struct, frozen=True):
    """One track: a thread or a stream, or a further row of one whose slices overlap."""

    kind: str
    label: str
    pid: Id
    tid: Id
    subrow: int  # 0 for the first row of its thread or stream
    slices: int
    busy_ns: int  # of its outermost slices


class StepFigures(msgspec.Struct, frozen=True):
    """One step; its start is in ns after the base of the trace."""

    name: str
    start_ns: int
    dur_ns: int  # step_wall
    kernels: int  # that it launched
    gpu_busy_ns: int  # with the work that it launched; see busy.measure_work_busy_ns


class Summary(msgspec.Struct, frozen=True):
    """What `summary` shows, with the fields in the order of `summary --json`.

    Starts are in ns after `base_ns`, the time in the file of its first slice. That is a
    string, because times since 1970 exceed what a double represents exactly.
    """

    file: str
    bytes: int
    complete: bool
    events: int
    events_skipped: int
    skipped: tuple[Skipped, ...]
    slices: int
    slices_unfinished: int
    ends_unmatched: int
    counters: int
    instants: int
    kernels: int
    gpu_events: int
    gpu_events_linked: int
    gpu_events_with_op: int
    negative_launch_delays: int
    negative_durations: int
    base_ns: str
    span_ns: int
    gpu_span_ns: int
    gpu_busy_ns: int
    gpu_idle_ns: int
    gpu_sum_ns: int
    gpu_compute_ns: int
    gpu_comm_ns: int
    gpu_copy_ns: int
    devices: list[str]
    tracks: list[TrackFigures]
    steps: list[StepFigures]
    steps_by: str | None  # what they are, for people


def summary(trace: Trace) -> Summary:
    """Compute the key figures of a trace: what was read, how long GPUs were busy, and
    its tracks and steps. All fields ending in `_ns` are in ns."""
    gpu_rows = trace.gpu_rows
    report = trace.report
    times = measure_gpu_times(trace)
    return Summary(
        file=report.file,
        bytes=report.bytes,
        complete=report.complete,
        events=report.events,
        skipped=report.skipped,
        events_skipped=report.unreadable,
        slices=trace.recorded(),
        slices_unfinished=report.unfinished,
        ends_unmatched=report.unmatched_ends,
        counters=report.phases["C"],
        instants=report.phases["i"] + report.phases["I"],
        kernels=int((trace.role == Role.KERNEL).sum()),
        gpu_events=len(gpu_rows),
        gpu_events_linked=int((trace.launch[gpu_rows] != NO_ROW).sum()),
        gpu_events_with_op=int((trace.op[gpu_rows] != NO_ROW).sum()),
        negative_launch_delays=report.negative_delays,
        negative_durations=report.negative_durations,
        base_ns=str(trace.begin_ns),
        span_ns=trace.span_ns,
        gpu_span_ns=times.span_ns,
        gpu_busy_ns=times.busy_ns,
        gpu_idle_ns=times.idle_ns,
        gpu_sum_ns=times.sum_ns,
        gpu_compute_ns=times.compute_ns,
        gpu_comm_ns=times.comm_ns,
        gpu_copy_ns=times.copy_ns,
        devices=device_names(trace),
        tracks=_summarize_tracks(trace),
        steps=_summarize_steps(trace),
        steps_by=steps_of(trace).by or None,
    )


def _summarize_tracks(trace: Trace) -> list[TrackFigures]:
    """Summarize every track of a trace, except for those that come from a graph
    capture.

    A *track* is a thread, a stream, or one layer of these. Slices inside other slices
    of their track do not add to its busy time.
    """
    outermost = np.flatnonzero(trace.parent == NO_ROW)
    busy_of_track = summed(
        trace.track[outermost], trace.dur[outermost], len(trace.tracks)
    )
    figures = []
    for track, busy_ns in zip(trace.tracks, busy_of_track.tolist(), strict=True):
        if track.layer is Layer.CAPTURED:
            continue
        figures_of_track = TrackFigures(
            kind=str(track.layer),
            label=track.label,
            pid=exact_id(track.pid),
            tid=exact_id(track.tid),
            subrow=track.subrow,
            slices=len(track),
            busy_ns=busy_ns,
        )
        figures.append(figures_of_track)
    return figures


def _summarize_steps(trace: Trace) -> list[StepFigures]:
    """Summarize every step of a trace, in the order of time."""
    steps = steps_of(trace)
    starts_ns = (steps.start - trace.begin_ns).tolist()
    wall_ns = step_wall(steps.start, steps.end).tolist()
    figures = []
    for name, start_ns, dur_ns, rows in zip(
        steps.names, starts_ns, wall_ns, launched_in_steps(trace), strict=True
    ):
        step = StepFigures(
            name=name,
            start_ns=start_ns,
            dur_ns=dur_ns,
            kernels=int((trace.role[rows] == Role.KERNEL).sum()),
            gpu_busy_ns=measure_work_busy_ns(trace, rows),
        )
        figures.append(step)
    return figures
