"""Breaks down the time between model passes.

It is the time from the end of one pass to the start of the next. It is divided by the
classes of the account of `why`, and what the CPU did meanwhile is told by frames, ops
and annotations.

If a trace has only one pass, this time is recorded only in part: from the first GPU
event of the step to the start of the pass, and from its end to the last event of the
step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.serving.passes import Pass, measure_busy_interval
from fusetui.analysis.why.account import Device
from fusetui.analysis.why.idle_time import describe_gaps
from fusetui.analysis.why.model import Gap
from fusetui.trace.layout.steps import model_pass
from fusetui.trace.model.arrays import Int64s, last_at_or_before
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

HOST_REASON_PREFIX = "host_"
"""How the names of those idle reasons begin that are about what the CPU did."""

HOST_SYNC = "host_sync"

PATTERN_OF_KIND = (
    ("detokenizing", r"detoken|tokeniz"),
    ("sampling", r"sampl|logits|argmax|top_?k|top_?p"),
    ("scheduler", r"schedul|get_next_batch|event_loop"),
    ("input preparation", r"prepare|_inputs?\b|metadata|forward_batch|block_table"),
    ("copies to the host", r"\.cpu\b|\bcpu\(|tolist|\bitem\b|_local_scalar|to\("),
)
"""Kinds of CPU work, each with the words by which the functions of servers are
recognized. The first kind that fits counts."""

WAITING = "waiting"
OTHER = "other"

MAX_NAME_LENGTH = 400
"""How many characters of a name are searched."""


class GapActivity(msgspec.Struct, frozen=True):
    """One thing that the CPU did while a device was idle, summed over all gaps.

    In each gap the slice that covered most of the time before the launch counts.
    """

    what: str  # the function, else the op or the annotation
    kind: str  # one of PATTERN_OF_KIND, WAITING, or OTHER
    dur_ns: int


class Between(msgspec.Struct, frozen=True):
    """Where the time between the passes of one device goes.

    compute + communication + copies + idle = total, exactly, and `idle` by reason (see
    why/idle_time.py) adds up to idle_ns.
    """

    count: int  # 0: the time around a single pass
    total_ns: int
    median_ns: int | None  # the lower median
    before_ns: int | None  # before a single pass; None if there are several
    after_ns: int | None  # after a single pass
    compute_ns: int  # kernels between the passes: sampling, preparation of inputs
    communication_ns: int
    copy_ns: int
    idle_ns: int
    idle: dict[str, int]  # ns by reason
    # what the CPU did, the largest first; adds up to the host's part of idle
    doing: tuple[GapActivity, ...]


class _Windows(NamedTuple):
    """The intervals between passes, in order of time.

    Both arrays have one entry per window, in ns of the file.
    """

    begin: Int64s
    end: Int64s

    @property
    def dur(self) -> Int64s:
        """The length of each window in ns."""
        return self.end - self.begin


def describe_between_passes(
    trace: Trace, model_passes: Sequence[Pass], device: Device
) -> Between | None:
    """Describe what a device and the CPU did between passes of the model.

    E.g. of passes from 0 to 8 ms and from 10 to 18 ms, the time from 8 to 10 ms. If
    only one pass ran on the device, the time around it is described instead.

    Args:
        trace: The trace of the server.
        model_passes: The passes on all devices, in the order of time.
        device: The device.

    Returns:
        None if there is no such time.
    """
    passes_on_device = []
    for step in model_passes:
        if not len(step.model_rows):
            continue
        first_event = int(step.model_rows[0])
        if trace.track_of(first_event).pid == device.pid:
            passes_on_device.append(step)

    if len(passes_on_device) == 1:
        return _describe_around_single_pass(trace, passes_on_device[0], device)

    windows = _find_windows_between(trace, passes_on_device)
    count = len(windows.begin)
    if not count:
        return None
    return _account_for_windows(
        device,
        windows,
        count=count,
        median_ns=lower_median(windows.dur),
        before_ns=None,
        after_ns=None,
    )


def _find_windows_between(trace: Trace, model_passes: Sequence[Pass]) -> _Windows:
    """Find the windows of time between two passes of a model, in which no pass runs.

    A window begins when all earlier passes have ended. Where the next pass has begun by
    then, there is no window. E.g. passes from 0 to 8 and from 10 to 18 ms have one,
    from 8 to 10 ms.
    """
    intervals = [model_pass(trace, step.model_rows) for step in model_passes]
    intervals.sort(key=lambda interval: interval.begin_ns)
    begins = np.array([interval.begin_ns for interval in intervals], dtype=np.int64)
    ends = np.array([interval.end_ns for interval in intervals], dtype=np.int64)

    # Per pass the latest end of it and all earlier ones.
    latest_end = np.maximum.accumulate(ends)
    end_before = latest_end[:-1]
    next_begin = begins[1:]
    is_apart = next_begin > end_before
    return _Windows(begin=end_before[is_apart], end=next_begin[is_apart])


def _describe_around_single_pass(
    trace: Trace, step: Pass, device: Device
) -> Between | None:
    """Describe the recorded time before and after the only pass of a model on a device.

    That is from the first GPU event of its step to the start of the pass, and from its
    end to the last event. Returns None if the step ran nothing but the model.

    Args:
        trace: The trace of the server.
        step: The pass.
        device: The device.
    """
    device_of_row = trace.process_of_track[trace.track[step.launched_rows]]
    device_of_model = trace.process_of_track[trace.track[step.model_rows[0]]]
    rows_on_device = step.launched_rows[device_of_row == device_of_model]
    whole_step = measure_busy_interval(trace, rows_on_device)
    model = model_pass(trace, step.model_rows)

    windows = _Windows(
        begin=np.array([whole_step.begin_ns, model.end_ns]),
        end=np.array([model.begin_ns, whole_step.end_ns]),
    )
    if not (windows.dur > 0).any():
        return None
    return _account_for_windows(
        device,
        windows,
        count=0,
        median_ns=None,
        before_ns=model.begin_ns - whole_step.begin_ns,
        after_ns=whole_step.end_ns - model.end_ns,
    )


def _account_for_windows(
    device: Device,
    windows: _Windows,
    *,
    count: int,
    median_ns: int | None,
    before_ns: int | None,
    after_ns: int | None,
) -> Between:
    """Add up what a device did in all windows between passes, by classes such as idle
    or copying.

    Args:
        device: The device.
        windows: The windows of time.
        count: How many times between two passes there are, for the field of that
            name.
        median_ns: The median of these times; None if there is none.
        before_ns: The time before the only pass; None if there are several.
        after_ns: The time after it, likewise.
    """
    accounts = device.account_for_windows(windows.begin, windows.end)
    idle_ns_by_reason: Counter[str] = Counter()
    for account in accounts:
        idle_ns_by_reason.update(account.idle)

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
        idle=dict(idle_ns_by_reason.most_common()),
        doing=_list_activities(device, windows),
    )


def _list_activities(device: Device, windows: _Windows) -> tuple[GapActivity, ...]:
    """List what the CPU did during the gaps in these windows, the longest time first.

    A gap counts for the innermost function that covered most of it, else for the op,
    else for the annotation. The part of a gap in which the CPU waited for the device
    counts for the call that waits.
    """
    ns_by_name_and_kind: Counter[tuple[str, str]] = Counter()
    for gap in _select_gaps(device, windows):
        name = gap.frame or gap.op or gap.annotation or "nothing recorded"
        waiting_ns = gap.idle.get(HOST_SYNC, 0)
        working_ns = _measure_host_ns(gap) - waiting_ns

        if working_ns:
            ns_by_name_and_kind[name, _classify_work(gap)] += working_ns
        if waiting_ns:
            waiting_call = gap.drained_by or name
            ns_by_name_and_kind[waiting_call, WAITING] += waiting_ns

    activities = [
        GapActivity(what=name, kind=kind, dur_ns=ns)
        for (name, kind), ns in ns_by_name_and_kind.items()
    ]
    return tuple(sorted(activities, key=_sort_key_of_activity))


def _sort_key_of_activity(activity: GapActivity) -> tuple[int, str, str]:
    """Return the sort key of an activity: the longest first, then by name and kind."""
    return -activity.dur_ns, activity.what, activity.kind


def _select_gaps(device: Device, windows: _Windows) -> list[Gap]:
    """Return the gaps of a device that lie within one of these windows.

    A *gap* is a time in which the device runs nothing. Each comes with what the CPU did
    during it. Gaps that reach beyond their window are left out.
    """
    all_devices = device.axis
    gaps = all_devices.gaps.select(device.gap_positions)

    # Only the last window that begins at or before a gap can have it.
    window = last_at_or_before(windows.begin, gaps.begin)
    has_window = window >= 0
    is_inside = has_window & (gaps.end <= windows.end[window])

    # describe_gaps takes positions among the gaps of all devices.
    positions = device.gap_positions.start + np.flatnonzero(is_inside)
    return describe_gaps(all_devices, all_devices.gaps, all_devices.reasons, positions)


def _measure_host_ns(gap: Gap) -> int:
    """Measure for how many ns of a gap the device was idle because of what the CPU did.
    A gap is a time in which the device runs nothing."""
    total_ns = 0
    for reason, ns in gap.idle.items():
        if reason.startswith(HOST_REASON_PREFIX):
            total_ns += ns
    return total_ns


def _classify_work(gap: Gap) -> str:
    """Classify what the CPU did in a gap, by names: one of the kinds of
    PATTERN_OF_KIND.

    A gap is a time in which the device runs nothing. The name of the Python frame
    decides, else that of the op, else that of the annotation. Returns OTHER if no
    pattern matches any of them.
    """
    for name in (gap.frame, gap.op, gap.annotation):
        if name is None:
            continue
        searched = name[:MAX_NAME_LENGTH]
        for kind, pattern in PATTERN_OF_KIND:
            if re.search(pattern, searched, re.IGNORECASE):
                return kind
    return OTHER
