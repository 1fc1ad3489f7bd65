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
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.serving.passes import Pass, interval_of
from fusetui.analysis.why.account import Device
from fusetui.analysis.why.idle_time import described_gaps
from fusetui.analysis.why.model import Gap
from fusetui.trace.layout.steps import model_pass
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

HOST = "host_"
"""How reasons of idle time begin that are what the CPU did."""

HOST_SYNC = "host_sync"

KINDS = (
    ("detokenizing", r"detoken|tokeniz"),
    ("sampling", r"sampl|logits|argmax|top_?k|top_?p"),
    ("scheduler", r"schedul|get_next_batch|event_loop"),
    ("input preparation", r"prepare|_inputs?\b|metadata|forward_batch|block_table"),
    ("copies to the host", r"\.cpu\b|\bcpu\(|tolist|\bitem\b|_local_scalar|to\("),
)
"""What the CPU does, by the words of the servers' own functions; the first that
fits."""

WAITING = "waiting"
OTHER = "other"

MAX_NAME_LENGTH = 400
"""Characters of a name that are searched."""


class GapActivity(msgspec.Struct, frozen=True):
    """The slice that covered most of the time before a launch, summed over gaps."""

    what: str  # the function, else the op or the annotation
    kind: str  # one of KINDS, WAITING, or OTHER
    dur_ns: int


class Between(msgspec.Struct, frozen=True):
    """All such times of one device. compute + communication + copies + idle = total,
    exactly, and `idle` by reason (see why/idle_time.py) adds up to idle_ns."""

    count: int  # 0: around a single pass
    total_ns: int
    median_ns: int | None  # the lower median
    before_ns: int | None  # a single pass, and after it
    after_ns: int | None
    compute_ns: int  # kernels between the passes: sampling, preparation of inputs
    communication_ns: int
    copy_ns: int
    idle_ns: int
    idle: dict[str, int]
    # the largest first; adds up to the host's part of idle
    doing: tuple[GapActivity, ...]


class _Windows(NamedTuple):
    """Intervals in ns of the file, in order; arrays of shape [windows]."""

    begin: Int64s
    end: Int64s

    @property
    def dur(self) -> Int64s:
        """The length of each (ns)."""
        return self.end - self.begin


def between_of(trace: Trace, steps: Sequence[Pass], device: Device) -> Between | None:
    """The time between these passes on a device; None if there is none."""
    on_device = []
    for step in steps:
        if len(step.model) and trace.track_of(int(step.model[0])).pid == device.pid:
            on_device.append(step)
    if len(on_device) == 1:
        return _around(trace, on_device[0], device)
    windows = _windows_between(trace, on_device)
    count = len(windows.begin)
    if not count:
        return None
    return _between(
        device,
        windows,
        count=count,
        median_ns=lower_median(windows.dur),
        before_ns=None,
        after_ns=None,
    )


def _windows_between(trace: Trace, steps: Sequence[Pass]) -> _Windows:
    """The time from the end of all passes before to the start of the next one, where
    that is later."""
    passes = [model_pass(trace, step.model) for step in steps]
    passes.sort(key=lambda model: model.begin_ns)
    begins = np.array([model.begin_ns for model in passes], dtype=np.int64)
    ends = np.array([model.end_ns for model in passes], dtype=np.int64)
    latest_end = np.maximum.accumulate(ends)
    end_before = latest_end[:-1]
    next_begin = begins[1:]
    is_apart = next_begin > end_before
    return _Windows(begin=end_before[is_apart], end=next_begin[is_apart])


def _around(trace: Trace, step: Pass, device: Device) -> Between | None:
    """What is recorded of the time around a single pass; None if its step did nothing
    else."""
    process_of_row = trace.process_of_track[trace.track[step.rows]]
    process_of_model = trace.process_of_track[trace.track[step.model[0]]]
    whole = interval_of(trace, step.rows[process_of_row == process_of_model])
    model = model_pass(trace, step.model)
    windows = _Windows(
        begin=np.array([whole.begin_ns, model.end_ns]),
        end=np.array([model.begin_ns, whole.end_ns]),
    )
    if not (windows.dur > 0).any():
        return None
    return _between(
        device,
        windows,
        count=0,
        median_ns=None,
        before_ns=model.begin_ns - whole.begin_ns,
        after_ns=whole.end_ns - model.end_ns,
    )


def _between(
    device: Device,
    windows: _Windows,
    *,
    count: int,
    median_ns: int | None,
    before_ns: int | None,
    after_ns: int | None,
) -> Between:
    """The account of these windows, with the figures that are those of `Between`."""
    accounts = device.over(windows.begin, windows.end)
    idle: Counter[str] = Counter()
    for account in accounts:
        idle.update(account.idle)
    return Between(
        count=count,
        total_ns=int(windows.dur.sum()),
        median_ns=median_ns,
        before_ns=before_ns,
        after_ns=after_ns,
        compute_ns=sum(account.compute_ns for account in accounts),
        communication_ns=sum(account.exposed_comm_ns for account in accounts),
        copy_ns=sum(account.exposed_copy_ns for account in accounts),
        idle_ns=sum(account.idle_ns for account in accounts),
        idle=dict(idle.most_common()),
        doing=_activities(device, windows),
    )


def _activities(device: Device, windows: _Windows) -> tuple[GapActivity, ...]:
    """What covered most of the gaps in these windows, the longest time first: the
    innermost function, else op, else annotation; of the time in which the CPU waited
    for the device, the call that waits."""
    total_ns: Counter[tuple[str, str]] = Counter()  # by what and kind
    for gap in _gaps_in(device, windows):
        what = gap.frame or gap.op or gap.annotation or "nothing recorded"
        waited_ns = gap.idle.get(HOST_SYNC, 0)
        worked_ns = _host_ns(gap) - waited_ns
        if worked_ns:
            total_ns[what, _kind(gap)] += worked_ns
        if waited_ns:
            total_ns[gap.drained_by or what, WAITING] += waited_ns
    activities = []
    for (what, kind), ns in total_ns.items():
        activities.append(GapActivity(what=what, kind=kind, dur_ns=ns))
    return tuple(sorted(activities, key=_by_duration))


def _by_duration(activity: GapActivity) -> tuple[int, str, str]:
    """The order of activities: the longest first, then by name and kind."""
    return -activity.dur_ns, activity.what, activity.kind


def _gaps_in(device: Device, windows: _Windows) -> list[Gap]:
    """The gaps of a device that lie in these windows."""
    line = device.line
    first_place = device.gap_positions.start
    gaps = line.gaps.only(device.gap_positions)
    last_begun = np.searchsorted(windows.begin, gaps.begin, side="right") - 1
    is_inside = (last_begun >= 0) & (gaps.end <= windows.end[last_begun])
    places = first_place + np.flatnonzero(is_inside)
    return described_gaps(line, line.gaps, line.reasons, places)


def _host_ns(gap: Gap) -> int:
    """How long a gap lasted for what the CPU did (ns)."""
    total_ns = 0
    for reason, ns in gap.idle.items():
        if reason.startswith(HOST):
            total_ns += ns
    return total_ns


def _kind(gap: Gap) -> str:
    """What the CPU did in a gap, one of KINDS: by the frame, else by the op, else by
    the annotation; OTHER if no name tells."""
    for name in (gap.frame, gap.op, gap.annotation):
        if name is None:
            continue
        searched = name[:MAX_NAME_LENGTH]
        for kind, pattern in KINDS:
            if re.search(pattern, searched, re.IGNORECASE):
                return kind
    return OTHER
