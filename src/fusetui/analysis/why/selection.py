"""Which part of a trace is asked about, and its account and longest gaps, which need no
look at any kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
LOST_BY_PFTRACE = "the properties of devices and the directions of copies"


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


def asked(accounts: Accounts, selection: Selection | None = None) -> Question:
    """What a selection asks about a trace, all of it without one. Raises
    NoSuchSelectionError."""
    selection = selection or Selection()
    trace = accounts.trace
    steps = steps_of(trace, selection.step_by)
    if selection.step_by is not None and not len(steps):
        raise NoSuchSelectionError(
            f"{trace.report.file} has no annotation like {selection.step_by}."
        )
    selected = _selected(trace, steps, selection)
    lines = accounts.lines_of(selection.device)
    if selection.device is not None and not lines:
        known = ", ".join(str(device.pid) for device in accounts.devices) or "none"
        raise NoSuchSelectionError(
            f"{trace.report.file} has no device {selection.device} with GPU events: it has "
            f"{known}."
        )
    return Question(
        accounts=accounts,
        lines=lines,
        spans=selected.steps,
        window=selected.window,
        about=selected.about,
        is_whole=selected.window is None and lines is accounts.lines,
        gaps=None if selection.all_gaps else LONGEST,
    )


def account_of(question: Question) -> Why:
    trace, window = question.accounts.trace, question.window
    longest = longest_gaps(question.lines, question.gaps, window)
    spans = question.spans
    if window is None:
        devices = tuple(span for line in question.lines for span in line.spans)
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


class _Selected(NamedTuple):
    """A part of a trace."""

    about: str  # what it is called; "" for all of the trace
    window: tuple[int, int] | None  # begin and end, ns of the file; None for all
    steps: Steps  # those that lie in it


def _selected(trace: Trace, steps: Steps, selection: Selection) -> _Selected:
    if selection.step is not None:
        return _selected_step(trace, steps, selection.step)
    if selection.from_ns is None and selection.to_ns is None:
        return _Selected(about="", window=None, steps=steps)
    return _selected_between(trace, steps, selection.from_ns, selection.to_ns)


def _selected_step(trace: Trace, steps: Steps, number: int) -> _Selected:
    file = trace.report.file
    if not len(steps):
        raise NoSuchSelectionError(f"{file} has no steps: name them with --step-by.")
    place = steps.place(number)
    if place < 0:
        raise NoSuchSelectionError(
            f"{file} has no step {number}: it has {steps.known}."
        )
    name = steps.names[place]
    return _Selected(
        about=f"step {name}" if steps.are_iterations else name,
        window=(int(steps.start[place]), int(steps.end[place])),
        steps=steps.only(np.array([place])),
    )


def _selected_between(
    trace: Trace, steps: Steps, from_ns: int | None, to_ns: int | None
) -> _Selected:
    """Both in ns after the first slice, None for the begin and the end of the trace."""
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise NoSuchSelectionError(
            "There is nothing between these times: the second is not after the first."
        )
    begin_ns = max(trace.begin_ns, trace.begin_ns + (from_ns or 0))
    end_ns = trace.end_ns
    if to_ns is not None:
        end_ns = min(end_ns, trace.begin_ns + to_ns)
    if begin_ns >= end_ns:
        length = duration(trace.end_ns - trace.begin_ns)
        raise NoSuchSelectionError(
            f"There is nothing between these times: {trace.report.file} goes from 0 to "
            f"{length}."
        )
    begin = duration(begin_ns - trace.begin_ns)
    end = duration(end_ns - trace.begin_ns)
    is_inside = (steps.start >= begin_ns) & (steps.end <= end_ns)
    return _Selected(
        about=f"from {begin} to {end}",
        window=(begin_ns, end_ns),
        steps=steps.only(np.flatnonzero(is_inside)),
    )


def _accounts(
    lines: Sequence[Devices], begin: Int64s, end: Int64s
) -> tuple[tuple[DeviceAccount, ...], ...]:
    """Of each window [begin, end), those of all devices."""
    of_windows: list[list[DeviceAccount]] = [[] for _ in begin]
    for line in lines:
        devices = len(line)
        accounts = line.at(
            np.tile(np.arange(devices), len(begin)),
            np.repeat(begin, devices),
            np.repeat(end, devices),
        )
        for place, account in enumerate(accounts):
            of_windows[place // devices].append(account)
    return tuple(tuple(accounts) for accounts in of_windows)


def activity_to_add(trace: Trace) -> str:
    """The activity that would record the GPU, "" where nothing shows that there is one,
    or where it was recorded already: launches without any GPU event."""
    return "" if launched_without_events(trace) else gpu_activity(trace)


def on_this_device(trace: Trace, unknown: Sequence[Unknown]) -> tuple[Unknown, ...]:
    """With what records it, by what recorded the trace: of a GPU the activity of its
    kind; see activity_to_add."""
    activity = activity_to_add(trace)
    writer = trace.report.writer
    on_device = []
    for one in unknown:
        option = activity if one.record_with == ON_GPU else one.record_with
        on_device.append(replace(one, record_with=recorded_with(option, writer)))
    return tuple(on_device)


def _unknown(trace: Trace) -> list[Unknown]:
    unknown: list[Unknown] = []
    gpu_rows = trace.gpu_rows
    if not len(gpu_rows):
        unknown.append(Unknown("account", "GPU events", ON_GPU))
    elif (trace.launch[gpu_rows] < 0).all():
        # the activity was on, as it recorded the events
        unknown.append(Unknown("gaps", "launch calls", ""))
    cut_ends = trace.report.cut_ends
    if cut_ends:
        missing = f"the ends of {plural(cut_ends, 'GPU event')}"
        unknown.append(Unknown("account", missing, JSON_EXPORT))
    if trace.report.writer == "pftrace" and len(gpu_rows):
        unknown.append(Unknown("findings", LOST_BY_PFTRACE, JSON_EXPORT))
    if not (trace.role == Role.PYTHON).any():
        missing = "Python frames and modules"
        unknown.append(Unknown("gaps", missing, "with_stack=True"))
    return unknown
