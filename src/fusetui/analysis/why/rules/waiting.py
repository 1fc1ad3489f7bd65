"""The GPU waits for the data loader, a compiler, a synchronization or memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.loaders import (
    LOADER,
    WORKERS,
    loader_rows,
    waits_for_batches,
    worker_rows,
)
from fusetui.analysis.why.backward_threads import with_one_lead
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Host, running
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.model import Unawaited, Unmade
from fusetui.analysis.why.rule import Claim, Rule, of_span, why_likely
from fusetui.analysis.why.warming import GOES_ON, OFTEN, recurring
from fusetui.text.figures import count, duration, plural
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    summed,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, common, ranges, union

ITSELF = late(rf"{LOADER.pattern}|torch/utils/data/(?:dataloader|_utils/fetch)\.py")
"""Frames and ops of the loader itself: naming them would not help."""

MORE_WORKERS = (
    "The loader has workers already: more of them (num_workers), a larger prefetch_factor and "
    "persistent_workers=True prepare more batches ahead; else make what they do cheaper, or move "
    "it to the GPU."
)
"""The remedy where batches come from other processes."""

FEWER_BATCHES = (
    "More workers do not help: the batches were ready, and what is left is to take them over. "
    "Batches of fewer and larger tensors make that cheaper, and a thread that takes the next batch "
    "while the step runs (a prefetcher) hides it."
)
"""The remedy where the calls return as soon as they can."""

# for batches; fewer do not show how long a call takes whose batch is ready
MIN_CALLS = 3
MOST_OF_IT = 0.5  # of the time; a frame with at least this share is named


@Rule(
    needs=("launch calls", "CPU ops", "annotations", "Python frames and modules"),
    remedy="DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=...) prepares "
    "batches ahead; move heavy transforms to the GPU.",
)
def data_loading(facts: Facts) -> Iterator[Claim]:
    rows, names = loader_rows(facts.trace), facts.trace.names
    waited = facts.idle_during(rows)
    if waited:
        used = distinct(facts.trace.name[rows]).tolist()
        has_workers = any(WORKERS.search(names[n]) for n in used)
        were_ready = has_workers and batches_were_ready(facts)
        remedy = MORE_WORKERS if has_workers else None
        text = f"for the data loader{_mostly(facts, rows, waited)}."
        if were_ready:
            remedy = FEWER_BATCHES
            text = "while batches that are ready are taken from the workers of the data loader."
        yield Claim(
            text=f"The GPU waits {of_span(facts, waited)} {text}",
            at_stake_ns=waited,
            rows=facts.heaviest(rows),
            remedy=remedy,
            wanted=None if were_ready else "loader",
            why_likely=why_likely(facts),
        )


def batches_were_ready(facts: Facts) -> bool:
    """Whether MIN_CALLS or more calls for batches of workers mostly do what the
    shortest of them does: taking over a batch that is ready (docs/whatif.md, data
    loaders with workers)."""
    trace = facts.trace
    calls = facts.inside(worker_rows(trace))
    if len(calls) < MIN_CALLS:
        return False
    waits = waits_for_batches(trace, calls)
    lasted = trace.end[calls] - trace.start[calls]
    return bool(waits.sum() < MOST_OF_IT * lasted.sum())


def _mostly(facts: Facts, rows: Rows, waited: int) -> str:
    """What the loader does for most of that time: a frame, else an op, if one stands
    out."""
    trace, idle = facts.trace, facts.idle
    for kind in (Host.PYTHON, Host.OP):
        found = np.zeros(len(trace.names), dtype=np.int64)
        for line, _, placed in facts.launched():
            gaps = union(placed(idle.begin), placed(idle.end))
            waiting = common(gaps, union(*line.bounds(line.own(rows))))
            inner, start, end = line.slices(kind).touching(*waiting[:2]).parts()
            np.add.at(found, trace.name[inner], waiting.within(start, end))
        for number in np.argsort(-found, kind="stable")[
            : np.count_nonzero(found)
        ].tolist():
            name, ns = trace.names[number], int(found[number])
            if ns >= MOST_OF_IT * waited and not ITSELF.search(name):
                return f", {duration(ns)} of it in {frame_text(name)}"
    return ""


REGION = late(r"Torch-Compiled Region: ([0-9]{1,9})/[0-9]{1,9}")
"""A compiled function: the first number counts functions, the second one the times that
it was compiled anew, for other inputs."""
RESUMES = late(r"torch_dynamo_resume_in_")
"""Dynamo's name for the function that continues after a graph break."""
# compiled regions per step; two may be two functions, such as a model and its loss
SEVERAL = 3
SHOWN = 3
LONGEST_FRAME = 100  # characters


