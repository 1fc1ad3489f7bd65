"""Which steps took much longer than others of their phase, and what explains that: what is unusual
about the step, and where on the device its time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.serving.passes import Mode, Pass, interval_of
from fusetui.analysis.serving.steps import ServerPhase
from fusetui.analysis.why.account import Device
from fusetui.analysis.why.facts import COMPILER
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.gpu.kernel_names import short_name
from fusetui.text.figures import count, duration
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

FEWEST = 4  # steps of a phase, of which one can be an outlier
LONGER = 1.5  # times the median
WORTH = 0.1  # of the excess, which a part must reach to be told
LONGEST_NAME = 400
GRAPHS = {Mode.GRAPH: "graphs", Mode.PIECEWISE: "piecewise graphs", Mode.NOTHING: "nothing"}


def outliers(
    trace: Trace, steps: Sequence[Pass], devices: Sequence[Device]
) -> dict[int, tuple[str, ...]]:
    """By the index of each outlier, what explains it; () if nothing that was recorded does."""
    spans = [interval_of(trace, step.rows).span_ns for step in steps]
    found = {}
    for phase in dict.fromkeys(step.asked.phase for step in steps):
        own = [n for n, step in enumerate(steps) if step.asked.phase is phase and len(step.rows)]
        if len(own) < FEWEST:
            continue
        median = sorted(own, key=lambda n: spans[n])[(len(own) - 1) // 2]
        usual = max((steps[n].mode for n in own), key=[steps[n].mode for n in own].count)
        for n in own:
            if spans[n] > LONGER * spans[median]:
                excess = spans[n] - spans[median]
                found[n] = (
                    *_causes(trace, steps, n, excess, usual),
                    *_asked(steps[n], steps[median]),
                    *_parts(trace, steps[n], steps[median], excess, devices),
                )
    return found


def _causes(trace: Trace, steps: Sequence[Pass], n: int, excess: int, usual: Mode) -> Iterator[str]:
    """What is unusual about a step."""
    step = steps[n]
    begin, end = step.start_ns, step.start_ns + step.dur_ns
    if _compiles(trace, begin, end):
        yield "torch.compile or Triton compiles in it"
    if step.mode is Mode.EAGER and usual is not Mode.EAGER:
        yield f"it runs eagerly, where the others replay {GRAPHS[usual]}"
    if n and steps[n - 1].asked.phase in (ServerPhase.PREFILL, ServerPhase.MIXED):
        before, own = interval_of(trace, steps[n - 1].rows), interval_of(trace, step.rows)
        if before.end_ns > begin and own.end_ns > before.end_ns > own.begin_ns - excess:
            yield "the prefill before it was still running"


def _asked(step: Pass, usual: Pass) -> Iterator[str]:
    """What more a step was asked to do than the one of the median time."""
    amounts = (
        ("new tokens", step.asked.new_tokens, usual.asked.new_tokens),
        ("tokens that attention reads", step.asked.kv_tokens, usual.asked.kv_tokens),
    )
    for what, own, other in amounts:
        if own and other and own > LONGER * other:
            yield f"{count(own)} {what}, where the median step has {count(other)}"


def _parts(
    trace: Trace, step: Pass, usual: Pass, excess: int, devices: Sequence[Device]
) -> Iterator[str]:
    """Where its time went that the step of the median time does not take, the largest part first:
    by the classes of both steps' accounts, whose differences add up to the excess."""
    own, other = _account(trace, step, devices), _account(trace, usual, devices)
    if own is None or other is None:
        return
    busy, before = _busy(trace, step), _busy(trace, usual)
    more = {f"kernels run @ longer{_kernel(trace, step, usual)}": busy - before}
    others = (own.compute_ns - busy) - (other.compute_ns - before)
    more["kernels of other steps run @ longer in between"] = others
    more["communication is exposed @ longer"] = own.exposed_comm_ns - other.exposed_comm_ns
    more["copies are exposed @ longer"] = own.exposed_copy_ns - other.exposed_copy_ns
    for reason in own.idle:
        told = f"the GPU is idle @ longer {IDLE[reason].while_}"
        more[told] = own.idle[reason] - other.idle.get(reason, 0)
    for told, ns in sorted(more.items(), key=lambda item: -item[1]):
        if ns > WORTH * excess:
            yield told.replace("@", duration(ns), 1)


def _account(trace: Trace, step: Pass, devices: Sequence[Device]) -> DeviceAccount | None:
    """Of the device of its model, from the first start to the last end of what the step ran there.
    None if the device has no account."""
    pid, part = trace.track_of(int(step.model[0])).pid, interval_of(trace, step.rows)
    for device in devices:
        if device.pid == pid:
            return device.over(np.array([part.begin_ns]), np.array([part.end_ns]))[0]
    return None


def _busy(trace: Trace, step: Pass) -> int:
    """How long kernels of its own compute, on the device of its model; in ns."""
    rows = step.rows[trace.role[step.rows] == Role.KERNEL]
    device = trace.process_of_track[trace.track]
    rows = rows[(device[rows] == device[step.model[0]]) & ~communicates(trace, rows)]
    return interval_of(trace, rows).busy_ns


def _kernel(trace: Trace, step: Pass, usual: Pass) -> str:
    """`, most of all NAME (3 of them, instead of 2)`."""
    (times, ns), (times_usual, ns_usual) = _by_name(trace, step), _by_name(trace, usual)
    name = max(ns, key=lambda name: ns[name] - ns_usual[name], default=None)
    if name is None:
        return ""
    same = times[name] == times_usual[name]
    told = "as in the median step" if same else f"instead of {count(times_usual[name])}"
    return f", most of all {short_name(trace.names[name])} ({count(times[name])} of them, {told})"


def _by_name(trace: Trace, step: Pass) -> tuple[Counter[int], Counter[int]]:
    """How many kernels of each name ran in a step, and how long in all, in ns."""
    rows = step.rows[trace.role[step.rows] == Role.KERNEL]
    names, ns = trace.name[rows].tolist(), Counter[int]()
    for name, dur in zip(names, trace.dur[rows].tolist(), strict=True):
        ns[name] += dur
    return Counter(names), ns


def _compiles(trace: Trace, begin: int, end: int) -> bool:
    named = [COMPILER.search(name[:LONGEST_NAME]) is not None for name in trace.names]
    flags = np.array(named or [False])[trace.name]
    flags &= np.isin(trace.role, (Role.ANNOTATION, Role.OP, Role.PYTHON))
    return bool((flags & (trace.start < end) & (trace.end > begin)).any())
