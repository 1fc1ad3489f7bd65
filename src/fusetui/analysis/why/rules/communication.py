"""Collectives and transfers of one rank: what they moved, at what bandwidth, what hides
them, how small they are, what they slow down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import (
    ON_CPU,
)
from fusetui.analysis.why.facts import LATE, Facts
from fusetui.analysis.why.kernels import Kernels, the_most
from fusetui.analysis.why.rule import Claim, Rule, of_recording, of_span, of_work
from fusetui.analysis.why.transfers import (
    FAR_LONGER,
    FEWEST,
    Transfers,
    kind_text,
    moved,
    told_apart,
    transfers_of,
)
from fusetui.text.figures import count, duration, percent, size
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.intervals import union

DOMINATES = 0.5  # of the exposed time: waiting, or one transfer, is what it is about
TOLD = 3  # kinds that are named
NO_COMPUTE = "Nothing was recorded that could run beside it; compare the ranks."
"""The remedy where no kernel computes."""
WAITS = (
    "Compare the ranks (fusetui ranks) to find the one that arrives last, and why: no overlap "
    "shortens waiting for another rank."
)
"""The remedy where most of the time is waiting."""
MAY_WAIT = (
    "Compare the ranks (fusetui ranks): where another rank arrives later, no overlap helps. "
    "record_shapes=True records the sizes of collectives, which show whether this one moves more "
    "data; then send less, or overlap it."
)
"""The remedy where one transfer of unknown size takes most of the time."""
MAY_MOVE_MORE = (
    "What the longest transfer does, moving data or waiting, was not recorded."
)


@Rule(
    remedy="Overlap it: {training:DDP's bucket_cap_mb and gradient_as_bucket_view, FSDP's "
    "prefetching, or a stream of its own|:one half of the batch computes while the other "
    "communicates; in tensor parallelism an all-reduce fused with the norm that follows, or fewer "
    "ranks}. Waiting for another rank cannot be solved here: compare the ranks.",
    thresholds={"fewest": FEWEST, "far_longer": FAR_LONGER, "dominates": DOMINATES},
    of_kernels=True,
)
def exposed_communication(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    total, hidden = _apart(kernels, kernels.communicates)
    if total <= 0:
        return
    rows = kernels.rows[kernels.communicates]
    exposed_ns = np.zeros(len(facts.trace), dtype=np.int64)
    alone = kernels.end - kernels.start - kernels.during(kernels.computes)
    exposed_ns[rows] = alone[kernels.communicates]
    kinds = [kind for kind in transfers_of(facts) if exposed_ns[kind.rows].any()]
    kinds.sort(
        key=lambda kind: (-int(exposed_ns[kind.rows].sum()), kind.name, kind.group)
    )
    several, told = told_apart(kinds), kinds[:TOLD]
    named = [
        f"{kind_text(kind, several)} {duration(int(exposed_ns[kind.rows].sum()))}{moved(kind)}"
        for kind in told
    ]
    text = (
        f"Communication runs {of_span(facts, total)} without compute "
        f"beside it ({percent(hidden, hidden + total)} of it is hidden): {', '.join(named)}"
    )
    if any(kind.is_range for kind in told):
        text += (
            ". The lower bandwidth is over all of their time, the upper one as if each took as "
            "long as the fastest of its size"
        )
    guessed = [kind for kind in told if kind.is_guessed]
    if any(kind.bus_bytes_per_s for kind in guessed):
        text += (
            ". Process groups were not recorded: bytes and bandwidth hold for groups of all "
            f"{count(guessed[0].ranks)} ranks"
        )
    waits = sum(int(kind.waits_ns.sum()) for kind in transfers_of(facts))
    if waits:
        measure = _measure(transfers_of(facts))
        text += (
            f"; measured by {measure}, {duration(waits)} of all communication "
            "is waiting for other ranks or contention"
        )
    longest = _longest(facts, exposed_ns)
    waits_exposed_ns = 0  # at least: as if compute hid waiting first
    for kind in kinds:
        moves_ns = facts.trace.dur[kind.rows] - kind.waits_ns
        waits_exposed_ns += int(np.maximum(exposed_ns[kind.rows] - moves_ns, 0).sum())
    remedy = None if kernels.computes.any() else NO_COMPUTE
    why_likely = None
    if longest is not None and longest.exposed_ns >= DOMINATES * total:
        text += f". {longest.text}"
        remedy = MAY_WAIT
        why_likely = MAY_MOVE_MORE
        if longest.waits:
            remedy, why_likely = WAITS, None
    elif waits_exposed_ns >= DOMINATES * total:
        remedy = WAITS
    yield Claim(
        text=f"{text}.",
        at_stake_ns=total,
        wanted="comm x0",
        rows=the_most(rows, exposed_ns[rows]),
        remedy=remedy,
        why_likely=why_likely,
    )


def _measure(kinds: Sequence[Transfers]) -> str:
    """What told waiting apart from moving data."""
    by_equal = any(kind.waits_ns[~kind.is_by_bytes].any() for kind in kinds)
    by_bytes = any(kind.waits_ns[kind.is_by_bytes].any() for kind in kinds)
    found = ["the fastest of equal transfers"] if by_equal else []
    if by_bytes:
        found.append("what the bytes of a transfer explain")
    return " and ".join(found)


class LongTransfer(msgspec.Struct, frozen=True):
    """One transfer that takes far longer than others of its kind."""

    exposed_ns: int
    waits: bool  # longer than its bytes explain; False where sizes are not known
    text: str


def _longest(facts: Facts, exposed_ns: Int64s) -> LongTransfer | None:
    """The transfer with the most exposed time, if it takes FAR_LONGER than its bytes
    explain or, where sizes are not known, than the median of at least FEWEST others."""
    trace = facts.trace
    kinds = [kind for kind in transfers_of(facts) if len(kind.rows) > FEWEST]
    if not kinds:
        return None
    kind = max(kinds, key=lambda one: int(exposed_ns[one.rows].max()))
    place = int(exposed_ns[kind.rows].argmax())
    dur_ns = int(trace.dur[kind.rows[place]])
    waits_ns = int(kind.waits_ns[place])
    median_ns = int(np.median(np.delete(trace.dur[kind.rows], place)))
    one = f"One {kind.name} alone takes {duration(dur_ns)}"
    exposed = int(exposed_ns[kind.rows[place]])
    if waits_ns and dur_ns >= FAR_LONGER * (dur_ns - waits_ns):
        explained = duration(dur_ns - waits_ns)
        text = (
            f"{one}, of which its bytes explain {explained} by the others of its kind: it waits "
            "for another rank"
        )
        return LongTransfer(exposed_ns=exposed, waits=True, text=text)
    if kind.bytes is not None or dur_ns < FAR_LONGER * median_ns or not median_ns:
        return None
    text = (
        f"{one}, {count(round(dur_ns / median_ns))} times the median of the others "
        f"({duration(median_ns)}): it waits for another rank, or moves more data; sizes were not "
        "recorded"
    )
    return LongTransfer(exposed_ns=exposed, waits=False, text=text)


def _apart(kernels: Kernels, which: Flags) -> tuple[int, int]:
    """How long any of these runs on each device without compute beside it, and with
    it."""
    whole = hidden = 0
    for device in kernels.devices:
        cover = kernels.cover(which, device)
        whole += cover.ns
        hidden += int(kernels.cover(kernels.computes, device).within(*cover[:2]).sum())
    return whole - hidden, hidden


SHORT_NS = 50_000
SMALL = 1 << 20  # bytes
MANY = 50  # of one kind
NO_SIZES = "Their sizes were not recorded: that they are small is inferred from their durations."


@Rule(
    remedy="Send less often: {training:larger buckets (DDP's bucket_cap_mb), larger FSDP units, }"
    "torch.distributed._coalescing_manager, several values in one tensor; in tensor-parallel "
    "decoding an all-reduce fused with the norm, or fewer ranks.",
    thresholds={"short_ns": SHORT_NS, "small_bytes": SMALL, "fewest": MANY},
    of_kernels=True,
)
def small_collectives(facts: Facts) -> Iterator[Claim]:
    small = [kind for kind in transfers_of(facts) if _is_small(kind)]
    if not small:
        return
    kernels = facts.kernels
    is_small = np.isin(kernels.rows, np.concatenate([kind.rows for kind in small]))
    at_stake, rows = _apart(kernels, is_small)[0], kernels.rows[is_small]
    each = ", ".join(_told(kind, told_apart(transfers_of(facts))) for kind in small)
    yield Claim(
        text=f"Many small collectives run {of_span(facts, at_stake)} without compute beside "
        f"them: {each}. Their time is latency and waiting for other ranks, not bandwidth.",
        at_stake_ns=at_stake,
        wanted=kernels.without(is_small),
        rows=the_most(rows, facts.trace.dur[rows]),
        why_likely=NO_SIZES if any(kind.bytes is None for kind in small) else None,
        part_of="exposed-communication",
    )


def _is_small(kind: Transfers) -> bool:
    """Also where the size is not known, which the kernels of some libraries do not
    record."""
    number = len(kind.rows)
    few_bytes = kind.bytes is None or kind.bytes <= SMALL * number
    return number >= MANY and kind.median_ns <= SHORT_NS and few_bytes


def _told(kind: Transfers, several: bool) -> str:
    dtype = f" of {kind.dtype}" if kind.dtype else ""
    mean = (
        f", {size(kind.bytes // len(kind.rows))} each on average" if kind.bytes else ""
    )
    return f"{kind_text(kind, several)}{dtype} of {duration(kind.median_ns)} (the median){mean}"


FEWEST_ALIKE = 5  # of a kernel alone, and beside communication


@Rule(
    needs=("input shapes",),
    remedy="Fewer SMs for communication{nvidia: (NCCL_MAX_CTAS, NCCL_MIN_CTAS)|amd: "
    "(NCCL_MAX_NCHANNELS)}, copy engines instead of kernels, or communication beside work that is "
    "bound by arithmetic, not memory. The overlap may still pay: compare this with the time that "
    "it hides.",
    thresholds={"fewest": FEWEST_ALIKE},
    of_kernels=True,
)
def overlap_tax(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    beside = kernels.computes & (kernels.during(kernels.communicates) > 0)
    alone = kernels.computes & kernels.alone
    job = np.where(beside | alone, kernels.job_numbers, -1)
    usual = _usual(job, alone, beside, kernels.effective_ns)
    measured = beside & (job >= 0) & (usual[job] > 0)
    if not measured.any():
        return
    rows, usual_ns = kernels.rows[measured], usual[job[measured]]
    slower = kernels.effective_ns[measured] - usual_ns
    at_stake = int(slower.sum())
    if at_stake > 0:
        yield Claim(
            text=f"{count(len(rows))} kernels beside communication take "
            f"{of_work(facts, at_stake)} longer than the same ones alone, which is "
            f"{percent(at_stake, int(usual_ns.sum()))} more.",
            at_stake_ns=at_stake,
            rows=the_most(rows, slower),
        )


def _usual(job: Int64s, alone: Flags, beside: Flags, ns: Int64s) -> Int64s:
    """The median time alone of each job with enough kernels of both sorts, else 0; a
    last one for no job."""
    jobs = int(job.max(initial=-1)) + 1
    often = [
        np.bincount(job[which & (job >= 0)], minlength=jobs)
        for which in (alone, beside)
    ]
    found = np.zeros(jobs + 1, dtype=np.int64)
    places = np.flatnonzero(alone & (job >= 0))
    order = places[np.lexsort((ns[places], job[places]))]
    first = np.searchsorted(job[order], np.arange(jobs))
    enough = np.flatnonzero((often[0] >= FEWEST_ALIKE) & (often[1] >= FEWEST_ALIKE))
    found[enough] = ns[order[first[enough] + often[0][enough] // 2]]
    return found


LEAST = 0.1  # of the recording, where there is no GPU
TOLD_NAMES = 3  # names
TRANSFER = late(r":(?:send|recv)\w*\Z")
LASTS_UNTIL_ALL = "It lasts until all ranks of its group have arrived."
LASTS_UNTIL_PEER = "It lasts until the other rank takes part and the data has moved."


@Rule(
    without_gpu=True,
    remedy="Collectives of tensors on the GPU (backend {intel:xccl|:nccl}) overlap with compute; "
    "keep barriers, object collectives and tensors on the CPU out of the step. Waiting for "
    "another rank cannot be solved here: compare the ranks.",
    thresholds={"least": LEAST},
)
def cpu_collectives(facts: Facts) -> Iterator[Claim]:
    trace, rows = facts.trace, facts.trace.rows_named(ON_CPU.match, Role.ANNOTATION)
    if not len(rows):
        return
    start = np.maximum(trace.start[rows], facts.begin_ns)
    end = np.minimum(trace.end[rows], facts.end_ns)
    rows, start, end = rows[end > start], start[end > start], end[end > start]
    cover = union(start, end)
    ran, whole, longest = (
        cover.ns,
        facts.end_ns - facts.begin_ns,
        the_most(rows, trace.dur[rows]),
    )
    names = Counter(map(trace.name_of, rows.tolist())).most_common(TOLD_NAMES)
    named = ", ".join(f"{count(n)} {printable(name)}" for name, n in names)
    only_transfers = bool(trace.matching(rows, TRANSFER.search).all())
    subject = "A transfer between ranks" if only_transfers else "A collective"
    at_stake = int(facts.host_under(cover)[LATE].sum()) if facts.devices else 0
    if at_stake:
        yield Claim(
            text=f"The GPU waits {of_span(facts, at_stake)} for its "
            f"next launch while a collective runs on the CPU: {named}.",
            at_stake_ns=at_stake,
            rows=longest,
            why_likely="What the launching thread waits for is not recorded.",
            part_of="host-bound",
        )
    elif not facts.devices and ran >= LEAST * whole:
        yield Claim(
            text=f"{subject} runs on the CPU for {of_recording(facts, ran)}: {named}. "
            f"{LASTS_UNTIL_PEER if only_transfers else LASTS_UNTIL_ALL}",
            rows=longest,
        )
