"""Estimates the gain of a change by replaying the trace with it.

The answer has each step before and after the change, and what limits the steps then:
the critical path of the replay (see route.py). docs/whatif.md explains the accuracy.

A delay of the recording is *not understood* if nothing recorded explains it. Such
delays stay as they are in a replay, though a real program might lose them. So an answer
depends on the share of the critical path that they take.

When workers of a data loader have a batch ready after a change has only bounds. So a
replay has an early and a late result, see replay.BatchReadiness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.replay.apply import apply_changes, find_scalable_kernels, is_range
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import (
    Change,
    NoMatchError,
    OnDevice,
    Unsynced,
    WrongChangeError,
    parse_change,
)
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.items import MAKES_STREAM_WAIT
from fusetui.analysis.replay.path import PathRow, measure_residuals, sum_up_path
from fusetui.analysis.replay.replay import replay, replay_late
from fusetui.analysis.replay.route import (
    CriticalPath,
    StretchKind,
    find_critical_path,
    measure_late_share,
)
from fusetui.analysis.replay.times import StepEnds, find_step_ends, measure_step_bounds
from fusetui.analysis.why.model import MIN_DOUBTFUL_SHARE, DeviceResidual
from fusetui.trace.layout.steps import labels_of, step_launched, steps_of
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union
from fusetui.trace.model.quantiles import lower_median

UNKNOWN = 0.20
"""If a larger share of the critical path than this is not understood, there is no
answer. From the smaller share MIN_DOUBTFUL_SHARE on, the answer says so first."""
MANY_LAUNCHES = 100
"""A full recording of more launches than this has other calls as well."""
SAME = 2000
"""Two times count as the same if they differ by less than one part in SAME."""
MIN_SCALED_SHARE = 0.5
"""Another device has to scale at least this share of the critical path. Otherwise the
rest decides, of which nothing is known there. docs/whatif.md has the recordings that
this comes from."""
MAX_LATE_SHARE = 0.001
"""If a larger share of the critical path than this begins late for no known reason, the
answer has a note."""
NO_TIME = -1
"""Smaller than every time of a replay."""

Note = Literal[
    # Other ranks are assumed to arrive at collectives when they did.
    "other_ranks_unchanged",
    # The time of communication that a change scales includes waiting for other ranks.
    "waits_scaled",
    # There is no GPU work, so only what threads do is replayed.
    "no_gpu",
    # No Python frames were recorded, so all time outside of ops and calls counts as
    # Python, except on threads that run backward.
    "python_is_all_but_ops",
    # Kernels whose least time is not known take as long as they did.
    "some_bounds_unknown",
    # Likewise kernels whose least time is not known on both devices.
    "unscaled",
    # Of some fusable runs only launches are saved, because what the fused kernel takes
    # is not known.
    "some_runs_keep_their_time",
    # The trace launches no graph, so what that takes is assumed.
    "graph_launch_assumed",
    # What a thread does to take over a batch from a worker is assumed to take no time.
    "loader_beside",
    # Only events say which work needs the result of a collective.
    "unrecorded_consumers",
    # Another device is assumed to leave the time of the CPU as it is.
    "host_unchanged",
    # For which events streams wait was not recorded, and is inferred only for GPU work
    # that they made late.
    "events_unknown",
    # Something that was not recorded made GPU work on the critical path late.
    "late_unexplained",
    # No waits were recorded, so threads are taken not to wait for the device.
    "no_waits",
    # When workers of a data loader have batches ready after the change has only bounds.
    "batches_unknown",
    # Calls for batches that workers load are assumed not to wait.
    "loader_never_waits",
    # Steps are longer only because the step before them ends earlier.
    "same_work_later",
]
"""What an answer has to say besides its figures. report.whatif has the sentences."""


class StepEffect(msgspec.Struct, frozen=True):
    """How long one step takes before and after a change.

    A step is counted from the end of the step before it to its own end.
    """

    name: str
    before_ns: int
    after_ns: int | None  # None if too little of the recording is understood
    in_median: bool = True  # whether it counts in medians (select_steps_of_median)


class WhatIf(msgspec.Struct, frozen=True):
    """What some changes are worth.

    Figures without a step are those of the median step, or in a trace without steps
    those of its whole span: `of` says which.
    """

    changes: tuple[str, ...]  # as a user wrote them
    of: Literal["step", "span"]
    devices: tuple[DeviceResidual, ...]
    steps: tuple[StepEffect, ...]
    before_ns: int
    after_ns: int | None  # None: too little is understood, or there is only a range
    saved_ns: int | None  # before_ns - after_ns
    before_range_ns: tuple[int, int]  # the shortest and the longest step
    after_range_ns: tuple[int, int] | None
    # The least and the most that a step takes, for changes that give only a range.
    between_ns: tuple[int, int] | None
    # The largest share that is not understood: of the critical path of a device as
    # recorded, or of the critical path after the change.
    residual_share: float
    inferred_waits: int  # how many waits were not recorded but inferred
    certainty: Literal["bound", "estimate"]  # "bound": no program can save more
    limit: tuple[PathRow, ...]  # the critical path after the change
    notes: tuple[str, ...]  # see Note
    latest_ns: int | None = None
    """As `after_ns`, if workers of a data loader have each batch ready as late as the
    recording allows; None where that is the same."""
    scaled_share: float | None = None
    """The share of the critical path that is kernels which another device scales, as
    recorded or after the change, whichever is more; None if no change names a
    device."""

    @property
    def abstains(self) -> bool:
        """Whether too little is understood, or scaled, for an answer with figures."""
        return self.residual_share > UNKNOWN or self.scales_little

    @property
    def scales_little(self) -> bool:
        """Whether another device scales too little of the time for an answer."""
        return self.scaled_share is not None and self.scaled_share < MIN_SCALED_SHARE

    @property
    def is_doubtful(self) -> bool:
        """Whether the answer begins with what is not understood."""
        return self.residual_share > MIN_DOUBTFUL_SHARE


def whatif(trace: Trace, changes: Sequence[str], step: int | None = None) -> WhatIf:
    """Estimate what some changes together are worth.

    Args:
        trace: The trace.
        changes: The changes, as a user writes them.
        step: The number of the only step to answer for; by default all steps.

    Raises:
        WrongChangeError: For a text that is no change, or changes nothing.
    """
    parsed = [parse_change(text) for text in changes]
    counted_steps = _choose_counted_steps(trace, step)

    # Replay the changes, and compare with the recording.
    graph = build_graph(trace)
    replayed = _replay_changes(trace, graph, parsed)
    lengths = _measure_step_lengths(graph, replayed, counted_steps)
    paths = _CriticalPaths(
        recorded=find_critical_path(graph, graph.recorded),
        replayed=find_critical_path(replayed.graph, replayed.times),
    )
    range_of_change = _estimate_range(trace, graph, parsed, replayed, counted_steps)
    effects = _list_effects(trace, lengths)

    answer = WhatIf(
        changes=tuple(changes),
        of="step" if len(steps_of(trace)) else "span",
        devices=measure_residuals(trace),
        steps=effects if step is None else (effects[counted_steps[0]],),
        before_ns=lengths.before_ns,
        after_ns=lengths.after_ns,
        saved_ns=lengths.before_ns - lengths.after_ns,
        before_range_ns=_find_shortest_and_longest(lengths.before[counted_steps]),
        after_range_ns=_find_shortest_and_longest(lengths.after[counted_steps]),
        between_ns=range_of_change.between_ns,
        residual_share=_find_largest_residual_share(trace, paths),
        inferred_waits=graph.inferred_waits,
        certainty="bound" if _is_upper_bound(trace, parsed, paths) else "estimate",
        limit=_sum_up_limit(trace, replayed, counted_steps),
        notes=_collect_notes(trace, graph, replayed, paths, lengths),
        scaled_share=range_of_change.scaled_share,
    )
    answer = _mark_as_bound(answer, replayed, lengths)
    return _remove_unsupported(answer, is_range=is_range(parsed))


def _find_largest_residual_share(trace: Trace, paths: _CriticalPaths) -> float:
    """Find the largest share of a critical path that is not understood.

    These are the paths of each device as recorded, and the path after the change.

    Args:
        trace: The trace.
        paths: The critical paths before and after the change.
    """
    shares = [device.residual_share for device in measure_residuals(trace)]
    return max([*shares, paths.replayed.unknown_share])


def _mark_as_bound(answer: WhatIf, replayed: _Replayed, lengths: _Lengths) -> WhatIf:
    """Turn an answer into a bound if it depends on when batches are ready.

    In the replay of the answer, batches are ready as early as the recording allows. It
    is a bound as well if the change assumes that no call for a batch waits at all.

    Args:
        answer: The answer.
        replayed: The replay with the change.
        lengths: How long steps take before and after the change.
    """
    if "loader_never_waits" in replayed.notes:
        return replace(answer, certainty="bound")
    if differ_notably(lengths.after_ns, lengths.latest_ns):
        return replace(answer, certainty="bound", latest_ns=lengths.latest_ns)
    return answer


def _remove_unsupported(answer: WhatIf, *, is_range: bool) -> WhatIf:
    """Remove the figures that the recording does not support.

    If the reason of more than UNKNOWN (20 %) of a critical path is not known, there are
    no figures after the change. If the changes give only a range, there is the range
    alone.

    Args:
        answer: The answer with all figures.
        is_range: Whether the changes give only a range.
    """
    is_understood = answer.residual_share <= UNKNOWN
    if is_understood and not is_range:
        return answer

    steps = tuple(replace(effect, after_ns=None) for effect in answer.steps)
    return replace(
        answer,
        steps=steps,
        after_ns=None,
        saved_ns=None,
        after_range_ns=None,
        latest_ns=None,
        between_ns=answer.between_ns if is_understood else None,
    )


class _Lengths(NamedTuple):
    """How long steps take before and after a change, in ns."""

    before: Int64s  # per step
    after: Int64s  # per step
    before_ns: int  # the median of the steps that count
    after_ns: int  # likewise
    latest_ns: int  # as after_ns, if batches come as late as the recording allows
    # Whether the last step that counts ends no later than recorded.
    ends_no_later: bool


def _measure_step_lengths(
    graph: Graph, replayed: _Replayed, counted_steps: Rows
) -> _Lengths:
    """Compute how long steps take before and after a change.

    Args:
        graph: The graph without the change.
        replayed: The replay with the change.
        counted_steps: The indices of the steps that count in medians.
    """
    recorded_bounds = measure_step_bounds(graph, graph.recorded, replayed.ends)
    before = step_launched(recorded_bounds)
    after = step_launched(replayed.bounds)
    latest = step_launched(replayed.late_bounds)

    # Step n ends at bound n + 1.
    last_bound = counted_steps[-1] + 1
    return _Lengths(
        before=before,
        after=after,
        before_ns=lower_median(before[counted_steps]),
        after_ns=lower_median(after[counted_steps]),
        latest_ns=lower_median(latest[counted_steps]),
        ends_no_later=bool(replayed.bounds[last_bound] <= recorded_bounds[last_bound]),
    )


class _CriticalPaths(NamedTuple):
    """The critical paths before and after a change."""

    recorded: CriticalPath
    replayed: CriticalPath


class _RangeOfChange(NamedTuple):
    """What changes give that have no single result; the fields are those of WhatIf.

    Both are None for changes that give a number.
    """

    between_ns: tuple[int, int] | None
    scaled_share: float | None


_NO_RANGE = _RangeOfChange(between_ns=None, scaled_share=None)


def _estimate_range(
    trace: Trace,
    graph: Graph,
    changes: Sequence[Change],
    earlier: _Replayed,
    counted_steps: Rows,
) -> _RangeOfChange:
    """Estimate what changes are worth that give a range instead of a number.

    There is no range for other changes, nor if less than MIN_SCALED_SHARE (half) of the
    critical path is scaled.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changes: The changes.
        earlier: The replay by the earlier end of the range.
        counted_steps: The indices of the steps that count in medians.
    """
    if not is_range(changes):
        return _NO_RANGE
    later = _replay_changes(trace, graph, changes, latest=True)
    scaled_share = _measure_scaled_share(trace, graph, changes, earlier, later)
    between_ns = None
    if scaled_share >= MIN_SCALED_SHARE:
        between_ns = _find_range(earlier, later, counted_steps)
    return _RangeOfChange(between_ns=between_ns, scaled_share=scaled_share)


def _is_upper_bound(
    trace: Trace, changes: Sequence[Change], paths: _CriticalPaths
) -> bool:
    """Return whether no program with these changes can save more than the replay.

    That holds if the changes only remove waits, and all of the trace is understood: a
    program without these waits has at least all the other work of the replay.

    Args:
        trace: The trace.
        changes: The changes.
        paths: The critical paths before and after them.
    """
    only_removes_waits = all(isinstance(change, Unsynced) for change in changes)
    if not only_removes_waits:
        return False
    return is_certain(trace, paths.recorded.unknown_share, paths.replayed.unknown_share)


def _collect_notes(
    trace: Trace,
    graph: Graph,
    replayed: _Replayed,
    paths: _CriticalPaths,
    lengths: _Lengths,
) -> tuple[str, ...]:
    """Collect the notes that an answer needs: what it assumes and what is doubtful,
    each once.

    First come those about the trace and this answer, then those of the changes.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        replayed: The replay with the changes.
        paths: The critical paths before and after the changes.
        lengths: How long steps take before and after the changes.
    """
    largest_late_share = max(
        measure_late_share(graph, paths.recorded),
        measure_late_share(replayed.graph, paths.replayed),
    )
    takes_longer = lengths.after_ns > lengths.before_ns
    never_waits = "loader_never_waits" in replayed.notes
    depends_on_batches = differ_notably(lengths.after_ns, lengths.latest_ns)
    is_needed: dict[Note, bool] = {
        **_check_notes_about_trace(trace),
        "late_unexplained": largest_late_share > MAX_LATE_SHARE,
        "same_work_later": takes_longer and lengths.ends_no_later,
        "batches_unknown": depends_on_batches and not never_waits,
    }
    # That note is about other ranks, too.
    if "waits_scaled" in replayed.notes:
        is_needed["other_ranks_unchanged"] = False
    notes = [note for note in is_needed if is_needed[note]]
    return tuple(dict.fromkeys([*notes, *replayed.notes]))


def _find_range(
    earlier: _Replayed, later: _Replayed, counted_steps: Rows
) -> tuple[int, int]:
    """Find the least and the most that the median step takes after a change.

    Four replays limit it: both ends of what the change may give, each with the batches
    of data loaders ready as early, and as late, as the recording allows.

    Args:
        earlier: The replay by the earlier end of the range.
        later: The replay by the later end.
        counted_steps: The indices of the steps that count in the median.

    Returns:
        The least and the most of the four medians, in ns.
    """
    medians_ns = []
    for replayed in (earlier, later):
        for bounds in (replayed.bounds, replayed.late_bounds):
            lengths = step_launched(bounds)
            medians_ns.append(lower_median(lengths[counted_steps]))
    return min(medians_ns), max(medians_ns)


class _Replayed(NamedTuple):
    """The replay of a graph with changes."""

    graph: Graph  # the changed one
    times: Times
    ends: StepEnds
    bounds: Int64s  # when steps begin and end, see `measure_step_bounds`
    late_bounds: Int64s  # the same if batches come as late as the recording allows
    notes: tuple[str, ...]  # those of the changes, see Note


def _replay_changes(
    trace: Trace, graph: Graph, changes: Sequence[Change], *, latest: bool = False
) -> _Replayed:
    """Replay the graph of a trace with some changes, and find when its steps then end.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changes: The changes.
        latest: Whether changes that give a range take its later end.

    Raises:
        WrongChangeError: For a change that changes nothing.
    """
    changed_graph, notes = apply_changes(trace, graph, changes, latest=latest)
    times = replay(changed_graph)
    late_times = replay_late(changed_graph, times)
    ends = find_step_ends(trace, graph)
    return _Replayed(
        graph=changed_graph,
        times=times,
        ends=ends,
        bounds=measure_step_bounds(changed_graph, times, ends),
        late_bounds=measure_step_bounds(changed_graph, late_times, ends),
        notes=notes,
    )


def _choose_counted_steps(trace: Trace, step: int | None) -> Rows:
    """Choose the indices of the steps that an answer is about.

    Args:
        trace: The trace.
        step: The number of the only one; None for all that count in medians.

    Raises:
        NoMatchError: If there is no step of that number.
    """
    if step is None:
        return select_steps_of_median(trace)
    return np.array([_find_step(trace, step)])


def _find_step(trace: Trace, step: int) -> int:
    """Return the index of the step with a number.

    Args:
        trace: The trace.
        step: The number that a user gave.

    Raises:
        NoMatchError: If there is no such step.
    """
    steps = steps_of(trace)
    index = steps.place(step)
    has_step = index >= 0
    if not has_step:
        raise NoMatchError(f"There is no step {step}: this trace has {steps.known}.")
    return index


def _measure_scaled_share(
    trace: Trace, graph: Graph, changes: Sequence[Change], *replayed: _Replayed
) -> float:
    """Measure the share of the critical path that is kernels whose time on another
    device is known.

    It is that of the path as recorded or of the path after one of the replays,
    whichever is more.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changes: The changes, of which at least one names a device.
        replayed: Replays with these changes.
    """
    nodes_of_changes = []
    for change in changes:
        if isinstance(change, OnDevice):
            kernels = find_scalable_kernels(trace, graph, change.name)
            nodes_of_changes.append(kernels.nodes)
    nodes = np.concatenate(nodes_of_changes)

    paths = [find_critical_path(graph, graph.recorded)]
    for each in replayed:
        paths.append(find_critical_path(each.graph, each.times))
    return max(measure_work_share(nodes, path) for path in paths)


def _list_effects(trace: Trace, lengths: _Lengths) -> tuple[StepEffect, ...]:
    """List each step with its length before and after; empty without steps.

    Args:
        trace: The trace.
        lengths: How long its steps take.
    """
    steps = steps_of(trace)
    if not len(steps):
        return ()
    counted_steps = set(select_steps_of_median(trace).tolist())
    effects = []
    for index, name in enumerate(labels_of(steps.names)):
        effect = StepEffect(
            name=name,
            before_ns=int(lengths.before[index]),
            after_ns=int(lengths.after[index]),
            in_median=index in counted_steps,
        )
        effects.append(effect)
    return tuple(effects)


def _find_shortest_and_longest(lengths: Int64s) -> tuple[int, int]:
    """Return the least and the largest of some lengths, of which there is at least
    one."""
    return int(lengths.min()), int(lengths.max())


def measure_work_share(nodes: Rows, critical_path: CriticalPath) -> float:
    """Measure the share of a critical path that is the own work of some nodes.

    Args:
        nodes: The nodes.
        critical_path: The path, as stretches that belong to nodes.

    Returns:
        A share from 0 to 1.
    """
    is_work = critical_path.stretch_kind == StretchKind.WORK
    is_of_nodes = np.isin(critical_path.node, nodes)
    return critical_path.share_of(is_work & is_of_nodes)


def differ_notably(ns: int, other_ns: int) -> bool:
    """Return whether two times differ by so much that an answer has to mention it.

    That is more than the fraction 1 / SAME of the longer one.
    """
    return abs(ns - other_ns) * SAME > max(ns, other_ns)


def select_steps_of_median(trace: Trace, by: str | None = None) -> Rows:
    """Select the indices of the steps that count in medians.

    These are the steps in which a device ran, or all if none did. The first step does
    not follow the end of another one, so it counts only if it is the only one.

    Args:
        trace: The trace.
        by: What counts as a step; see `steps_of`.

    Returns:
        The indices. Without steps it is the index 0, that of the whole span.
    """
    steps = steps_of(trace, by)
    gpu_rows = trace.gpu_rows
    gpu_work = union(trace.start[gpu_rows], trace.end[gpu_rows])
    device_ran = gpu_work.within(steps.start, steps.end) > 0
    if not device_ran.any():
        device_ran[:] = True

    indices = np.flatnonzero(device_ran)
    later_steps = indices[indices > 0]
    if len(later_steps):
        return later_steps
    only_the_first = np.zeros(1, dtype=np.intp)
    return only_the_first


def _sum_up_limit(
    trace: Trace, replayed: _Replayed, counted_steps: Rows
) -> tuple[PathRow, ...]:
    """Sum up what limits the steps after a change: the critical path through them.

    It reaches from the begin of the first to the end of the last step that counts. (The
    path of one step alone may begin with what the step before left to do.) Without
    steps it is the path of the whole replay.

    Args:
        trace: The trace.
        replayed: The replay with the change.
        counted_steps: The indices of the steps that count.
    """
    graph = replayed.graph
    times = replayed.times
    if not len(steps_of(trace)):
        return sum_up_path(trace, graph, find_critical_path(graph, times))

    # Step n lasts from bound n to bound n + 1.
    first_step = counted_steps[0]
    last_step = counted_steps[-1]
    begin = int(replayed.bounds[first_step])
    end = replayed.bounds[last_step + 1]

    ends_in_steps = ~graph.is_removed & (times.end <= end)
    last_node = int(np.argmax(np.where(ends_in_steps, times.end, NO_TIME)))
    critical_path = find_critical_path(graph, times, last_node)
    return sum_up_path(trace, graph, critical_path.cut_before(begin))


def leaves_waits_out(trace: Trace) -> bool:
    """Return whether a trace has no calls but those that launch work, and so no waits.

    Some recorders keep no other calls. In a full recording of a program that launches
    much there are others: the profiler itself waits for the device when it stops.
    """
    launch_of_event = trace.launch[trace.gpu_rows]
    launches = distinct(launch_of_event[launch_of_event != NO_ROW])
    if len(launches) <= MANY_LAUNCHES:
        return False
    names_of_calls = trace.name[trace.rows_of(Role.CALL)]
    is_name_of_launch = np.isin(names_of_calls, trace.name[launches])
    return bool(is_name_of_launch.all())


def is_certain(trace: Trace, *unknown_shares: float) -> bool:
    """Return whether the replay of a recording is certain to be exact.

    That is, nothing was inferred and all is understood. A change that cannot save more
    than in the replay is then a bound.

    Args:
        trace: The trace.
        unknown_shares: The shares of critical paths that are not understood.
    """
    if leaves_waits_out(trace) or lacks_awaited_events(trace):
        return False
    was_inferred = build_graph(trace).inferred_waits > 0
    return not was_inferred and not any(unknown_shares)


def lacks_awaited_events(trace: Trace) -> bool:
    """Return whether a stream was told to wait for an event that was not recorded.

    A single stream runs its work in order anyway, so events matter only if there are
    several.
    """
    tracks = trace.track[trace.gpu_rows]
    streams = distinct(trace.thread_of_track[tracks])
    if len(streams) <= 1:
        return False

    # What such a call made a stream wait for is recorded with the call's correlation.
    calls = trace.rows_named(MAKES_STREAM_WAIT.search, Role.CALL)
    synchronizations = trace.rows_of(Role.SYNC)
    is_recorded = np.isin(trace.correlation[calls], trace.correlation[synchronizations])
    return not is_recorded.all()


def _check_notes_about_trace(trace: Trace) -> dict[Note, bool]:
    """Check which notes about the trace alone an answer needs, whatever the change is.

    Returns a flag by the name of each note, such as "no_gpu" for a trace without GPU
    events.
    """
    return {
        "no_waits": leaves_waits_out(trace),
        "events_unknown": lacks_awaited_events(trace),
        "no_gpu": not len(trace.gpu_rows),
        "other_ranks_unchanged": bool(communicates(trace, trace.gpu_rows).any()),
    }


RANGE = re.compile(
    r"(?P<change>.*\S)\s+x(?P<low>\d*\.?\d+)\.\.(?P<high>\d*\.?\d+)", re.DOTALL
)
"""A change at several factors, such as `kernel:attn x0.1..1`."""
SWEEP_POINTS = 10
NEARLY_ALL = 0.01
"""A factor gains nearly all if it lacks at most this share of what the best one
gains."""


class SweepPoint(msgspec.Struct, frozen=True):
    """How long a step takes with a change at one factor."""

    factor: float
    after_ns: int


class Sweep(msgspec.Struct, frozen=True):
    """The effect of a change at several factors.

    Times are those of the median step, or in a trace without steps of its whole span:
    `of` says which.
    """

    change: str  # without a factor, such as "kernel:attn"
    of: Literal["step", "span"]
    devices: tuple[DeviceResidual, ...]
    before_ns: int
    residual_share: float  # see WhatIf
    # From the smallest factor on; incomplete if too little is understood at one of them.
    points: tuple[SweepPoint, ...]
    # The factor below which there is almost no further gain; None if the gain continues.
    knee: float | None


def sweep(trace: Trace, text: str, step: int | None = None) -> Sweep:
    """Estimate what a change is worth at ten factors, as in `kernel:attn x0.1..1`.

    Args:
        trace: The trace.
        text: The change with a range of factors.
        step: The number of the only step to answer for; by default all steps.

    Raises:
        WrongChangeError: For a text that is no such change, or changes nothing.
    """
    match = RANGE.fullmatch(text.strip())
    if match is None or not float(match["low"]) < float(match["high"]):
        raise WrongChangeError(
            f"{text} is not a sweep: use, for example, kernel:PATTERN x0.1..1."
        )
    change = match["change"]
    low = float(match["low"])
    high = float(match["high"])

    # Factors at equal distances, from `low` to `high`, both included.
    points: list[SweepPoint] = []
    for nth in range(SWEEP_POINTS):
        factor = round(low + (high - low) * nth / (SWEEP_POINTS - 1), 6)
        answer = whatif(trace, [f"{change} x{factor:.6g}"], step)
        if answer.after_ns is None:
            break
        points.append(SweepPoint(factor, answer.after_ns))
    return Sweep(
        change=change,
        of=answer.of,
        devices=answer.devices,
        before_ns=answer.before_ns,
        residual_share=answer.residual_share,
        points=tuple(points),
        knee=find_knee(points),
    )


def find_knee(points: Sequence[SweepPoint]) -> float | None:
    """Find the largest factor that gains nearly all that the change can gain.

    E.g. if a step takes 50, 50, 70 and 100 us at the factors 0.1, 0.4, 0.7 and 1, the
    knee is 0.4: making it even faster does not help.

    Args:
        points: The length of a step at each factor, from the smallest factor on.

    Returns:
        The factor. None if it is the smallest one, because the gain may continue below
        it, and None if the step takes equally long at all factors.
    """
    times_ns = [point.after_ns for point in points]
    if not times_ns:
        return None
    shortest_ns = min(times_ns)
    largest_gain_ns = max(times_ns) - shortest_ns
    if not largest_gain_ns:
        return None

    # The last factor with which a step is not notably longer than the shortest one.
    limit_ns = shortest_ns + NEARLY_ALL * largest_gain_ns
    knee = points[0].factor
    for point in points:
        if point.after_ns <= limit_ns:
            knee = point.factor
    return None if knee == points[0].factor else knee
