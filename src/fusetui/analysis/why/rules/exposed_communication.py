"""Collectives and transfers while nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fusetui.analysis.why.facts import Facts, Int64s, Rows
from fusetui.analysis.why.kernels import Kernels, the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_span
from fusetui.analysis.why.transfers import FEWEST, Kind, kind_text, moved, told_apart
from fusetui.text.figures import count, duration, percent
from fusetui.trace.model.categories import Role

TOLD = 3  # kinds that are named
NO_COMPUTE = "Nothing was recorded that could run beside it; compare the ranks."
"""The remedy where no kernel computes."""


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
    exposed_ns = np.zeros(len(facts.trace), dtype=np.int64)
    exposed_ns[exposed.rows] = exposed.ns
    kinds = [kind for kind in facts.transfers if exposed_ns[kind.rows].any()]
    kinds.sort(key=lambda kind: (-int(exposed_ns[kind.rows].sum()), kind.name, kind.group))
    several = told_apart(kinds)
    named = [
        f"{kind_text(kind, several)} {duration(int(exposed_ns[kind.rows].sum()))}{moved(kind)}"
        for kind in kinds[:TOLD]
    ]
    text = (
        f"Communication runs {duration(total)} ({share_of_span(facts, total)}) without compute "
        f"beside it ({percent(hidden, hidden + total)} of it is hidden): {', '.join(named)}"
    )
    if any(kind.is_range for kind in kinds[:TOLD]):
        text += (
            ". The lower bandwidth is over all of their time, the upper one as if each took as "
            "long as the fastest of its size"
        )
    text += _guessed([kind for kind in kinds[:TOLD] if kind.is_guessed])
    waits = sum(kind.waits_ns for kind in facts.transfers)
    more = (
        f"; measured by the fastest of equal transfers, {duration(waits)} of all communication is "
        "waiting for other ranks or contention"
    )
    yield Claim(
        text=f"{text}{more if waits else ''}.",
        at_stake_ns=total,
        rows=the_most(exposed.rows, exposed.ns),
        remedy=None if (kernels.is_kernel & ~kernels.communicates).any() else NO_COMPUTE,
    )


def _guessed(kinds: list[Kind]) -> str:
    """On which guess bytes and bandwidth of some kinds rest."""
    if not any(kind.bus_bytes_per_s for kind in kinds):
        return ""
    return (
        ". Process groups were not recorded: bytes and bandwidth hold for groups of all "
        f"{count(kinds[0].ranks)} ranks"
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
        total += cover.ns - behind
        hidden += behind
        start, end = kernels.start[own], kernels.end[own]
        rows.append(kernels.rows[own])
        each.append(end - start - work.within(start, end))
    return Exposed(np.concatenate(rows), np.concatenate(each)), total, hidden


RULE = Rule(
    id="exposed-communication",
    title="Communication that nothing hides",
    question="Does the GPU communicate without computing at the same time?",
    needs="Communication kernels; sizes (torch 2.1 and later record them, before that shapes of "
    "inputs tell them) for bytes and bandwidth, and to tell waiting apart.",
    formula="The time in which communication runs without compute, on each device.",
    remedy="Overlap it: {training:DDP's bucket_cap_mb and gradient_as_bucket_view, FSDP's "
    "prefetching, or a stream of its own|:one half of the batch computes while the other "
    "communicates; in tensor parallelism an all-reduce fused with the norm that follows, or fewer "
    "ranks}. Waiting for another rank cannot be solved here: compare the ranks.",
    thresholds={"fewest": FEWEST},
    find=find,
    of_kernels=True,
    silent="A kernel that communicates and computes at once (a fused all-reduce and norm) "
    "counts as what its name says.",
)
