"""What a change would be worth: each step before and after, and what limits the steps
then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.replay.apply import changed, is_range, scalable
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import (
    NothingLikeIt,
    OnDevice,
    Unsynced,
    WrongChange,
    parse_change,
)
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.items import WAITS_EVENT
from fusetui.analysis.replay.path import PathRow, residuals_of, rows_of
from fusetui.analysis.replay.replay import (
    OWN,
    Route,
    bounds_of,
    late_share,
    replay,
    replay_late,
    route_to,
    step_ends,
)
from fusetui.analysis.why.model import DOUBTFUL, DeviceResidual
from fusetui.trace.layout.steps import labels_of, steps_of
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union
from fusetui.trace.model.memo import once

# above this share that is not understood there is no answer; see DOUBTFUL
UNKNOWN = 0.20
MANY = 100  # launches
SAME = 2000  # times that differ by a smaller part than 1 / SAME of them are the same
LEAST_SCALED = 0.5
"""Of the critical path: another device has to scale so much of it, or the rest decides,
of which nothing is known there. docs/whatif.md has the recordings that this comes
from."""
# of the critical path: so much that begins late for no known reason is not told
LITTLE = 0.001

Note = Literal[
    "other_ranks_unchanged",  # they wait for this rank as long as they did
    "no_gpu",  # only what threads do is replayed
    # as no Python frames were recorded, but on threads of backward
    "python_is_all_but_ops",
    "some_bounds_unknown",  # kernels without one take as long as they did
    "unscaled",  # kernels without one on either device likewise
    "some_runs_keep_their_time",  # fusable runs of which only launches are saved
    "graph_launch_assumed",  # what launching a graph takes: the trace has none
    "loader_beside",  # what the thread does to take over a batch counts nothing
    # what needs the result of a collective is known by events alone
    "unrecorded_consumers",
    "host_unchanged",  # by another device
    "events_unknown",  # for which streams wait, unless that made a GPU event late
    # GPU events on the critical path that something not recorded made late
    "late_unexplained",
    "no_waits",  # were recorded: threads are taken not to wait for the device
    # when workers of a data loader have batches ready after the change
    "batches_unknown",
    "loader_never_waits",  # no call for a batch that workers load waits for it
    "same_work_later",  # steps are longer only because the one before them ends earlier
]


class StepEffect(msgspec.Struct, frozen=True):
    """From the end of the step before to the end of this one. `after_ns`: None if there
    is none."""

    name: str
    before_ns: int
    after_ns: int | None
    in_median: bool = True  # see told_steps


class WhatIf(msgspec.Struct, frozen=True):
    """The answer. `before_ns` and `after_ns` are medians of some steps, see told_steps;
    without steps, of all: see `of`."""

    changes: tuple[str, ...]
    of: Literal["step", "span"]
    devices: tuple[DeviceResidual, ...]
    steps: tuple[StepEffect, ...]
    before_ns: int
    after_ns: int | None  # None: too little is understood, or there is only a range
    saved_ns: int | None  # before_ns less after_ns
    before_range_ns: tuple[int, int]  # the least and the most over steps
    after_range_ns: tuple[int, int] | None
    between_ns: tuple[int, int] | None  # of a change that gives no number
    residual_share: float  # the largest of all devices and of the path after the change
    inferred_waits: int
    certainty: Literal["bound", "estimate"]
    limit: tuple[PathRow, ...]  # the critical path after the change
    notes: tuple[str, ...]  # see Note
    latest_ns: int | None = None
    """As `after_ns`, if workers of a data loader have each batch ready as late as the
    recording allows; None where that is the same."""
    scaled_share: float | None = None
    """How much of the critical path, as recorded or after the change, are kernels that
    another device scales, whichever is more; None of other changes."""

    @property
    def abstains(self) -> bool:
        """Whether too little of the recording is understood, or scaled, for an
        answer."""
        return self.residual_share > UNKNOWN or self.scales_little

    @property
    def scales_little(self) -> bool:
        """Whether another device scales too little of the time for an answer."""
        return self.scaled_share is not None and self.scaled_share < LEAST_SCALED

    @property
    def is_doubtful(self) -> bool:
        """Whether the answer begins with what is not understood."""
        return self.residual_share > DOUBTFUL


def whatif(trace: Trace, changes: Sequence[str], step: int | None = None) -> WhatIf:
    """What some changes together are worth; of one step only if it is given, by its
    number. Raises WrongChange."""
    asked = [parse_change(text) for text in changes]
    graph, steps = once(trace, graph_of), steps_of(trace)
    place = None if step is None else steps.place(step)
    if place is not None and place < 0:
        raise NothingLikeIt(f"There is no step {step}, but {steps.known}.")
    made, notes = changed(trace, graph, asked)
    times, ends = replay(made), step_ends(trace, graph)
    bounds = bounds_of(graph, graph.recorded, ends), bounds_of(made, times, ends)
    before, after = map(np.diff, bounds)
    batches_late = np.diff(bounds_of(made, replay_late(made, times), ends))
    tells = told_steps(trace)
    places = tells if place is None else np.array([place])
    latest = median(batches_late[places])
    between, scaled_share = None, None
    if is_range(asked):
        other = changed(trace, graph, asked, latest=True)[0]
        other_times = replay(other)
        most = median(lengths_of(trace, other, other_times)[places])
        batches_late = lengths_of(trace, other, replay_late(other, other_times))
        found = median(after[places]), most, latest, median(batches_late[places])
        nodes = [
            scalable(trace, graph, o.name).nodes
            for o in asked
            if isinstance(o, OnDevice)
        ]
        scaled_share = max(
            share_of(np.concatenate(nodes), route_to(*replayed))
            for replayed in (
                (graph, graph.recorded),
                (made, times),
                (other, other_times),
            )
        )
        if scaled_share >= LEAST_SCALED:
            between = min(found), max(found)
    devices = residuals_of(trace)
    was, route = route_to(graph, graph.recorded), route_to(made, times)
    share = max([one.residual_share for one in devices] + [route.unknown_share])
    told = not is_range(asked) and share <= UNKNOWN
    is_bound = all(isinstance(one, Unsynced) for one in asked)
    is_bound = is_bound and is_certain(trace, was.unknown_share, route.unknown_share)
    never_waits = "loader_never_waits" in notes
    is_open = not never_waits and differs(median(after[places]), latest)
    late = ["late_unexplained"] * (
        max(late_share(graph, was), late_share(made, route)) > LITTLE
    )
    names = labels_of(steps.names)
    counted = np.isin(np.arange(len(before)), tells).tolist()
    each = (
        zip(names, before.tolist(), after.tolist(), counted, strict=True)
        if len(steps)
        else ()
    )
    every = [
        StepEffect(name, old, new if told else None, own)
        for name, old, new, own in each
    ]
    longer = median(after[places]) > median(before[places])
    if longer and bounds[1][places[-1] + 1] <= bounds[0][places[-1] + 1]:
        late.append("same_work_later")
    if is_open:
        late.append("batches_unknown")
    before, after = before[places], after[places]
    return WhatIf(
        changes=tuple(changes),
        of="step" if len(steps) else "span",
        devices=devices,
        steps=tuple(every if place is None else every[place : place + 1]),
        before_ns=median(before),
        after_ns=median(after) if told else None,
        saved_ns=median(before) - median(after) if told else None,
        before_range_ns=(int(before.min()), int(before.max())),
        after_range_ns=(int(after.min()), int(after.max())) if told else None,
        between_ns=between if share <= UNKNOWN else None,
        residual_share=share,
        inferred_waits=graph.inferred_waits,
        certainty="bound" if is_bound or never_waits or is_open else "estimate",
        limit=_limit(trace, made, times, places),
        notes=tuple(dict.fromkeys((*_notes(trace), *late, *notes))),
        latest_ns=latest if told and is_open else None,
        scaled_share=scaled_share,
    )


def lengths_of(
    trace: Trace, graph: Graph, times: Times, by: str | None = None
) -> Int64s:
    """From the end of each step to the end of the next one; without steps, the length
    of all."""
    return np.diff(bounds_of(graph, times, step_ends(trace, graph, by)))


def share_of(nodes: Rows, route: Route) -> float:
    """How much of a critical path is what these nodes do."""
    own = (route.part == OWN) & np.isin(route.node, nodes)
    return float(route.ns[own].sum() / max(int(route.ns.sum()), 1))


def differs(ns: int, other_ns: int) -> bool:
    """Whether a time is so much more or less than another one that an answer says
    so."""
    return abs(ns - other_ns) * SAME > max(ns, other_ns)


def told_steps(trace: Trace, by: str | None = None) -> Rows:
    """The places of the steps whose median is told: those in which a device ran (all if
    none did), without the first, before which none ended, unless it is the only one; 0
    without steps."""
    steps, gpu = steps_of(trace, by), trace.gpu_rows
    ran = union(trace.start[gpu], trace.end[gpu]).within(steps.start, steps.end) > 0
    places = np.flatnonzero(ran if ran.any() else ~ran)
    return places[places > 0] if (places > 0).any() else np.zeros(1, dtype=np.intp)


def median(lengths: Int64s) -> int:
    """The shorter one of the middle two."""
    return int(np.sort(lengths)[(len(lengths) - 1) // 2])


def _limit(
    trace: Trace, graph: Graph, times: Times, places: Rows
) -> tuple[PathRow, ...]:
    """The critical path from the first to the last of some steps, or of all without
    steps. Of one among several it may begin with what the step before left to do."""
    if not len(steps_of(trace)):
        return rows_of(trace, graph, route_to(graph, times))
    bounds = bounds_of(graph, times, step_ends(trace, graph))
    ends = np.where(graph.gone | (times.end > bounds[places[-1] + 1]), -1, times.end)
    route = route_to(graph, times, int(np.argmax(ends)))
    return rows_of(trace, graph, route.since(int(bounds[places[0]])))


def leaves_waits_out(trace: Trace) -> bool:
    """Whether of the calls of a program that launches much only those were kept that
    launch: the profiler itself makes others, and waits for the device, when it
    stops."""
    launching = distinct(trace.launch[trace.gpu_rows])
    kinds = trace.name[launching[launching >= 0]]
    return len(kinds) > MANY and bool(
        np.isin(trace.name[trace.rows_of(Role.CALL)], kinds).all()
    )


def is_certain(trace: Trace, *unknown: float) -> bool:
    """Whether nothing on the way from a recording to a replay was inferred or is not
    understood, so that a change that cannot save more than it does there is a bound.
    `unknown`: the shares of their critical paths that are not."""
    waits = leaves_waits_out(trace) or events_unknown(trace)
    return not (waits or once(trace, graph_of).inferred_waits or any(unknown))


def events_unknown(trace: Trace) -> bool:
    """Whether one of several streams was told to wait for what no event of the device
    names."""
    streams = distinct(trace.thread_of_track[trace.track[trace.gpu_rows]])
    calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    known = trace.correlation[trace.rows_of(Role.SYNC)]
    return len(streams) > 1 and not np.isin(trace.correlation[calls], known).all()


def _notes(trace: Trace) -> list[Note]:
    every: dict[Note, bool] = {
        "no_waits": leaves_waits_out(trace),
        "events_unknown": events_unknown(trace),
        "no_gpu": not len(trace.gpu_rows),
        "other_ranks_unchanged": bool(communicates(trace, trace.gpu_rows).any()),
    }
    return [note for note, holds in every.items() if holds]


RANGE = re.compile(
    r"(?P<head>.*\S)\s+x(?P<low>\d*\.?\d+)\.\.(?P<high>\d*\.?\d+)", re.DOTALL
)
POINTS = 10
NEARLY = 0.01  # of all that the change gains: less is no help


class SweepPoint(msgspec.Struct, frozen=True):
    """The change at one factor."""

    factor: float
    after_ns: int


class Sweep(msgspec.Struct, frozen=True):
    """`before_ns` and `after_ns` are of the median step, or of all: see `of`. No points
    where too little is understood. `knee`: the factor below which nearly nothing is
    gained, None if all of them gain."""

    change: str
    of: Literal["step", "span"]
    devices: tuple[DeviceResidual, ...]
    before_ns: int
    residual_share: float
    points: tuple[SweepPoint, ...]  # from the smallest factor on
    knee: float | None


def sweep(trace: Trace, text: str, step: int | None = None) -> Sweep:
    """`kernel:attn x0.1..1` at ten factors. Raises WrongChange."""
    found = RANGE.fullmatch(text.strip())
    low, high = (float(found[key]) for key in ("low", "high")) if found else (0.0, 0.0)
    if found is None or not low < high:
        raise WrongChange(f"{text} is no sweep: kernel:PATTERN x0.1..1 is one.")
    points = []
    for number in range(POINTS):
        factor = round(low + (high - low) * number / (POINTS - 1), 6)
        one = whatif(trace, [f"{found['head']} x{factor:.6g}"], step)
        if one.after_ns is None:
            break
        points.append(SweepPoint(factor, one.after_ns))
    return Sweep(
        change=found["head"],
        of=one.of,
        devices=one.devices,
        before_ns=one.before_ns,
        residual_share=one.residual_share,
        points=tuple(points),
        knee=knee_of(points),
    )


def knee_of(points: Sequence[SweepPoint]) -> float | None:
    """The largest factor that gains nearly all; None if that is the smallest, or none
    gains."""
    times = [point.after_ns for point in points]
    if not times or max(times) == min(times):
        return None
    enough = min(times) + NEARLY * (max(times) - min(times))
    last = max(n for n, ns in enumerate(times) if ns <= enough)
    return points[last].factor if last else None
