"""Compares two traces: how much longer a step takes, with which certainty, and why.

The change of the step is the sum of the changes of its rows, of idle time, and of a few
smaller terms. The sum closes exactly (`Accounting`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import AlignedLanes, align
from fusetui.analysis.diff.dispatch import dispatch_ns_by_step
from fusetui.analysis.diff.evidence import Evidence, make_comparable
from fusetui.analysis.diff.groups import WorkGroup, paired_items
from fusetui.analysis.diff.items import WorkItems, with_usual_steps
from fusetui.analysis.diff.model import (
    Accounting,
    Answer,
    Diff,
    DiffSide,
    Row,
    StepChange,
    Verdict,
)
from fusetui.analysis.diff.notes import notes
from fusetui.analysis.diff.program_places import ProgramPlaces
from fusetui.analysis.diff.regions import with_groups_by_region
from fusetui.analysis.diff.renamed_dispatch import renamed_labels
from fusetui.analysis.diff.renamed_work import renamed_at_places
from fusetui.analysis.diff.rules import groups_of_lanes, with_moved_work
from fusetui.analysis.diff.statistics import (
    MIN_ROUNDS_FOR_VERDICT,
    MIN_STEPS_FOR_VERDICT,
    mean,
    median_of_usual_work,
    paired_interval,
    ratio_interval,
)
from fusetui.analysis.diff.story import with_summary
from fusetui.analysis.diff.surplus import rows_for_surplus_blocks, surplus_groups
from fusetui.analysis.diff.work import (
    NO_STEP,
    Work,
    lacks_gpu_events,
    with_common_steps,
    work_of,
)
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.own_memory import without_collector
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Int64s, Rows, rank_of_each
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import median

NO_GPU_EVENTS = (
    "launches GPU work, but its file has no GPU events, so both traces are compared "
    "by CPU ops"
)
_ENDINGS = lazy_pattern(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")

CLOCK_BASE_KEY = "baseTimeNanoseconds"
"""The key of a trace that says when the clock of its process began."""

MIN_EXCESS_DIVISOR = 8
"""A piece of work may take longer than its median by at least the median divided by
this before it counts as interrupted."""


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """Compare two traces: what changed from A to B, why, and whether it is real.

    Times are those of a step. `step.ratio` is B / A, so it is below 1 when B is faster.

    Args:
        a: The trace to compare with.
        b: The trace that is judged.
        step_by: Annotations that match this regular expression or plain text are the
            steps of both traces.

    Raises:
        NoStepsError: If a trace has no annotation that matches `step_by`.
    """
    label_a, label_b = _labels(a, b)
    with without_collector():  # nothing here is cyclic either
        side_without_events = _side_without_gpu_events(a, b)
        by_ops = bool(side_without_events)
        work_a = work_of(a, label_a, step_by, by_ops=by_ops)
        work_b = work_of(b, label_b, step_by, by_ops=by_ops)
        return compared(work_a, work_b, side_without_events)


def _labels(a: Trace, b: Trace) -> tuple[str, str]:
    """Return short names of both files, without their endings.

    If the files have the same name in two folders, the folders are part of the names.
    """
    path_a = without_credentials(a.report.path)
    path_b = without_credentials(b.report.path)
    label_a = _without_endings(os.path.basename(path_a))
    label_b = _without_endings(os.path.basename(path_b))

    with_folder_a = os.path.join(*path_a.split(os.sep)[-2:])
    with_folder_b = os.path.join(*path_b.split(os.sep)[-2:])
    if label_a == label_b and with_folder_a != with_folder_b:
        return _without_endings(with_folder_a), _without_endings(with_folder_b)
    return label_a, label_b


def _without_endings(name: str) -> str:
    """Return `run` for `run.pt.trace.json.gz`; the name itself if nothing remains."""
    return _ENDINGS.sub("", name) or name


def _side_without_gpu_events(a: Trace, b: Trace) -> str:
    """Return which side alone lacks the GPU events that its calls launch.

    A file that was cut off before them lacks its GPU events.

    Returns:
        `A` or `B`; "" if neither side or both sides lack them.
    """
    if len(a.gpu_rows) and lacks_gpu_events(b):
        return "B"
    if len(b.gpu_rows) and lacks_gpu_events(a):
        return "A"
    return ""


def compared(work_a: Work, work_b: Work, side_without_events: str = "") -> Diff:
    """Compare the work of steps of two traces, or of different steps of one trace.

    Args:
        work_a: The work of side A.
        work_b: The work of side B.
        side_without_events: The side, `A` or `B`, whose GPU events are not in its file;
            "" for none.
    """
    common = with_common_steps(work_a, work_b)
    evidence = make_comparable(common.a, common.b)
    matched = _match_work(evidence)
    a = matched.a
    b = matched.b
    groups = matched.groups

    renamed = renamed_at_places(a, b, groups, evidence.renamed, evidence.swapped)
    renamed_dispatch = renamed_labels(a, b, renamed)
    rows = _rows(matched, renamed_dispatch)

    on_cpu = not (work_a.gpu or work_b.gpu)
    side_a = side_figures(a, on_cpu)
    side_b = side_figures(b, on_cpu)
    sums = accounting(matched.step, side_a, side_b, rows)
    every_note = notes(
        a,
        b,
        groups=groups,
        devices=other_devices(side_a, side_b),
        step=matched.step,
        sums=sums,
        evidence=evidence,
        renamed=renamed,
        renamed_dispatch=renamed_dispatch,
    )
    result = Diff(
        a=work_a.label,
        b=work_b.label,
        step=matched.step,
        verdict=_verdict_or_missing_events(
            matched.step, side_a, side_b, side_without_events
        ),
        rows=rows,
        notes=tuple(dict.fromkeys(every_note)),  # each once
        accounting=sums,
        side_a=side_a,
        side_b=side_b,
    )
    return with_summary(result)


class _MatchedWork(msgspec.Struct, frozen=True, eq=False):
    """The work of both sides, and which of it is the same."""

    a: WorkItems
    b: WorkItems
    places_a: ProgramPlaces
    places_b: ProgramPlaces
    lanes: Sequence[AlignedLanes]
    groups: list[WorkGroup]
    step: StepChange
    outliers: list[outlier_steps.SingleStepOutlier]


def _match_work(evidence: Evidence) -> _MatchedWork:
    """Match the work of both sides, and choose the usual steps.

    Steps in which something else happened (outliers) are not usual ones. But the change
    of the step is that of all steps.
    """
    a, b = with_usual_steps(evidence.a, evidence.b)
    places_a = ProgramPlaces(a)
    places_b = ProgramPlaces(b)
    lanes = align(a, b, places_a.starred_places, places_b.starred_places)
    groups = _work_groups(places_a, places_b, lanes)
    step = step_change(a, b, groups)

    outliers = outlier_steps.single_step_outliers(a, b, groups)
    unusual_steps = []
    for outlier in outliers:
        if outlier.unusual_step is not None:
            unusual_steps.append(outlier.unusual_step)
    a, b = with_usual_steps(a, b, unusual_steps)
    return _MatchedWork(
        a=a,
        b=b,
        places_a=places_a,
        places_b=places_b,
        lanes=lanes,
        groups=groups,
        step=step,
        outliers=outliers,
    )


def _rows(
    matched: _MatchedWork, renamed_dispatch: Mapping[str, str]
) -> tuple[Row, ...]:
    """Make all rows of a diff.

    The rows of work in usual steps come first, then those of single steps, then those
    of dispatch.

    Args:
        matched: The work of both sides.
        renamed_dispatch: {label in B: label in A} of `renamed_labels`.
    """
    a = matched.a
    b = matched.b
    groups = matched.groups
    places = (matched.places_a, matched.places_b)
    single_step_rows = outlier_work.rows(a, b, groups)
    single_step_rows += [outlier.row for outlier in matched.outliers]
    rows_for_surplus = rows_for_surplus_blocks(a, b, matched.lanes)
    return (
        *explain.rows(a, b, groups, places),
        *outlier_steps.with_joined_parts(a, b, single_step_rows),
        *dispatch.rows(a, b, rows_for_surplus, renamed_dispatch),
    )


def _verdict_or_missing_events(
    step: StepChange, a: DiffSide, b: DiffSide, side_without_events: str
) -> Verdict:
    """Return the verdict, or that there is none because a side lacks its GPU events."""
    if side_without_events:
        reason = f"{side_without_events} {NO_GPU_EVENTS}"
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    return verdict(step, a, b)


def _work_groups(
    a: ProgramPlaces, b: ProgramPlaces, aligned: Sequence[AlignedLanes]
) -> list[WorkGroup]:
    """Group what does the same work on both sides; each item is in exactly one group.

    Groups are searched within two aligned lanes first, then anywhere, then by the parts
    of the program. The groups of repeated blocks are last.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        aligned: The lanes of both sides.
    """
    groups: list[WorkGroup] = []
    for lanes in aligned:
        groups += groups_of_lanes(a.items, b.items, lanes)
    groups = with_moved_work(a.items, b.items, groups)
    groups = with_groups_by_region(a, b, groups)
    return groups + surplus_groups(a.items, b.items, aligned)


def side_figures(items: WorkItems, on_cpu: bool) -> DiffSide:
    """Compute the figures of one side: means over its usual steps, which add up.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        on_cpu: Neither trace has GPU events, so dispatch on the CPU is part of the sum.
    """
    work = items.work
    times = _step_times(items, on_cpu)
    devices = tuple(dict.fromkeys(device_names(items.trace))) if work.gpu else ()

    work_ns = int(items.ns.sum())
    dispatch_ns = 0
    if on_cpu:
        dispatch_ns = int(mean(dispatch_ns_by_step(items)[items.usual_steps]))
    crossing = _crossing_work(work, _busy_rows(work, on_cpu), items.usual_steps)
    spent_ns = work_ns + dispatch_ns + crossing.earlier_ns - crossing.later_ns
    return DiffSide(
        label=work.label,
        gpu=work.gpu,
        devices=devices,
        steps=len(work.windows),
        items=len(items),
        work_ns=work_ns,
        busy_ns=times.busy_ns,
        idle_ns=times.idle_ns,
        cpu_ns=times.cpu_ns,
        dispatch_ns=dispatch_ns,
        overlap_ns=spent_ns - times.busy_ns,
        later_ns=crossing.later_ns,
        earlier_ns=crossing.earlier_ns,
        odd_ns=_odd_ns(items),
        usual=tuple(items.usual_steps.tolist()),
        idle=times.idle_by_cause,
    )


class _StepTimes(msgspec.Struct, frozen=True):
    """How the time of the usual steps of a side is used: means in ns."""

    busy_ns: int  # while any work runs: of the GPU, if there is one
    idle_ns: int  # the rest of the step
    cpu_ns: int  # while any CPU op runs
    idle_by_cause: dict[str, int]  # {cause: ns} of a GPU, else empty


def _step_times(items: WorkItems, on_cpu: bool) -> _StepTimes:
    """Measure the times of the usual steps of a side; see `side_figures`."""
    work = items.work
    trace = items.trace
    begins = work.windows.start[items.usual_steps]
    ends = work.windows.end[items.usual_steps]

    busy_rows = _busy_rows(work, on_cpu)
    busy_ns = int(mean(any_busy_ns(trace, busy_rows, begins, ends)))
    idle_ns = int(mean(work.windows.dur[items.usual_steps])) - busy_ns
    cpu_ns = int(mean(any_busy_ns(trace, _top_op_rows(trace), begins, ends)))
    return _StepTimes(
        busy_ns=busy_ns,
        idle_ns=idle_ns,
        cpu_ns=cpu_ns,
        idle_by_cause=idle_by_cause(trace, begins, ends, idle_ns) if work.gpu else {},
    )


def _busy_rows(work: Work, on_cpu: bool) -> Rows:
    """Return the rows of the events that keep a side busy.

    These are its GPU events. If only the other side has a GPU, they are the pieces of
    work of this side; if neither has (`on_cpu`), the outermost CPU ops.
    """
    if work.gpu:
        return work.trace.gpu_rows
    return _top_op_rows(work.trace) if on_cpu else work.row


def _odd_ns(items: WorkItems) -> int:
    """Return how much steps with other work move the median step (ns)."""
    step_ns = items.work.windows.dur
    if not len(step_ns):
        return 0
    return int(np.median(step_ns) - median_of_usual_work(step_ns, items.plain_steps))


def accounting(
    step: StepChange, a: DiffSide, b: DiffSide, rows: Iterable[Row]
) -> Accounting:
    """Write the change of the step as a sum of changes, B minus A.

    All terms are whole ns, so the sum closes exactly.

    Args:
        step: The change of the median step.
        a: The figures of A.
        b: The figures of B.
        rows: All rows of the diff.
    """
    rows_ns = sum(row.change_ns for row in rows if row.counts)
    idle_ns = b.idle_ns - a.idle_ns
    # More overlap, and more work after the end of the step, make the step shorter.
    overlap_ns = a.overlap_ns - b.overlap_ns
    later_ns = a.later_ns - b.later_ns
    earlier_ns = b.earlier_ns - a.earlier_ns
    odd_ns = b.odd_ns - a.odd_ns
    explained_ns = rows_ns + idle_ns + overlap_ns + later_ns + earlier_ns + odd_ns
    return Accounting(
        step_ns=step.change_ns,
        rows_ns=rows_ns,
        idle_ns=idle_ns,
        not_explained_ns=step.change_ns - explained_ns,
        overlap_ns=overlap_ns,
        later_ns=later_ns,
        earlier_ns=earlier_ns,
        odd_ns=odd_ns,
    )


class _CrossingWork(msgspec.Struct, frozen=True):
    """Work that crosses the boundaries of a step: means over the usual steps, in ns."""

    later_ns: int  # of the step's own work, after its end
    earlier_ns: int  # of the work of other steps, within this step


def _crossing_work(work: Work, rows: Rows, usual_steps: Rows) -> _CrossingWork:
    """Measure how much work crosses the boundaries of the usual steps.

    There is none if the whole trace is one step.

    Args:
        work: The work of a side.
        rows: The rows of the events that keep it busy.
        usual_steps: The indices of its usual steps.
    """
    trace = work.trace
    windows = work.windows
    if windows.is_whole_trace or not len(usual_steps):
        return _CrossingWork(later_ns=0, earlier_ns=0)

    step_of_row = _step_of_rows(work, rows)
    later_by_step = []
    earlier_by_step = []
    for step in usual_steps.tolist():
        begin = windows.start[step]
        end = windows.end[step]
        start_inside = np.clip(trace.start[rows], begin, end)
        end_inside = np.clip(trace.end[rows], begin, end)
        inside_ns = end_inside - start_inside
        outside_ns = trace.dur[rows] - inside_ns
        is_own = step_of_row == step
        later_by_step.append(outside_ns[is_own].sum())
        earlier_by_step.append(inside_ns[~is_own].sum())
    return _CrossingWork(
        later_ns=int(mean(np.array(later_by_step))),
        earlier_ns=int(mean(np.array(earlier_by_step))),
    )


def _step_of_rows(work: Work, rows: Rows) -> Rows:
    """Return the index of the step that each row is the work of, or NO_STEP.

    On a GPU, that is the step whose calls launched the event. On a CPU, and where steps
    are of the time of the GPU, it is the step in which the event began.
    """
    trace = work.trace
    by_launch = work.gpu and not work.windows.is_gpu_time
    deciding_rows = trace.launch[rows] if by_launch else rows
    step_at_start = work.windows.step_of_calls(trace.start[deciding_rows])
    return np.where(deciding_rows >= 0, step_at_start, NO_STEP)


def _top_op_rows(trace: Trace) -> Rows:
    """Return the rows of the CPU ops that are not inside another op."""
    is_of_ops = [track.layer is Layer.OPS for track in trace.tracks]
    on_ops_layer = np.array(is_of_ops or [False])[trace.track]
    return np.flatnonzero(on_ops_layer & (trace.parent < 0))


def step_change(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> StepChange:
    """Compare the median steps of both sides, with the interval of their ratio.

    Where the steps of both sides took turns, each step is compared with its neighbor,
    so that a drift of both over time counts for nothing. Else the drift of each run
    widens the interval.

    Returns:
        A change without a ratio if A has no steps or steps that take no time, or if B
        has no steps.
    """
    windows_a = a.work.windows
    windows_b = b.work.windows
    a_ns = median(windows_a.dur) if len(windows_a) else None
    b_ns = median(windows_b.dur) if len(windows_b) else None
    if not a_ns or b_ns is None:
        return StepChange(
            a_ns=a_ns,
            b_ns=b_ns,
            ratio=None,
            low=None,
            high=None,
            length_a=windows_a.length,
            length_b=windows_b.length,
        )

    undisturbed_a, undisturbed_b = _undisturbed_steps(a, b, groups)
    turns = _take_turns(a.work, b.work)
    estimate_interval = paired_interval if turns else ratio_interval
    interval = estimate_interval(undisturbed_a.durations_ns, undisturbed_b.durations_ns)
    return StepChange(
        a_ns=a_ns,
        b_ns=b_ns,
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        drift_a=interval.drift_a,
        drift_b=interval.drift_b,
        turns=turns,
        interrupted_a=undisturbed_a.interrupted_share,
        interrupted_b=undisturbed_b.interrupted_share,
        length_a=windows_a.length,
        length_b=windows_b.length,
    )


def limits_of(ns: Int64s) -> Int64s:
    """Return how long each piece of work takes at most if nothing interrupts it.

    The limit is as far above the median of all steps as the first quartile is below it,
    and at least the median divided by MIN_EXCESS_DIVISOR above it.

    >>> limits_of(np.array([[80], [90], [100], [110], [900]])).tolist()  # one piece
    [112]

    Args:
        ns: The time of each piece in each step in ns, [steps, pieces].

    Returns:
        One limit per piece in ns; all are 0 without steps.
    """
    if not len(ns):
        return np.zeros(ns.shape[1], dtype=np.int64)
    percentiles = np.percentile(ns, [25, 50], axis=0, method="lower").astype(np.int64)
    quartile, median_ns = percentiles
    margin = np.maximum(median_ns - quartile, median_ns // MIN_EXCESS_DIVISOR)
    return np.asarray(median_ns + margin)


class _UndisturbedSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a side as if nothing had interrupted them."""

    durations_ns: Int64s  # one per step
    interrupted_share: float  # the share of the time of all steps in interruptions


