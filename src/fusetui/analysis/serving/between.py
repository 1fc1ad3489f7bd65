"""The time from the end of one pass of the model to the start of the next, in the
classes of the account of `why`, and what the CPU did meanwhile by frames, ops and
annotations.

Of a trace with one pass, that is recorded only in part: from the first GPU event of the
step to the start of the pass, and from its end to the last event of the step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.serving.passes import Pass, interval_of
from fusetui.analysis.why.account import Device
from fusetui.analysis.why.idle_time import told_of
from fusetui.analysis.why.model import Gap
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace

HOST = "host_"
KINDS = (
    ("detokenizing", r"detoken|tokeniz"),
    ("sampling", r"sampl|logits|argmax|top_?k|top_?p"),
    ("scheduler", r"schedul|get_next_batch|event_loop"),
    ("input preparation", r"prepare|_inputs?\b|metadata|forward_batch|block_table"),
    ("copies to the host", r"\.cpu\b|\bcpu\(|tolist|\bitem\b|_local_scalar|to\("),
)
"""What the CPU does, by the words of the servers' own functions; the first that
fits."""
LONGEST_NAME = 400


class Doing(msgspec.Struct, frozen=True):
    """What covered most of the time before a launch, added up over gaps."""

    what: str  # the function, else the op or the annotation
    kind: str  # one of KINDS, waiting, or other
    dur_ns: int


class Between(msgspec.Struct, frozen=True):
    """All such times of one device. compute + communication + copies + idle = total,
    exactly, and `idle` by reason (see why/idle_time.py) adds up to idle_ns."""

    count: int  # 0: around a single pass
    total_ns: int
    median_ns: int | None  # of an even count the lower one
    before_ns: int | None  # a single pass, and after it
    after_ns: int | None
    compute_ns: int  # kernels between the passes: sampling, preparation of inputs
    communication_ns: int
    copy_ns: int
    idle_ns: int
    idle: dict[str, int]
    doing: tuple[Doing, ...]  # the largest first; adds up to the host's part of idle


def between_of(trace: Trace, steps: Sequence[Pass], device: Device) -> Between | None:
    """The time between these passes on a device; None if there is none."""
    own = [step for step in steps if len(step.model)]
    own = [step for step in own if trace.track_of(int(step.model[0])).pid == device.pid]
    if len(own) == 1:
        return _around(trace, own[0], device)
    parts = sorted(
        (interval_of(trace, step.model) for step in own), key=lambda part: part.begin_ns
    )
    begin = np.maximum.accumulate(
        np.array([part.end_ns for part in parts], dtype=np.int64)
    )[:-1]
    end = np.array([part.begin_ns for part in parts[1:]], dtype=np.int64)
    begin, end = begin[end > begin], end[end > begin]
    return _between(device, begin, end, len(begin)) if len(begin) else None


def _around(trace: Trace, step: Pass, device: Device) -> Between | None:
    """What is recorded of the time around a single pass; None if its step did nothing
    else."""
    model = interval_of(trace, step.model)
    own = trace.process_of_track[trace.track[step.rows]]
    rows = step.rows[own == trace.process_of_track[trace.track[step.model[0]]]]
    whole = interval_of(trace, rows)
    begin = np.array([whole.begin_ns, model.end_ns])
    end = np.array([model.begin_ns, whole.end_ns])
    return _between(device, begin, end) if (end > begin).any() else None


def _between(device: Device, begin: Int64s, end: Int64s, count: int = 0) -> Between:
    """The account of these windows; without a count they are those before and after one
    pass."""
    accounts, each = device.over(begin, end), end - begin
    idle: Counter[str] = Counter()
    for account in accounts:
        idle.update(account.idle)
    return Between(
        count=count,
        total_ns=int(each.sum()),
        median_ns=int(np.sort(each)[(count - 1) // 2]) if count else None,
        before_ns=None if count else int(each[0]),
        after_ns=None if count else int(each[1]),
        compute_ns=sum(one.compute_ns for one in accounts),
        communication_ns=sum(one.exposed_comm_ns for one in accounts),
        copy_ns=sum(one.exposed_copy_ns for one in accounts),
        idle_ns=sum(one.idle_ns for one in accounts),
        idle=dict(sorted(idle.items(), key=lambda item: -item[1])),
        doing=_doing(device, begin, end),
    )


def _doing(device: Device, begin: Int64s, end: Int64s) -> tuple[Doing, ...]:
    """By the innermost thing that covered most of each gap in these windows."""
    line, places = device.line, device.places
    gaps = line.gaps.only(places)
    at = np.searchsorted(begin, gaps.begin, side="right") - 1
    inside = np.flatnonzero((at >= 0) & (gaps.end <= end[at]))
    found: Counter[tuple[str, str]] = Counter()
    for gap in told_of(line, line.gaps, line.reasons, inside + places.start):
        sync = gap.idle.get("host_sync", 0)
        rest = (
            sum(ns for reason, ns in gap.idle.items() if reason.startswith(HOST)) - sync
        )
        what = gap.frame or gap.op or gap.annotation or "nothing recorded"
        if rest:
            found[what, _kind(gap)] += rest
        if sync:
            found[gap.drained_by or what, "waiting"] += sync
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Doing(what, kind, ns) for (what, kind), ns in ordered)


def _kind(gap: Gap) -> str:
    """By the frame, else by the op, else by the annotation."""
    for text in (gap.frame, gap.op, gap.annotation):
        for kind, pattern in KINDS:
            if text and re.search(pattern, text[:LONGEST_NAME], re.IGNORECASE):
                return kind
    return "other"
