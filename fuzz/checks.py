"""What holds of every trace, whatever the file: order, nesting, links, sums."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from fusetui.analysis.questions.busy import measure_gpu_times, summarize_window
from fusetui.analysis.questions.totals import measure_self_ns, sum_gpu_work_under_rows
from fusetui.trace import Trace
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role

LARGEST = 2**53 - 1  # integers beyond it are damaged by jq and JavaScript
MAX_GPU_ROWS = 3_000  # that are looked at one by one


class WrongError(AssertionError):
    """A check that failed: its name, and what was found instead."""

    def __init__(self, name: str, detail: object = "") -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


def check(holds: object, name: str, detail: object = "") -> None:
    """Raises WrongError unless it holds."""
    if not holds:
        raise WrongError(name, detail)


def check_trace(trace: Trace) -> None:
    """Everything below."""
    check_tracks(trace)
    check_nesting(trace)
    check_links(trace)
    check_busy(trace)
    report = trace.report
    check(len(trace) + report.unreadable <= report.events, "more slices than events")
    check(len(report.skipped) <= report.unreadable, "more skipped than unreadable")


def check_tracks(trace: Trace) -> None:
    """Every row is on one track, in order."""
    bounds = [0, *(track.end_row for track in trace.tracks)]
    check(
        bounds == [*(t.first_row for t in trace.tracks), len(trace)],
        "tracks have gaps",
        bounds,
    )
    check(all(len(track) for track in trace.tracks), "an empty track")
    sizes = [len(track) for track in trace.tracks]
    check(
        (trace.track == np.repeat(np.arange(len(sizes)), sizes)).all(), "track of a row"
    )
    same = trace.track[1:] == trace.track[:-1]
    later = trace.start[1:] > trace.start[:-1]
    longer = (trace.start[1:] == trace.start[:-1]) & (trace.dur[1:] <= trace.dur[:-1])
    check((~same | later | longer).all(), "rows are not sorted")
    check((trace.dur >= 0).all(), "a negative duration")
    check(len(np.unique(trace.order)) == len(trace), "two slices of one event")


def check_nesting(trace: Trace) -> None:
    """Parents hold their children, which do not overlap; a subtree is a stretch of
    rows."""
    inner = np.flatnonzero(trace.parent >= 0)
    over = trace.parent[inner]
    check((over < inner).all(), "a parent behind its child")
    check((trace.track[over] == trace.track[inner]).all(), "a parent on another track")
    check(
        (trace.start[over] <= trace.start[inner]).all(),
        "a child starts before its parent",
    )
    check((trace.end[inner] <= trace.end[over]).all(), "a child ends after its parent")
    check((trace.depth[inner] == trace.depth[over] + 1).all(), "depth of a child")
    check((trace.depth[trace.parent < 0] == 0).all(), "depth of a root")
    check((measure_self_ns(trace) >= 0).all(), "children overlap")
    expected = _subtree_ends(trace)
    check((trace.end_row == expected).all(), "end of a subtree")
    flat = np.array([t.layer is Layer.STREAM for t in trace.tracks] or [False])[
        trace.track
    ]
    check(not trace.depth[flat].any(), "a kernel inside a kernel")


def _subtree_ends(trace: Trace) -> Any:
    ends = np.arange(1, len(trace) + 1)
    for row in range(len(trace) - 1, -1, -1):
        over = trace.parent[row]
        if over >= 0:
            ends[over] = max(ends[over], ends[row])
    return ends


def check_links(trace: Trace) -> None:
    gpu = np.isin(trace.role, GPU_ROLES)
    linked = np.flatnonzero(trace.launch >= 0)
    calls = trace.launch[linked]
    check(gpu[linked].all(), "a launch of what is no GPU event")
    check((trace.role[calls] == Role.CALL).all(), "launched by what is no call")
    check(
        (trace.correlation[calls] == trace.correlation[linked]).all(),
        "launch of another number",
    )
    ops = trace.op[trace.op >= 0]
    check((trace.role[ops] == Role.OP).all(), "an op that is none")
    kernels = sum_gpu_work_under_rows(trace).kernels
    check(
        (kernels >= 0).all() and kernels.max(initial=0) <= len(trace),
        "kernels under an op",
    )


def check_busy(trace: Trace) -> None:
    """Busy and idle against plain Python; windows of time add up to the whole."""
    times = measure_gpu_times(trace)
    if len(trace.gpu_rows) > MAX_GPU_ROWS:
        return
    spans_of_device: dict[Any, list[tuple[int, int]]] = {}
    for row in trace.gpu_rows.tolist():
        span = int(trace.start[row]), int(trace.end[row])
        spans_of_device.setdefault(trace.track_of(row).pid, []).append(span)
    busy_ns = 0
    recorded_ns = 0
    for spans in spans_of_device.values():
        busy_ns += _union(spans)
        first = min(begin for begin, _ in spans)
        last = max(end for _, end in spans)
        recorded_ns += last - first
    check(times.busy_ns == busy_ns, "busy", (times.busy_ns, busy_ns))
    check(
        times.busy_ns + times.idle_ns == recorded_ns,
        "busy + idle = span",
        (times, recorded_ns),
    )
    parts = (times.compute_ns, times.comm_ns, times.copy_ns)
    check(max(parts) <= busy_ns <= sum(parts), "parts of busy", times)
    sum_ns = int(trace.dur[trace.gpu_rows].sum())
    check(busy_ns <= times.sum_ns and times.sum_ns == sum_ns, "sum", times)
    check_windows(trace, busy_ns)


def check_windows(trace: Trace, busy_ns: int) -> None:
    """Three windows that divide the trace have its busy time together, and each has at
    most the idle time that it has room for."""
    length = trace.end_ns - trace.begin_ns
    cuts = [
        trace.begin_ns,
        trace.begin_ns + length // 3,
        trace.begin_ns + length // 2,
        trace.end_ns + 1,
    ]
    windows = [summarize_window(trace, begin, end) for begin, end in pairwise(cuts)]
    busy_of_windows = [window.busy_ns for window in windows]
    check(
        sum(busy_of_windows) == busy_ns,
        "windows add up",
        (busy_of_windows, busy_ns),
    )
    for window in windows:
        room_ns = window.span_ns * window.devices
        check(0 <= window.idle_ns <= room_ns, "idle of a window", window)


def _union(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, min(begin for begin, _ in spans)
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total


def check_json(text: str) -> None:
    """One document, without a number that another reader would damage; times may be
    long."""
    for number in _integers(json.loads(text, parse_constant=_no_constant)):
        check(abs(number) <= LARGEST, "an integer beyond 2^53", number)


def _no_constant(word: str) -> None:
    raise WrongError("no JSON", word)


def _integers(value: Any) -> Iterator[int]:
    """Those that are no times in ns, as `idle` by its reason are too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (
                _integers(inner) if not (key.endswith("_ns") or key == "idle") else ()
            )
    elif isinstance(value, list):
        for inner in value:
            yield from _integers(inner)
    elif isinstance(value, int):
        yield value
