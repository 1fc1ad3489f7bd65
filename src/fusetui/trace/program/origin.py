"""Finds the origin of GPU work in the program: the module, annotation and Python frame
around its launch or, for backward work, around its forward op; and its phase: forward,
backward, optimizer, prefill or decode.

Phases are known from annotations and from autograd: work under a backward op is
backward, unless it belongs to a module that is recomputed there; work under an op that
has a backward op is forward, as is work launched in a module. Serving engines annotate
the contents of a batch: vLLM `execute_context_1(512)_generation_32(32)`, SGLang
`step[DECODE bs=32]`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property

import msgspec
import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Int32s, Integers, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.backward import Backward, backward_ops
from fusetui.trace.program.regions import (
    Spans,
    ThreadLine,
    are_on_cpu,
    frames,
    is_module,
    python_rows,
    regions,
)


class Nowhere(StrEnum):
    """Why GPU work belongs to no part of the program."""

    NOT_LAUNCHED = "launch not recorded"
    NO_FORWARD = "no forward op recorded"
    OUTSIDE = "outside"


NOWHERE_IN_WORDS = {
    Nowhere.NOT_LAUNCHED: "launch not recorded",
    Nowhere.NO_FORWARD: "forward op not recorded",
    Nowhere.OUTSIDE: "outside modules",
}
"""The same in every list of modules and annotations."""


class Credit(msgspec.Struct, frozen=True, eq=False):
    """For some rows, the index of the span that each belongs to, or -1; arrays of shape
    [rows]."""

    place: Rows
    backward: Flags  # it ran backward
    recompute: Flags  # it ran in the backward pass, but as forward work once more
    forward_op: Int32s  # for backward work, the op that it belongs to, else -1


class Origins(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Of the work of one trace, each part computed when it is first needed."""

    trace: Trace
    line: ThreadLine

    @cached_property
    def backward(self) -> Backward:
        """Takes a second per GB if there is a backward pass; see backward_ops."""
        return backward_ops(self.trace)

    @cached_property
    def regions(self) -> Spans:
        return regions(self.trace, self.line)

    @cached_property
    def modules(self) -> Spans:
        """Only the calls of modules."""
        rows = self.regions.rows
        is_call = self.trace.source_role[rows] == Role.PYTHON
        return Spans(self.trace, self.line, rows[is_call])

    @cached_property
    def frames(self) -> Spans:
        """All Python frames of functions."""
        return frames(self.trace, self.line)

    def credit(self, spans: Spans, rows: Integers) -> Credit:
        """Which of the spans each row belongs to.

        `rows`: GPU rows, which count where they were launched, or rows of CPU threads.
        Work inside a backward op belongs to its forward op, or if that is in no span,
        to where it ran; what is recomputed there belongs to where it ran. Of the nodes
        of an annotated graph, the annotation alone tells the region.
        """
        trace = self.trace
        calls = launching_calls(trace, rows)
        ops = ops_of(trace, calls)
        is_recomputed = self.recomputes(calls)
        forward_op = self.backward.forward_of(ops)
        forward_op = np.where(is_recomputed, np.int32(-1), forward_op)
        place_of_forward = spans.around(forward_op)
        place = np.where(place_of_forward >= 0, place_of_forward, spans.around(calls))
        if trace.annotated is not None and spans is self.regions:
            annotation = trace.annotated[rows]
            place = np.where(annotation >= 0, spans.place_of[annotation], place)
        is_in_backward_op = self.backward.around(ops) >= 0
        return Credit(
            place=place,
            backward=is_in_backward_op & ~is_recomputed,
            recompute=is_recomputed,
            forward_op=forward_op,
        )

    def recomputes(self, rows: Int32s) -> Flags:
        """Whether each row of a CPU thread lies in the call of a module that began
        inside a backward op: activation checkpointing runs the forward pass of that
        module once more. Work of a backward op inside such a call is backward; -1 gives
        False."""
        trace = self.trace
        backward = self.backward
        is_recomputed = np.zeros(len(rows), dtype=np.bool_)
        place_in_backward = backward.around(ops_of(trace, rows))
        inside = np.flatnonzero(place_in_backward >= 0)
        if not len(inside) or not len(self.modules):
            return is_recomputed
        backward_op = backward.rows[place_in_backward[inside]]
        module = self.modules.around(rows[inside])
        call = self.modules.rows_at(module)
        begins_in_op = trace.start[call] >= trace.start[backward_op]
        ends_in_op = trace.end[call] <= trace.end[backward_op]
        is_recomputed[inside] = (module >= 0) & begins_in_op & ends_in_op
        return is_recomputed


