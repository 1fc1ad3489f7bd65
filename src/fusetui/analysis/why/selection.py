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
    return account_of(question_about(Accounts(trace), selection))


def question_about(accounts: Accounts, selection: Selection | None = None) -> Question:
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
        devices = [str(device.pid) for device in accounts.devices]
        raise NoSuchSelectionError(
            f"{trace.report.file} has no device {selection.device} with GPU events: it has "
            f"{', '.join(devices) or 'none'}."
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
    """The account of the devices, of the steps and of the CPU threads, the longest
    gaps, and what is unknown because it was not recorded."""
    trace = question.accounts.trace
    longest = longest_gaps(question.lines, question.gaps, question.window)
    return Why(
        file=trace.report.file,
        base_ns=str(trace.begin_ns),
        about=question.about or None,
        devices=_devices(question),
        steps=_steps(question),
        steps_by=question.spans.by or None,
        gaps=longest.gaps,
        _gap_rows=longest.rows,
        gaps_count=longest.count,
        _ends_early=not trace.report.complete,
        cpu=cpu_accounts(question.accounts, question.window),
        cannot_tell=on_this_device(trace, _unknown(trace)),
        _accelerator=other_accelerator(trace),
    )


def _devices(question: Question) -> tuple[DeviceAccount, ...]:
    """The account of each device, during its span or during the window."""
    if question.window is None:
        spans = []
        for line in question.lines:
            spans += line.spans
        return tuple(spans)
    begin_ns, end_ns = question.window
    (devices,) = _accounts(question.lines, np.array([begin_ns]), np.array([end_ns]))
    return devices


def _steps(question: Question) -> tuple[StepAccount, ...]:
    """The account of each step of the window."""
    spans = question.spans
    begin_ns = question.accounts.trace.begin_ns
    start_ns = (spans.start - begin_ns).tolist()
    dur_ns = step_wall(spans.start, spans.end).tolist()
    devices = _accounts(question.lines, spans.start, spans.end)
    steps = []
    for place, name in enumerate(spans.names):
        step = StepAccount(
            name=name,
            start_ns=start_ns[place],
            dur_ns=dur_ns[place],
            devices=devices[place],
        )
        steps.append(step)
    return tuple(steps)


class _Selected(NamedTuple):
    """A part of a trace."""

    about: str  # what it is called; "" for all of the trace
    window: tuple[int, int] | None  # begin and end, ns of the file; None for all
    steps: Steps  # those that lie in it


def _selected(trace: Trace, steps: Steps, selection: Selection) -> _Selected:
    """The step or the window of a selection; all of the trace without one. Raises
    NoSuchSelectionError."""
    from_ns = selection.from_ns
    to_ns = selection.to_ns
    if selection.step is not None:
        return _selected_step(trace, steps, selection.step)
    if from_ns is None and to_ns is None:
        return _Selected(about="", window=None, steps=steps)
    return _selected_between(trace, steps, from_ns, to_ns)


def _selected_step(trace: Trace, steps: Steps, number: int) -> _Selected:
    """The step with this number. Raises NoSuchSelectionError."""
    file = trace.report.file
    if not len(steps):
        raise NoSuchSelectionError(f"{file} has no steps: name them with --step-by.")
    place = steps.place(number)
    if place < 0:
        raise NoSuchSelectionError(
            f"{file} has no step {number}: it has {steps.known}."
        )
    name = steps.names[place]
    begin_ns = int(steps.start[place])
    end_ns = int(steps.end[place])
    return _Selected(
        about=f"step {name}" if steps.are_iterations else name,
        window=(begin_ns, end_ns),
        steps=steps.only(np.array([place])),
    )


def _selected_between(
    trace: Trace, steps: Steps, from_ns: int | None, to_ns: int | None
) -> _Selected:
    """The window from `from_ns` to `to_ns`, with the steps that lie wholly in it; both
    in ns after the first slice, None for the begin and the end of the trace. Raises
    NoSuchSelectionError."""
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise NoSuchSelectionError(
            "There is nothing between these times: the second is not after the first."
        )
    length_ns = trace.end_ns - trace.begin_ns
    first_ns = max(0, from_ns or 0)
    last_ns = length_ns if to_ns is None else min(length_ns, to_ns)
    if first_ns >= last_ns:
        raise NoSuchSelectionError(
            f"There is nothing between these times: {trace.report.file} goes from 0 to "
            f"{duration(length_ns)}."
        )
    begin_ns = trace.begin_ns + first_ns
    end_ns = trace.begin_ns + last_ns
    is_inside = (steps.start >= begin_ns) & (steps.end <= end_ns)
    return _Selected(
        about=f"from {duration(first_ns)} to {duration(last_ns)}",
        window=(begin_ns, end_ns),
        steps=steps.only(np.flatnonzero(is_inside)),
    )


def _accounts(
    lines: Sequence[Devices], begin: Int64s, end: Int64s
) -> list[tuple[DeviceAccount, ...]]:
    """For each window [begin, end) (ns of the file) the accounts of all devices."""
    of_windows: list[list[DeviceAccount]] = [[] for _ in begin]
    for line in lines:
        devices = len(line)
        accounts = line.window_accounts(
            device=np.tile(np.arange(devices), len(begin)),
            begin=np.repeat(begin, devices),
            end=np.repeat(end, devices),
        )
        for place, account in enumerate(accounts):
            window = place // devices
            of_windows[window].append(account)
    return [tuple(accounts) for accounts in of_windows]


def activity_to_add(trace: Trace) -> str:
    """The activity that would record the GPU, "" where nothing shows that there is one,
    or where it was recorded already: launches without any GPU event."""
    return "" if launched_without_events(trace) else gpu_activity(trace)


def on_this_device(trace: Trace, unknown: Sequence[Unknown]) -> tuple[Unknown, ...]:
    """The unknowns, each with what records it in words for the program that recorded
    the trace, and ON_GPU replaced by the activity of its GPU; see activity_to_add."""
    activity = activity_to_add(trace)
    writer = trace.report.writer
    on_device = []
    for lacking in unknown:
        option = lacking.record_with
        if option == ON_GPU:
            option = activity
        on_device.append(replace(lacking, record_with=recorded_with(option, writer)))
    return tuple(on_device)


def _unknown(trace: Trace) -> list[Unknown]:
    """What the account and the gaps lack, because it was not recorded."""
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