@Rule(
    needs=("annotations", "Python frames and modules"),
    remedy="Warm up before recording; if it recurs, TORCH_LOGS=recompiles names the guard that "
    "failed, and torch.compile(dynamic=True) or mark_dynamic avoids recompilation for new sizes.",
    thresholds={"several": SEVERAL},
    once=True,
)
def recompilation(facts: Facts) -> Iterator[Claim]:
    rows = facts.compiler_rows
    waited = facts.idle_during(rows)
    if waited:
        yield Claim(
            text=f"The GPU waits {of_span(facts, waited)} while "
            "torch.compile or Triton compiles during the recording.",
            at_stake_ns=waited,
            rows=facts.heaviest(rows),
            why_likely=why_likely(facts),
        )
    yield from _graph_breaks(facts)


def _graph_breaks(facts: Facts) -> Iterator[Claim]:
    """Only the function that continues after a break proves one. Where stacks were
    recorded and show none, several regions are functions that were compiled one by
    one."""
    trace = facts.trace
    resumed = facts.inside(trace.rows_named(RESUMES.search, Role.PYTHON))
    if facts.has_stacks and not len(resumed):
        return
    regions = facts.inside(trace.rows_named(REGION.match, Role.ANNOTATION, Role.OP))
    first, regions_per_step = _of_a_step(facts, regions)
    if regions_per_step < (2 if len(resumed) else SEVERAL):
        return
    names = ", ".join(printable(trace.name_of(row)) for row in first[:SHOWN].tolist())
    more = ", ..." if regions_per_step > SHOWN else ""
    text = f"A step runs {count(regions_per_step)} compiled regions ({names}{more})"
    if len(resumed):
        continues = frame_text(trace.name_of(int(resumed[0])), most=LONGEST_FRAME)
        text += (
            ": graph breaks divide the program, and nothing is fused across them. After a break "
            f"{continues} continues."
        )
    else:
        text += (
            ", and nothing is fused across them. Either graph breaks divide the program, or its "
            "functions are compiled one by one: without Python stacks the trace does not show "
            "which."
        )
    yield Claim(
        text=text,
        rows=tuple(first.tolist()),
        remedy='TORCH_LOGS="graph_breaks" names each break and its cause; '
        "torch.compile(fullgraph=True) makes it an error.",
        why_likely=None
        if len(resumed)
        else "Separately compiled functions look the same.",
    )