def _undisturbed_steps(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> tuple[_UndisturbedSteps, _UndisturbedSteps]:
    """Return the steps of A and of B without interruptions.

    The time of a piece of work counts up to its limit (`limits_of`). The same kernel or
    op has one limit on both sides, the higher one of the two. With a limit of its own,
    which is known no better than the noise allows, each side would be off in all of its
    steps alike. A step whose work is not the usual one counts as it is.
    """
    pieces_a = _steps_in_pieces(a)
    pieces_b = _steps_in_pieces(b)
    limits_a = limits_of(pieces_a.ns)
    limits_b = limits_of(pieces_b.ns)

    if len(pieces_a.ns) and len(pieces_b.ns):
        items_a, items_b = paired_items(groups)
        is_same_work = a.exact_keys[items_a] == b.exact_keys[items_b]
        # Column 0 is the time before all work of a step.
        columns_a = np.append(pieces_a.column_of_item[items_a[is_same_work]], 0)
        columns_b = np.append(pieces_b.column_of_item[items_b[is_same_work]], 0)
        higher_limits = np.maximum(limits_a[columns_a], limits_b[columns_b])
        limits_a[columns_a] = higher_limits
        limits_b[columns_b] = higher_limits
    return (
        _without_interruptions(a, pieces_a, limits_a),
        _without_interruptions(b, pieces_b, limits_b),
    )


def _without_interruptions(
    items: WorkItems, pieces: _StepsInPieces, limits: Int64s
) -> _UndisturbedSteps:
    """Take away from the alike steps of a side what exceeds the limits of its pieces.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        pieces: Its alike steps, cut into pieces.
        limits: The limit of each column of `pieces.ns`, in ns.
    """
    durations_ns = items.work.windows.dur
    total_ns = int(durations_ns.sum())
    excess_by_step = np.maximum(pieces.ns - limits, 0).sum(axis=1)  # of alike steps
    if len(pieces.ns):
        durations_ns[items.alike_steps] -= excess_by_step
    interrupted_share = int(excess_by_step.sum()) / total_ns if total_ns else 0.0
    return _UndisturbedSteps(
        durations_ns=durations_ns, interrupted_share=interrupted_share
    )


class _StepsInPieces(msgspec.Struct, frozen=True, eq=False):
    """The alike steps of a side, cut where their pieces of work begin."""

    ns: Int64s
    """The time from the begin of each piece to that of the next, [steps, pieces + 1].
    The first column is the time before the first piece, so that each row adds up to the
    step. There are no steps, [0, pieces + 1], if they cannot be cut alike."""
    column_of_item: Rows  # the column of `ns` that each item has


def _steps_in_pieces(items: WorkItems) -> _StepsInPieces:
    """Cut the alike steps of a side where their pieces of work begin.

    They cannot be cut alike if the pieces begin in another order in one of them, or
    outside of their step.
    """
    work = items.work
    size = len(items)
    no_steps = _StepsInPieces(
        ns=np.zeros((0, size + 1), dtype=np.int64),
        column_of_item=np.arange(1, size + 1),
    )
    if not len(items.alike_steps) or not size:
        return no_steps

    # When each piece begins in each step, [steps, pieces], and the order of the pieces.
    slices = [work.slice_of_window(step) for step in items.alike_steps.tolist()]
    begins = np.stack([work.trace.start[work.row[pieces]] for pieces in slices])
    orders = np.argsort(begins, axis=1, kind="stable")
    order = orders[0]
    if (orders != order).any():
        return no_steps

    step_begins = work.windows.start[items.alike_steps]
    step_ends = work.windows.end[items.alike_steps]
    cuts = np.column_stack([step_begins, begins[:, order], step_ends])
    ns: Int64s = np.diff(cuts, axis=1)
    if (ns < 0).any():
        return no_steps
    # Column 0 is the time before all items.
    return _StepsInPieces(ns=ns, column_of_item=rank_of_each(order) + 1)


def _take_turns(a: Work, b: Work) -> bool:
    """Return whether the steps of both sides took turns.

    They did if both first steps ran before both second ones, and so on, in either order
    and without overlapping. So it is when both sides were taken out of one profile. It
    is not when the traces are of two processes, whose steps would overlap, or of two
    clocks, or where a side has fewer than two steps.
    """
    steps_a = a.windows
    steps_b = b.windows
    if steps_a.is_whole_trace or steps_b.is_whole_trace:
        return False
    if len(steps_a) != len(steps_b) or len(steps_a) < 2:
        return False
    if a.trace.keys.get(CLOCK_BASE_KEY) != b.trace.keys.get(CLOCK_BASE_KEY):
        return False

    is_apart = (steps_a.end <= steps_b.start) | (steps_b.end <= steps_a.start)
    round_begins = np.minimum(steps_a.start, steps_b.start)
    round_ends = np.maximum(steps_a.end, steps_b.end)
    return bool(is_apart.all() and (round_ends[:-1] <= round_begins[1:]).all())


def verdict(step: StepChange, a: DiffSide, b: DiffSide) -> Verdict:
    """Judge whether B is faster than A.

    It is faster or slower if the interval of the ratio excludes 1, else there is no
    difference. The verdict may also be that it cannot be told, with the reason.
    """
    reason = _reason_for_no_verdict(step, a, b)
    if reason:
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    if not step.shown:
        return Verdict(answer=Answer.NO_DIFFERENCE)
    is_faster = step.high is not None and step.high < 1
    return Verdict(answer=Answer.FASTER if is_faster else Answer.SLOWER)


def other_devices(a: DiffSide, b: DiffSide) -> str:
    """Say that the two sides ran on different devices: `A100 -> H100`.

    Returns "" if both ran on the same devices, or if a file does not name them.
    """
    if not a.items or not b.items:
        return ""
    if a.gpu == b.gpu and not (a.devices and b.devices):
        return ""
    before = _device_text(a)
    after = _device_text(b)
    return f"{before} -> {after}" if before != after else ""


def _device_text(side: DiffSide) -> str:
    """Return the names of the devices of a side, or what stands for them."""
    if not side.gpu:
        return "CPU only"
    return ", ".join(side.devices) or "a GPU"


def _reason_for_no_verdict(step: StepChange, a: DiffSide, b: DiffSide) -> str:
    """Say why the times of the steps cannot be judged; "" if they can.

    Different devices are no change of the program, so they are not judged. Nor are
    fewer than MIN_STEPS_FOR_VERDICT steps on a side (MIN_ROUNDS_FOR_VERDICT where the
    steps took turns).
    """
    empty_sides = [name for name, side in (("A", a), ("B", b)) if not side.items]
    if empty_sides:
        return f"the steps of {' and '.join(empty_sides)} contain no work"

    devices = other_devices(a, b)
    if devices:
        return f"the devices differ ({devices})"

    min_steps = MIN_ROUNDS_FOR_VERDICT if step.turns else MIN_STEPS_FOR_VERDICT
    if min(a.steps, b.steps) < min_steps:
        steps = "alternating steps" if step.turns else "steps"
        counts = f"A {a.steps}, B {b.steps}"
        return f"needs at least {min_steps} {steps} per trace ({counts})"
    if step.low is None:
        return "the steps of one trace take no time"
    return ""
