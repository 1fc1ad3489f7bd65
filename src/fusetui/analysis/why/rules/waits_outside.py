"""Work that was launched long before it started, although the device was idle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.gaps import Int32s
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle import Flags, Idle, Int64s, Rows
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import NO_LAUNCHES, Claim, Rule, share_of_span
from fusetui.analysis.why.rules.slow_launches import SLOW_NS
from fusetui.text.figures import duration, plural

LEAST_NS = 20_000


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    before, elsewhere = _apart(facts)
    for events, waited, early in ((*before, True), (*elsewhere, False)):
        at_stake = int(waited.sum())
        if at_stake:
            yield _claim(facts, events, waited, at_stake, early)


def _claim(facts: Facts, events: Int32s, waited: Int64s, at_stake: int, early: bool) -> Claim:
    lasted = f"{duration(at_stake)} ({share_of_span(facts, at_stake)})"
    text = f"The GPU is idle for {lasted} in {plural(len(events), 'gap')}"
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


def _apart(facts: Facts) -> tuple[tuple[Int32s, Int64s], tuple[Int32s, Int64s]]:
    """Events and waits (ns) of long queued gaps: those due to work before the recording, and
    others."""
    events, waited, early = [], [], []
    for idle in facts.idle:
        ns = idle.ns("queued")
        slow = (idle.launch >= 0) & (facts.trace.dur[idle.launch] > SLOW_NS)
        long = np.flatnonzero((ns > LEAST_NS) & ~slow)
        events.append(idle.event[long])
        waited.append(ns[long])
        early.append(_is_first(facts, idle.event[long]) & _is_waited_for(facts, idle, long))
    rows, times = np.concatenate(events), np.concatenate(waited)
    first = np.concatenate(early)
    return (rows[first], times[first]), (rows[~first], times[~first])


def _is_first(facts: Facts, events: Int32s) -> Flags:
    """Whether nothing of its stream is recorded before the event."""
    trace, rows = facts.trace, facts.trace.gpu_rows
    first = np.full(len(trace.tracks), np.iinfo(np.int64).max)
    np.minimum.at(first, trace.track[rows], trace.start[rows])
    found: Flags = trace.start[events] <= first[trace.track[events]]
    return found


def _is_waited_for(facts: Facts, idle: Idle, places: Rows) -> Flags:
    """Whether any thread is in a call that waits for the device during the gap."""
    rows = np.flatnonzero(facts.accounts.kinds == Host.SYNC)
    cover = facts.while_launching(rows)
    found: Flags = cover.within(idle.begin[places], idle.end[places]) > 0
    return found


RULE = Rule(
    id="waits-outside",
    title="Waiting for something that is not in the trace",
    question="Does launched work wait although the device is idle?",
    needs="Launch calls.",
    formula="Gaps, or parts of them, of more than 20 us in which the next event had been launched "
    "for longer than a launch usually takes. Those that end with a launch call of more than 100 us "
    "are left out: what made the call slow may continue.",
    remedy="Look at the other devices of the job, and at "
    "{nvidia:cudaStreamWaitEvent|amd:hipStreamWaitEvent|:waits for events} and host functions on "
    "the stream.",
    thresholds={"least_ns": LEAST_NS},
    find=find,
)
