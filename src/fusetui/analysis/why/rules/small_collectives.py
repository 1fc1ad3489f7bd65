"""Collectives that move so little that their latency is all they cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_span
from fusetui.analysis.why.transfers import Kind, kind_text, told_apart
from fusetui.text.figures import duration, size
from fusetui.trace.model.categories import Role

SHORT_NS = 50_000
SMALL = 1 << 20  # bytes
FEWEST = 50  # of one kind
NO_SIZES = "Their sizes were not recorded: that they are small is inferred from their durations."


def find(facts: Facts) -> Iterator[Claim]:
    small = [kind for kind in facts.transfers if _is_small(facts, kind)]
    if not small:
        return
    kernels = facts.kernels
    is_small = np.isin(kernels.rows, np.concatenate([kind.rows for kind in small]))
    compute = (facts.trace.role[kernels.rows] == Role.KERNEL) & ~kernels.communicates
    at_stake = 0
    for device in np.unique(kernels.device[is_small]).tolist():
        cover = kernels.cover(is_small, device)
        work = kernels.cover(compute, device)
        at_stake += int((cover.end - cover.start - work.within(*cover)).sum())
    rows = kernels.rows[is_small]
    several = told_apart(facts.transfers)
    each = ", ".join(_told(facts, kind, several) for kind in small)
    yield Claim(
        text=f"Many small collectives run {duration(at_stake)} "
        f"({share_of_span(facts, at_stake)}) without compute beside them: {each}. Their time is "
        "latency and waiting for other ranks, not bandwidth.",
        at_stake_ns=at_stake,
        rows=the_most(rows, facts.trace.dur[rows]),
        why_likely=NO_SIZES if any(kind.bytes is None for kind in small) else None,
        part_of="exposed-communication",
    )


def _is_small(facts: Facts, kind: Kind) -> bool:
    """Also where the size is not known, which the kernels of some libraries do not record."""
    count = len(kind.rows)
    if count < FEWEST or _median_ns(facts, kind) > SHORT_NS:
        return False
    return kind.bytes is None or kind.bytes <= SMALL * count


def _median_ns(facts: Facts, kind: Kind) -> int:
    return int(np.median(facts.trace.dur[kind.rows]))


def _told(facts: Facts, kind: Kind, several: bool) -> str:
    dtype = f" of {kind.dtype}" if kind.dtype else ""
    mean = f", {size(kind.bytes // len(kind.rows))} each on average" if kind.bytes else ""
    median = duration(_median_ns(facts, kind))
    return f"{kind_text(kind, several)}{dtype} of {median} (the median){mean}"


RULE = Rule(
    id="small-collectives",
    title="Many small collectives",
    question="Is communication divided into so many pieces that its latency is what it costs?",
    needs="Communication kernels.",
    formula="The time without compute of the collectives of a kind (name, process group and data "
    "type) of which there are at least 50, with a median of at most 50 us and, where sizes are "
    "known, at most 1 MiB each on average.",
    remedy="Send less often: {training:larger buckets (DDP's bucket_cap_mb), larger FSDP units, }"
    "torch.distributed._coalescing_manager, several values in one tensor; in tensor-parallel "
    "decoding an all-reduce fused with the norm, or fewer ranks.",
    thresholds={"short_ns": SHORT_NS, "small_bytes": SMALL, "fewest": FEWEST},
    find=find,
    of_kernels=True,
)
