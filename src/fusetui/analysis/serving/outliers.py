"""Explains the steps that took much longer than others in their phase: their
differences, and where the time on the device went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.passes import Mode, Pass, measure_busy_interval
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
"""A phase needs at least so many steps for one of them to be an outlier."""

OUTLIER_FACTOR = 1.5
"""An outlier takes more than so many times the median, in time or in tokens."""

MIN_SHARE_OF_EXCESS = 0.1
"""A part of the excess that is a smaller share of it is not mentioned."""

MODES_IN_WORDS = {
    Mode.GRAPH: "graphs",
    Mode.PIECEWISE: "piecewise graphs",
    Mode.NOTHING: "nothing",
}


class _Outlier(NamedTuple):
    """A step that takes much longer than the step of the median time of its phase."""

    step: Pass
    previous: Pass | None  # the step before it, of any phase
    median_step: Pass
    usual_mode: Mode  # of the steps of its phase
    excess_ns: int  # how much longer it takes than the median step


def explain_outlier_steps(
    trace: Trace, steps: Sequence[Pass], devices: Sequence[Device]
) -> dict[int, tuple[str, ...]]:
    """Find the steps of an inference server that take unusually long, and explain each
    of them.

    Args:
        trace: The trace of the server.
        steps: The passes of all steps.
        devices: The devices of the trace, with what they did at each time.

    Returns:
        For the index of each such step its explanations; () if nothing that was
        recorded explains it.
    """
    with_events = [index for index, step in enumerate(steps) if len(step.launched_rows)]
    indices_by_phase = by_key(
        with_events, key=lambda index: steps[index].requested.phase
    )

    explanations = {}
    for indices in indices_by_phase.values():
        if len(indices) < MIN_STEPS:
            continue
        for index, outlier in _find_outliers_of_phase(trace, steps, indices).items():
            unusual = _list_unusual_circumstances(trace, outlier)
            longer = _list_longer_parts(trace, outlier, devices)
            explanations[index] = (*unusual, *longer)
    return explanations


def _find_outliers_of_phase(
    trace: Trace, steps: Sequence[Pass], indices: Sequence[int]
) -> dict[int, _Outlier]:
    """Find the steps of a phase that take much longer than its median step.

    Args:
        trace: The trace of the server.
        steps: The passes of all steps, of any phase.
        indices: The indices of the steps of the phase; all have GPU events.

    Returns:
        The outliers by the indices of their steps.
    """
    span_ns = [
        measure_busy_interval(trace, steps[index].launched_rows).span_ns
        for index in indices
    ]
    median_position = lower_median_index(span_ns)
    median_ns = span_ns[median_position]
    median_step = steps[indices[median_position]]
    modes = [steps[index].mode for index in indices]
    most_frequent_mode = max(modes, key=modes.count)  # of equals the first

    outliers_by_index = {}
    for index, step_ns in zip(indices, span_ns, strict=True):
        if step_ns > OUTLIER_FACTOR * median_ns:
            outliers_by_index[index] = _Outlier(
                step=steps[index],
                previous=steps[index - 1] if index else None,
                median_step=median_step,
                usual_mode=most_frequent_mode,
                excess_ns=step_ns - median_ns,
            )
    return outliers_by_index


def _list_unusual_circumstances(trace: Trace, outlier: _Outlier) -> Iterator[str]:
    """Say in which circumstances an unusually long step differs from the median step.

    E.g. that something compiles during the step, or that it has more tokens. Nothing is
    yielded if no circumstance differs.
    """
    if _compiles_during_step(trace, outlier.step):
        yield "torch.compile or Triton compiles during the step"
    if outlier.step.mode is Mode.EAGER and outlier.usual_mode is not Mode.EAGER:
        usual = MODES_IN_WORDS[outlier.usual_mode]
        yield f"it runs eagerly, but the other steps replay {usual}"
    if _waits_for_prefill(trace, outlier):
        yield "the previous prefill was still running"

    requested = outlier.step.requested
    usual_request = outlier.median_step.requested
    yield from _describe_surplus_tokens(
        requested.new_tokens, usual_request.new_tokens, "new tokens"
    )
    yield from _describe_surplus_tokens(
        requested.kv_tokens, usual_request.kv_tokens, "tokens that attention reads"
    )


def _compiles_during_step(trace: Trace, step: Pass) -> bool:
    """Return whether torch.compile or Triton compiles on any thread while the step is
    on the CPU. It is recognized by the names of annotations, ops and Python frames."""
    compiling = trace.rows_named(COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)
    step_end_ns = step.start_ns + step.dur_ns
    begins_before_end = trace.start[compiling] < step_end_ns
    ends_after_begin = trace.end[compiling] > step.start_ns
    overlaps_step = begins_before_end & ends_after_begin
    return bool(overlaps_step.any())


def _waits_for_prefill(trace: Trace, outlier: _Outlier) -> bool:
    """Return whether an unusually long step had to wait for the prefill of the previous
    step.

    The device must still have run that prefill when the step began on the CPU. It must
    have done so for long enough to explain the excess.
    """
    previous = outlier.previous
    if previous is None:
        return False
    if previous.requested.phase not in (ServerPhase.PREFILL, ServerPhase.MIXED):
        return False

    prefill = measure_busy_interval(trace, previous.launched_rows)
    step = measure_busy_interval(trace, outlier.step.launched_rows)
    runs_when_step_begins = prefill.end_ns > outlier.step.start_ns

    # The wait ends with the prefill. If the step would have started earlier by its
    # whole excess, it would have started before that end.
    explains_excess = prefill.end_ns > step.begin_ns - outlier.excess_ns
    ends_first = prefill.end_ns < step.end_ns
    return runs_when_step_begins and explains_excess and ends_first


def _describe_surplus_tokens(
    tokens: int | None, usual_tokens: int | None, what: str
) -> Iterator[str]:
    """Say that a step has far more tokens than the median step, if it does.

    Args:
        tokens: The tokens of the step; None if they are not known.
        usual_tokens: The tokens of the median step.
        what: What is counted, such as "new tokens".
    """
    if not tokens or not usual_tokens:
        return
    if tokens > OUTLIER_FACTOR * usual_tokens:
        yield f"{count(tokens)} {what} (median step: {count(usual_tokens)})"


class _TimeDifference(NamedTuple):
    """One part of a step that takes longer than in the median step.

    It becomes the sentence SUBJECT 3 us longer CIRCUMSTANCE.
    """

    subject: str
    circumstance: str
    ns: int  # how much longer


def _list_longer_parts(
    trace: Trace, outlier: _Outlier, devices: Sequence[Device]
) -> Iterator[str]:
    """Say which parts of an outlier take longer, the one with the most time first."""
    parts = _divide_excess(trace, outlier, devices)
    for part in sorted(parts, key=lambda part: -part.ns):
        if part.ns > MIN_SHARE_OF_EXCESS * outlier.excess_ns:
            yield f"{part.subject} {duration(part.ns)} longer{part.circumstance}"


def _divide_excess(
    trace: Trace, outlier: _Outlier, devices: Sequence[Device]
) -> list[_TimeDifference]:
    """Divide the excess of an unusually long step by what its device did in that time.

    Args:
        trace: The trace of the server.
        outlier: The step, and the median step to which it is compared.
        devices: The devices of the trace.

    Returns:
        Parts that add up to the excess; some may be negative. [] if it is not
        known what the device did in either step.
    """
    step = outlier.step
    median_step = outlier.median_step
    account = _account_of_step(trace, step, devices)
    usual_account = _account_of_step(trace, median_step, devices)
    if account is None or usual_account is None:
        return []

    # The account is of all kernels that ran in the time of the step. Those that the
    # step did not launch itself are of other steps.
    all_kernels_ns = account.compute_ns - usual_account.compute_ns
    compute_ns = _measure_compute_ns(trace, step)
    usual_compute_ns = _measure_compute_ns(trace, median_step)
    own_kernels_ns = compute_ns - usual_compute_ns

    own_kernels = _TimeDifference(
        subject="kernels run",
        circumstance=_describe_dominant_kernel(
            trace, step, median_step, own_kernels_ns
        ),
        ns=own_kernels_ns,
    )
    other_kernels = _TimeDifference(
        subject="kernels of other steps run",
        circumstance=" in between",
        ns=all_kernels_ns - own_kernels_ns,
    )
    return [own_kernels, other_kernels, *_compare_other_classes(account, usual_account)]


def _compare_other_classes(
    account: DeviceAccount, usual_account: DeviceAccount
) -> Iterator[_TimeDifference]:
    """Compare what a device did in an unusually long step and in the median step,
    except for computing.

    Args:
        account: The time of the step by class: exposed communication and copies,
            and idle time by reason.
        usual_account: The same for the median step.

    Yields:
        A difference in ns for each class; it may be negative.
    """
    yield _TimeDifference(
        subject="communication is exposed",
        circumstance="",
        ns=account.exposed_comm_ns - usual_account.exposed_comm_ns,
    )
    yield _TimeDifference(
        subject="copies are exposed",
        circumstance="",
        ns=account.exposed_copy_ns - usual_account.exposed_copy_ns,
    )
    for reason, idle_ns in account.idle.items():
        yield _TimeDifference(
            subject="the GPU is idle",
            circumstance=f" {IDLE[reason].while_}",
            ns=idle_ns - usual_account.idle.get(reason, 0),
        )


def _account_of_step(
    trace: Trace, step: Pass, devices: Sequence[Device]
) -> DeviceAccount | None:
    """Return how a device divided its time while the work of a step ran.

    The account has the time for computing, exposed communication and copies, and idle
    time. Returns None if the device of the step is none of `devices`.
    """
    pid = trace.track_of(int(step.model_rows[0])).pid
    interval = measure_busy_interval(trace, step.launched_rows)
    begin = np.array([interval.begin_ns])
    end = np.array([interval.end_ns])
    for device in devices:
        if device.pid == pid:
            (account,) = device.account_for_windows(begin, end)
            return account
    return None


def _measure_compute_ns(trace: Trace, step: Pass) -> int:
    """Measure how long kernels of a step compute on the device of its model, in ns.

    Time in which several kernels run counts once.
    """
    kernels = _kernels_of_step(trace, step)
    device_of_kernel = trace.process_of_track[trace.track[kernels]]
    device_of_model = trace.process_of_track[trace.track[step.model_rows[0]]]
    on_device = kernels[device_of_kernel == device_of_model]
    computing = on_device[~communicates(trace, on_device)]
    return measure_busy_interval(trace, computing).busy_ns


def _kernels_of_step(trace: Trace, step: Pass) -> Rows:
    """Return the rows of the kernels that a step of the server launched."""
    kernels: Rows = step.launched_rows[trace.role[step.launched_rows] == Role.KERNEL]
    return kernels


def _describe_dominant_kernel(
    trace: Trace, step: Pass, median_step: Pass, additional_ns: int
) -> str:
    """Name the kernel that takes the most additional time in a step, compared with the
    median step.

    Args:
        trace: The trace of the server.
        step: The step, which takes longer.
        median_step: The median step.
        additional_ns: How much longer the kernels of the step run in all.

    Returns:
        `, mostly NAME (3 launches, instead of 2)`, or `, especially NAME` if the kernel
        takes no more than half of the additional time; "" if the step has no kernels.
    """
    kernels = _kernels_of_step(trace, step)
    usual_kernels = _kernels_of_step(trace, median_step)
    ns_by_name = _sum_ns_by_name(trace, kernels)
    usual_ns_by_name = _sum_ns_by_name(trace, usual_kernels)
    if not ns_by_name:
        return ""

    name_index = max(
        ns_by_name, key=lambda name: ns_by_name[name] - usual_ns_by_name[name]
    )

    launches = int(np.count_nonzero(trace.name[kernels] == name_index))
    usual_launches = int(np.count_nonzero(trace.name[usual_kernels] == name_index))
    if launches == usual_launches:
        comparison = "as in the median step"
    else:
        comparison = f"instead of {count(usual_launches)}"
    kernel = short_name(trace.names[name_index])
    kernel_ns = ns_by_name[name_index] - usual_ns_by_name[name_index]
    which = "mostly" if 2 * kernel_ns > additional_ns else "especially"
    return f", {which} {kernel} ({count(launches)} launches, {comparison})"


def _sum_ns_by_name(trace: Trace, kernels: Rows) -> Counter[int]:
    """Add up the durations of kernels by the indices of their names, in ns.

    The names stand in the order of their first kernels.
    """
    ns_by_name: Counter[int] = Counter()
    name_indices = trace.name[kernels].tolist()
    durations_ns = trace.dur[kernels].tolist()
    for name_index, ns in zip(name_indices, durations_ns, strict=True):
        ns_by_name[name_index] += ns
    return ns_by_name