def origins(trace: Trace) -> Origins:
    return Origins(trace, ThreadLine(trace))


def launching_calls(trace: Trace, rows: Integers) -> Int32s:
    """For GPU events the row of the launch call, else of the op; rows of CPU threads as
    they are; others -1."""
    is_gpu_event = np.isin(trace.role[rows], GPU_ROLES)
    launch = trace.asked[rows]
    launch_or_op = np.where(launch >= 0, launch, trace.op[rows])
    cpu_row = np.where(are_on_cpu(trace, rows), rows, -1)
    return np.where(is_gpu_event, launch_or_op, cpu_row).astype(np.int32)


def ops_of(trace: Trace, rows: Int32s) -> Int32s:
    """Of each row of a CPU thread the innermost op that it is, or lies in, else -1; -1
    stays -1."""
    return np.where(rows >= 0, trace.op[rows], np.int32(-1))


def module_of(origins: Origins, rows: Integers | None = None) -> Int32s:
    """For each of `rows` (default: all rows) the row of the innermost module or
    annotation that its work belongs to, else -1. A region belongs to itself."""
    return _span_of(origins, origins.regions, rows)


def frame_of(origins: Origins, rows: Integers | None = None) -> Int32s:
    """For each of `rows` (default: all rows) the row of the innermost Python frame, of
    a function or a module, that its work belongs to, else -1."""
    all_frames = Spans(origins.trace, origins.line, python_rows(origins.trace))
    return _span_of(origins, all_frames, rows)


def _span_of(origins: Origins, spans: Spans, rows: Integers | None) -> Int32s:
    if rows is None:
        rows = np.arange(len(origins.trace))
    return spans.rows_at(origins.credit(spans, rows).place)


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"
    OPTIMIZER = "optimizer"
    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "prefill and decode"
    OTHER = "other"
    UNKNOWN = "launch not recorded"


class PhaseTime(msgspec.Struct, frozen=True):
    """All GPU events of a phase."""

    phase: Phase
    gpu_ns: int
    kernels: int


PHASES = tuple(Phase)
"""The number of a phase in arrays is its index here."""
NO_PHASE = -1

VLLM_BATCH = lazy_pattern(r"context_(\d{1,9}).*?generation_(\d{1,9})")
"""How many requests of a batch are in prefill, and how many in decode."""
SGLANG_MODE = lazy_pattern(r"(?:step\[|capture_\d+_)([A-Z]+)")
PHASE_OF_MODE = {
    "EXTEND": Phase.PREFILL,
    "PREFILL": Phase.PREFILL,
    "DECODE": Phase.DECODE,
    "MIXED": Phase.MIXED,
}
PLAIN_MODE = lazy_pattern(r"\W*(prefill|decode)\W*(?:step|phase)?\W*\Z", re.IGNORECASE)
"""Only the word alone: decoding images or latents is not a phase of a language
model."""


def _one_of(words: str) -> re.Pattern[str]:
    """One of these words (`a|b`), in any case, also as a part of `my_a` or `aOfB`."""
    return lazy_pattern(rf"(?<![A-Za-z])(?:{words})(?![a-z])", re.IGNORECASE)


TRAINING_WORDS = {
    Phase.OPTIMIZER: _one_of("optimizer|zero_grad"),
    Phase.BACKWARD: _one_of("backward|bwd"),
    Phase.FORWARD: _one_of("forward|fwd"),
}


def phase_of(name: str) -> Phase | None:
    """The phase named by the words of an annotation; None if there is none or several.

    >>> phase_of("execute_context_2(96)_generation_0(0)"), phase_of("## forward ##").value
    (<Phase.PREFILL: 'prefill'>, 'forward')
    """
    batch = VLLM_BATCH.search(name)
    if batch:
        return _phase_of_batch(prefills=int(batch[1]), decodes=int(batch[2]))
    mode = SGLANG_MODE.match(name)
    if mode:
        return PHASE_OF_MODE.get(mode[1])
    mode = PLAIN_MODE.match(name)
    if mode:
        return PHASE_OF_MODE[mode[1].upper()]
    named = [phase for phase, words in TRAINING_WORDS.items() if words.search(name)]
    return named[0] if len(named) == 1 else None


