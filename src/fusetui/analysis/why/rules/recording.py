"""What makes the trace itself misleading, and what is not in it: GPU work, and what the GPU waited
for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle import Idle
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, of_span, rule
from fusetui.analysis.why.rules.launches import SLOW_NS
from fusetui.analysis.why.warming import FEWEST, GRAPH_LAUNCH, captures, first_step
from fusetui.text.figures import count, duration, percent, plural, quantity
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import PROFILED, Steps
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.intervals import union

SLOW_FIRST = 1.5  # times the median of the other steps
UNLINKED = 0.05  # of the GPU time
REPLAYS = 0.05  # of the span
CAPTURED = 0.5  # of the steps


class Note(NamedTuple):
    text: str
    rows: tuple[int, ...]
    remedy: str


@rule(
    without_gpu=True,
    remedy="Record again.",
    thresholds={
        "slow_first": SLOW_FIRST,
        "fewest": FEWEST,
        "unlinked": UNLINKED,
        "replays": REPLAYS,
        "captured": CAPTURED,
    },
)
def recording(facts: Facts) -> Iterator[Claim]:
    """All notes as one."""
    found = facts.spans
    captures = list(_captures(facts, found))
    notes = [
        *_unlinked(facts),
        *_first_step(facts, found),
        *(captures or _few_steps(facts, found)),
        *_stacks(facts),
        *_graphs(facts),
    ]
    if notes:
        yield Claim(
            text=" ".join(note.text for note in notes),
            at_stake_ns=None,
            rows=tuple(row for note in notes for row in note.rows),
            remedy=" ".join(note.remedy for note in notes),
        )


def _stacks(facts: Facts) -> Iterator[Note]:
    if facts.is_profiled:
        yield Note(
            "Python stacks were recorded while the GPU waited for the CPU: the times of the "
            "CPU include the work of the profiler, and without it the program may be faster.",
            (),
            "Record again with with_stack=False for the times, and keep this trace for the frames.",
        )


def _graphs(facts: Facts) -> Iterator[Note]:
    """Graph launches that keep the GPU waiting."""
    launches, waited = facts.idle.launch, facts.idle.ns("launch_call")
    replays = np.isin(launches, facts.named(GRAPH_LAUNCH.search, Role.CALL)) & (waited > 0)
    at_stake = int(waited[replays].sum())
    if at_stake and at_stake >= REPLAYS * facts.span_ns:
        name = printable(facts.trace.name_of(int(launches[replays][0])))
        yield Note(
            f"The GPU waits {of_span(facts, at_stake)} inside "
            f"{name}, which recording the nodes of a graph makes slower.",
            the_most(launches[replays], waited[replays]),
            "Time the step without the profiler to see how much of this stays.",
        )


def _unlinked(facts: Facts) -> Iterator[Note]:
    """GPU events without a launch call beside others that have one."""
    trace, rows = facts.trace, facts.gpu_rows
    without = rows[trace.launch[rows] < 0]
    lost, whole = int(trace.dur[without].sum()), int(trace.dur[rows].sum())
    if facts.has_launches and whole and lost >= UNLINKED * whole:
        yield Note(
            f"The launch calls of {plural(len(without), 'GPU event')} ({percent(lost, whole)} "
            "of the GPU time) are not in the trace: they came before it began, or were not "
            "recorded.",
            the_most(without, trace.dur[without]),
            "Call torch.{intel:xpu|:cuda}.synchronize() right before the recorded steps "
            "begin, so that no earlier work runs into them.",
        )


def _first_step(facts: Facts, found: Steps) -> Iterator[Note]:
    lengths = first_step(found)
    if lengths is None:
        return
    first, others = lengths
    if others and first >= SLOW_FIRST * others:
        yield Note(
            f"The first step takes {duration(first)}, {quantity(first / others, digits=2)} "
            f"times as long as the median of the others ({duration(round(others))}).",
            tuple(found.rows[:1].tolist()),
            "Look at the later steps (--step), or warm up for longer before recording.",
        )


def _captures(facts: Facts, found: Steps) -> Iterator[Note]:
    """Of steps that do little but capture graphs."""
    once = captures(facts.trace)
    length = int((found.end - found.start).sum())
    captured = int(union(once.start, once.end).within(found.start, found.end).sum())
    if captured >= CAPTURED * length > 0:
        yield Note(
            f"For {duration(captured)} of {plural(len(found), 'step')} "
            f"({percent(captured, length)}) a graph is captured: what is launched meanwhile "
            "becomes part of it and does not run.",
            tuple(once.rows[:FEWEST].tolist()),
            "Look at replays of the graph for what it costs.",
        )


def _few_steps(facts: Facts, found: Steps) -> Iterator[Note]:
    """Of a whole trace: one step that was asked for is no recording of its own. Servers have no
    schedule of the profiler."""
    profiled = found.by == PROFILED
    if facts.is_whole and 0 < len(found) < FEWEST and (profiled or found.are_iterations):
        yield Note(
            f"Only {plural(len(found), 'step')} {'was' if len(found) == 1 else 'were'} "
            "recorded: whether others take as long is not known.",
            tuple(found.rows.tolist()),
            f"Give the profiler a schedule with active={FEWEST} or more."
            if profiled
            else f"Record {FEWEST} steps or more.",
        )


LONG_NS = 1_000_000
LAUNCHES = re.compile(r"LaunchKernel|KernelLaunch|LaunchCooperativeKernel|GraphLaunch")
"""cudaLaunchKernelExC, cuLaunchKernelEx, hipExtModuleLaunchKernel, urEnqueueKernelLaunch,
hipGraphLaunch; not cudaLaunchHostFunc, nor sets, which do nothing where their length is 0."""


@rule(
    "launch calls",
    remedy="Record a shorter window with fewer activities, as full buffers drop events; newer "
    "drivers{nvidia: and CUPTI|amd: and roctracer} record more; check that no other profiler"
    "{nvidia: (Nsight, DCGM)} runs.",
    thresholds={"long_ns": LONG_NS},
    by_launches=True,
)
def holes(facts: Facts) -> Iterator[Claim]:
    yield from _in_graphs(facts)
    if facts.trace.report.complete:  # else the events may be in what is missing of the file
        yield from _without_events(facts)


def _in_graphs(facts: Facts) -> Iterator[Claim]:
    ns, events = facts.idle.ns("graph"), facts.idle.event
    long = ns > LONG_NS
    at_stake = int(ns[long].sum())
    if at_stake:
        yield Claim(
            text=f"Nothing is recorded for {of_span(facts, at_stake)} "
            f"between nodes of CUDA graphs, in {plural(int(long.sum()), 'gap')} of more than "
            f"{duration(LONG_NS)}: other nodes probably ran meanwhile, and were not recorded.",
            at_stake_ns=at_stake,
            rows=the_most(events[long], ns[long]),
            why_likely="A graph may also wait for a function on the host or for another device.",
        )


class Missing(msgspec.Struct, frozen=True, eq=False):
    """Launch calls without a GPU event; arrays of shape [calls]."""

    calls: Rows
    following: Rows  # the next call of the thread that has one
    all_calls: int  # that launch kernels or graphs


def _without_events(facts: Facts) -> Iterator[Claim]:
    trace, missing = facts.trace, _missing(facts)
    unlinked = int(np.count_nonzero(trace.launch[trace.gpu_rows] < 0))
    if len(missing.calls) <= unlinked:  # the events that belong to no call may be theirs
        return
    since = np.full(len(trace) + 1, np.iinfo(np.int64).max)  # by the call that launches next
    np.minimum.at(since, missing.following, trace.start[missing.calls])
    at_stake = int(_idle_ns(facts.idle, since).sum())
    if not at_stake:
        return
    names = Counter(trace.name_of(int(row)) for row in missing.calls)
    lasted = trace.dur[missing.calls]
    low, high = duration(int(lasted.min())), duration(int(lasted.max()))
    lasts = f"of {low}" if low == high else f"of {low} to {high}"
    yield Claim(
        text=f"{count(len(missing.calls))} of {plural(missing.all_calls, 'launch call')} "
        f"({printable(names.most_common(1)[0][0])}, {lasts}) have no GPU event, although calls "
        "before and after them have one: their work was not recorded, and may have run in "
        f"{of_span(facts, at_stake)} of the idle time.",
        at_stake_ns=at_stake,
        rows=the_most(missing.calls, lasted),
    )


def _idle_ns(idle: Idle, since: Int64s) -> Int64s:
    """How much of each gap lies between a call without an event and the next event."""
    begin = np.maximum(idle.begin, since[idle.launch])  # the last of `since` is that of -1
    begin[idle.ns("graph") > 0] = np.iinfo(np.int64).max
    return np.maximum(idle.end, begin) - begin


def _missing(facts: Facts) -> Missing:
    """In the window, between two calls of the same thread that have events, outside of captures."""
    trace = facts.trace
    with_event = trace.rows_of(Role.CALL)
    with_event = with_event[
        np.isin(trace.correlation[with_event], trace.correlation[trace.gpu_rows])
    ]
    calls = _launches(facts)
    before = np.zeros(len(trace) + 1, dtype=np.int64)
    before[with_event + 1] = 1
    before = np.cumsum(before)
    without = calls[before[trace.end_row[calls]] == before[calls]]  # nor a call inside of it
    rows = np.concatenate((with_event, without))
    thread = trace.thread_of_track[trace.track[rows]]
    order = np.lexsort((trace.start[rows], thread))
    rows, thread, known = rows[order], thread[order], order < len(with_event)
    place = np.arange(len(rows))
    last = np.maximum.accumulate(np.where(known, place, -1))
    next_ = np.minimum.accumulate(np.where(known, place, len(rows))[::-1])[::-1]
    bounded = (last >= 0) & (next_ < len(rows)) & ~known
    bounded[bounded] = (thread[last[bounded]] == thread[bounded]) & (
        thread[next_[bounded]] == thread[bounded]
    )
    return Missing(rows[bounded], rows[next_[bounded]], len(calls))


def _launches(facts: Facts) -> Rows:
    """The calls that launch kernels or graphs; of a call inside of a call, the outer one."""
    trace = facts.trace
    calls = facts.named(LAUNCHES.search, Role.CALL)
    outer = trace.parent[calls]
    calls = calls[(outer < 0) | (trace.role[outer] != Role.CALL)]
    inside = (trace.start[calls] >= facts.begin_ns) & (trace.start[calls] < facts.end_ns)
    calls = calls[inside & (trace.correlation[calls] > 0)]
    captured = captures(trace)  # what is launched meanwhile, by whichever thread, runs later
    found: Rows = calls[union(captured.start, captured.end).place_of(trace.start[calls]) < 0]
    return found


LEAST_NS = 20_000


@rule(
    "launch calls",
    remedy="Look at the other devices of the job, and at "
    "{nvidia:cudaStreamWaitEvent|amd:hipStreamWaitEvent|:waits for events} and host functions on "
    "the stream.",
    thresholds={"least_ns": LEAST_NS},
    by_launches=True,
)
def waits_outside(facts: Facts) -> Iterator[Claim]:
    idle, ns = facts.idle, facts.idle.ns("queued")
    slow = (idle.launch >= 0) & (facts.trace.dur[idle.launch] > SLOW_NS)
    long = np.flatnonzero((ns > LEAST_NS) & ~slow)
    first = _is_first(facts, idle.event[long]) & _is_waited_for(facts, long)
    for places, early in ((long[first], True), (long[~first], False)):
        if len(places):
            yield _claim(facts, idle.event[places], ns[places], early)


def _claim(facts: Facts, events: Int32s, waited: Int64s, early: bool) -> Claim:
    """`early`: due to work before the recording."""
    at_stake = int(waited.sum())
    text = f"The GPU is idle for {of_span(facts, at_stake)} in {plural(len(events), 'gap')}"
    if early:
        return Claim(
            text=f"{text} before the first work of a stream, which was already launched, while "
            "a thread waits for the GPU: it probably finishes work from before the recording, so "
            "the share of busy time means nothing here.",
            at_stake_ns=at_stake,
            rows=the_most(events, waited),
            remedy="Call torch.{intel:xpu|:cuda}.synchronize() before the recording starts.",
            why_likely="Work that ran before the recording is not in the trace.",
        )
    return Claim(
        text=f"{text} although the next work was already launched. What it waited for is not "
        "recorded: another device, a function on the host, or unrecorded work.",
        at_stake_ns=at_stake,
        rows=the_most(events, waited),
    )


def _is_first(facts: Facts, events: Int32s) -> Flags:
    """Whether nothing of its stream is recorded before the event."""
    trace, rows = facts.trace, facts.trace.gpu_rows
    first = np.full(len(trace.tracks), np.iinfo(np.int64).max)
    np.minimum.at(first, trace.track[rows], trace.start[rows])
    return trace.start[events] <= first[trace.track[events]]


def _is_waited_for(facts: Facts, places: Rows) -> Flags:
    """Whether any thread is in a call that waits for the device during the gap."""
    rows = np.flatnonzero(facts.accounts.kinds == Host.SYNC)
    cover = facts.while_launching(rows)
    return cover.within(facts.idle.begin[places], facts.idle.end[places]) > 0
