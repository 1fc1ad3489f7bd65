"""Rules about GPU work that is not in the trace, and about unrecorded waits of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mode
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_span
from fusetui.analysis.why.rules.launches import SLOW_NS
from fusetui.analysis.why.thread_activity import ThreadActivity
from fusetui.analysis.why.warming import find_graph_captures
from fusetui.text.figures import count, duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    at,
    distinct,
    last_marked,
    next_marked,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, NO_INTERVAL, union
from fusetui.trace.model.sorted_arrays import count_between, is_in

LONG_GAP_NS: Final = 1_000_000
"""A longer gap between the nodes of a graph probably had other nodes in it."""
LAUNCHES: Final = lazy_pattern(
    r"LaunchKernel|KernelLaunch|LaunchCooperativeKernel|GraphLaunch"
)
"""Matches calls that launch kernels or graphs.

They include cudaLaunchKernelExC, cuLaunchKernelEx, hipExtModuleLaunchKernel,
urEnqueueKernelLaunch and hipGraphLaunch. cudaLaunchHostFunc is none, nor are sets,
which do nothing where their length is 0.
"""


@Rule(
    remedy="Record a shorter window with fewer activities, because full buffers drop "
    "events. Update the driver{nvidia: and CUPTI|amd: and roctracer}, and "
    "make sure that no other profiler{nsys: (torch.profiler, DCGM)|nvidia: "
    "(Nsight, DCGM)} is running.",
    thresholds={"long_ns": LONG_GAP_NS},
    by_launches=True,
)
def holes(facts: Facts) -> Iterator[Claim]:
    """Report GPU work that is probably missing from the trace.

    One claim is about long gaps between the nodes of a CUDA graph, in which other nodes
    probably ran. The other is about launch calls without a GPU event, and only for a
    complete file. Either is made only where there are some.
    """
    waited_ns = facts.gaps.add_up_reasons("graph")
    is_long = waited_ns > LONG_GAP_NS
    at_stake_ns = int(waited_ns[is_long].sum())
    if at_stake_ns:
        gaps = plural(int(is_long.sum()), "gap")
        yield Claim(
            text=f"Graph nodes are probably missing from the trace: nothing is recorded for "
            f"{format_share_of_span(facts, at_stake_ns)} between nodes, in {gaps} "
            f"of more than {duration(LONG_GAP_NS)}.",
            at_stake_ns=at_stake_ns,
            rows=choose_heaviest_rows(facts.gaps.event[is_long], waited_ns[is_long]),
            why_likely=(
                "A graph may also wait for a host function or for another device."
            ),
        )

    # Of an incomplete file, the events may be in what is missing.
    if facts.trace.report.complete:
        yield from _report_calls_without_events(facts)


def _report_calls_without_events(facts: Facts) -> Iterator[Claim]:
    """Report launch calls without a GPU event, between others that have one.

    At stake is the idle time in which their work may have run. There is no claim if as
    many events have no call: these may belong together.
    """
    trace = facts.trace
    launches = find_launch_calls(facts)
    missing = _find_missing_work(trace, launches)
    has_no_call = trace.launch[trace.gpu_rows] == NO_ROW
    if len(missing.calls) <= np.count_nonzero(has_no_call):
        return

    at_stake_ns = _measure_idle_of_missing(facts, missing)
    if not at_stake_ns:
        return

    calls = missing.calls
    most_frequent = mode(trace.name_of(int(row)) for row in calls)
    lasted_ns = trace.dur[calls]
    lasts = _format_range(int(lasted_ns.min()), int(lasted_ns.max()))

    yield Claim(
        text=f"{count(len(calls))} of {plural(len(launches), 'launch call')} "
        f"({printable(most_frequent)}, {lasts}) have no GPU event, although calls "
        "before and after them do. Their work was not recorded; it may have run in "
        f"{format_share_of_span(facts, at_stake_ns)} of the idle time.",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(calls, lasted_ns),
    )


def _format_range(shortest_ns: int, longest_ns: int) -> str:
    """Format a range of durations: `of 5 us to 2 ms`.

    It is `of 5 us` if both read the same.
    """
    shortest = duration(shortest_ns)
    longest = duration(longest_ns)
    return f"of {shortest}" if shortest == longest else f"of {shortest} to {longest}"


NO_THREAD: Final = -1
"""Stands for the thread of a call that does not exist."""


class MissingWork(msgspec.Struct, frozen=True, eq=False):
    """Calls whose work was not recorded; arrays of shape [calls], rows of the trace."""

    calls: Rows
    following: Rows
    """The next call of the same thread that has an event."""


def _measure_idle_of_missing(facts: Facts, missing: MissingWork) -> int:
    """Measure the idle time in which missing work may have run, in ns.

    It is the time between the first call without an event and the event that the next
    call launched. Gaps within graphs do not count.
    """
    trace = facts.trace
    gaps = facts.gaps

    # For each call with an event the first start of the missing work before it.
    first_missing_ns = np.full(len(trace), FOREVER)
    np.minimum.at(first_missing_ns, missing.following, trace.start[missing.calls])

    missing_since_ns = at(first_missing_ns, gaps.launch, missing=FOREVER)
    idle_since_ns = np.maximum(gaps.begin, missing_since_ns)
    idle_ns = np.maximum(gaps.end - idle_since_ns, 0)
    is_in_graph = gaps.add_up_reasons("graph") > 0

    return int(idle_ns[~is_in_graph].sum())


def _find_missing_work(trace: Trace, launches: Rows) -> MissingWork:
    """Find the launch calls whose GPU event was lost in the middle of the recording.

    Such a call has no event, but an earlier and a later call of its thread have one. If
    a thread makes five calls and the first, the third and the fourth have events, the
    second counts, and not the fifth: its event may come after the end of the recording.

    Args:
        launches: The calls that launch, as rows of the trace.
    """
    with_event = _find_calls_with_event(trace)
    without_event = _drop_calls_with_events(trace, launches, with_event)

    # Sort both by thread, then by start.
    calls = np.concatenate((with_event, without_event))
    thread = trace.thread_of(calls)
    by_thread = np.lexsort((trace.start[calls], thread))
    calls = calls[by_thread]
    thread = thread[by_thread]
    has_event = by_thread < len(with_event)

    # The nearest calls with an event; they may be of another thread.
    last_with_event = last_marked(has_event)
    next_with_event = next_marked(has_event)
    thread_before = at(thread, last_with_event, missing=NO_THREAD)
    thread_after = at(thread, next_with_event, missing=NO_THREAD)
    is_missing = ~has_event & (thread_before == thread) & (thread_after == thread)

    return MissingWork(
        calls=calls[is_missing], following=calls[next_with_event[is_missing]]
    )


def _drop_calls_with_events(trace: Trace, calls: Rows, with_event: Rows) -> Rows:
    """Return the calls that neither have an event nor have such a call inside.

    Args:
        calls: Rows of the trace.
        with_event: All calls with an event, ascending.
    """
    # What lies inside of a call has the rows from the call to its end_row.
    with_event_inside = count_between(with_event, calls, trace.end_row[calls])
    without: Rows = calls[with_event_inside == 0]
    return without


def _find_calls_with_event(trace: Trace) -> Rows:
    """Return the calls that have the correlation of a GPU event."""
    calls = trace.rows_of(Role.CALL)
    correlations = trace.correlation[calls]

    of_events = distinct(trace.correlation[trace.gpu_rows])
    with_event: Rows = calls[is_in(of_events, correlations)]
    return with_event


def find_launch_calls(facts: Facts) -> Rows:
    """Find the calls in the window that launch kernels or graphs.

    Calls during the capture of a graph are left out: what is launched then, by
    whichever thread, runs later. Of a call inside of a call, the outer one counts.

    Returns:
        Rows of the trace.
    """
    trace = facts.trace
    calls = trace.rows_named(LAUNCHES.search, Role.CALL)
    parent = trace.parent[calls]
    is_inside_call = (parent != NO_ROW) & (trace.role[parent] == Role.CALL)
    start = trace.start[calls]
    is_in_window = (start >= facts.begin_ns) & (start < facts.end_ns)
    has_correlation = trace.correlation[calls] > 0  # 0 and less stand for none

    captures = find_graph_captures(trace)
    capturing = union(captures.start, captures.end)
    is_captured = capturing.place_of(start) != NO_INTERVAL
    launches: Rows = calls[
        is_in_window & has_correlation & ~is_inside_call & ~is_captured
    ]

    return launches


MIN_QUEUED_NS: Final = 20_000
"""A gap counts if the next event was queued in it for longer than this."""


class UnrecordedWait(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about gaps whose reason was not recorded."""

    text: str
    remedy: str | None
    """None for the remedy of the rule."""
    why_likely: str | None


