"""The state of the app apart from any widget: sides, views, the way back, the hits of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.columns import Trace
from fusetui.trace.devices import device_names
from fusetui.trace.diff.model import Diff, Row
from fusetui.trace.format import count, duration, joined, percent, plural, printable
from fusetui.trace.steps import steps
from fusetui.trace.summary import gpu_times
from fusetui.tui.lanes import lanes_of
from fusetui.tui.view import Side, View, first_view, select

DEEPEST = 200  # views that undo remembers
Views = tuple[View, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Views before and after the present ones."""

    past: tuple[Views, ...] = ()
    future: tuple[Views, ...] = ()

    def moved(self, before: Views) -> History:
        return History((*self.past, before)[-DEEPEST:], ())

    def undo(self, now: Views) -> tuple[Views, History]:
        if not self.past:
            return now, self
        return self.past[-1], History(self.past[:-1], (now, *self.future))

    def redo(self, now: Views) -> tuple[Views, History]:
        if not self.future:
            return now, self
        return self.future[0], History((*self.past, now), self.future[1:])


@dataclass(frozen=True, eq=False)
class Hits:
    """Rows found by a search or a table, in order of time, and which of them is shown."""

    what: str
    side: int
    rows: NDArray[np.intp]
    at: int = -1

    @property
    def row(self) -> int:
        return int(self.rows[self.at])

    def step(self, by: int) -> Hits:
        """The next or previous hit, around the end."""
        return replace(self, at=(self.at + by) % len(self.rows)) if len(self.rows) else self

    def nearest(self, trace: Trace, time: int) -> Hits:
        """The first hit at or after a time (ns of the file), else the first."""
        if not len(self.rows):
            return self
        at = int(np.searchsorted(trace.start[self.rows], time, side="left"))
        return replace(self, at=at % len(self.rows))


def make_sides(traces: Sequence[Trace], labels: Sequence[str]) -> tuple[Side, ...]:
    """One side counts from the start of its trace; several are aligned at their first steps."""
    together = len(traces) > 1
    return tuple(
        Side(trace, lanes_of(trace), _step_start(trace) if together else trace.begin_ns, label)
        for trace, label in zip(traces, labels, strict=True)
    )


def aligned(sides: Sequence[Side], diff: Diff) -> tuple[Side, ...]:
    """The sides with zero at the start of the steps that the diff compares."""
    pairs = ([row for r in diff.rows for row in rows(r)] for rows in (_rows_a, _rows_b))
    return tuple(_aligned(side, rows) for side, rows in zip(sides, pairs, strict=True))


def first_views(sides: Sequence[Side]) -> Views:
    """The whole trace; of several: the length of the longest first step, from a little before."""
    if len(sides) == 1:
        return (first_view(sides[0]),)
    longest = max(_step_length(side) for side in sides)
    return tuple(first_view(side, -longest // 20, longest + longest // 20) for side in sides)


def moved(views: Views, index: int, view: View, together: bool = True) -> Views:
    """One view changed; together, the windows of the others move by as much and zoom alike."""
    before = views[index]
    return tuple(
        view if n == index else _follow(other, before, view) if together else other
        for n, other in enumerate(views)
    )


def _follow(other: View, before: View, after: View) -> View:
    if (before.begin, before.end) == (after.begin, after.end):
        return other
    begin = after.begin + other.begin - before.begin
    return replace(other, begin=begin, end=begin + after.span)


def selected(sides: Sequence[Side], views: Views, index: int, row: int, together: bool) -> Views:
    """A row selected on one side, and the windows where that row is in sight."""
    return moved(views, index, select(sides[index], views[index], row), together)


def heading(side: Side, width: int) -> str:
    """One line that says what is open: as many facts as fit, the warnings first."""
    return joined([printable(side.label), *warnings(side.trace), *facts(side.trace)], width)


def facts(trace: Trace) -> list[str]:
    """What a person wants to know first about a trace, each in a few words."""
    times = gpu_times(trace)
    found = steps(trace)
    share = percent(times.busy_ns, times.busy_ns + times.idle_ns)
    parts = [
        ", ".join(dict.fromkeys(printable(name) for name in device_names(trace))),
        plural(len(found), "step") if found else "",
        duration(trace.end_ns - trace.begin_ns),
        f"{count(len(trace))} slices",
        plural(len(trace.gpu_rows), "GPU event") if len(trace.gpu_rows) else "no GPU events",
        f"GPU busy {share}" if share else "",
    ]
    return [part for part in parts if part]


def warnings(trace: Trace) -> list[str]:
    """What a person must know before trusting the picture."""
    report = trace.report
    found: list[str] = []
    if not report.complete:
        found.append("the file was cut short")
    if report.skipped:
        found.append(f"{plural(len(report.skipped), 'event')} unreadable")
    if report.negative_delays:
        early = plural(report.negative_delays, "kernel")
        found.append(f"{early} before the launch: clocks differ")
    return found


def short_label(path: str) -> str:
    """`runs/mlp/eager.json.gz` -> `mlp/eager`."""
    name = Path(path).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name


def _rows_a(row: Row) -> Sequence[int]:
    return row.a_rows


def _rows_b(row: Row) -> Sequence[int]:
    return row.b_rows


def _aligned(side: Side, rows: Sequence[int]) -> Side:
    """Zero at the step during which the first of these rows was launched or ran."""
    if not rows:
        return side
    first = min(rows, key=lambda row: int(side.trace.start[row]))
    launch = int(side.trace.launch[first])
    time = int(side.trace.start[launch if launch >= 0 else first])
    begins = [s.start_ns for s in steps(side.trace) if s.start_ns <= time <= s.start_ns + s.dur_ns]
    return replace(side, origin=begins[0] if begins else time)


def _step_start(trace: Trace) -> int:
    found = steps(trace)
    return found[0].start_ns if found else trace.begin_ns


def _step_length(side: Side) -> int:
    found = steps(side.trace)
    return found[0].dur_ns if found else side.end - side.begin
