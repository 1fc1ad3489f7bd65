"""Select a part of a trace, and compute the breakdown of its time.

The account and the longest gaps need no look at any kernel, so they are quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.questions.launches import lacks_gpu_events
from fusetui.analysis.questions.totals import drop_nested_rows, sum_kernels_by_name
from fusetui.analysis.why.account import Accounts, account_for_cpu_threads
from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.idle_time import MAX_GAPS_LISTED, list_longest_gaps
from fusetui.analysis.why.model import (
    AcceleratorWork,
    DeviceAccount,
    Share,
    StepAccount,
    Unknown,
    Why,
)
from fusetui.text.figures import duration, plural
from fusetui.trace.layout.devices import gpu_activity, other_accelerator
from fusetui.trace.layout.steps import Steps, step_wall, steps_of
from fusetui.trace.model.arrays import NO_ROW, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import JSON_EXPORT, recorded_with

ON_GPU = "ProfilerActivity.CUDA"
"""The activity that records a GPU of CUDA; word_for_recorder replaces it for other GPUs.
"""
LOST_BY_PFTRACE = "device properties and copy directions"
"""What the format of Perfetto does not keep."""


class Selection(msgspec.Struct, frozen=True):
    """The part of a trace that is asked about; times in ns after its first slice."""

    step: int | None = None  # the number of a step; see fusetui.trace.layout.steps
    from_ns: int | None = None
    to_ns: int | None = None
    device: str | None = None
    step_by: str | None = None  # the annotation that is a step; see steps_of
    all_gaps: bool = False


class NoSuchSelectionError(Error):
    """The trace has no such part; the message is one plain sentence."""


class Question(msgspec.Struct, frozen=True, eq=False):
    """What is asked about a trace: which devices, which time and how many gaps."""

    accounts: Accounts
    devices_by_axis: tuple[Devices, ...]  # those that share a time axis together
    steps: Steps  # the steps that lie in the window
    # The begin and end in ns of the file; None for the whole trace.
    window: tuple[int, int] | None
    about: str  # what the part is called; "" for the whole trace
    is_whole: bool  # whether it is all of the time, on all devices
    gaps: int | None  # how many of the longest gaps are listed, None for all


def account_for_selection(trace: Trace, selection: Selection | None = None) -> Why:
    """Return the account and the longest gaps alone, without findings.

    Raises:
        NoSuchSelectionError: The trace has no such part.
    """
    return account_for_question(resolve_selection(Accounts(trace), selection))


def resolve_selection(
    accounts: Accounts, selection: Selection | None = None
) -> Question:
    """Resolve a selection against a trace.

    Args:
        selection: What the user asked about; None for the whole trace.

    Raises:
        NoSuchSelectionError: The trace has no such step, device or time.
    """
    selection = selection or Selection()
    trace = accounts.trace
    steps = steps_of(trace, selection.step_by)
    if selection.step_by is not None and not len(steps):
        raise NoSuchSelectionError(
            f"{trace.report.file} has no annotation that matches {selection.step_by}."
        )

    selected = _find_selected_part(trace, steps, selection)

    devices_by_axis = accounts.select_devices(selection.device)
    if selection.device is not None and not devices_by_axis:
        devices = [str(device.pid) for device in accounts.devices]
        raise NoSuchSelectionError(
            f"{trace.report.file} has no GPU events on device {selection.device}, "
            f"only on {', '.join(devices) or 'no device'}."
        )

    has_all_devices = devices_by_axis is accounts.devices_by_axis
    return Question(
        accounts=accounts,
        devices_by_axis=devices_by_axis,
        steps=selected.steps,
        window=selected.window,
        about=selected.about,
        is_whole=selected.window is None and has_all_devices,
        gaps=None if selection.all_gaps else MAX_GAPS_LISTED,
    )


def account_for_question(question: Question) -> Why:
    """Account for the devices, the steps and the CPU threads of a question.

    The record also has the longest gaps, and what is unknown because it was not
    recorded. It has no findings yet.
    """
    trace = question.accounts.trace
    longest = list_longest_gaps(
        question.devices_by_axis, question.gaps, question.window
    )
    return Why(
        file=trace.report.file,
        base_ns=str(trace.begin_ns),
        about=question.about or None,
        devices=_account_for_devices(question),
        steps=_account_for_steps(question),
        steps_by=question.steps.by or None,
        gaps=longest.gaps,
        _gap_rows=longest.rows,
        gaps_count=longest.count,
        _ends_early=not trace.report.complete,
        cpu=account_for_cpu_threads(question.accounts, question.window),
        cannot_tell=word_for_recorder(trace, _list_unknown(trace)),
        _accelerator=other_accelerator(trace),
        _accelerator_work=_accelerator_work(question),
    )


def _accelerator_work(question: Question) -> AcceleratorWork | None:
    """Summarize what a device that is no GPU did, by the names of its events.

    Returns None where the trace has no such device, and for a part of the trace.
    """
    trace = question.accounts.trace
    name, _ = other_accelerator(trace)
    if not name or question.window is not None:
        return None

    outer = drop_nested_rows(trace, trace.rows_of(Role.DEVICE))
    shares = []
    for total in sum_kernels_by_name(trace, outer.rows):
        shares.append(Share(name=total.name, count=total.count, ns=total.total_ns))

    return AcceleratorWork(events=tuple(shares), whole_ns=outer.any_ran_ns)


def _account_for_devices(question: Question) -> tuple[DeviceAccount, ...]:
    """Account for each device, during its span or during the window."""
    if question.window is None:
        accounts = []
        for devices in question.devices_by_axis:
            accounts += devices.spans
        return tuple(accounts)

    begin_ns, end_ns = question.window
    (accounts_of_devices,) = _account_for_windows(
        question.devices_by_axis, np.array([begin_ns]), np.array([end_ns])
    )
    return accounts_of_devices


def _account_for_steps(question: Question) -> tuple[StepAccount, ...]:
    """Account for each step of the window."""
    steps = question.steps
    begin_ns = question.accounts.trace.begin_ns
    start_ns = (steps.start - begin_ns).tolist()
    dur_ns = step_wall(steps.start, steps.end).tolist()
    devices_of_steps = _account_for_windows(
        question.devices_by_axis, steps.start, steps.end
    )

    accounts = []
    for index, name in enumerate(steps.names):
        step = StepAccount(
            name=name,
            start_ns=start_ns[index],
            dur_ns=dur_ns[index],
            devices=devices_of_steps[index],
        )
        accounts.append(step)

    return tuple(accounts)


class _Selected(NamedTuple):
    """A part of a trace."""

    about: str  # what it is called; "" for the whole trace
    window: tuple[int, int] | None  # begin and end in ns of the file; None for all
    steps: Steps  # the steps that lie in it


def _find_selected_part(trace: Trace, steps: Steps, selection: Selection) -> _Selected:
    """Find the step or the window of a selection, or the whole trace without one.

    Raises:
        NoSuchSelectionError: The trace has no such part.
    """
    from_ns = selection.from_ns
    to_ns = selection.to_ns
    if selection.step is not None:
        return _find_selected_step(trace, steps, selection.step)
    if from_ns is None and to_ns is None:
        return _Selected(about="", window=None, steps=steps)

    return _find_selected_window(trace, steps, from_ns, to_ns)


def _find_selected_step(trace: Trace, steps: Steps, step_number: int) -> _Selected:
    """Find the step with a number.

    Raises:
        NoSuchSelectionError: The trace has no such step.
    """
    file = trace.report.file
    if not len(steps):
        raise NoSuchSelectionError(
            f"{file} has no steps: select annotations as steps with --step-by."
        )

    index = steps.place(step_number)
    has_step = index >= 0
    if not has_step:
        raise NoSuchSelectionError(
            f"{file} has no step {step_number}: it has {steps.known}."
        )

    name = steps.names[index]
    begin_ns = int(steps.start[index])
    end_ns = int(steps.end[index])

    return _Selected(
        about=f"step {name}" if steps.are_iterations else name,
        window=(begin_ns, end_ns),
        steps=steps.only(np.array([index])),
    )


def _find_selected_window(
    trace: Trace, steps: Steps, from_ns: int | None, to_ns: int | None
) -> _Selected:
    """Find the window between two times, with the steps that lie wholly in it.

    Args:
        from_ns: In ns after the first slice; None for the begin of the trace.
        to_ns: Likewise; None for its end.

    Raises:
        NoSuchSelectionError: The window is empty.
    """
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise NoSuchSelectionError(
            "The window is empty: its end is not after its start."
        )

    length_ns = trace.end_ns - trace.begin_ns
    first_ns = max(0, from_ns or 0)
    last_ns = length_ns if to_ns is None else min(length_ns, to_ns)
    if first_ns >= last_ns:
        raise NoSuchSelectionError(
            f"The window is empty: {trace.report.file} covers 0 to "
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


def _account_for_windows(
    devices_by_axis: Sequence[Devices], begin: Int64s, end: Int64s
) -> list[tuple[DeviceAccount, ...]]:
    """Account for all devices in each of some windows.

    Args:
        devices_by_axis: The devices.
        begin: The begins of the windows, in ns of the file.
        end: Their ends.

    Returns:
        For each window one account per device.
    """
    accounts_of_windows: list[list[DeviceAccount]] = [[] for _ in begin]
    for devices in devices_by_axis:
        device_count = len(devices)
        # All devices of the first window, then all devices of the second, ...
        window = np.repeat(np.arange(len(begin)), device_count)
        accounts = devices.account_for_windows(
            device=np.tile(np.arange(device_count), len(begin)),
            begin=begin[window],
            end=end[window],
        )
        for window_index, account in zip(window.tolist(), accounts, strict=True):
            accounts_of_windows[window_index].append(account)

    return [tuple(accounts) for accounts in accounts_of_windows]


def find_activity_to_add(trace: Trace) -> str:
    """Return the activity that would record the GPU.

    It is "" where nothing shows that there is a GPU, or where the activity was on
    already: launches were recorded without any GPU event.
    """
    return "" if lacks_gpu_events(trace) else gpu_activity(trace)


def word_for_recorder(trace: Trace, unknown: Sequence[Unknown]) -> tuple[Unknown, ...]:
    """Put how to record the unknown things in the words of the program that recorded.

    ON_GPU stands for the activity that records the GPU of this trace, such as
    `ProfilerActivity.CUDA`. It is replaced by that activity; see `find_activity_to_add`.
    """
    activity = find_activity_to_add(trace)
    writer = trace.report.writer

    in_words = []
    for each in unknown:
        option = activity if each.record_with == ON_GPU else each.record_with
        in_words.append(replace(each, record_with=recorded_with(option, writer)))

    return tuple(in_words)


def _list_unknown(trace: Trace) -> list[Unknown]:
    """List what the account and the gaps lack, because it was not recorded."""
    unknown: list[Unknown] = []
    gpu_rows = trace.gpu_rows
    if not len(gpu_rows):
        unknown.append(Unknown("account", "GPU events", ON_GPU))
    elif (trace.launch[gpu_rows] == NO_ROW).all():
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