WAIT_FOR_EARLIER_WORK: Final = UnrecordedWait(
    text=" before the first work of a stream. The GPU probably runs work launched before "
    "the recording, so the share of busy time is meaningless here.",
    remedy="Call torch.{intel:xpu|:cuda}.synchronize() before the recording starts.",
    why_likely="Work that ran before the recording is not in the trace.",
)
"""About gaps that probably wait for work from before the recording."""
WAIT_FOR_UNRECORDED: Final = UnrecordedWait(
    text=(
        " although the next work is already launched. The GPU waits for something "
        "unrecorded, such as another device, a host function or other work."
    ),
    remedy=None,
    why_likely=None,
)
"""About gaps whose reason is something else that was not recorded."""


@Rule(
    remedy="Check the other devices of the job, and the {nvidia:cudaStreamWaitEvent "
    "calls|amd:hipStreamWaitEvent calls|:event waits} and host functions on "
    "the stream.",
    thresholds={"least_ns": MIN_QUEUED_NS},
    by_launches=True,
)
def waits_outside(facts: Facts) -> Iterator[Claim]:
    """Report gaps before which the next work was already launched.

    There is a claim about those that probably wait for work from before the recording,
    and one about those whose reason is not recorded. At stake is how long the next work
    was queued.
    """
    gaps = facts.gaps
    queued_ns = gaps.add_up_reasons("queued")
    takes_long = facts.trace.dur[gaps.launch] > SLOW_NS
    is_slow_launch = gaps.has_launch & takes_long
    gap_indices = np.flatnonzero((queued_ns > MIN_QUEUED_NS) & ~is_slow_launch)

    is_early = _mark_waits_for_earlier_work(facts, gap_indices)
    yield from _report_unrecorded_wait(
        facts, WAIT_FOR_EARLIER_WORK, gap_indices[is_early], queued_ns
    )
    yield from _report_unrecorded_wait(
        facts, WAIT_FOR_UNRECORDED, gap_indices[~is_early], queued_ns
    )


