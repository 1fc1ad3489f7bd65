"""The steps of a trace: ProfilerSteps, or else annotations that recur around the work."""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.steps import main_thread, steps
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]

MOST = 0.8
"""Recurring annotations are steps if they contain at least this share of the work."""

SERVING = re.compile(r"execute_|step\[")
"""The names of steps in vLLM and SGLang: even a single one is a step."""

OPTIMIZER = re.compile(r"Optimizer\.step#")
"""The annotation of torch around an optimizer step, which ends a training step."""

PROFILED = "ProfilerStep"  # what the steps of the profiler are called
UP_TO = "up to the end of "  # an optimizer step

MANY = 50  # kinds of annotations that are considered, those with the most time
LONGEST_STEM = 1000  # characters


class Spans(msgspec.Struct, frozen=True, eq=False):
    """Steps in time order; arrays of shape [steps], in ns of the file."""

    names: tuple[str, ...]
    start: Int64s
    end: Int64s
    by: str  # what they are, for users; "" if there are none

    def __len__(self) -> int:
        return len(self.start)

    def only(self, places: Rows) -> Spans:
        """Some of the steps, by index."""
        names = tuple(self.names[place] for place in places.tolist())
        return Spans(names, self.start[places], self.end[places], self.by)


def step_spans(trace: Trace, pattern: str | None = None) -> Spans:
    """The steps of a trace. `pattern`, a regular expression or plain text, matches the names of the
    annotations that are steps."""
    if pattern is not None:
        return _of_rows(
            trace, _matching(trace, _expression(pattern)), f"annotations like {pattern}"
        )
    profiled = steps(trace)
    if profiled:
        return _of_rows(trace, np.array([step.row for step in profiled]), PROFILED)
    recurring = recurring_annotations(trace, SERVING)
    if len(recurring):
        return _of_rows(trace, recurring, trace.name_of(int(recurring[0])))
    return _by_optimizer(trace)


def recurring_annotations(trace: Trace, alone: re.Pattern[str] | None = None) -> Rows:
    """Those annotations on one thread, with equal names except for numbers, that contain the most
    work, in time order; none if that is less than MOST. `alone`: names of which one is enough."""
    rows = trace.rows_of(Role.ANNOTATION)
    rows = rows[trace.parent[rows] < 0]
    stem, enough = _stems(trace, rows, alone)
    rows, stem = rows[stem >= 0], stem[stem >= 0]
    thread = trace.thread_of_track
    key = stem * (len(trace.tracks) + 1) + thread[trace.track[rows]]
    order = np.lexsort((trace.start[rows], key))
    rows, cuts = rows[order], np.flatnonzero(np.diff(key[order])) + 1
    groups = [
        g for g in np.split(rows, cuts) if len(g) > 1 or (len(g) and enough[trace.name[g[0]]])
    ]
    groups.sort(key=lambda group: -int(trace.dur[group].sum()))
    times, amount = _work(trace)
    shares = [_share_inside(trace, group, times, amount) for group in groups[:MANY]]
    if not shares or max(shares) < MOST:
        return rows[:0]
    return groups[shares.index(max(shares))]


def _stems(
    trace: Trace, rows: Rows, alone: re.Pattern[str] | None
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each row the number of its name without digits, -1 for the compiler's own; and for each
    name, whether a single annotation is enough."""
    numbers: dict[str, int] = {}
    of_name = np.full(len(trace.names), -1)
    enough = np.zeros(len(trace.names), dtype=np.bool_)
    for number in np.unique(trace.name[rows]).tolist():
        name = trace.names[number]
        if not is_compiler(name):
            stem = re.sub(r"\d+", "#", name[:LONGEST_STEM])
            of_name[number] = numbers.setdefault(stem, len(numbers))
            enough[number] = alone is not None and alone.match(name) is not None
    return of_name[trace.name[rows]], enough


def _expression(pattern: str) -> re.Pattern[str]:
    """An invalid regular expression is taken literally: `step[`."""
    try:
        return re.compile(pattern)
    except re.error:
        return re.compile(re.escape(pattern))


def _matching(trace: Trace, expression: re.Pattern[str]) -> Rows:
    """Annotations with a matching name on the thread that has most of them, except those inside
    another one."""
    rows = trace.rows_of(Role.ANNOTATION)
    found = np.zeros(len(trace.names), dtype=np.bool_)
    for number in np.unique(trace.name[rows]).tolist():
        found[number] = expression.search(trace.names[number]) is not None
    rows = rows[found[trace.name[rows]]]
    if not len(rows):
        return rows
    rows = main_thread(trace, rows)
    rows = rows[np.lexsort((-trace.dur[rows], trace.start[rows]))]
    latest = np.maximum.accumulate(trace.end[rows])
    outer: Rows = rows[np.concatenate(([True], trace.start[rows[1:]] >= latest[:-1]))]
    return outer


def _by_optimizer(trace: Trace) -> Spans:
    """From the end of one Optimizer.step to the end of the next; the first one from where the
    recording of that thread begins."""
    rows = _matching(trace, OPTIMIZER)
    if len(rows) < 2:
        return _of_rows(trace, rows[:0], "")
    own = trace.track_of(int(rows[0]))
    begins = [
        int(trace.start[track.first_row])
        for track in trace.tracks
        if (track.pid, track.tid) == (own.pid, own.tid) and len(track)
    ]
    end = trace.end[rows]
    start = np.concatenate(([min(begins)], end[:-1]))
    name = trace.name_of(int(rows[0]))
    return Spans(tuple(map(trace.name_of, rows.tolist())), start, end, f"{UP_TO}{name}")


def _of_rows(trace: Trace, rows: Rows, by: str) -> Spans:
    names = tuple(trace.name_of(row) for row in rows.tolist())
    return Spans(names, trace.start[rows], trace.end[rows], by if len(rows) else "")


def _work(trace: Trace) -> tuple[Int64s, Int64s]:
    """When each piece of work was requested, and how much time it took (ns)."""
    gpu = trace.gpu_rows
    if len(gpu):
        gpu = gpu[trace.launch[gpu] >= 0]
        return trace.start[trace.launch[gpu]], trace.dur[gpu]
    ops = trace.rows_of(Role.OP)
    ops = ops[trace.parent[ops] < 0]
    return trace.start[ops], trace.dur[ops]


def _share_inside(trace: Trace, group: Rows, times: Int64s, amount: Int64s) -> float:
    """The share of the amounts whose times lie in these slices; 0 if the slices overlap."""
    start, end = trace.start[group], trace.end[group]
    total = int(amount.sum())
    if not total or (start[1:] < end[:-1]).any():
        return 0.0
    at = np.searchsorted(start, times, side="right") - 1
    inside = (at >= 0) & (times < end[at])
    return float(amount[inside].sum()) / total
