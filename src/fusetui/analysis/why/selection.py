"""Which part of a trace is asked about, and its account and longest gaps, which need no
look at any kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.questions.launches import launched_without_events
from fusetui.analysis.why.account import Accounts, cpu_accounts
from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.idle_time import LONGEST, longest_gaps
from fusetui.analysis.why.model import DeviceAccount, StepAccount, Unknown, Why
from fusetui.text.figures import duration, plural
from fusetui.trace.layout.devices import gpu_activity, other_accelerator
from fusetui.trace.layout.steps import Steps, step_wall, steps_of
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import JSON_EXPORT, recorded_with

ON_GPU = "ProfilerActivity.CUDA"
LOST = "the properties of devices and the directions of copies"


class Selection(msgspec.Struct, frozen=True):
    """What part of a trace is asked about; times in ns after its first slice."""

    step: int | None = None  # its number; see fusetui.trace.layout.steps
    from_ns: int | None = None
    to_ns: int | None = None
    device: str | None = None
    step_by: str | None = None  # see steps_of
    all_gaps: bool = False


class NoSuchSelectionError(Error):
    """What was asked for is not in the trace; the message is one plain sentence."""


class Question(msgspec.Struct, frozen=True, eq=False):
    accounts: Accounts
    lines: tuple[Devices, ...]  # of the devices
    spans: Steps  # the steps in the window
    # begin and end in ns of the file; None for all of it
    window: tuple[int, int] | None
    about: str
    is_whole: bool  # all of the time, on all devices
    gaps: int | None  # how many of the longest gaps are listed, None for all


def accounted(trace: Trace, selection: Selection | None = None) -> Why:
    """The account and the longest gaps alone. Raises NoSuchSelectionError."""
    return account_of(asked(Accounts(trace), selection))


def asked(found: Accounts, selection: Selection | None = None) -> Question:
    """Raises NoSuchSelectionError."""
    chosen, trace = selection or Selection(), found.trace
    spans = steps_of(trace, chosen.step_by)
    if chosen.step_by is not None and not len(spans):
        raise NoSuchSelectionError(
            f"{trace.report.file} has no annotation like {chosen.step_by}."
        )
    about, window, spans = _window(trace, spans, chosen)
    lines = found.lines_of(chosen.device)
    if chosen.device is not None and not lines:
        known = ", ".join(str(device.pid) for device in found.devices) or "none"
        no_device = f"{trace.report.file} has no device {chosen.device} with GPU events"
        raise NoSuchSelectionError(f"{no_device}: it has {known}.")
    return Question(
        accounts=found,
        lines=lines,
        spans=spans,
        window=window,
        about=about,
        is_whole=window is None and lines is found.lines,
        gaps=None if chosen.all_gaps else LONGEST,
    )


def account_of(question: Question) -> Why:
    trace, window = question.accounts.trace, question.window
    longest = longest_gaps(question.lines, question.gaps, window)
    spans = question.spans
    if window is None:
        devices = tuple(one for line in question.lines for one in line.spans)
    else:
        (devices,) = _accounts(
            question.lines, np.array(window[:1]), np.array(window[1:])
        )
    starts = spans.start - trace.begin_ns
    wall_ns = step_wall(spans.start, spans.end)
    devices_of_steps = _accounts(question.lines, spans.start, spans.end)
    steps = [
        StepAccount(name=name, start_ns=start_ns, dur_ns=dur_ns, devices=accounts)
        for name, start_ns, dur_ns, accounts in zip(
            spans.names,
            starts.tolist(),
            wall_ns.tolist(),
            devices_of_steps,
            strict=True,
        )
    ]
    return Why(
        file=trace.report.file,
        base_ns=str(trace.begin_ns),
        about=question.about or None,
        devices=devices,
        steps=tuple(steps),
        steps_by=spans.by or None,
        gaps=longest.gaps,
        _gap_rows=longest.rows,
        gaps_count=longest.count,
        _ends_early=not trace.report.complete,
        cpu=cpu_accounts(question.accounts, window),
        cannot_tell=on_this_device(trace, _unknown(trace)),
        _accelerator=other_accelerator(trace),
    )


def _window(
    trace: Trace, spans: Steps, chosen: Selection
) -> tuple[str, tuple[int, int] | None, Steps]:
    """What it is called, its begin and end in ns of the file, and the steps that lie in
    it."""
    if chosen.step is not None:
        file, at = trace.report.file, spans.place(chosen.step) if len(spans) else -1
        if not len(spans):
            raise NoSuchSelectionError(
                f"{file} has no steps: name them with --step-by."
            )
        if at < 0:
            raise NoSuchSelectionError(
                f"{file} has no step {chosen.step}: it has {spans.known}."
            )
        name = f"step {spans.names[at]}" if spans.are_iterations else spans.names[at]
        return (
            name,
            (int(spans.start[at]), int(spans.end[at])),
            spans.only(np.array([at])),
        )
    if chosen.from_ns is None and chosen.to_ns is None:
        return "", None, spans
    begin = max(trace.begin_ns, trace.begin_ns + (chosen.from_ns or 0))
    end = trace.end_ns if chosen.to_ns is None else trace.begin_ns + chosen.to_ns
    end = min(trace.end_ns, end)
    if (
        chosen.from_ns is not None
        and chosen.to_ns is not None
        and chosen.from_ns >= chosen.to_ns
    ):
        raise NoSuchSelectionError(
            "There is nothing between these times: the second is not after the first."
        )
    if begin >= end:
        whole = f"{trace.report.file} goes from 0 to {duration(trace.end_ns - trace.begin_ns)}"
        raise NoSuchSelectionError(f"There is nothing between these times: {whole}.")
    about = (
        f"from {duration(begin - trace.begin_ns)} to {duration(end - trace.begin_ns)}"
    )
    inside = np.flatnonzero((spans.start >= begin) & (spans.end <= end))
    return about, (begin, end), spans.only(inside)


def _accounts(
    lines: Sequence[Devices], begin: Int64s, end: Int64s
) -> tuple[tuple[DeviceAccount, ...], ...]:
    """Of each window [begin, end), those of all devices."""
    found: list[list[DeviceAccount]] = [[] for _ in begin]
    for line in lines:
        number = np.tile(np.arange(len(line)), len(begin))
        for place, one in enumerate(
            line.at(number, *np.repeat((begin, end), len(line), axis=1))
        ):
            found[place // len(line)].append(one)
    return tuple(map(tuple, found))


def activity_to_add(trace: Trace) -> str:
    """The activity that would record the GPU, "" where nothing shows that there is one,
    or where it was recorded already: launches without any GPU event."""
    return "" if launched_without_events(trace) else gpu_activity(trace)


def on_this_device(trace: Trace, unknown: Sequence[Unknown]) -> tuple[Unknown, ...]:
    """With what records it, by what recorded the trace: of a GPU the activity of its
    kind; see activity_to_add."""
    activity, form = activity_to_add(trace), trace.report.writer
    options = [
        activity if one.record_with == ON_GPU else one.record_with for one in unknown
    ]
    each = zip(unknown, options, strict=True)
    return tuple(
        replace(one, record_with=recorded_with(option, form)) for one, option in each
    )


def _unknown(trace: Trace) -> list[Unknown]:
    found, gpu = [], trace.gpu_rows
    if not len(gpu):
        found.append(Unknown("account", "GPU events", ON_GPU))
    elif (trace.launch[gpu] < 0).all():
        # the activity was on, as it recorded the events
        found.append(Unknown("gaps", "launch calls", ""))
    if ends := trace.report.cut_ends:
        found.append(
            Unknown("account", f"the ends of {plural(ends, 'GPU event')}", JSON_EXPORT)
        )
    if trace.report.writer == "pftrace" and len(gpu):
        found.append(Unknown("findings", LOST, JSON_EXPORT))
    if not (trace.role == Role.PYTHON).any():
        found.append(Unknown("gaps", "Python frames and modules", "with_stack=True"))
    return found
