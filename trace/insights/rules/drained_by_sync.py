"""The program waits for the GPU, and the GPU then waits for the program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.cover import Cover, joined
from fusetui.trace.insights.facts import Facts, Flags, Idle, Int64s, Rows
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.rule import NO_LAUNCHES, Claim, Rule
from fusetui.trace.insights.rules.host_bound import KINDS
from fusetui.trace.insights.wording import frame_text, share_of_span, the_most
from fusetui.trace.text.figures import duration, plural
from fusetui.trace.text.printable import printable

LEAD = 3  # launches in the queue, from which on the CPU is ahead again


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    syncs = [facts.running_at_begin(idle, Host.SYNC) for idle in facts.idle]
    lost = [_lost(facts, idle, sync >= 0) for idle, sync in zip(facts.idle, syncs, strict=True)]
    whole = Cover(np.array([facts.begin_ns]), np.array([facts.end_ns]))
    explained = joined(facts.loading, facts.compiling)
    at_stake = facts.host_ns(whole, KINDS, lost) - facts.host_ns(explained, KINDS, lost)
    if at_stake <= 0:
        return
    calls = np.concatenate(syncs)
    waited = np.concatenate([idle.called - idle.begin for idle in facts.idle])
    drained = (calls >= 0) & (waited > 0)
    rows = the_most(calls[drained], waited[drained])
    yield Claim(
        text=f"The queue runs dry {plural(int(np.count_nonzero(drained)), 'time')} while the CPU "
        f"waits for the GPU in {_called(facts, calls[drained], waited[drained])}: until launches "
        f"are queued again the GPU stands still for {duration(at_stake)} "
        f"({share_of_span(facts, at_stake)}).",
        at_stake_ns=at_stake,
        rows=rows,
        part_of="host-bound",
    )


def _called(facts: Facts, calls: Rows, waited: Int64s) -> str:
    """The name of the call, and the op around it, with the most time."""
    trace = facts.trace
    by_name = np.bincount(trace.name[calls], waited, len(trace.names))
    name = int(by_name.argmax())
    own = calls[trace.name[calls] == name]
    ops = np.bincount(trace.op[own] + 1, waited[trace.name[calls] == name])
    op = int(ops.argmax()) - 1
    called = printable(trace.names[name][:200])
    return f"{called} ({frame_text(trace.name_of(op))})" if op >= 0 else called


def _lost(facts: Facts, idle: Idle, drained: Flags) -> Flags:
    """The gaps that begin inside a call that waits, and those after them until the CPU is ahead."""
    marks = np.where(drained, 2, np.where(_ahead_before(facts, idle), 1, 0))
    last = np.maximum.accumulate(np.where(marks > 0, np.arange(len(marks)), -1))
    found: Flags = (last >= 0) & (marks[last] == 2) & (idle.called > idle.begin)
    return found


def _ahead_before(facts: Facts, idle: Idle) -> Flags:
    """Of each gap: did any event since the gap before it start with enough others in the queue."""
    start, queued = _queued(facts, idle)
    ahead = np.concatenate(([0], np.cumsum(queued >= LEAD)))
    until = ahead[np.searchsorted(start, idle.begin, side="right")]
    since = ahead[np.searchsorted(start, np.concatenate(([facts.begin_ns], idle.end[:-1])))]
    found: Flags = until > since
    return found


def _queued(facts: Facts, idle: Idle) -> tuple[Int64s, Int64s]:
    """The starts of the device's launched events, in order, and how many of the later ones had been
    launched by then."""
    trace, rows = facts.trace, idle.device.events
    rows = rows[trace.launch[rows] >= 0]
    start = trace.start[rows]
    launched = np.sort(trace.start[trace.launch[rows]])
    return start, np.searchsorted(launched, start, side="right") - np.arange(1, len(rows) + 1)


RULE = Rule(
    id="drained-by-sync",
    title="The queue runs dry behind a synchronisation",
    question="Does the program wait for the GPU and so lose its lead?",
    needs="Launch calls.",
    formula="The host part, but synchronisation and allocation, of the gaps that begin while the "
    "launching thread is inside a call that waits for the device, and of those after them until "
    "three launches are queued, less what data-loading and recompilation claim.",
    remedy="Keep .item(), .tolist(), nonzero(), torch.cuda.synchronize() and copies from pageable "
    "memory out of the loop; read results a step later, from pinned memory with non_blocking=True "
    "and an event.",
    thresholds={"lead": LEAD},
    find=find,
)
