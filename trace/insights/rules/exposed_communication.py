"""Collectives and transfers while nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.evidence import the_most
from fusetui.trace.insights.facts import Facts, Flags, Int64s, Rows
from fusetui.trace.insights.kernels import Kernels
from fusetui.trace.insights.rule import Claim, Rule
from fusetui.trace.insights.wording import share_of_span
from fusetui.trace.kernel_names import decode
from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.busy import communicates
from fusetui.trace.roofline.many import distinct_rows
from fusetui.trace.text.figures import count, duration, percent
from fusetui.trace.text.printable import printable

SIZE = "In msg nelems"
ARGS = ("Collective name", SIZE, "dtype", "Process Group Name", "Group size")
LOOKED_AT = 8  # transfers checked for recorded sizes
FEWEST = 3  # equal transfers, the fastest of which bounds the others
TOLD = 3  # kinds that are named


class Exposed(msgspec.Struct, frozen=True, eq=False):
    """Communication of all devices; arrays of shape [rows]."""

    rows: Rows
    ns: Int64s  # time without compute at the same time


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    exposed, total, hidden = _exposed(kernels)
    if total <= 0:
        return
    text = (
        f"Communication runs {duration(total)} ({share_of_span(facts, total)}) without compute "
        f"beside it ({percent(hidden, hidden + total)} of it is hidden): {_kinds(facts, exposed)}"
    )
    waits = _waits_ns(kernels, exposed)
    more = (
        f"; measured by the fastest of equal transfers, {duration(waits)} of all communication is "
        "waiting for other ranks or contention"
    )
    yield Claim(
        text=f"{text}{more if waits else ''}.",
        at_stake_ns=total,
        rows=the_most(exposed.rows, exposed.ns),
    )


def _exposed(kernels: Kernels) -> tuple[Exposed, int, int]:
    """Each transfer's exposed time; the union of exposed time on each device; and that of hidden
    time."""
    trace = kernels.trace
    compute = (trace.role[kernels.rows] == Role.KERNEL) & ~kernels.communicates
    rows, each = [], []
    total = hidden = 0
    for device in np.unique(kernels.device[kernels.communicates]).tolist():
        own = kernels.communicates & (kernels.device == device)
        work = kernels.cover(compute, device)
        cover = kernels.cover(kernels.communicates, device)
        behind = int(work.within(*cover).sum())
        total += int((cover.end - cover.start).sum()) - behind
        hidden += behind
        start, end = kernels.start[own], kernels.end[own]
        rows.append(kernels.rows[own])
        each.append(end - start - work.within(start, end))
    return Exposed(np.concatenate(rows), np.concatenate(each)), total, hidden


def _kinds(facts: Facts, exposed: Exposed) -> str:
    """`47 AllReduce 12.3 ms, ...`, the longest first."""
    trace = facts.trace
    kinds: dict[str, tuple[int, int]] = {}
    for name in np.unique(trace.name[exposed.rows]).tolist():
        own = trace.name[exposed.rows] == name
        kind = _kind(trace.names[name])
        number, ns = kinds.get(kind, (0, 0))
        kinds[kind] = number + int(np.count_nonzero(own)), ns + int(exposed.ns[own].sum())
    longest = sorted(kinds.items(), key=lambda item: -item[1][1])[:TOLD]
    return ", ".join(f"{count(n)} {kind} {duration(ns)}" for kind, (n, ns) in longest if ns)


def _kind(name: str) -> str:
    kernel = decode(name)
    known = kernel and (kernel.collective or kernel.short)
    return printable((known or name)[:40])


def _waits_ns(kernels: Kernels, exposed: Exposed) -> int:
    """How much longer than the fastest equal transfer the others took, in total."""
    trace = kernels.trace
    number, told = _sizes(trace)
    known = told[number[exposed.rows]]
    rows = exposed.rows[known]
    if not len(rows):
        return 0
    device = trace.process_of_track[trace.track[rows]]
    _, group = distinct_rows((number[rows], trace.name[rows], device))
    fastest = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest, group, trace.dur[rows])
    several = np.bincount(group)[group] >= FEWEST
    return int((trace.dur[rows] - fastest[group])[several].sum())


def _sizes(trace: Trace) -> tuple[NDArray[np.int32], Flags]:
    """A number per row, equal for transfers that moved equally much; and which of the numbers tell
    how much that was. -1, the last of these, is that of a row of which nothing is known."""
    number = np.full(len(trace), -1, dtype=np.int32)
    rows = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    if not _has_sizes(trace, rows):
        return number, np.zeros(1, dtype=np.bool_)
    found = arguments(trace.elements, trace.order[rows], ARGS, "transfers")
    number[rows] = found.number
    told = [parsed(texts[ARGS.index(SIZE)]) is not None for texts in found.distinct]
    return number, np.array([*told, False])


def _has_sizes(trace: Trace, rows: Rows) -> bool:
    """Whether a few transfers, from the first to the last, say how much they moved."""
    few = np.unique(np.linspace(0, len(rows) - 1, LOOKED_AT).astype(np.intp))
    return bool(arguments(trace.elements, trace.order[rows[few]], (SIZE,), "sizes").distinct)


RULE = Rule(
    id="exposed-communication",
    title="Communication that nothing hides",
    question="Does the GPU communicate without computing at the same time?",
    needs="Communication kernels; sizes (torch 2.1 and later record them) to tell waiting apart.",
    formula="The time in which communication runs without compute, on each device.",
    remedy="Overlap it: DDP's bucket_cap_mb and gradient_as_bucket_view, FSDP's prefetching, or a "
    "stream of its own. Waiting for another rank cannot be solved here: compare the ranks.",
    thresholds={"fewest": FEWEST},
    find=find,
    silent="A kernel that communicates and computes at once (a fused all-reduce and norm) "
    "counts as what its name says.",
)
