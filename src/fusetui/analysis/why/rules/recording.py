"""What makes the trace itself misleading, and what is not in it: GPU work, and what the
GPU waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, of_span
from fusetui.analysis.why.rules.launches import SLOW_NS
from fusetui.analysis.why.warming import FEWEST, captures, first_step
from fusetui.text.figures import count, duration, percent, plural, quantity
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import PROFILED
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, union

SLOW_FIRST = 1.5  # times the median of the other steps
UNLINKED = 0.05  # of the GPU time
REPLAYS = 0.05  # of the span
CAPTURED = 0.5  # of the steps
SHOWN_STEPS = 3  # slow ones that are named


@Rule(
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
    steps = list(_captures(facts)) or _few_steps(facts)
    notes = [
        *_nothing_but_launches(facts),
        *_unlinked(facts),
        *_first_step(facts),
        *steps,
        *_stacks(facts),
        *_graphs(facts),
    ]
    if notes:
        texts, remedies, rows = zip(*notes, strict=True)
        yield Claim(
            " ".join(texts), rows=tuple(chain(*rows)), remedy=" ".join(remedies)
        )


WITHOUT_GPU_EVENTS = (
    "Read the warnings that the profiler prints when it starts. Close other profilers and "
    "debuggers, as only one can trace the GPU{nvidia: (Nsight, DCGM, cuda-gdb hold CUPTI)}; allow "
    "tracing{nvidia: (NVreg_RestrictProfilingToAdminUsers=0, in a container --cap-add=SYS_ADMIN)}; "
    "in WSL update the driver of Windows, or record on Linux."
)
"""The remedy where launches were recorded, and nothing that they launched."""
WITHOUT_GPU_EVENTS_OF_NSYS = (
    "Read the warnings of nsys, of which the export keeps those that fusetui prints. Close other "
    "profilers and debuggers, as only one can trace the GPU (torch.profiler, Nsight Compute, DCGM "
    "and cuda-gdb hold CUPTI); allow tracing (NVreg_RestrictProfilingToAdminUsers=0, in a container "
    "--cap-add=SYS_ADMIN)."
)
"""Likewise, where Nsight Systems recorded them."""
WITHOUT_COUNTERS = (
    "Record without profiler_metrics: where torch.profiler records ranges of counters, it records "
    "no kernels."
)
"""Likewise, where ranges of counters were recorded."""

Note = tuple[str, str, tuple[int, ...]]
"""A sentence, its remedy, and its evidence."""


def _nothing_but_launches(facts: Facts) -> Iterator[Note]:
    """Of a whole file: else the GPU events may be in what is missing of it."""
    trace = facts.trace
    launches = _launches(facts)
    if len(trace.gpu_rows) or not len(launches) or not trace.report.complete:
        return
    names = Counter(trace.name_of(row) for row in launches.tolist())
    name = printable(names.most_common(1)[0][0])
    mostly = "mostly " if len(names) > 1 else ""
    has_counters = len(trace.rows_of(Role.DEVICE)) > 0
    received = "only ranges of counters" if has_counters else "nothing"
    lengthened = (
        " Counters are measured inside the launch calls, which takes much longer than launching: "
        "the times of the CPU mean little."
    )
    is_of_nsys = trace.report.writer == "nsys"
    others = WITHOUT_GPU_EVENTS_OF_NSYS if is_of_nsys else WITHOUT_GPU_EVENTS
    yield (
        f"{plural(len(launches), 'launch call')} ({mostly}{name}) "
        f"{'was' if len(launches) == 1 else 'were'} recorded, but no GPU event: the profiler "
        f"traced the calls, and received {received} from the GPU."
        f"{lengthened if has_counters else ''}",
        WITHOUT_COUNTERS if has_counters else others,
        the_most(launches, trace.dur[launches]),
    )


def _stacks(facts: Facts) -> Iterator[Note]:
    if facts.is_profiled:
        yield (
            "Python stacks were recorded while the GPU waited for the CPU: the times of the CPU "
            "include the work of the profiler, and without it the program may be faster.",
            "Record again with with_stack=False for the times, and keep this trace for the frames.",
            (),
        )


def _graphs(facts: Facts) -> Iterator[Note]:
    launches, waited = facts.idle.launch, facts.idle.ns("launch_call")
    replays = (launches >= 0) & graph_calls(facts.trace)[launches] & (waited > 0)
    at_stake = int(waited[replays].sum())
    if at_stake and at_stake >= REPLAYS * facts.span_ns:
        name = printable(facts.trace.name_of(int(launches[replays][0])))
        yield (
            f"The GPU waits {of_span(facts, at_stake)} inside {name}, which recording the nodes of "
            "a graph makes slower.",
            "Time the step without the profiler to see how much of this stays.",
            the_most(launches[replays], waited[replays]),
        )


def _unlinked(facts: Facts) -> Iterator[Note]:
    """GPU events without a launch call beside others that have one."""
    trace, rows = facts.trace, facts.gpu_rows
    without = rows[trace.launch[rows] < 0]
    lost, whole = int(trace.dur[without].sum()), int(trace.dur[rows].sum())
    if facts.has_launches and whole and lost >= UNLINKED * whole:
        yield (
            f"The launch calls of {plural(len(without), 'GPU event')} ({percent(lost, whole)} of "
            "the GPU time) are not in the trace: they came before it began, or were not recorded.",
            "Call torch.{intel:xpu|:cuda}.synchronize() right before the recorded steps begin, so "
            "that no earlier work runs into them.",
            the_most(without, trace.dur[without]),
        )


def _first_step(facts: Facts) -> Iterator[Note]:
    """Of a first step that takes long; with all that do, if it is not the only one."""
    times = facts.step_intervals
    first_ns, usual_ns = first_step(facts.spans, times) or (0, 0)
    if times is None or not usual_ns or first_ns < SLOW_FIRST * usual_ns:
        return
    lengths = times.end - times.start
    slow = np.flatnonzero(lengths >= SLOW_FIRST * usual_ns)
    slow = slow[np.argsort(-lengths[slow], kind="stable")]
    if slow[0] != 0:
        yield _slow_steps(facts, lengths, slow, usual_ns)
        return
    until = ", up to the end of the work that it launches," if times.by_work else ""
    yield (
        f"The first step{until} takes {duration(first_ns)}, "
        f"{quantity(first_ns / usual_ns, digits=2)} times as long as the median of the others "
        f"({duration(round(usual_ns))}){_later_ones(facts, lengths, slow[1:])}.",
        "Look at the later steps (--step), or warm up for longer before recording.",
        tuple(facts.spans.rows[slow[:SHOWN_STEPS]].tolist()),
    )


def _later_ones(facts: Facts, lengths: Int64s, later: Rows) -> str:
    """What is said of later steps that take long too, the longest first."""
    if not len(later):
        return ""
    takes = "takes" if len(later) == 1 else "take"
    longest = int(later[0])
    return (
        f"; {plural(len(later), 'later one')} {takes} at least {SLOW_FIRST} times that median, at "
        f"most {duration(int(lengths[longest]))} ({printable(facts.spans.names[longest])})"
    )


def _slow_steps(facts: Facts, lengths: Int64s, slow: Rows, usual_ns: float) -> Note:
    """About a first step that takes long, and later ones of which one takes longer; the
    longest first."""
    spans = facts.spans
    named = []
    for place in slow[:SHOWN_STEPS].tolist():
        first = ", the first one," if place == 0 else ""
        named.append(
            f"{printable(spans.names[place])}{first} {duration(int(lengths[place]))}"
        )
    more = ", ..." if len(slow) > SHOWN_STEPS else ""
    return (
        f"{count(len(slow))} of {plural(len(spans), 'step')} take at least {SLOW_FIRST} times the "
        f"median of those after the first one ({duration(round(usual_ns))}): "
        f"{', '.join(named)}{more}.",
        "Compare the steps (fusetui steps), and look at an ordinary one (--step).",
        tuple(spans.rows[slow[:SHOWN_STEPS]].tolist()),
    )


def _captures(facts: Facts) -> Iterator[Note]:
    once, found = captures(facts.trace), facts.spans
    length = int((found.end - found.start).sum())
    captured = int(union(once.start, once.end).within(found.start, found.end).sum())
    if captured >= CAPTURED * length > 0:
        yield (
            f"For {duration(captured)} of {plural(len(found), 'step')} "
            f"({percent(captured, length)}) a graph is captured: what is launched meanwhile "
            "becomes part of it and does not run.",
            "Look at replays of the graph for what it costs.",
            tuple(once.rows[:FEWEST].tolist()),
        )


def _few_steps(facts: Facts) -> Iterator[Note]:
    """Of a whole trace: one step that was asked for is no recording of its own. Servers
    have no schedule of the profiler."""
    found = facts.spans
    profiled = found.by == PROFILED
    if (
        facts.window is None
        and 0 < len(found) < FEWEST
        and (profiled or found.are_iterations)
    ):
        schedule = f"Give the profiler a schedule with active={FEWEST} or more."
        yield (
            f"Only {plural(len(found), 'step')} {'was' if len(found) == 1 else 'were'} recorded: "
            "whether others take as long is not known.",
            schedule if profiled else f"Record {FEWEST} steps or more.",
            tuple(found.rows.tolist()),
        )


LONG_NS = 1_000_000
LAUNCHES = late(r"LaunchKernel|KernelLaunch|LaunchCooperativeKernel|GraphLaunch")
"""cudaLaunchKernelExC, cuLaunchKernelEx, hipExtModuleLaunchKernel,
urEnqueueKernelLaunch, hipGraphLaunch; not cudaLaunchHostFunc, nor sets, which do
nothing where their length is 0."""


@Rule(
    remedy="Record a shorter window with fewer activities, as full buffers drop events; newer "
    "drivers{nvidia: and CUPTI|amd: and roctracer} record more; check that no other profiler"
    "{nsys: (torch.profiler, DCGM)|nvidia: (Nsight, DCGM)} runs.",
    thresholds={"long_ns": LONG_NS},
    by_launches=True,
)
def holes(facts: Facts) -> Iterator[Claim]:
    ns, events = facts.idle.ns("graph"), facts.idle.event
    long = ns > LONG_NS
    at_stake = int(ns[long].sum())
    if at_stake:
        yield Claim(
            text=f"Nothing is recorded for {of_span(facts, at_stake)} "
            f"between nodes of graphs, in {plural(int(long.sum()), 'gap')} of more than "
            f"{duration(LONG_NS)}: other nodes probably ran meanwhile, and were not recorded.",
            at_stake_ns=at_stake,
            rows=the_most(events[long], ns[long]),
            why_likely="A graph may also wait for a function on the host or for another device.",
        )
    # else the events may be in what is missing of the file
    if facts.trace.report.complete:
        yield from _without_events(facts)


def _without_events(facts: Facts) -> Iterator[Claim]:
    trace, idle, launches = facts.trace, facts.idle, _launches(facts)
    calls, following = _missing(trace, launches)
    unlinked = int(np.count_nonzero(trace.launch[trace.gpu_rows] < 0))
    if len(calls) <= unlinked:  # the events that belong to no call may be theirs
        return
    # by the call that launches next; the last for none
    since = np.full(len(trace) + 1, FOREVER)
    np.minimum.at(since, following, trace.start[calls])
    begin = np.maximum(
        idle.begin, np.where(idle.ns("graph") > 0, FOREVER, since[idle.launch])
    )
    at_stake = int((np.maximum(idle.end, begin) - begin).sum())
    if not at_stake:
        return
    names = Counter(trace.name_of(int(row)) for row in calls)
    lasted = trace.dur[calls]
    low, high = duration(int(lasted.min())), duration(int(lasted.max()))
    lasts = f"of {low}" if low == high else f"of {low} to {high}"
    yield Claim(
        text=f"{count(len(calls))} of {plural(len(launches), 'launch call')} "
        f"({printable(names.most_common(1)[0][0])}, {lasts}) have no GPU event, although calls "
        "before and after them have one: their work was not recorded, and may have run in "
        f"{of_span(facts, at_stake)} of the idle time.",
        at_stake_ns=at_stake,
        rows=the_most(calls, lasted),
    )


def _missing(trace: Trace, calls: Rows) -> tuple[Rows, Rows]:
    """The calls without an event between two calls of the same thread that have one,
    and the next call that has one."""
    every = trace.rows_of(Role.CALL)
    linked, own = distinct(trace.correlation[trace.gpu_rows]), trace.correlation[every]
    # np.isin would sort both
    place = np.minimum(linked.searchsorted(own), len(linked) - 1)
    with_event = every[linked[place] == own]
    inside = with_event.searchsorted((calls, trace.end_row[calls]))
    without = calls[inside[0] == inside[1]]  # nor a call inside of it
    rows = np.concatenate((with_event, without))
    thread = trace.thread_of_track[trace.track[rows]]
    order = np.lexsort((trace.start[rows], thread))
    rows, thread, known = rows[order], thread[order], order < len(with_event)
    place = np.arange(len(rows))
    last = np.maximum.accumulate(np.where(known, place, -1))
    next_ = np.minimum.accumulate(np.where(known, place, len(rows))[::-1])[::-1]
    bounded = np.flatnonzero((last >= 0) & (next_ < len(rows)) & ~known)
    last, next_ = last[bounded], next_[bounded]
    same = (thread[last] == thread[bounded]) & (thread[next_] == thread[bounded])
    return rows[bounded[same]], rows[next_[same]]


def _launches(facts: Facts) -> Rows:
    """The calls in the window that launch kernels or graphs; of a call inside of a
    call, the outer one."""
    trace = facts.trace
    calls = facts.trace.rows_named(LAUNCHES.search, Role.CALL)
    outer = trace.parent[calls]
    calls = calls[(outer < 0) | (trace.role[outer] != Role.CALL)]
    inside = (trace.start[calls] >= facts.begin_ns) & (
        trace.start[calls] < facts.end_ns
    )
    calls = calls[inside & (trace.correlation[calls] > 0)]
    # what is launched meanwhile, by whichever thread, runs later
    captured = captures(trace)
    found: Rows = calls[
        union(captured.start, captured.end).place_of(trace.start[calls]) < 0
    ]
    return found


LEAST_NS = 20_000
EARLY = (
    " before the first work of a stream, which was already launched, while a thread waits for the "
    "GPU: it probably finishes work from before the recording, so the share of busy time means "
    "nothing here.",
    "Call torch.{intel:xpu|:cuda}.synchronize() before the recording starts.",
    "Work that ran before the recording is not in the trace.",
)
OUTSIDE = (
    " although the next work was already launched. What it waited for is not recorded: another "
    "device, a function on the host, or unrecorded work.",
    None,
    None,
)
"""What is said of such gaps; the remedy; why that is only likely."""


@Rule(
    remedy="Look at the other devices of the job, and at "
    "{nvidia:cudaStreamWaitEvent|amd:hipStreamWaitEvent|:waits for events} and host functions on "
    "the stream.",
    thresholds={"least_ns": LEAST_NS},
    by_launches=True,
)
def waits_outside(facts: Facts) -> Iterator[Claim]:
    trace, idle, ns = facts.trace, facts.idle, facts.idle.ns("queued")
    slow = (idle.launch >= 0) & (trace.dur[idle.launch] > SLOW_NS)
    long = np.flatnonzero((ns > LEAST_NS) & ~slow)
    # Before the first work of a stream, while a thread waits: for work before the
    # recording.
    first = np.full(len(trace.tracks), FOREVER)
    np.minimum.at(first, trace.track[trace.gpu_rows], trace.start[trace.gpu_rows])
    events = idle.event[long]
    waiting = facts.while_launching(np.flatnonzero(facts.accounts.kinds == Host.SYNC))
    early = trace.start[events] <= first[trace.track[events]]
    early &= waiting.within(idle.begin[long], idle.end[long]) > 0
    for own, (said, remedy, why_likely) in (
        (long[early], EARLY),
        (long[~early], OUTSIDE),
    ):
        waited, gaps = int(ns[own].sum()), plural(len(own), "gap")
        if waited:
            yield Claim(
                text=f"The GPU is idle for {of_span(facts, waited)} in {gaps}{said}",
                at_stake_ns=waited,
                rows=the_most(idle.event[own], ns[own]),
                remedy=remedy,
                why_likely=why_likely,
            )