def _of_a_step(facts: Facts, rows: Rows) -> tuple[Rows, int]:
    """One row of each function in the first step with the usual number of them, and
    that number: the median over the steps that run any. Without steps, the whole trace
    counts as one."""
    step = np.searchsorted(facts.spans.start, facts.trace.start[rows], side="right")
    each = [rows[step == number] for number in distinct(step).tolist()]
    regions = [
        own[np.unique(_function(facts, own), return_index=True)[1]] for own in each
    ]
    if not regions:
        return rows, 0
    ordered = sorted(regions, key=len)
    usual = ordered[(len(ordered) - 1) // 2]
    return usual[np.argsort(facts.trace.start[usual], kind="stable")], len(usual)


def _function(facts: Facts, regions: Rows) -> Int64s:
    """The number of the function that each region was compiled from."""
    numbers = np.full(len(facts.trace.names), -1, dtype=np.int64)
    for name in distinct(facts.trace.name[regions]).tolist():
        found = REGION.match(facts.trace.names[name])
        if found:
            numbers[name] = int(found[1])
    of_region: Int64s = numbers[facts.trace.name[regions]]
    return of_region


LEAD = 3  # launches in the queue; from this many on, the CPU is ahead again


@Rule(
    remedy="Keep .item(), .tolist(), nonzero(), torch.{intel:xpu|:cuda}.synchronize() and copies "
    "from pageable memory out of the loop; read results a step later, from pinned memory with "
    "non_blocking=True and an event.",
    thresholds={"lead": LEAD},
    by_launches=True,
)
def drained_by_sync(facts: Facts) -> Iterator[Claim]:
    device, late = facts.idle.device, facts.late.sum(axis=0)
    call = _without_preparation(
        facts,
        running(
            facts.trace, facts.accounts.launchers, facts.idle.launch, facts.idle.begin
        ),
    )
    last_wait = _last_waits(facts)
    waits_within = (last_wait >= 0) & (facts.trace.end[last_wait] > facts.idle.begin)
    ends_run = _ahead_before(facts) | ((last_wait >= 0) & ~waits_within)
    marks = np.where(call >= 0, 2, np.where(ends_run, 1, 0))
    last = np.maximum.accumulate(np.where(marks > 0, np.arange(len(marks)), -1))
    # on the same device
    behind = (last >= device.searchsorted(device)) & (marks[last] == 2)
    # another wait, while the queue is empty: what follows is lost after that one
    within = _without_preparation(facts, np.where(waits_within, last_wait, -1))
    call = np.where(behind & (call < 0), within, call)
    # The times that the queue of any device ran dry after a wait; the host part of such
    # a gap and of those after it until the CPU is ahead, and how long the CPU waited
    # since its launch before.
    begins = np.flatnonzero(
        behind & ~np.concatenate(([False], behind[:-1])) | (call >= 0)
    )
    time = np.searchsorted(begins, np.flatnonzero(behind), side="right") - 1
    each_lost = summed(time, late[behind], len(begins))
    waits = _waits_before(facts, begins)
    each = saved_by_lead(waits, each_lost)
    at_stake = int(each.sum())
    lost = int(each_lost.sum())
    work = int((late * facts.busy_cpu)[behind].sum())
    if at_stake <= 0:
        return
    dry = int(np.count_nonzero(each))
    counts = (each > 0) | _saves_later(waits, each)
    calls = _calls(facts, call[begins], each_lost, each)
    also_waiting = _calls_that_wait(facts, begins[counts], waits.launch_before[counts])
    unawaited = distinct(np.append(call[begins[counts]], also_waiting))
    yield Claim(
        text=f"The queue runs dry {plural(dry, 'time')} while the CPU "
        f"waits for the GPU in {calls}, and the GPU then waits "
        f"{duration(lost)} for launches. Launching instead of waiting would save up to "
        f"{of_span(facts, at_stake)} of that.",
        at_stake_ns=at_stake,
        wanted=Unawaited(unawaited),
        rows=the_most(call[begins], each),
        part_of="cpu-work" if 2 * work > lost else "host-bound",
        why_likely=why_likely(facts),
    )


class Waits(NamedTuple):
    """How the CPU waited at each time that a queue ran dry; arrays of shape [times]."""

    ns: Int64s  # for how long; no time counts twice
    # a number: of the same device and thread (see with_one_lead), with no other wait between
    # them
    sequence: Int64s
    launch_before: Rows  # the launch call before the wait, -1 for none


def saved_by_lead(waits: Waits, lost_ns: Int64s) -> Int64s:
    """How much less the GPU would wait for launches at each time if the CPU did not
    wait (ns, of shape [times]), where it waited `lost_ns`.

    A CPU that does not wait is ahead by all the time for which it waited so far. The
    GPU waits less by as much, and what is left of that is for the next times: if one
    wait is long, and the GPU loses much after the next one, both together cost that.
    Another wait would end the lead.
    """
    saved_ns = np.zeros(len(lost_ns), dtype=np.int64)
    lead_ns = 0
    sequence = -1
    for time in np.argsort(waits.sequence, kind="stable").tolist():
        if waits.sequence[time] != sequence:
            sequence = int(waits.sequence[time])
            lead_ns = 0
        lead_ns += int(waits.ns[time])
        saved_ns[time] = min(lead_ns, int(lost_ns[time]))
        lead_ns -= int(saved_ns[time])
    return saved_ns


def _saves_later(waits: Waits, saved_ns: Int64s) -> Flags:
    """The times whose wait is part of what a later one of its sequence saves."""
    needs_more = saved_ns > waits.ns
    last = np.full(int(waits.sequence.max(initial=-1)) + 1, -1)
    np.maximum.at(last, waits.sequence[needs_more], np.flatnonzero(needs_more))
    found: Flags = (np.arange(len(saved_ns)) < last[waits.sequence]) & (
        waits.ns > saved_ns
    )
    return found


def _calls(facts: Facts, calls: Rows, lost_ns: Int64s, saved_ns: Int64s) -> str:
    """The call after which the GPU waits longest, and the one whose waiting costs most,
    if that is another one."""
    of_loss = _called(facts, calls, lost_ns)
    of_saving = _called(facts, calls, saved_ns)
    return of_loss if of_loss == of_saving else f"{of_loss} and {of_saving}"


def _called(facts: Facts, calls: Rows, ns: Int64s) -> str:
    trace = facts.trace
    name = int(np.bincount(trace.name[calls], ns, len(trace.names)).argmax())
    own = trace.name[calls] == name
    op = int(np.bincount(trace.op[calls[own]] + 1, ns[own]).argmax()) - 1
    called = printable(trace.names[name][:200])
    return f"{called} ({frame_text(trace.name_of(op))})" if op >= 0 else called


def _without_preparation(facts: Facts, calls: Rows) -> Rows:
    """The call in which the queue ran dry at each gap, -1 for none; without those of
    the search for algorithms, of a cold first step, and before the first kernel."""
    starts = np.where(calls >= 0, facts.trace.start[calls], facts.begin_ns)
    is_warm_up = (calls >= 0) & (facts.warming.place_of(starts) >= 0)
    found: Rows = np.where(is_warm_up | facts.set_up, -1, calls)
    return found


def _last_waits(facts: Facts) -> Rows:
    """For each gap that ends with a launch, the last call that waits for the device
    which its thread, or the other one of a pair, began since the launch that ended the
    gap before it, -1 for none."""
    idle = facts.idle
    is_first = np.diff(idle.device, prepend=-1) > 0
    since = np.where(is_first, facts.begin_ns, np.roll(idle.called, 1))
    found = np.full(len(idle), -1, dtype=np.intp)
    for line, own, placed in facts.launched():
        slices = line.slices(Host.SYNC)
        place = slices.start.searchsorted(placed(idle.called)) - 1
        is_after = np.append(slices.start, -FOREVER)[place] > placed(since)
        found[own] = np.where(is_after, np.append(slices.rows, -1)[place], -1)
    found[~idle.plain] = -1
    return found


def _waits_before(facts: Facts, gaps: Rows) -> Waits:
    """For some gaps in order, the waits of the launching thread between its previous
    launch (including that: a copy may block) and the launch that ends the gap, or the
    gap's begin if it was launched before that; without what counts for an earlier one
    of these gaps. A thread of autograd's engine and the one that waits for it count as
    one thread."""
    trace, idle = facts.trace, facts.idle
    tracks = trace.track[idle.launch[gaps]]
    thread = with_one_lead(trace)[trace.thread_of_track[tracks]]
    group = distinct_rows((idle.device[gaps], thread))[1]
    order = np.argsort(group, kind="stable")
    until = idle.called[gaps]
    launch_before = _launches_before(trace, thread, until)
    since = np.where(launch_before >= 0, trace.start[launch_before], facts.begin_ns)
    is_first = np.diff(group[order], prepend=-1) != 0
    before = np.empty(len(gaps), dtype=np.int64)  # the end of the wait before
    before[order] = np.where(is_first, since[order], np.roll(until[order], 1))
    since = np.minimum(np.maximum(since, before), until)
    ns = np.zeros(len(gaps), dtype=np.int64)
    others_ns = np.zeros(len(gaps), dtype=np.int64)
    for line in facts.accounts.launchers:
        own = np.flatnonzero(line.tracks[tracks])
        edges = [
            line.on_line(tracks[own], times[own])
            for times in (np.minimum(before, since), since, until)
        ]
        sync = line.covers[Host.SYNC]
        others_ns[own] = sync.within(*edges[:2])
        ns[own] = sync.within(*edges[1:])
    begins_anew = (np.diff(group[order], prepend=-1) != 0) | (others_ns[order] > 0)
    sequence = np.empty(len(gaps), dtype=np.int64)
    sequence[order] = np.cumsum(begins_anew) - 1
    return Waits(ns=ns, sequence=sequence, launch_before=launch_before)


def _launches_before(trace: Trace, thread: Rows, until: Int64s) -> Rows:
    """The last call before each time (ns of the file) that launches work on a thread,
    by the numbers of with_one_lead; -1 for none."""
    calls = distinct(trace.launch[trace.gpu_rows].astype(np.int64))
    calls = calls[calls >= 0]
    calls = calls[np.argsort(trace.start[calls], kind="stable")]
    launching_thread = with_one_lead(trace)[trace.thread_of_track[trace.track[calls]]]
    found = np.full(len(until), -1, dtype=np.intp)
    for number in distinct(thread).tolist():
        mine = np.flatnonzero(thread == number)
        own = calls[launching_thread == number]
        place = np.searchsorted(trace.start[own], until[mine]) - 1
        found[mine] = np.append(own, -1)[place]
    return found


def _calls_that_wait(facts: Facts, gaps: Rows, launch_before: Rows) -> Rows:
    """All calls whose waits count for these gaps, and the launches before them: those
    of the launching thread, or of the other one of its pair, that wait for the device,
    from the previous launch to the one that ends the gap. A copy that blocks often has
    a synchronization behind it, which would wait instead."""
    trace, idle = facts.trace, facts.idle
    number = with_one_lead(trace)
    waiting = np.flatnonzero(facts.accounts.kinds == Host.SYNC)
    waiting = waiting[np.argsort(trace.start[waiting], kind="stable")]
    thread_of_wait = number[trace.thread_of_track[trace.track[waiting]]]
    has_launch = launch_before >= 0
    since = np.where(has_launch, trace.start[launch_before], facts.begin_ns)
    until = np.maximum(idle.called[gaps], idle.begin[gaps])
    first = np.searchsorted(trace.start[waiting], since)
    last = np.searchsorted(trace.start[waiting], until)
    counts = np.maximum(last - first, 0)
    found = ranges(first, counts)
    thread_of_gap = number[trace.thread_of_track[trace.track[idle.launch[gaps]]]]
    is_own = thread_of_wait[found] == np.repeat(thread_of_gap, counts)
    return distinct(np.append(waiting[found[is_own]], launch_before[has_launch]))


def _ahead_before(facts: Facts) -> Flags:
    """For each gap, whether any event since the previous gap started with enough others
    in the queue."""
    trace, idle, first = facts.trace, facts.idle, 0
    # the end of the previous gap
    before = np.concatenate(([facts.begin_ns], idle.end))[:-1]
    before[np.diff(idle.device, prepend=-1) > 0] = facts.begin_ns
    found = np.zeros(len(idle), dtype=np.bool_)
    for devices in facts.lines:
        own = slice(*idle.device.searchsorted((first, first + len(devices))).tolist())
        # Of the launched events in order: how many later ones had been launched by
        # their starts.
        rows = devices.events[trace.launch[devices.events] >= 0]
        start = devices.bounds_on(rows)[0]
        launched = np.sort(
            devices.on_line(devices.number(rows), trace.start[trace.launch[rows]])
        )
        queued = np.searchsorted(launched, start, side="right") - np.arange(
            1, len(rows) + 1
        )
        ahead = np.concatenate(([0], np.cumsum(queued >= LEAD)))
        number = idle.device[own] - first
        until = np.searchsorted(
            start, devices.on_line(number, idle.begin[own]), side="right"
        )
        since = np.searchsorted(start, devices.on_line(number, before[own]))
        found[own] = ahead[until] > ahead[since]
        first += len(devices)
    return found


UNCACHED = (
    "So many frees mean that the caching allocator does not serve the program: look for "
    "{intel:|:PYTORCH_NO_CUDA_MEMORY_CACHING}{amd: or PYTORCH_NO_HIP_MEMORY_CACHING}{intel:|: in "
    "its environment, for }torch.{intel:xpu|:cuda}.empty_cache() in the loop, and for a library "
    "that allocates by itself."
)
"""The remedy where memory is freed all the time."""

GROWING = (
    "Nothing is freed, so the caching allocator still grows: run each shape, and each stream, "
    "which has a pool of its own, before the part that counts{segments:; "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True needs fewer calls where sizes vary}."
)
"""The remedy where memory is allocated and never freed."""
MAY_STILL_GROW = "Without steps, the pool of the allocator may only not be filled yet."

