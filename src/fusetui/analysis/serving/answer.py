"""Answers questions about an inference server: its steps, their times and limits by
phase, and the time between model passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fusetui.analysis.graphs.captures import count_launches_without_events
from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.between import Between, describe_between_passes
from fusetui.analysis.serving.config import ModelConfig
from fusetui.analysis.serving.experts import Experts, describe_experts
from fusetui.analysis.serving.layers import Layers, recognize_layers
from fusetui.analysis.serving.limit import Limit, compute_limit
from fusetui.analysis.serving.outliers import explain_outlier_steps
from fusetui.analysis.serving.passes import (
    Mode,
    Pass,
    find_passes,
    is_training,
    measure_busy_interval,
)
from fusetui.analysis.serving.products import find_products
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
"""The phases in which a model runs, in the order in which they are listed."""


class ServerStep(msgspec.Struct, frozen=True):
    """One step of the server.

    A field is None where the trace does not tell it. `start_ns` counts from the start
    of the trace.
    """

    name: str
    start_ns: int
    dur_ns: int  # step_wall
    phase: ServerPhase
    batch: int | None  # requests
    new_tokens: int | None
    kv_tokens: int | None  # tokens that attention reads, over all requests
    cached_tokens: int | None  # the part of kv_tokens that earlier steps computed
    mode: Mode
    replays: int  # launches of graphs
    captured_tokens: int | None  # for how many tokens its graph was captured
    events: int  # GPU events that the step launched
    gpu_ns: int  # from the first start to the last end of these events
    busy_ns: int  # the time during which at least one of these events runs
    model_ns: int  # model_pass
    outlier: bool
    because: tuple[str, ...]  # what explains an outlier, in sentences


class PhaseTimes(msgspec.Struct, frozen=True):
    """How long the model passes of all steps of one phase take.

    The figures are those of `ServerStep.model_ns`; percentiles are interpolated.
    """

    phase: ServerPhase
    steps: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


class PhaseLimit(msgspec.Struct, frozen=True):
    """What the median step of a phase consists of, and how fast it could be.

    The *median step* is the one of the median time; of an even count, the lower one.
    """

    phase: ServerPhase
    step: int  # index of the median step in `Serving.steps`
    layers: Layers | None
    experts: Experts | None
    limit: Limit


class Serving(msgspec.Struct, frozen=True):
    """The answer about a trace of an inference server."""

    base_ns: str  # the time in the file at which the trace begins
    file: str
    joins: tuple[Join, ...]
    steps: tuple[ServerStep, ...]
    phases: tuple[PhaseTimes, ...]
    limits: tuple[PhaseLimit, ...]
    between: Between | None  # of the device with the most passes
    missing: tuple[str, ...]  # what the trace does not tell and why, in sentences


def serving(
    trace: Trace,
    model: ModelConfig | None = None,
    peak_overrides: Mapping[str, float] = NO_PEAKS,
) -> Serving:
    """Describe the steps of an inference server and what limits their speed.

    Args:
        trace: The trace of the server.
        model: The configuration of the model, which tells the sizes of its weights
            where the trace has no shapes.
        peak_overrides: Peak figures of the device that replace those of the built-in
            table (see `peak_of`).
    """
    model_passes = find_passes(trace)
    devices = Accounts(trace).devices
    reasons_of_outliers = explain_outlier_steps(trace, model_passes, devices)
    steps = _describe_server_steps(trace, model_passes, reasons_of_outliers)

    phases = []
    limits = []
    for phase in PHASES:
        step_indices = _find_steps_of_phase(model_passes, phase)
        if not step_indices:
            continue

        model_ns = [steps[step_index].model_ns for step_index in step_indices]
        phases.append(_summarize_phase_times(phase, model_ns))

        median_step = step_indices[lower_median_index(model_ns)]
        limit = _describe_phase_limit(
            trace,
            phase,
            step_index=median_step,
            step=model_passes[median_step],
            model=model,
            peak_overrides=peak_overrides,
        )
        limits.append(limit)

    between = _describe_time_between_passes(trace, model_passes, devices)
    return Serving(
        base_ns=str(trace.begin_ns),
        file=trace.report.file,
        joins=trace.joins if isinstance(trace, Joined) else (),
        steps=steps,
        phases=tuple(phases),
        limits=tuple(limits),
        between=between,
        missing=tuple(_list_missing_facts(trace, model_passes, between)),
    )


def _find_steps_of_phase(model_passes: Sequence[Pass], phase: ServerPhase) -> list[int]:
    """Return the indices of the steps of a phase in which a model ran."""
    step_indices = []
    for step_index, step in enumerate(model_passes):
        has_model = len(step.model_rows) > 0
        if step.requested.phase is phase and has_model:
            step_indices.append(step_index)
    return step_indices


def _describe_time_between_passes(
    trace: Trace, model_passes: Sequence[Pass], devices: Sequence[Device]
) -> Between | None:
    """Describe the time between passes of the model, on the device with the most such
    times.

    Of several such devices the first is chosen. Returns None if no device has such a
    time.

    Args:
        trace: The trace of the server.
        model_passes: The passes on all devices.
        devices: The devices of the trace.
    """
    between_of_devices = []
    for device in devices:
        between = describe_between_passes(trace, model_passes, device)
        if between is not None:
            between_of_devices.append(between)
    return max(between_of_devices, key=lambda between: between.count, default=None)


def _summarize_phase_times(phase: ServerPhase, model_ns: Sequence[int]) -> PhaseTimes:
    """Summarize how long the model passes of one phase took, as percentiles.

    Args:
        phase: The phase, such as prefill or decode.
        model_ns: The time of each pass in ns, at least one.
    """
    return PhaseTimes(
        phase=phase,
        steps=len(model_ns),
        p50_ns=percentile(model_ns, 50),
        p90_ns=percentile(model_ns, 90),
        p99_ns=percentile(model_ns, 99),
        max_ns=max(model_ns),
    )


def _describe_phase_limit(
    trace: Trace,
    phase: ServerPhase,
    step_index: int,
    step: Pass,
    model: ModelConfig | None,
    peak_overrides: Mapping[str, float],
) -> PhaseLimit:
    """Describe the median step of a phase of serving: its layers, its experts and its
    limit.

    Args:
        trace: The trace of the server.
        phase: The phase, such as prefill or decode.
        step_index: The index of the step.
        step: The pass of the model in that step.
        model: The configuration of the model, if the user gave one.
        peak_overrides: Peak figures of the device that replace the built-in ones.
    """
    layers = recognize_layers(trace, step.model_rows)
    return PhaseLimit(
        phase=phase,
        step=step_index,
        layers=layers,
        experts=describe_experts(trace, step.model_rows),
        limit=compute_limit(trace, step, layers, model, peak_overrides),
    )


def _describe_server_steps(
    trace: Trace,
    model_passes: Sequence[Pass],
    reasons_of_outliers: Mapping[int, tuple[str, ...]],
) -> tuple[ServerStep, ...]:
    """Describe every step of an inference server: its work, its times, and why it is
    slow, if so.

    Args:
        trace: The trace of the server.
        model_passes: The pass of the model in each step.
        reasons_of_outliers: What explains each unusually long step, by its index.
    """
    captured_tokens = _find_captured_tokens(trace, model_passes)
    steps = []
    for step_index, step in enumerate(model_passes):
        launched = measure_busy_interval(trace, step.launched_rows)
        server_step = ServerStep(
            name=step.name,
            start_ns=step.start_ns - trace.begin_ns,
            dur_ns=step.dur_ns,
            phase=step.requested.phase,
            batch=step.requested.batch,
            new_tokens=step.requested.new_tokens,
            kv_tokens=step.requested.kv_tokens,
            cached_tokens=step.requested.cached_tokens,
            mode=step.mode,
            replays=step.replays,
            captured_tokens=captured_tokens[step_index],
            events=len(step.launched_rows),
            gpu_ns=launched.span_ns,
            busy_ns=launched.busy_ns,
            model_ns=model_pass(trace, step.model_rows).span_ns,
            outlier=step_index in reasons_of_outliers,
            because=reasons_of_outliers.get(step_index, ()),
        )
        steps.append(server_step)
    return tuple(steps)


def _find_captured_tokens(
    trace: Trace, model_passes: Sequence[Pass]
) -> list[int | None]:
    """Find out for how many tokens the CUDA graph that each pass replays was captured.

    The number is that of the rows of its matrix products. It is None where the capture
    of a pass is not known, or where its products do not show it. Each capture is read
    once.
    """
    if not isinstance(trace, Joined):
        return [None] * len(model_passes)

    tokens_of_capture: dict[int, int | None] = {}  # by one call of the capture
    captured_tokens: list[int | None] = []
    for step in model_passes:
        captured_calls = trace.captured[step.model_rows]
        is_joined = captured_calls >= 0
        if not is_joined.any():
            captured_tokens.append(None)
            continue

        last_call = int(captured_calls.max())
        if last_call not in tokens_of_capture:
            tokens_of_capture[last_call] = find_products(
                trace, step.model_rows
            ).dominant_m
        captured_tokens.append(tokens_of_capture[last_call])
    return captured_tokens


def _list_missing_facts(
    trace: Trace, model_passes: Sequence[Pass], between: Between | None
) -> Iterator[str]:
    """Say in sentences what the trace does not tell about the server, and why.

    Args:
        trace: The trace of the server.
        model_passes: All passes of the model; there may be none.
        between: The time between passes; None if there is none.
    """
    if not model_passes:
        # Without passes nothing is known about the time between them either.
        why_no_replays = "no graph was replayed"
        if is_training(trace):
            why_no_replays = "the replayed graphs belong to training"
        yield (
            "The trace has no server steps. No annotation is named execute_... or "
            f"step[...], and {why_no_replays}."
        )
    elif between is None or not between.count:
        yield (
            "The time between model passes is unknown, because the trace has only "
            "one pass."
        )

    launches_without_events = count_launches_without_events(trace)
    if launches_without_events:
        yield (
            f"The kernels of {launches_without_events} graph launches are unknown: the"
            " profiler did not trace graphs by node."
        )
