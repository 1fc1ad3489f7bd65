"""All that is known about a trace of an inference server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fusetui.analysis.graphs.captures import bare_launches
from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.between import Between, between_of
from fusetui.analysis.serving.config import ModelConfig
from fusetui.analysis.serving.experts import Experts, experts_of
from fusetui.analysis.serving.layers import Layers, layers_of
from fusetui.analysis.serving.limit import Limit, limit_of
from fusetui.analysis.serving.outliers import outliers
from fusetui.analysis.serving.passes import Mode, Pass, interval_of, passes, trains
from fusetui.analysis.serving.products import products_of
from fusetui.analysis.why.account import Accounts, Device
from fusetui.gpu.roofline.peaks import NO_PEAKS
from fusetui.trace.layout.steps import model_pass
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import Join, Joined
from fusetui.trace.model.quantiles import lower_median_index, percentile

PHASES = (
    ServerPhase.DECODE,
    ServerPhase.PREFILL,
    ServerPhase.MIXED,
    ServerPhase.VERIFY,
    ServerPhase.DRAFT,
    ServerPhase.UNKNOWN,
)
"""Those in which a model runs, in the order in which they are listed."""


class ServerStep(msgspec.Struct, frozen=True):
    """One step of the server. None is unknown. `start_ns` counts from the start of
    the trace."""

    name: str
    start_ns: int
    dur_ns: int  # step_wall
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
    model_ns: int  # model_pass
    outlier: bool
    because: tuple[str, ...]  # what explains an outlier


class PhaseTimes(msgspec.Struct, frozen=True):
    """The `model_ns` of the steps of one phase; percentiles are interpolated."""

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
    """The steps of an inference server, their times and limits by phase, and the time
    between passes. `model`: its configuration; `given`: figures of the device (see
    `peak_of`)."""
    ran = passes(trace)
    devices = Accounts(trace).devices
    steps = _steps(trace, ran, outliers(trace, ran, devices))
    phases = []
    limits = []
    for phase in PHASES:
        numbers = _steps_of_phase(ran, phase)
        if not numbers:
            continue
        model_ns = [steps[number].model_ns for number in numbers]
        phases.append(_phase_times(phase, model_ns))
        median = numbers[lower_median_index(model_ns)]
        limits.append(_phase_limit(trace, phase, median, ran[median], model, given))
    between = _between_most_passes(trace, ran, devices)
    return Serving(
        base_ns=str(trace.begin_ns),
        file=trace.report.file,
        joins=trace.joins if isinstance(trace, Joined) else (),
        steps=steps,
        phases=tuple(phases),
        limits=tuple(limits),
        between=between,
        missing=tuple(_missing(trace, ran, between)),
    )


def _steps_of_phase(ran: Sequence[Pass], phase: ServerPhase) -> list[int]:
    """The indices of the steps of a phase in which a model ran."""
    numbers = []
    for number, step in enumerate(ran):
        if step.asked.phase is phase and len(step.model):
            numbers.append(number)
    return numbers


def _between_most_passes(
    trace: Trace, ran: Sequence[Pass], devices: Sequence[Device]
) -> Between | None:
    """The time between passes on the device with the most of them, the first of
    several; None if no device has any."""
    of_devices = []
    for device in devices:
        between = between_of(trace, ran, device)
        if between is not None:
            of_devices.append(between)
    return max(of_devices, key=lambda between: between.count, default=None)


def _phase_times(phase: ServerPhase, model_ns: Sequence[int]) -> PhaseTimes:
    """The percentiles of the times of one phase, of at least one step."""
    return PhaseTimes(
        phase=phase,
        steps=len(model_ns),
        p50_ns=percentile(model_ns, 50),
        p90_ns=percentile(model_ns, 90),
        p99_ns=percentile(model_ns, 99),
        max_ns=max(model_ns),
    )


def _phase_limit(
    trace: Trace,
    phase: ServerPhase,
    number: int,
    step: Pass,
    model: ModelConfig | None,
    given: Mapping[str, float],
) -> PhaseLimit:
    """The layers, the experts and the limit of one step; `number`: its index."""
    layers = layers_of(trace, step.model)
    return PhaseLimit(
        phase=phase,
        step=number,
        layers=layers,
        experts=experts_of(trace, step.model),
        limit=limit_of(trace, step, layers, model, given),
    )


def _steps(
    trace: Trace, ran: Sequence[Pass], explained: Mapping[int, tuple[str, ...]]
) -> tuple[ServerStep, ...]:
    """The steps as they are reported. `explained`: what explains each outlier, by its
    index; see `outliers`."""
    captured_tokens = _captured_tokens(trace, ran)
    steps = []
    for number, step in enumerate(ran):
        launched = interval_of(trace, step.rows)
        steps.append(
            ServerStep(
                name=step.name,
                start_ns=step.start_ns - trace.begin_ns,
                dur_ns=step.dur_ns,
                phase=step.asked.phase,
                batch=step.asked.batch,
                new_tokens=step.asked.new_tokens,
                kv_tokens=step.asked.kv_tokens,
                cached_tokens=step.asked.cached_tokens,
                mode=step.mode,
                replays=step.replays,
                captured_tokens=captured_tokens[number],
                events=len(step.rows),
                gpu_ns=launched.span_ns,
                busy_ns=launched.busy_ns,
                model_ns=model_pass(trace, step.model).span_ns,
                outlier=number in explained,
                because=explained.get(number, ()),
            )
        )
    return tuple(steps)


def _captured_tokens(trace: Trace, ran: Sequence[Pass]) -> list[int | None]:
    """For how many tokens the graph of each pass was captured, None if it is not known;
    each capture is looked at once."""
    if not isinstance(trace, Joined):
        return [None] * len(ran)
    tokens_of_call: dict[int, int | None] = {}
    captured_tokens = []
    for step in ran:
        call = int(trace.captured[step.model].max(initial=-1))
        if call >= 0 and call not in tokens_of_call:
            tokens_of_call[call] = products_of(trace, step.model).rows
        captured_tokens.append(tokens_of_call.get(call))
    return captured_tokens


def _missing(
    trace: Trace, ran: Sequence[Pass], between: Between | None
) -> Iterator[str]:
    """What cannot be told, and why, in sentences."""
    if not ran:  # nothing else is known either
        replayed = "no graph was replayed"
        if trains(trace):
            replayed = "the replayed graphs belong to training"
        yield (
            "the trace has no server steps: no annotation is named execute_... or step[...],"
            f" and {replayed}."
        )
    elif between is None or not between.count:
        yield "the time between model passes is unknown, because the trace has one pass."
    bare = bare_launches(trace)
    if bare:
        yield (
            f"the kernels of {bare} graph launches are unknown: the profiler did not trace"
            " graphs by node."
        )