def _phase_of_batch(prefills: int, decodes: int) -> Phase | None:
    """The phase of a batch with so many requests in prefill and in decode."""
    if prefills and decodes:
        return Phase.MIXED
    if prefills:
        return Phase.PREFILL
    return Phase.DECODE if decodes else None


def phases(origins: Origins) -> tuple[PhaseTime, ...]:
    """The time of all GPU events by phase; phases without any are left out."""
    trace = origins.trace
    rows = trace.gpu_rows
    phase_of_row = phases_of(origins, rows)
    times = []
    for number in np.flatnonzero(np.bincount(phase_of_row)).tolist():
        rows_of_phase = rows[phase_of_row == number]
        are_kernels = trace.role[rows_of_phase] == Role.KERNEL
        times.append(
            PhaseTime(
                phase=PHASES[number],
                gpu_ns=int(trace.dur[rows_of_phase].sum()),
                kernels=int(are_kernels.sum()),
            )
        )
    return tuple(times)


def phases_of(origins: Origins, rows: Rows) -> Rows:
    """The phase of each GPU row as its index in PHASES; shape of `rows`.

    A later rule overrides an earlier one: what autograd and modules tell, what an
    annotation names, backward, recomputed, not launched.
    """
    calls = launching_calls(origins.trace, rows)
    ops = ops_of(origins.trace, calls)
    phase = np.full(len(rows), PHASES.index(Phase.OTHER))
    created_node = origins.backward.forward_ops.around(ops) >= 0
    is_in_module = origins.modules.around(calls) >= 0
    phase[created_node | is_in_module] = PHASES.index(Phase.FORWARD)
    annotated = _annotated_phase(origins, calls)
    names_phase = annotated != NO_PHASE
    phase[names_phase] = annotated[names_phase]
    is_backward = origins.backward.around(ops) >= 0
    is_backward |= _is_on_autograd_thread(origins, calls)
    is_backward &= annotated != PHASES.index(Phase.OPTIMIZER)
    phase[is_backward] = PHASES.index(Phase.BACKWARD)
    phase[origins.recomputes(calls)] = PHASES.index(Phase.RECOMPUTE)
    phase[calls < 0] = PHASES.index(Phase.UNKNOWN)
    return phase


def _annotated_phase(origins: Origins, calls: Int32s) -> Rows:
    """The phase of the innermost annotation around each row that names one, as its
    index in PHASES; else NO_PHASE."""
    trace = origins.trace
    regions = origins.regions.rows
    phase_of_name = np.full(len(trace.names), NO_PHASE, dtype=np.intp)
    for number in distinct(trace.name[regions]).tolist():
        name = trace.names[number]
        phase = None if is_module(name) else phase_of(name)
        if phase:
            phase_of_name[number] = PHASES.index(phase)
    names_phase = phase_of_name[trace.name[regions]] != NO_PHASE
    naming_a_phase = Spans(trace, origins.line, regions[names_phase])
    annotation = naming_a_phase.rows_at(naming_a_phase.around(calls))
    phase_of_annotation = phase_of_name[trace.name[annotation]]
    return np.where(annotation >= 0, phase_of_annotation, NO_PHASE)


def _is_on_autograd_thread(origins: Origins, calls: Int32s) -> Flags:
    """For each row of a CPU thread, whether every op that launches work on its thread
    lies in a backward op; -1 gives False."""
    trace = origins.trace
    launching = launching_calls(trace, trace.gpu_rows)
    ops = ops_of(trace, launching)
    launching = launching[ops >= 0]
    is_backward = origins.backward.around(ops[ops >= 0]) >= 0
    thread_of_launch = trace.thread_of_track[trace.track[launching]]
    no_thread = len(trace.tracks)
    is_of_autograd = np.zeros(no_thread + 1, dtype=np.bool_)  # of each thread
    is_of_autograd[thread_of_launch[is_backward]] = True
    is_of_autograd[thread_of_launch[~is_backward]] = False
    thread = np.full(len(calls), no_thread)
    thread[calls >= 0] = trace.thread_of_track[trace.track[calls[calls >= 0]]]
    on_autograd_thread: Flags = is_of_autograd[thread]
    return on_autograd_thread
