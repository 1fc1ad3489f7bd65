"""Collectives and transfers while nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
GROUPS = ("Process Group Description", "Process Group Name")  # what to call a group, if recorded
UNNAMED = frozenset({"", "undefined"})
ARGS = ("Collective name", SIZE, "dtype", *GROUPS, "Group size")
LOOKED_AT = 8  # transfers checked for recorded sizes
FEWEST = 3  # equal transfers, the fastest of which bounds the others
TOLD = 3  # kinds that are named
LONGEST_GROUP = 24  # characters of its name


class Exposed(msgspec.Struct, frozen=True, eq=False):
    """Communication of all devices; arrays of shape [rows]."""

    rows: Rows
    ns: Int64s  # time without compute at the same time


class Recorded(msgspec.Struct, frozen=True, eq=False):
    """What was recorded of each transfer."""

    number: NDArray[np.int32]  # per row: equal for transfers that moved equally much; -1 for none
    told: Flags  # per number: whether it tells how much that was
    groups: tuple[str, ...]  # per number: the process group; blank if it is not known


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    exposed, total, hidden = _exposed(kernels)
    if total <= 0:
        return
    recorded = _recorded(facts.trace)
    text = (
        f"Communication runs {duration(total)} ({share_of_span(facts, total)}) without compute "
        f"beside it ({percent(hidden, hidden + total)} of it is hidden): "
        f"{_kinds(facts.trace, exposed, recorded)}"
    )
    waits = _waits_ns(kernels, exposed, recorded)
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


def _kinds(trace: Trace, exposed: Exposed, recorded: Recorded) -> str:
    """`47 all_reduce 12.3 ms, ...`, the longest first; in several process groups `47 all_reduce
    (dp) 12.3 ms`."""
    number, name = recorded.number[exposed.rows], trace.name[exposed.rows]
    first, each = distinct_rows((name, number))
    counts, sums = np.bincount(each), np.zeros(len(first), dtype=np.int64)
    np.add.at(sums, each, exposed.ns)
    several = len({recorded.groups[one] for one in set(number.tolist())} - {""}) > 1
    kinds: dict[tuple[str, str], tuple[int, int]] = {}
    for place, n, ns in zip(first.tolist(), counts.tolist(), sums.tolist(), strict=True):
        kind = _kind(trace.names[name[place]]), recorded.groups[number[place]] if several else ""
        before, before_ns = kinds.get(kind, (0, 0))
        kinds[kind] = before + n, before_ns + ns
    longest = sorted(kinds.items(), key=lambda item: (-item[1][1], item[0]))[:TOLD]
    return ", ".join(
        f"{count(n)} {kind}{f' ({group})' if group else ''} {duration(ns)}"
        for (kind, group), (n, ns) in longest
        if ns
    )


def _kind(name: str) -> str:
    kernel = decode(name)
    known = kernel and (kernel.collective or kernel.short)
    return printable((known or name)[:40])


def _waits_ns(kernels: Kernels, exposed: Exposed, recorded: Recorded) -> int:
    """How much longer than the fastest equal transfer the others took, in total."""
    trace, number = kernels.trace, recorded.number
    rows = exposed.rows[recorded.told[number[exposed.rows]]]
    if not len(rows):
        return 0
    device = trace.process_of_track[trace.track[rows]]
    _, group = distinct_rows((number[rows], trace.name[rows], device))
    fastest = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest, group, trace.dur[rows])
    several = np.bincount(group)[group] >= FEWEST
    return int((trace.dur[rows] - fastest[group])[several].sum())


def _recorded(trace: Trace) -> Recorded:
    """The args of all transfers. The last number, which is that of -1, is of those without any."""
    number = np.full(len(trace), -1, dtype=np.int32)
    rows = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    if not _has_sizes(trace, rows):
        return Recorded(number, np.zeros(1, dtype=np.bool_), ("",))
    found = arguments(trace.elements, trace.order[rows], ARGS, "transfers")
    number[rows] = found.number
    told = [parsed(texts[ARGS.index(SIZE)]) is not None for texts in found.distinct]
    groups = [_group(texts) for texts in found.distinct]
    return Recorded(number, np.array([*told, False]), (*groups, ""))


def _group(texts: Sequence[bytes]) -> str:
    """What a process group is called: its description, else its number."""
    names = (parsed(texts[ARGS.index(key)]) for key in GROUPS)
    known = (str(name) for name in names if name is not None and str(name) not in UNNAMED)
    return printable(next(known, "")[:LONGEST_GROUP])


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
