"""The steps that took much longer than others of their phase: what is unusual about
them, and where on the device their time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.passes import Mode, Pass, interval_of
from fusetui.analysis.why.account import Device
from fusetui.analysis.why.facts import COMPILER
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.gpu.kernel_names import short_name
from fusetui.text.figures import count, duration
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.quantiles import lower_median_index

MIN_STEPS = 4
"""Of a phase, of which one can be an outlier."""

OUTLIER_FACTOR = 1.5
"""An outlier takes more than so many times the median, in time or in tokens."""

MIN_SHARE_OF_EXCESS = 0.1
"""What a part of the excess must reach to be named."""

MODES_IN_WORDS = {
    Mode.GRAPH: "graphs",
    Mode.PIECEWISE: "piecewise graphs",
    Mode.NOTHING: "nothing",
}


class _Outlier(NamedTuple):
    """A step that takes much longer than the step of the median time of its phase."""

    step: Pass
    before: Pass | None  # the step before it, of any phase
    median_step: Pass
    usual_mode: Mode  # of the steps of its phase
    excess_ns: int


def outliers(
    trace: Trace, steps: Sequence[Pass], devices: Sequence[Device]
) -> dict[int, tuple[str, ...]]:
    """By the index of each outlier, what explains it; () if nothing that was recorded
    does."""
    span_ns = np.array([interval_of(trace, step.rows).span_ns for step in steps])
    ran = [number for number, step in enumerate(steps) if len(step.rows)]
    explained = {}
    for of_phase in by_key(ran, key=lambda number: steps[number].asked.phase).values():
        if len(of_phase) < MIN_STEPS:
            continue
        median = of_phase[lower_median_index(span_ns[of_phase])]
        usual_mode = _most_frequent_mode([steps[number].mode for number in of_phase])
        for number in of_phase:
            excess_ns = int(span_ns[number] - span_ns[median])
            if span_ns[number] <= OUTLIER_FACTOR * span_ns[median]:
                continue
            outlier = _Outlier(
                step=steps[number],
                before=steps[number - 1] if number else None,
                median_step=steps[median],
                usual_mode=usual_mode,
                excess_ns=excess_ns,
            )
            unusual = _unusual(trace, outlier)
            longer = _longer_parts(trace, outlier, devices)
            explained[number] = (*unusual, *longer)
    return explained


def _most_frequent_mode(modes: Sequence[Mode]) -> Mode:
    """The most frequent mode; of several equally frequent ones the first."""
    return max(modes, key=modes.count)


def _unusual(trace: Trace, outlier: _Outlier) -> Iterator[str]:
    """What is unusual about it, but for the amount of its work."""
    if _compiles(trace, outlier.step):
        yield "torch.compile or Triton compiles during it"
    if outlier.step.mode is Mode.EAGER and outlier.usual_mode is not Mode.EAGER:
        usual = MODES_IN_WORDS[outlier.usual_mode]
        yield f"it runs eagerly, while the others replay {usual}"
    if _waits_for_prefill(trace, outlier):
        yield "the previous prefill was still running"
    asked = outlier.step.asked
    usually = outlier.median_step.asked
    yield from _more(asked.new_tokens, usually.new_tokens, "new tokens")
    yield from _more(asked.kv_tokens, usually.kv_tokens, "tokens that attention reads")


def _compiles(trace: Trace, step: Pass) -> bool:
    """Whether anything is compiled while it is on the CPU, by any thread."""
    compiling = trace.rows_named(COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)
    begins_before_end = trace.start[compiling] < step.start_ns + step.dur_ns
    ends_after_begin = trace.end[compiling] > step.start_ns
    return bool((begins_before_end & ends_after_begin).any())


def _waits_for_prefill(trace: Trace, outlier: _Outlier) -> bool:
    """Whether the device still ran the prefill before it when its annotation began, and
    for so long that it may explain the excess."""
    before = outlier.before
    if before is None:
        return False
    if before.asked.phase not in (ServerPhase.PREFILL, ServerPhase.MIXED):
        return False
    prefill = interval_of(trace, before.rows)
    step = interval_of(trace, outlier.step.rows)
    if prefill.end_ns <= outlier.step.start_ns:
        return False
    return step.end_ns > prefill.end_ns > step.begin_ns - outlier.excess_ns


def _more(tokens: int | None, usual_tokens: int | None, what: str) -> Iterator[str]:
    """That it was asked for OUTLIER_FACTOR times as much as the step of the median
    time, if it was."""
    if not tokens or not usual_tokens:
        return
    if tokens > OUTLIER_FACTOR * usual_tokens:
        yield f"{count(tokens)} {what} (median step: {count(usual_tokens)})"


class _LongerPiece(NamedTuple):
    """What took longer than in the step of the median time, as a sentence without the
    time: SUBJECT 3 us longer CIRCUMSTANCE."""

    subject: str
    circumstance: str
    ns: int


def _longer_parts(
    trace: Trace, outlier: _Outlier, devices: Sequence[Device]
) -> Iterator[str]:
    """Where the time went that the step of the median time does not take, the largest
    part first."""
    parts = _differences(trace, outlier, devices)
    for part in sorted(parts, key=lambda part: -part.ns):
        if part.ns > MIN_SHARE_OF_EXCESS * outlier.excess_ns:
            yield f"{part.subject} {duration(part.ns)} longer{part.circumstance}"


def _differences(
    trace: Trace, outlier: _Outlier, devices: Sequence[Device]
) -> list[_LongerPiece]:
    """What an outlier takes longer, by the classes of the accounts of both steps; they
    add up to the excess. [] if either step has no account."""
    step = outlier.step
    median_step = outlier.median_step
    account = _account(trace, step, devices)
    usual = _account(trace, median_step, devices)
    if account is None or usual is None:
        return []
    kernels_ns = _compute_ns(trace, step) - _compute_ns(trace, median_step)
    compute_ns = account.compute_ns - usual.compute_ns
    of_own_kernels = _LongerPiece(
        subject="kernels run",
        circumstance=_kernel_of_most(trace, step, median_step),
        ns=kernels_ns,
    )
    of_other_kernels = _LongerPiece(
        subject="kernels of other steps run",
        circumstance=" in between",
        ns=compute_ns - kernels_ns,
    )
    return [of_own_kernels, of_other_kernels, *_other_differences(account, usual)]


def _other_differences(
    account: DeviceAccount, usual: DeviceAccount
) -> Iterator[_LongerPiece]:
    """What is longer in an account than in another one, without compute."""
    yield _LongerPiece(
        subject="communication is exposed",
        circumstance="",
        ns=account.exposed_comm_ns - usual.exposed_comm_ns,
    )
    yield _LongerPiece(
        subject="copies are exposed",
        circumstance="",
        ns=account.exposed_copy_ns - usual.exposed_copy_ns,
    )
    for reason, idle_ns in account.idle.items():
        yield _LongerPiece(
            subject="the GPU is idle",
            circumstance=f" {IDLE[reason].while_}",
            ns=idle_ns - usual.idle.get(reason, 0),
        )


def _account(
    trace: Trace, step: Pass, devices: Sequence[Device]
) -> DeviceAccount | None:
    """The account of the device of a step's model, from the first start to the last end
    of what the step ran; None if the device is none of these."""
    pid = trace.track_of(int(step.model[0])).pid
    interval = interval_of(trace, step.rows)
    begin = np.array([interval.begin_ns])
    end = np.array([interval.end_ns])
    for device in devices:
        if device.pid == pid:
            (account,) = device.over(begin, end)
            return account
    return None


def _compute_ns(trace: Trace, step: Pass) -> int:
    """How long kernels of a step compute, on the device of its model (ns)."""
    kernels = _kernels(trace, step)
    device_of_row = trace.process_of_track[trace.track[kernels]]
    device_of_model = trace.process_of_track[trace.track[step.model[0]]]
    on_device = kernels[device_of_row == device_of_model]
    computing = on_device[~communicates(trace, on_device)]
    return interval_of(trace, computing).busy_ns


def _kernels(trace: Trace, step: Pass) -> Rows:
    """The kernels that a step launched."""
    kernels: Rows = step.rows[trace.role[step.rows] == Role.KERNEL]
    return kernels


def _kernel_of_most(trace: Trace, step: Pass, median_step: Pass) -> str:
    """`, mostly NAME (3 launches, instead of 2)`: the kernels of the name that
    takes so much longer; "" if the step has no kernels."""
    kernels = _kernels(trace, step)
    usual_kernels = _kernels(trace, median_step)
    ns_of_name = _ns_by_name(trace, kernels)
    usual_ns_of_name = _ns_by_name(trace, usual_kernels)
    if not ns_of_name:
        return ""
    name = max(ns_of_name, key=lambda name: ns_of_name[name] - usual_ns_of_name[name])
    runs = int(np.count_nonzero(trace.name[kernels] == name))
    usual_runs = int(np.count_nonzero(trace.name[usual_kernels] == name))
    compared = f"instead of {count(usual_runs)}"
    if runs == usual_runs:
        compared = "as in the median step"
    kernel = short_name(trace.names[name])
    return f", mostly {kernel} ({count(runs)} launches, {compared})"


def _ns_by_name(trace: Trace, kernels: Rows) -> Counter[int]:
    """How long the kernels of each name run in all (ns); in the order of their first."""
    total_ns: Counter[int] = Counter()
    names = trace.name[kernels].tolist()
    durations_ns = trace.dur[kernels].tolist()
    for name, ns in zip(names, durations_ns, strict=True):
        total_ns[name] += ns
    return total_ns