FREES = late(r"Free")
GIVES_BACK = late(r"Free|Release|Unmap|Unregister")
# of the steps after the first one: calls of a name in fewer of them do not recur
OFTEN_STEPS = 0.5


@Rule(
    remedy="Let the caching allocator keep its memory: no torch.{intel:xpu|:cuda}.empty_cache() "
    "in the loop, {segments:PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
    "fragmentation, }and room to spare.",
    thresholds={"often": OFTEN, "goes_on": GOES_ON, "often_steps": OFTEN_STEPS},
    by_launches=True,
)
def allocation(facts: Facts) -> Iterator[Claim]:
    rows = facts.inside(np.flatnonzero(facts.accounts.kinds == Host.ALLOC))
    rows = _in_many_steps(facts, rows[recurring(facts.trace, facts.spans, rows)])
    at_stake = int(facts.host_under(facts.while_launching(rows))[Host.ALLOC].sum())
    if not at_stake:
        return
    waited_for = facts.waited_for(rows)
    heaviest = the_most(rows, waited_for)
    names = facts.trace.name[rows]
    name = facts.trace.name_of(heaviest[0])
    alike = (names == facts.trace.name[heaviest[0]]) & (waited_for > 0)
    frees = int(np.count_nonzero(facts.trace.matching(rows, FREES.search)))
    remedy = None
    doubt = None
    if not facts.trace.matching(rows, GIVES_BACK.search).any():
        remedy = GROWING
        doubt = None if len(facts.spans) > 1 else MAY_STILL_GROW
    elif frees >= OFTEN * len(facts.gpu_rows):
        remedy = UNCACHED
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake)} while memory "
        f"is allocated or freed, mostly in {count(int(alike.sum()))} x {printable(name)}.",
        at_stake_ns=at_stake,
        wanted=Unmade(rows),
        rows=heaviest,
        remedy=remedy,
        why_likely=doubt,
    )


def _in_many_steps(facts: Facts, rows: Rows) -> Rows:
    """The calls of names that are called in at least two of the steps after the first
    one, and in half of them; all calls where there are fewer than three steps."""
    later = len(facts.spans) - 1
    if later < 2:
        return rows
    step = np.searchsorted(facts.spans.start, facts.trace.start[rows], side="right") - 1
    name = facts.trace.name[rows]
    own = np.flatnonzero(step > 0)
    called = name[own[distinct_rows((name[own], step[own]))[0]]]
    steps = np.bincount(called, minlength=len(facts.trace.names))
    return rows[steps[name] >= max(2, OFTEN_STEPS * later)]
