"""All that is known about a trace of an inference server. Of the steps that took much
longer than others of their phase: what is unusual about them, and where on the device
their time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.graphs.captures import bare_launches
from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.questions.totals import percentile
from fusetui.analysis.serving.between import Between, between_of
from fusetui.analysis.serving.config import ModelConfig
from fusetui.analysis.serving.limit import Limit, limit_of
from fusetui.analysis.serving.parts import (
    Experts,
    Layers,
    experts_of,
    layers_of,
    products_of,
)
from fusetui.analysis.serving.passes import Mode, Pass, interval_of, passes, trains
from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.facts import COMPILER
from fusetui.analysis.why.model import IDLE, DeviceAccount
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.roofline.peaks import NO_PEAKS
from fusetui.text.figures import count, duration
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import Join, Joined

FEWEST = 4  # steps of a phase, of which one can be an outlier
LONGER = 1.5  # times the median
WORTH = 0.1  # of the excess, which a part must reach to be told
LONGEST_NAME = 400
AMOUNTS = {"new_tokens": "new tokens", "kv_tokens": "tokens that attention reads"}
GRAPHS = {
    Mode.GRAPH: "graphs",
    Mode.PIECEWISE: "piecewise graphs",
    Mode.NOTHING: "nothing",
}


def outliers(
    trace: Trace, steps: Sequence[Pass], devices: Sequence[Device]
) -> dict[int, tuple[str, ...]]:
    """By the index of each outlier, what explains it; () if nothing that was recorded
    does."""
    spans = [interval_of(trace, step.rows).span_ns for step in steps]
    found = {}
    for phase in dict.fromkeys(step.asked.phase for step in steps):
        own = [
            n
            for n, step in enumerate(steps)
            if step.asked.phase is phase and len(step.rows)
        ]
        if len(own) < FEWEST:
            continue
        median = sorted(own, key=lambda n: spans[n])[(len(own) - 1) // 2]
        usual = max(
            (steps[n].mode for n in own), key=[steps[n].mode for n in own].count
        )
        for n in own:
            if spans[n] > LONGER * spans[median]:
                excess = spans[n] - spans[median]
                parts = _parts(trace, steps[n], steps[median], excess, devices)
                found[n] = (*_causes(trace, steps, n, excess, usual), *parts)
    return found


def _causes(
    trace: Trace, steps: Sequence[Pass], n: int, excess: int, usual: Mode
) -> Iterator[str]:
    step = steps[n]
    begin, end = step.start_ns, step.start_ns + step.dur_ns
    compiles = trace.named(
        lambda name: COMPILER.search(name[:LONGEST_NAME]) is not None
    )
    flags = compiles[trace.name] & np.isin(
        trace.role, (Role.ANNOTATION, Role.OP, Role.PYTHON)
    )
    if (flags & (trace.start < end) & (trace.end > begin)).any():
        yield "torch.compile or Triton compiles in it"
    if step.mode is Mode.EAGER and usual is not Mode.EAGER:
        yield f"it runs eagerly, where the others replay {GRAPHS[usual]}"
    if n and steps[n - 1].asked.phase in (ServerPhase.PREFILL, ServerPhase.MIXED):
        before, own = (
            interval_of(trace, steps[n - 1].rows),
            interval_of(trace, step.rows),
        )
        if before.end_ns > begin and own.end_ns > before.end_ns > own.begin_ns - excess:
            yield "the prefill before it was still running"


def _parts(
    trace: Trace, step: Pass, usual: Pass, excess: int, devices: Sequence[Device]
) -> Iterator[str]:
    """What more it was asked to do than the step of the median time, and where its time
    went that that one does not take, the largest part first: by the classes of both
    steps' accounts, whose differences add up to the excess."""
    for field, what in AMOUNTS.items():
        more_asked, usually = getattr(step.asked, field), getattr(usual.asked, field)
        if more_asked and usually and more_asked > LONGER * usually:
            yield f"{count(more_asked)} {what}, where the median step has {count(usually)}"
    own, other = _account(trace, step, devices), _account(trace, usual, devices)
    if own is None or other is None:
        return
    busy, before = _busy(trace, step), _busy(trace, usual)
    others = (own.compute_ns - busy) - (other.compute_ns - before)
    more = [
        (f"kernels run @ longer{_kernel(trace, step, usual)}", busy - before),
        ("kernels of other steps run @ longer in between", others),
        (
            "communication is exposed @ longer",
            own.exposed_comm_ns - other.exposed_comm_ns,
        ),
        ("copies are exposed @ longer", own.exposed_copy_ns - other.exposed_copy_ns),
    ]
    for reason, ns in own.idle.items():
        told = f"the GPU is idle @ longer {IDLE[reason].while_}"
        more.append((told, ns - other.idle.get(reason, 0)))
    for told, ns in sorted(more, key=lambda item: -item[1]):
        if ns > WORTH * excess:
            yield told.replace("@", duration(ns), 1)


def _account(
    trace: Trace, step: Pass, devices: Sequence[Device]
) -> DeviceAccount | None:
    """Of the device of its model, from the first start to the last end of what it ran
    there."""
    pid, part = trace.track_of(int(step.model[0])).pid, interval_of(trace, step.rows)
    bounds = np.array([part.begin_ns]), np.array([part.end_ns])
    return next((one.over(*bounds)[0] for one in devices if one.pid == pid), None)


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


ASKED = ("batch", "new_tokens", "kv_tokens", "cached_tokens")
UNDERSTOOD = tuple(
    map(ServerPhase, ("decode", "prefill", "mixed", "verify", "draft", "unknown"))
)


