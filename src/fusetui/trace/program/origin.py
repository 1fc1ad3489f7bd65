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
from fusetui.trace.model.arrays import NO_ROW, Flags, Int32s, Integers, Rows, distinct
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
    """Which part of the program the work of some rows belongs to; columns with an entry
    for each of these rows."""

    place: Rows  # the index of the span that it belongs to, -1 for none
    backward: Flags  # it ran backward
    recompute: Flags  # it ran in the backward pass, but as forward work once more
    forward_op: Int32s  # for backward work, the op that it belongs to, else -1


class Origins(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The parts of the program that a trace shows, and which work belongs to which.
    Each property is computed when it is first needed."""

    trace: Trace
    line: ThreadLine

    @cached_property
    def backward(self) -> Backward:
        """The backward ops of the trace, and the forward op of each. Finding them takes
        about a second per GB of the file."""
        return backward_ops(self.trace)

    @cached_property
    def regions(self) -> Spans:
        """The module calls and annotations on CPU threads."""
        return regions(self.trace, self.line)

    @cached_property
    def modules(self) -> Spans:
        """The module calls on CPU threads, without annotations."""
        rows = self.regions.rows
        is_call = self.trace.source_role[rows] == Role.PYTHON
        return Spans(self.trace, self.line, rows[is_call])

    @cached_property
    def frames(self) -> Spans:
        """The Python frames of functions, without those of modules."""
        return frames(self.trace, self.line)

    def credit(self, spans: Spans, rows: Integers) -> Credit:
        """Find for each row the part of the program that its work belongs to.

        A kernel belongs to the innermost span around its launch call; a row of a CPU
        thread to that around itself. What was launched inside a backward op belongs to
        the span around the forward op of it, so that a module has its backward work
        too; if that is in no span, to the one around the launch. Forward work that the
        backward pass does once more (see `recomputes`) counts where it ran.

        Args:
            spans: The parts of the program: modules, annotations or frames.
            rows: GPU rows and rows of CPU threads.

        Returns:
            The index of a span for each row, -1 for none, and how it was found.
        """
        trace = self.trace
        calls = launching_calls(trace, rows)
        ops = ops_of(trace, calls)
        is_recomputed = self.recomputes(calls)
        forward_op = self.backward.forward_of(ops)
        forward_op = np.where(is_recomputed, np.int32(NO_ROW), forward_op)

        span_of_forward = spans.around(forward_op)
        span = np.where(span_of_forward >= 0, span_of_forward, spans.around(calls))
        if trace.annotated is not None and spans is self.regions:
            # Nodes of a CUDA graph share one launch call. Their annotation tells more.
            annotation = trace.annotated[rows]
            span = np.where(annotation != NO_ROW, spans.place_of[annotation], span)
        is_in_backward_op = self.backward.around(ops) >= 0
        return Credit(
            place=span,
            backward=is_in_backward_op & ~is_recomputed,
            recompute=is_recomputed,
            forward_op=forward_op,
        )

    def recomputes(self, rows: Int32s) -> Flags:
        """Tell of each row of a CPU thread whether it runs a forward pass once more.

        Activation checkpointing does so inside the backward pass: it calls the module
        again. So it is a row inside a call of a module, if that call lies inside the
        backward op around the row.

            CheckpointFunctionBackward   backward op
              nn.Module: Linear_0        call of a module
                aten::linear             recomputed
              AddmmBackward              not recomputed: in no such call

        Args:
            rows: Rows of CPU threads; -1 gives False.
        """
        trace = self.trace
        backward = self.backward
        is_recomputed = np.zeros(len(rows), dtype=np.bool_)
        index_of_op = backward.around(ops_of(trace, rows))
        runs_backward = np.flatnonzero(index_of_op >= 0)
        if not len(runs_backward) or not len(self.modules):
            return is_recomputed
        backward_op = backward.rows[index_of_op[runs_backward]]
        index_of_call = self.modules.around(rows[runs_backward])
        is_in_module = index_of_call >= 0
        module_call = self.modules.rows_at(index_of_call)
        begins_in_op = trace.start[module_call] >= trace.start[backward_op]
        ends_in_op = trace.end[module_call] <= trace.end[backward_op]
        is_recomputed[runs_backward] = is_in_module & begins_in_op & ends_in_op
        return is_recomputed


def origins(trace: Trace) -> Origins:
    """The parts of the program that a trace shows."""
    return Origins(trace, ThreadLine(trace))


def launching_calls(trace: Trace, rows: Integers) -> Int32s:
    """Return for each row the row of the CPU thread that asked for its work.

    Of a GPU event it is the launch call, or if that was not recorded its op. A row of a
    CPU thread stands for itself. Everything else, and what has neither, gives -1.
    """
    is_gpu_event = np.isin(trace.role[rows], GPU_ROLES)
    launch = trace.asked[rows]
    launch_or_op = np.where(launch != NO_ROW, launch, trace.op[rows])
    cpu_row = np.where(are_on_cpu(trace, rows), rows, NO_ROW)
    return np.where(is_gpu_event, launch_or_op, cpu_row).astype(np.int32)


def ops_of(trace: Trace, rows: Int32s) -> Int32s:
    """Return the innermost CPU op that is, or contains, each row of a CPU thread.

    It is -1 where there is none, and for the row -1.
    """
    return np.where(rows != NO_ROW, trace.op[rows], np.int32(NO_ROW))


def module_of(origins: Origins, rows: Integers | None = None) -> Int32s:
    """Return the innermost module call or annotation that the work of rows belongs to.

    Args:
        origins: The program of a trace.
        rows: The rows; all of the trace if left out.

    Returns:
        A row for each row, itself if it is a module call or an annotation; -1 for none.
    """
    return _find_span(origins, origins.regions, rows)


def frame_of(origins: Origins, rows: Integers | None = None) -> Int32s:
    """Return the innermost Python frame that the work of rows belongs to.

    Args:
        origins: The program of a trace.
        rows: The rows; all of the trace if left out.

    Returns:
        The row of a frame, of a function or a module, for each row; -1 for none.
    """
    all_frames = Spans(origins.trace, origins.line, python_rows(origins.trace))
    return _find_span(origins, all_frames, rows)


def _find_span(origins: Origins, spans: Spans, rows: Integers | None) -> Int32s:
    """The row of the innermost span that the work of each row belongs to; -1 for none.
    All rows of the trace if `rows` is None."""
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


def _compile_words(words: str) -> re.Pattern[str]:
    """A pattern of words such as `a|b`, in any case, also as a part of `my_a` or
    `aOfB`."""
    return lazy_pattern(rf"(?<![A-Za-z])(?:{words})(?![a-z])", re.IGNORECASE)


TRAINING_WORDS = {
    Phase.OPTIMIZER: _compile_words("optimizer|zero_grad"),
    Phase.BACKWARD: _compile_words("backward|bwd"),
    Phase.FORWARD: _compile_words("forward|fwd"),
}


def phase_of(name: str) -> Phase | None:
    """Return the phase that an annotation names.

    It is None if the name has no word for a phase, or words for several.

    >>> phase_of("execute_context_2(96)_generation_0(0)"), phase_of("## forward ##").value
    (<Phase.PREFILL: 'prefill'>, 'forward')
    >>> phase_of("step[DECODE bs=32]").value, phase_of("forward_backward"), phase_of("x")
    ('decode', None, None)
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
    """The phase of a batch of requests, of which some are in prefill and some in
    decode. None for an empty batch."""
    if prefills and decodes:
        return Phase.MIXED
    if prefills:
        return Phase.PREFILL
    return Phase.DECODE if decodes else None


def phases(origins: Origins) -> tuple[PhaseTime, ...]:
    """The GPU time and the number of kernels of each phase, such as forward or
    optimizer. Phases without any event are left out."""
    trace = origins.trace
    rows = trace.gpu_rows
    phase_of_row = phases_of(origins, rows)
    times = []
    for number in distinct(phase_of_row).tolist():
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
    """Return the phase of each GPU event, as its index in PHASES.

    Each rule overrides those before it:

    1. Work of an op that has a backward op, or in a module, is forward.
    2. An annotation around the launch that names a phase decides.
    3. Work of a backward op, or launched on a thread of autograd, is backward, unless
       it is annotated as the optimizer.
    4. Forward work that the backward pass does once more is recomputed.
    5. Work without a recorded launch is of an unknown phase.

    What no rule applies to is OTHER.
    """
    calls = launching_calls(origins.trace, rows)
    ops = ops_of(origins.trace, calls)
    phase = np.full(len(rows), PHASES.index(Phase.OTHER))

    has_backward_op = origins.backward.forward_ops.around(ops) >= 0
    is_in_module = origins.modules.around(calls) >= 0
    phase[has_backward_op | is_in_module] = PHASES.index(Phase.FORWARD)

    annotated = _annotated_phase(origins, calls)
    names_phase = annotated != NO_PHASE
    phase[names_phase] = annotated[names_phase]

    is_backward = origins.backward.around(ops) >= 0
    is_backward |= _is_on_autograd_thread(origins, calls)
    is_backward &= annotated != PHASES.index(Phase.OPTIMIZER)
    phase[is_backward] = PHASES.index(Phase.BACKWARD)

    phase[origins.recomputes(calls)] = PHASES.index(Phase.RECOMPUTE)
    phase[calls == NO_ROW] = PHASES.index(Phase.UNKNOWN)
    return phase


def _annotated_phase(origins: Origins, calls: Int32s) -> Rows:
    """Return the phase that annotations around calls name, as its index in PHASES.

    A call inside "## forward ##" inside "epoch 1" is FORWARD. If several annotations
    around it name a phase, the innermost counts.

    Args:
        origins: The program of a trace.
        calls: Rows of CPU threads; -1 gives NO_PHASE.

    Returns:
        A phase for each call; NO_PHASE if no annotation around it names one.
    """
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
    return np.where(annotation != NO_ROW, phase_of_annotation, NO_PHASE)


def _is_on_autograd_thread(origins: Origins, calls: Int32s) -> Flags:
    """Tell of each call whether its thread only runs the backward pass.

    That is a thread on which every op that launches GPU work is inside a backward op.
    Work that is launched there outside of ops is backward too.

    Args:
        origins: The program of a trace.
        calls: Rows of CPU threads; -1 gives False.
    """
    trace = origins.trace
    launching = launching_calls(trace, trace.gpu_rows)
    ops = ops_of(trace, launching)
    has_op = ops != NO_ROW
    is_backward = origins.backward.around(ops[has_op]) >= 0
    thread_of_launch = trace.thread_of_track[trace.track[launching[has_op]]]

    thread_count = int(trace.thread_of_track.max(initial=-1)) + 1
    is_of_autograd = np.zeros(thread_count, dtype=np.bool_)
    is_of_autograd[thread_of_launch[is_backward]] = True
    is_of_autograd[thread_of_launch[~is_backward]] = False

    on_autograd_thread = np.zeros(len(calls), dtype=np.bool_)
    is_known = calls != NO_ROW
    thread_of_call = trace.thread_of_track[trace.track[calls[is_known]]]
    on_autograd_thread[is_known] = is_of_autograd[thread_of_call]
    return on_autograd_thread
