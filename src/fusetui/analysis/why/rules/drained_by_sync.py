"""The program waits for the GPU, and the GPU then waits for the program."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle import Flags, Idle, Int64s, Rows, bounds_on, on_line, sums
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import (
    NO_LAUNCHES,
    Claim,
    Rule,
    frame_text,
    share_of_span,
    why_likely,
)
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.intervals import distinct

LEAD = 3  # launches in the queue; from this many on, the CPU is ahead again


class Drained(msgspec.Struct, frozen=True, eq=False):
    """The times that the queue of any device ran dry after a wait; arrays of shape [times], ns."""

    call: Rows  # in which the launching thread waited
    lost: Int64s  # the host part of the gap, and of those after it until the CPU is ahead
    long: Int64s  # as far as that lies in gaps of cpu-work
    waited: Int64s  # by the CPU, since its previous launch

    @property
    def at_stake(self) -> Int64s:
        found: Int64s = np.minimum(self.lost, self.waited)
        return found


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    found = [_drained(facts, n) for n in range(len(facts.idle))]
    call = np.concatenate([drained.call for drained in found])
    each = np.concatenate([drained.at_stake for drained in found])
    at_stake = int(each.sum())
    if at_stake <= 0:
        return
    lost = sum(int(drained.lost.sum()) for drained in found)
    long = sum(int(drained.long.sum()) for drained in found)
    yield Claim(
        text=f"The queue runs dry {plural(int(np.count_nonzero(each)), 'time')} while the CPU "
        f"waits for the GPU in {_called(facts, call, each)}, and the GPU then waits "
        f"{duration(lost)} for launches. Launching instead of waiting would save "
        f"{duration(at_stake)} ({share_of_span(facts, at_stake)}) at most.",
        at_stake_ns=at_stake,
        rows=the_most(call, each),
        part_of="cpu-work" if 2 * long > lost else "host-bound",
        why_likely=why_likely(facts),
    )


def _called(facts: Facts, calls: Rows, ns: Int64s) -> str:
    """The name of the call, and the op around it, with the most time."""
    trace = facts.trace
    by_name = np.bincount(trace.name[calls], ns, len(trace.names))
    name = int(by_name.argmax())
    own = trace.name[calls] == name
    op = int(np.bincount(trace.op[calls[own]] + 1, ns[own]).argmax()) - 1
    called = printable(trace.names[name][:200])
    return f"{called} ({frame_text(trace.name_of(op))})" if op >= 0 else called


def _drained(facts: Facts, number: int) -> Drained:
    idle, late = facts.idle[number], facts.late[number].sum(axis=0)
    call = facts.running_at_begin(idle, Host.SYNC)
    marks = np.where(call >= 0, 2, np.where(_ahead_before(facts, idle), 1, 0))
    last = np.maximum.accumulate(np.where(marks > 0, np.arange(len(marks)), -1))
    device = idle.devices.number(idle.event)
    behind = (last >= device.searchsorted(device)) & (marks[last] == 2)  # on the same device
    begins = np.flatnonzero(behind & ~np.concatenate(([False], behind[:-1])) | (call >= 0))
    time = np.searchsorted(begins, np.flatnonzero(behind), side="right") - 1
    return Drained(
        call=call[begins],
        lost=sums(time, late[behind], len(begins)),
        long=sums(time, (late * facts.busy_cpu[number])[behind], len(begins)),
        waited=_waited(facts, idle)[begins],
    )


def _waited(facts: Facts, idle: Idle) -> Int64s:
    """For each gap, how long the launching thread waited for the device between its previous launch
    (including that: a copy may block) and the launch that ends the gap."""
    trace, found = facts.trace, np.zeros(len(idle), dtype=np.int64)
    calls = distinct(trace.launch[trace.gpu_rows].astype(np.int64))
    calls = calls[calls >= 0]
    for line in facts.accounts.threads:
        own = calls[line.tracks[trace.track[calls]]]
        starts = np.sort(bounds_on(trace, line, own)[0])
        places, _, _ = on_line(trace, line, idle)
        track = idle.track(trace)[places]
        until = line.on_line(track, idle.called[places])
        since = line.on_line(track, np.full(len(places), facts.begin_ns))
        before = np.searchsorted(starts, until) - 1
        since = np.where(before >= 0, np.maximum(np.append(starts, 0)[before], since), since)
        found[places] = line.covers[Host.SYNC].within(np.minimum(since, until), until)
    return found


def _ahead_before(facts: Facts, idle: Idle) -> Flags:
    """For each gap, whether any event since the previous gap started with enough others in the
    queue."""
    devices = idle.devices
    start, queued = _queued(facts, devices)
    ahead = np.concatenate(([0], np.cumsum(queued >= LEAD)))
    number = devices.number(idle.event)
    before = np.concatenate(([facts.begin_ns], idle.end))[:-1]  # the end of the previous gap
    before[np.diff(number, prepend=-1) > 0] = facts.begin_ns
    until = ahead[np.searchsorted(start, devices.on_line(number, idle.begin), side="right")]
    since = ahead[np.searchsorted(start, devices.on_line(number, before))]
    found: Flags = until > since
    return found


def _queued(facts: Facts, devices: Devices) -> tuple[Int64s, Int64s]:
    """The starts of the launched events of each device on the line, in order, and how many later
    ones had been launched by then."""
    trace, rows = facts.trace, devices.events
    rows = rows[trace.launch[rows] >= 0]
    start = devices.bounds_on(rows)[0]
    launched = np.sort(devices.on_line(devices.number(rows), trace.start[trace.launch[rows]]))
    return start, np.searchsorted(launched, start, side="right") - np.arange(1, len(rows) + 1)


RULE = Rule(
    id="drained-by-sync",
    title="The queue runs dry after a synchronization",
    question="Does the program wait for the GPU, and so lose its lead?",
    needs="Launch calls.",
    formula="For each gap that begins while the launching thread is inside a call that waits for "
    "the device, the lesser of two times: how long the thread waited since its last launch; and "
    "the host part (except synchronization and allocation) of this gap and of those after it, "
    "until three launches are queued or the next wait, minus what data-loading and recompilation "
    "claim.",
    remedy="Keep .item(), .tolist(), nonzero(), torch.{intel:xpu|:cuda}.synchronize() and copies "
    "from pageable memory out of the loop; read results a step later, from pinned memory with "
    "non_blocking=True and an event.",
    thresholds={"lead": LEAD},
    find=find,
    silent="A program that launches too slowly anyway gains no more than the time for which it "
    "waited: the rest is host-bound.",
)
