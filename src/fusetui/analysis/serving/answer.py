"""All that is known about a trace of an inference server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.spread import percentile
from fusetui.analysis.serving.between import Between, between_of
from fusetui.analysis.serving.captures import bare_launches
from fusetui.analysis.serving.config import ModelConfig
from fusetui.analysis.serving.layers import Experts, Layers, experts_of, layers_of
from fusetui.analysis.serving.limit import Limit, limit_of
from fusetui.analysis.serving.outliers import outliers
from fusetui.analysis.serving.passes import Pass, interval_of, passes, trains
from fusetui.analysis.serving.steps import ServerPhase
from fusetui.analysis.serving.weights import products_of
from fusetui.analysis.why.account import accounts
from fusetui.gpu.roofline.peaks import NO_PEAKS
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import Join, Joined

UNDERSTOOD = (
    ServerPhase.DECODE,
    ServerPhase.PREFILL,
    ServerPhase.MIXED,
    ServerPhase.VERIFY,
    ServerPhase.DRAFT,
    ServerPhase.UNKNOWN,
)


class ServerStep(msgspec.Struct, frozen=True):
    """One step of the server. None where it is not known. `start_ns` counts from the beginning of
    the trace."""

    name: str
    start_ns: int
    dur_ns: int  # of the annotation, on the CPU
    phase: str
    batch: int | None  # requests
    new_tokens: int | None
    kv_tokens: int | None  # tokens that attention reads, over all requests
    cached_tokens: int | None  # those of them that earlier steps computed
    mode: str  # graph, piecewise graphs, eager or nothing
    replays: int
    captured_tokens: int | None  # for how many tokens its graph was captured
    events: int  # GPU events that it launched
    gpu_ns: int  # from the first start to the last end of those
    busy_ns: int  # the length of their union
    model_ns: int  # from the first start to the last end of its graph; of all, if it is eager
    outlier: bool
    because: tuple[str, ...]  # what explains an outlier


class PhaseTimes(msgspec.Struct, frozen=True):
    """The `model_ns` of the steps of one phase; percentiles as in `spread.Spread`."""

    phase: str
    steps: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


class PhaseLimit(msgspec.Struct, frozen=True):
    """The step of the median time of a phase (of an even count the lower one): its layers, its
    experts and its limit."""

    phase: str
    step: int  # its index
    layers: Layers | None
    experts: Experts | None
    limit: Limit


class Serving(msgspec.Struct, frozen=True):
    """`between` is that of the device with the most passes; `missing`: what cannot be told, and
    why."""

    file: str
    joins: tuple[Join, ...]
    steps: tuple[ServerStep, ...]
    phases: tuple[PhaseTimes, ...]
    limits: tuple[PhaseLimit, ...]
    between: Between | None
    missing: tuple[str, ...]


def serving(
    trace: Trace, model: ModelConfig | None = None, given: Mapping[str, float] = NO_PEAKS
) -> Serving:
    """`given`: figures of the device (see `peak_of`)."""
    found = passes(trace)
    devices = accounts(trace).devices
    odd = outliers(trace, found, devices)
    tokens = _captured_tokens(trace, found)
    steps = tuple(_step(trace, one, tokens[n], odd.get(n)) for n, one in enumerate(found))
    phases, limits = [], []
    for phase in UNDERSTOOD:
        own = [n for n, one in enumerate(found) if one.asked.phase is phase and len(one.model)]
        if own:
            own.sort(key=lambda n: steps[n].model_ns)
            phases.append(_times(phase, [steps[n].model_ns for n in own]))
            at = own[(len(own) - 1) // 2]
            rows = found[at].model
            layers = layers_of(trace, rows)
            limit = limit_of(trace, found[at], layers, model, given)
            limits.append(PhaseLimit(phase.value, at, layers, experts_of(trace, rows), limit))
    each = [between_of(trace, found, device) for device in devices]
    most = max((one for one in each if one), key=lambda one: one.count, default=None)
    return Serving(
        file=trace.report.file,
        joins=trace.joins if isinstance(trace, Joined) else (),
        steps=steps,
        phases=tuple(phases),
        limits=tuple(limits),
        between=most,
        missing=tuple(_missing(trace, found, most)),
    )


def _captured_tokens(trace: Trace, found: Sequence[Pass]) -> list[int | None]:
    """For how many tokens the graph of each pass was captured; each capture is looked at once."""
    if not isinstance(trace, Joined):
        return [None] * len(found)
    known: dict[int, int | None] = {}
    each: list[int | None] = []
    for one in found:
        call = int(trace.captured[one.model].max(initial=-1))
        if call >= 0 and call not in known:
            known[call] = products_of(trace, one.model).rows
        each.append(known.get(call))
    return each


def _step(
    trace: Trace, one: Pass, captured: int | None, because: tuple[str, ...] | None
) -> ServerStep:
    all_, model = interval_of(trace, one.rows), interval_of(trace, one.model)
    return ServerStep(
        name=one.name,
        start_ns=one.start_ns - trace.begin_ns,
        dur_ns=one.dur_ns,
        phase=one.asked.phase.value,
        batch=one.asked.batch,
        new_tokens=one.asked.new_tokens,
        kv_tokens=one.asked.kv_tokens,
        cached_tokens=one.asked.cached_tokens,
        mode=one.mode.value,
        replays=one.replays,
        captured_tokens=captured,
        events=len(one.rows),
        gpu_ns=all_.span_ns,
        busy_ns=all_.busy_ns,
        model_ns=model.span_ns,
        outlier=because is not None,
        because=because or (),
    )


def _times(phase: ServerPhase, sorted_ns: Sequence[int]) -> PhaseTimes:
    each, first, count = np.array(sorted_ns), np.array([0]), np.array([len(sorted_ns)])
    at = [int(percentile(each, first, count, percent)[0]) for percent in (50, 90, 99, 100)]
    return PhaseTimes(phase.value, len(each), *at)


def _missing(trace: Trace, found: Sequence[Pass], between: Between | None) -> list[str]:
    said = []
    if not found:  # nothing else is known either
        replayed = "what was replayed is training" if trains(trace) else "no graph was replayed"
        said.append(
            "Steps: no annotation has the name of a server's step (execute_..., step[...]), and "
            f"{replayed}."
        )
    elif between is None or not between.count:
        said.append("The time from one pass of the model to the next: the trace has one pass.")
    if bare := bare_launches(trace):
        said.append(f"What {bare} graph launches ran: the profiler did not trace graphs by node.")
    return said