def _report_unrecorded_wait(
    facts: Facts, wait: UnrecordedWait, gap_indices: Rows, queued_ns: Int64s
) -> Iterator[Claim]:
    """Claim the queued time of gaps of one kind of wait, if there is any.

    Args:
        wait: What is said about them.
        gap_indices: The gaps, as indices into those of `facts`.
        queued_ns: How long the next work was queued in each gap of all.
    """
    at_stake_ns = int(queued_ns[gap_indices].sum())
    if not at_stake_ns:
        return

    yield Claim(
        text=f"The GPU is idle for {format_share_of_span(facts, at_stake_ns)} in "
        f"{plural(len(gap_indices), 'gap')}{wait.text}",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(
            facts.gaps.event[gap_indices], queued_ns[gap_indices]
        ),
        remedy=wait.remedy,
        why_likely=wait.why_likely,
    )


def _mark_waits_for_earlier_work(facts: Facts, gap_indices: Rows) -> Flags:
    """Tell in which gaps the GPU probably still runs work from before the recording.

    They end with the first work of a stream, and a thread waits for the GPU during at
    least a part of the gap.

    Args:
        gap_indices: The gaps in question, as indices into those of `facts`.

    Returns:
        One flag for each of `gap_indices`.
    """
    trace = facts.trace
    gaps = facts.gaps
    events = gaps.event[gap_indices]
    ends_with_first_work = _mark_first_of_stream(trace, events)

    waits = np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC)
    waiting = facts.cover_launching_threads(waits)
    has_wait = waiting.within(gaps.begin[gap_indices], gaps.end[gap_indices]) > 0

    return np.asarray(ends_with_first_work & has_wait)


def _mark_first_of_stream(trace: Trace, events: Int32s) -> Flags:
    """Tell before which events no GPU event of their track starts."""
    all_events = trace.gpu_rows
    first_start_ns = np.full(len(trace.tracks), FOREVER)  # of each track
    np.minimum.at(first_start_ns, trace.track[all_events], trace.start[all_events])
    is_first: Flags = trace.start[events] <= first_start_ns[trace.track[events]]
    return is_first
