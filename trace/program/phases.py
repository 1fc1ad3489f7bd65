"""Which part of its work a program was doing: forward, backward, optimizer; or prefill and decode.

Known from annotations and from autograd: work under a backward op is backward, unless it belongs to
a module that is recomputed there; work under an op that has a backward op is forward, as is work
launched in a module. Serving engines annotate the
contents of a batch: vLLM `execute_context_1(512)_generation_32(32)`, SGLang `step[DECODE bs=32]`.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
import numpy as np

from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Flags, Int32s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.program.origin import Origins, hosts_of, ops_of
from fusetui.trace.program.regions import Spans, is_module


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
"""Only the word alone: decoding images or latents is not a phase of a language model."""


def _word(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z])(?:{words})(?![a-z])", re.IGNORECASE)


TRAINING = (
    (Phase.OPTIMIZER, _word("optimizer|zero_grad")),
    (Phase.BACKWARD, _word("backward|bwd")),
    (Phase.FORWARD, _word("forward|fwd")),
)


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
    found = [phase for phase, words in TRAINING if words.search(name)]
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
    around = Spans(trace, found.line, regions.rows[by_name[trace.name[regions.rows]] >= 0])
    told: Rows = by_name[np.append(trace.name, -1)[around.rows_at(around.around(hosts))]]
    return told


def _on_autograd_thread(found: Origins, hosts: Int32s) -> Flags:
    """For each row, whether every op that launches work on its thread lies in a backward op."""
    trace = found.trace
    threads = trace.thread_of_track
    launching = hosts_of(trace, trace.gpu_rows)
    ops = ops_of(trace, launching)
    launching, ops = launching[ops >= 0], ops[ops >= 0]
    back = found.backward.over(ops) >= 0
    runs = np.zeros(len(threads) + 1, dtype=np.bool_)  # the last one for no thread
    runs[threads[trace.track[launching[back]]]] = True
    runs[threads[trace.track[launching[~back]]]] = False
    thread = np.append(threads, len(threads))[np.append(trace.track, len(threads))[hosts]]
    own: Flags = runs[thread]
    return own
