"""Where GPU work comes from in the program: the module, the annotation and the Python
frame around its launch, or for backward work, around the forward op that it belongs to;
and the part of the work that it was: forward, backward, optimizer; or prefill and
decode.

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

from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Flags, Int32s, Integers, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.backward import Backward, backward_ops
from fusetui.trace.program.regions import (
    Spans,
    ThreadLine,
    cpu_rows,
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
        return Spans(
            self.trace, self.line, rows[self.trace.source_role[rows] == Role.PYTHON]
        )

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
        trace, hosts = self.trace, hosts_of(self.trace, rows)
        ops = ops_of(trace, hosts)
        again = self.recomputes(hosts)
        forward = np.where(again, np.int32(-1), self.backward.forward_of(ops))
        place = spans.around(forward)
        place = np.where(place >= 0, place, spans.around(hosts))
        if trace.annotated is not None and spans is self.regions:
            told = trace.annotated[rows]
            place = np.where(told >= 0, spans.place_of[told], place)
        return Credit(place, (self.backward.over(ops) >= 0) & ~again, again, forward)

    def recomputes(self, hosts: Int32s) -> Flags:
        """Whether each row of a CPU thread lies in the call of a module that began
        inside a backward op: activation checkpointing runs the forward pass of that
        module once more. Work of a backward op inside such a call is backward; -1 gives
        False."""
        trace, backward = self.trace, self.backward
        found = np.zeros(len(hosts), dtype=np.bool_)
        over = backward.over(ops_of(trace, hosts))
        inside = np.flatnonzero(over >= 0)
        if not len(inside) or not len(self.modules):
            return found
        op, module = backward.rows[over[inside]], self.modules.around(hosts[inside])
        call = self.modules.rows_at(module)
        within = (trace.start[call] >= trace.start[op]) & (
            trace.end[call] <= trace.end[op]
        )
        found[inside] = (module >= 0) & within
        return found


def origins(trace: Trace) -> Origins:
    return Origins(trace, ThreadLine(trace))


def hosts_of(trace: Trace, rows: Integers) -> Int32s:
    """For GPU events the launch call, else the op; rows of CPU threads as they are;
    others -1."""
    launch, op = trace.asked[rows], trace.op[rows]
    gpu = np.isin(trace.role[rows], GPU_ROLES)
    own = np.where(cpu_rows(trace, rows), rows, -1)
    return np.where(gpu, np.where(launch >= 0, launch, op), own).astype(np.int32)


def ops_of(trace: Trace, hosts: Int32s) -> Int32s:
    """Of each host the innermost op that it is, or lies in, else -1; -1 stays -1."""
    return np.where(hosts >= 0, trace.op[hosts], np.int32(-1))


def module_of(found: Origins, rows: Integers | None = None) -> Int32s:
    """For each of `rows` (default: all rows) the row of the innermost module or
    annotation that its work belongs to, else -1. A region belongs to itself."""
    return _span_of(found, found.regions, rows)


def frame_of(found: Origins, rows: Integers | None = None) -> Int32s:
    """The same for the innermost Python frame, of a function or a module."""
    return _span_of(
        found, Spans(found.trace, found.line, python_rows(found.trace)), rows
    )


def _span_of(found: Origins, spans: Spans, rows: Integers | None) -> Int32s:
    rows = np.arange(len(found.trace)) if rows is None else rows
    return spans.rows_at(found.credit(spans, rows).place)


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


ORDER = tuple(Phase)
VLLM = late(r"context_(\d{1,9}).*?generation_(\d{1,9})")
SGLANG = late(r"(?:step\[|capture_\d+_)([A-Z]+)")
MODES = {word: Phase.PREFILL for word in ("EXTEND", "PREFILL")}
MODES |= {"DECODE": Phase.DECODE, "MIXED": Phase.MIXED}
PLAIN = late(r"\W*(prefill|decode)\W*(?:step|phase)?\W*\Z", re.IGNORECASE)
"""Only the word alone: decoding images or latents is not a phase of a language
model."""


TRAINING = {
    phase: late(rf"(?<![A-Za-z])(?:{words})(?![a-z])", re.IGNORECASE)
    for phase, words in (
        (Phase.OPTIMIZER, "optimizer|zero_grad"),
        (Phase.BACKWARD, "backward|bwd"),
        (Phase.FORWARD, "forward|fwd"),
    )
}


def phase_of(name: str) -> Phase | None:
    """The phase named by the words of an annotation; None if there is none or several.

    >>> phase_of("execute_context_2(96)_generation_0(0)"), phase_of("## forward ##").value
    (<Phase.PREFILL: 'prefill'>, 'forward')
    """
    batch = VLLM.search(name)
    if batch:
        prefill, decode = int(batch[1]) > 0, int(batch[2]) > 0
        if prefill and decode:
            return Phase.MIXED
        return Phase.PREFILL if prefill else Phase.DECODE if decode else None
    if mode := SGLANG.match(name):
        return MODES.get(mode[1])
    if plain := PLAIN.match(name):
        return MODES[plain[1].upper()]
    found = [phase for phase, words in TRAINING.items() if words.search(name)]
    return found[0] if len(found) == 1 else None


def phases(found: Origins) -> tuple[PhaseTime, ...]:
    """The time of all GPU events by phase; phases without any are left out."""
    rows = found.trace.gpu_rows
    phase = phases_of(found, rows)
    kernels = found.trace.role[rows] == Role.KERNEL
    times = []
    for number in np.flatnonzero(np.bincount(phase)).tolist():
        here = phase == number
        ns = int(found.trace.dur[rows[here]].sum())
        times.append(PhaseTime(ORDER[number], ns, int((here & kernels).sum())))
    return tuple(times)


def phases_of(found: Origins, rows: Rows) -> Rows:
    """The phase of each GPU row as its index in ORDER; shape of `rows`."""
    hosts, number = hosts_of(found.trace, rows), ORDER.index
    ops, told = ops_of(found.trace, hosts), _told(found, hosts)
    back = (found.backward.over(ops) >= 0) | _on_autograd_thread(found, hosts)
    ahead = (found.backward.made.over(ops) >= 0) | (found.modules.around(hosts) >= 0)
    phase = np.where(ahead, number(Phase.FORWARD), number(Phase.OTHER))
    phase = np.where(told >= 0, told, phase)
    phase[back & (told != number(Phase.OPTIMIZER))] = number(Phase.BACKWARD)
    phase[found.recomputes(hosts)] = number(Phase.RECOMPUTE)
    phase[hosts < 0] = number(Phase.UNKNOWN)
    return phase


def _told(found: Origins, hosts: Int32s) -> Rows:
    """The phase of the innermost annotation around each row that names one, else -1."""
    trace, regions = found.trace, found.regions
    by_name = np.full(len(trace.names) + 1, -1, dtype=np.intp)
    for number in distinct(trace.name[regions.rows]).tolist():
        name = trace.names[number]
        if not is_module(name) and (phase := phase_of(name)):
            by_name[number] = ORDER.index(phase)
    around = Spans(
        trace, found.line, regions.rows[by_name[trace.name[regions.rows]] >= 0]
    )
    told: Rows = by_name[
        np.append(trace.name, -1)[around.rows_at(around.around(hosts))]
    ]
    return told


def _on_autograd_thread(found: Origins, hosts: Int32s) -> Flags:
    """For each row, whether every op that launches work on its thread lies in a
    backward op."""
    trace = found.trace
    threads = trace.thread_of_track
    launching = hosts_of(trace, trace.gpu_rows)
    ops = ops_of(trace, launching)
    launching, ops = launching[ops >= 0], ops[ops >= 0]
    back = found.backward.over(ops) >= 0
    runs = np.zeros(len(threads) + 1, dtype=np.bool_)  # the last one for no thread
    runs[threads[trace.track[launching[back]]]] = True
    runs[threads[trace.track[launching[~back]]]] = False
    thread = np.append(threads, len(threads))[
        np.append(trace.track, len(threads))[hosts]
    ]
    own: Flags = runs[thread]
    return own