class ServerStep(msgspec.Struct, frozen=True):
    """One step of the server. None where it is not known. `start_ns` counts from the
    beginning of the trace."""

    name: str
    start_ns: int
    dur_ns: int  # of the annotation, on the CPU
    phase: ServerPhase
    batch: int | None  # requests
    new_tokens: int | None
    kv_tokens: int | None  # tokens that attention reads, over all requests
    cached_tokens: int | None  # those of them that earlier steps computed
    mode: Mode
    replays: int
    captured_tokens: int | None  # for how many tokens its graph was captured
    events: int  # GPU events that it launched
    gpu_ns: int  # from the first start to the last end of those
    busy_ns: int  # the length of their union
    # from the first start to the last end of its graph; of all, if it is eager
    model_ns: int
    outlier: bool
    because: tuple[str, ...]  # what explains an outlier


class PhaseTimes(msgspec.Struct, frozen=True):
    """The `model_ns` of the steps of one phase; percentiles as in `spread.Spread`."""

    phase: ServerPhase
    steps: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


class PhaseLimit(msgspec.Struct, frozen=True):
    """The step of the median time of a phase (of an even count the lower one): its
    layers, its experts and its limit."""

    phase: ServerPhase
    step: int  # its index
    layers: Layers | None
    experts: Experts | None
    limit: Limit


class Serving(msgspec.Struct, frozen=True):
    """`between` is that of the device with the most passes; `missing`: what cannot be
    told, and why."""

    base_ns: str  # the time in the file at which the trace begins
    file: str
    joins: tuple[Join, ...]
    steps: tuple[ServerStep, ...]
    phases: tuple[PhaseTimes, ...]
    limits: tuple[PhaseLimit, ...]
    between: Between | None
    missing: tuple[str, ...]


def serving(
    trace: Trace,
    model: ModelConfig | None = None,
    given: Mapping[str, float] = NO_PEAKS,
) -> Serving:
    """`given`: figures of the device (see `peak_of`)."""
    found = passes(trace)
    devices = Accounts(trace).devices
    odd = outliers(trace, found, devices)
    tokens = _captured_tokens(trace, found)
    steps = tuple(
        _step(trace, one, tokens[n], odd.get(n)) for n, one in enumerate(found)
    )
    phases, limits = [], []
    for phase in UNDERSTOOD:
        own = [
            n
            for n, one in enumerate(found)
            if one.asked.phase is phase and len(one.model)
        ]
        if own:
            own.sort(key=lambda n: steps[n].model_ns)
            lasted, size = (
                np.array([steps[n].model_ns for n in own]),
                np.array([len(own)]),
            )
            times = [
                percentile(lasted, np.array([0]), size, n).item()
                for n in (50, 90, 99, 100)
            ]
            phases.append(PhaseTimes(phase, len(own), *times))
            at = own[(len(own) - 1) // 2]
            rows = found[at].model
            layers = layers_of(trace, rows)
            limit = limit_of(trace, found[at], layers, model, given)
            limits.append(PhaseLimit(phase, at, layers, experts_of(trace, rows), limit))
    each = [between_of(trace, found, device) for device in devices]
    most = max((one for one in each if one), key=lambda one: one.count, default=None)
    return Serving(
        base_ns=str(trace.begin_ns),
        file=trace.report.file,
        joins=trace.joins if isinstance(trace, Joined) else (),
        steps=steps,
        phases=tuple(phases),
        limits=tuple(limits),
        between=most,
        missing=tuple(_missing(trace, found, most)),
    )


def _captured_tokens(trace: Trace, found: Sequence[Pass]) -> list[int | None]:
    """For how many tokens the graph of each pass was captured; each capture is looked
    at once."""
    if not isinstance(trace, Joined):
        return [None] * len(found)
    calls = [int(trace.captured[one.model].max(initial=-1)) for one in found]
    first = dict(zip(calls[::-1], found[::-1], strict=True))
    known = {
        call: products_of(trace, one.model).rows
        for call, one in first.items()
        if call >= 0
    }
    return [known.get(call) for call in calls]


def _step(
    trace: Trace, one: Pass, captured: int | None, because: tuple[str, ...] | None
) -> ServerStep:
    all_, model = interval_of(trace, one.rows), interval_of(trace, one.model)
    return ServerStep(
        name=one.name,
        start_ns=one.start_ns - trace.begin_ns,
        dur_ns=one.dur_ns,
        phase=one.asked.phase,
        **{of: getattr(one.asked, of) for of in ASKED},
        mode=one.mode,
        replays=one.replays,
        captured_tokens=captured,
        events=len(one.rows),
        gpu_ns=all_.span_ns,
        busy_ns=all_.busy_ns,
        model_ns=model.span_ns,
        outlier=because is not None,
        because=because or (),
    )


def _missing(trace: Trace, found: Sequence[Pass], between: Between | None) -> list[str]:
    said = []
    if not found:  # nothing else is known either
        replayed = (
            "what was replayed is training"
            if trains(trace)
            else "no graph was replayed"
        )
        unnamed = (
            "no annotation has the name of a server's step (execute_..., step[...])"
        )
        said.append(f"Steps: {unnamed}, and {replayed}.")
    elif between is None or not between.count:
        said.append(
            "The time from one pass of the model to the next: the trace has one pass."
        )
    if bare := bare_launches(trace):
        said.append(
            f"What {bare} graph launches ran: the profiler did not trace graphs by node."
        )
    return said
