"""Collectives and transfers of one rank: what they moved, at what bandwidth, what hides
them, how small they are, what they slow down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

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
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.intervals import union
from fusetui.trace.model.quantiles import median

DOMINATES: Final = 0.5
"""Of the exposed time: waiting, or one transfer, is what it is about."""
MAX_KINDS_NAMED: Final = 3
NO_COMPUTE: Final = (
    "Compare the ranks: nothing was recorded that it could overlap with."
)
"""The remedy where no kernel computes."""
WAITS: Final = (
    "Compare the ranks (fusetui ranks) to find the one that arrives last, and why. Overlap does "
    "not shorten waiting for another rank."
)
"""The remedy where most of the time is waiting."""
MAY_WAIT: Final = (
    "Compare the ranks (fusetui ranks): overlap does not help if another rank arrives later. "
    "record_shapes=True shows whether this collective moves more data; then send less, or overlap "
    "it."
)
"""The remedy where one transfer of unknown size takes most of the time."""
EXCHANGES: Final = ("all_to_all", "send_recv", "send", "recv")
"""The names of transfers in which each rank gets other data, as in expert parallelism, in
sharded embeddings, and in pipelines."""
EXCHANGED: Final = (
    "Send less, or start the exchange of the next batch, or of the other half of this one, beside "
    "compute. Larger gradient buckets do not help: most of it is exchanges. Compare the ranks to "
    "shorten waiting for another rank."
)
"""The remedy where most of the time is EXCHANGES."""
MAY_MOVE_MORE: Final = (
    "Whether the longest transfer moved data or waited was not recorded."
)


@Rule(
    remedy="Overlap it: {training:DDP's bucket_cap_mb and gradient_as_bucket_view, FSDP's "
    "prefetching, or a stream of its own|:one half of the batch computes while the other "
    "communicates; in tensor parallelism an all-reduce fused with the norm that follows, or fewer "
    "ranks}. Compare the ranks to shorten waiting for another rank.",
    thresholds={"fewest": FEWEST, "far_longer": FAR_LONGER, "dominates": DOMINATES},
    of_kernels=True,
)
def exposed_communication(facts: Facts) -> Iterator[Claim]:
    """One claim: the time in which communication runs and no compute, which is at
    stake, by kinds of transfers. The remedy depends on what takes most of that time:
    one very long transfer, waiting for other ranks, or exchanges. None where nothing is
    exposed."""
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    times = _apart(kernels, kernels.communicates)
    if times.exposed_ns <= 0:
        return
    rows = kernels.rows[kernels.communicates]
    exposed_ns = _exposed_of_each(facts)
    kinds = _exposed_kinds(facts, exposed_ns)
    text = (
        f"Communication runs {of_span(facts, times.exposed_ns)} without compute beside it "
        f"({percent(times.hidden_ns, times.hidden_ns + times.exposed_ns)} of it is hidden): "
        f"{_named_kinds(kinds, exposed_ns)}{_waiting(facts)}"
    )
    longest = _longest(facts, exposed_ns)
    remedy = None if kernels.computes.any() else NO_COMPUTE
    doubt = None
    if longest is not None and longest.exposed_ns >= DOMINATES * times.exposed_ns:
        text += f". {longest.text}"
        remedy = WAITS if longest.waits else MAY_WAIT
        doubt = None if longest.waits else MAY_MOVE_MORE
    elif _exposed_waits_ns(facts, kinds, exposed_ns) >= DOMINATES * times.exposed_ns:
        remedy = WAITS
    elif remedy is None and _exchanged_ns(kinds, exposed_ns) >= (
        DOMINATES * times.exposed_ns
    ):
        remedy = EXCHANGED
    yield Claim(
        text=f"{text}.",
        at_stake_ns=times.exposed_ns,
        wanted="comm x0",
        rows=the_most(rows, exposed_ns[rows]),
        remedy=remedy,
        why_likely=doubt,
    )


def _exposed_of_each(facts: Facts) -> Int64s:
    """For how long each kernel that communicates runs without compute beside it (ns), 0
    for all other events; shape [events of the trace]."""
    kernels = facts.kernels
    alone_ns = kernels.end - kernels.start - kernels.during(kernels.computes)
    exposed_ns = np.zeros(len(facts.trace), dtype=np.int64)
    communicates = kernels.communicates
    exposed_ns[kernels.rows[communicates]] = alone_ns[communicates]
    return exposed_ns


def _exposed_kinds(facts: Facts, exposed_ns: Int64s) -> list[Transfers]:
    """The kinds of transfers that have exposed time, those with the most first;
    `exposed_ns` is that of each event of the trace."""

    def order(kind: Transfers) -> tuple[int, str, str]:
        return -int(exposed_ns[kind.rows].sum()), kind.name, kind.group

    exposed = [kind for kind in transfers_of(facts) if exposed_ns[kind.rows].any()]
    return sorted(exposed, key=order)


def _named_kinds(kinds: Sequence[Transfers], exposed_ns: Int64s) -> str:
    """The kinds with the most exposed time, as text: each with that time, its bytes and
    bandwidth; then sentences about what these figures mean. `kinds`: the longest
    first."""
    with_group = told_apart(kinds)
    shown = kinds[:MAX_KINDS_NAMED]
    parts = []
    for kind in shown:
        kind_ns = int(exposed_ns[kind.rows].sum())
        parts.append(f"{kind_text(kind, with_group)} {duration(kind_ns)}{moved(kind)}")
    text = ", ".join(parts)
    if any(kind.is_range for kind in shown):
        text += (
            ". The lower bandwidth is over all of their time, the upper one is that of the "
            "fastest of each size"
        )
    guessed = [kind for kind in shown if kind.is_guessed]
    if any(kind.bus_bytes_per_s for kind in guessed):
        text += (
            ". Bytes and bandwidth assume groups of all "
            f"{count(guessed[0].ranks)} ranks: process groups were not recorded"
        )
    return text


def _waiting(facts: Facts) -> str:
    """How long transfers wait for other ranks, and what tells it; blank where nothing
    does."""
    kinds = transfers_of(facts)
    waits_ns = sum(int(kind.waits_ns.sum()) for kind in kinds)
    if not waits_ns:
        return ""
    measures = []
    if any(kind.waits_ns[~kind.is_by_bytes].any() for kind in kinds):
        measures.append("the fastest of equal transfers")
    if any(kind.waits_ns[kind.is_by_bytes].any() for kind in kinds):
        measures.append("what the bytes of a transfer explain")
    return (
        f". Of all communication, {duration(waits_ns)} is waiting for other ranks or contention, "
        f"measured by {' and '.join(measures)}"
    )


def _exposed_waits_ns(
    facts: Facts, kinds: Sequence[Transfers], exposed_ns: Int64s
) -> int:
    """How much of the exposed time is waiting for other ranks at least (ns): what is
    left of it if all the time in which a transfer moves data is exposed."""
    all_ns = 0
    for kind in kinds:
        moves_ns = facts.trace.dur[kind.rows] - kind.waits_ns
        all_ns += int(np.maximum(exposed_ns[kind.rows] - moves_ns, 0).sum())
    return all_ns


def _exchanged_ns(kinds: Sequence[Transfers], exposed_ns: Int64s) -> int:
    """How much of the exposed time is that of transfers of the kinds in EXCHANGES
    (ns)."""
    return sum(
        int(exposed_ns[kind.rows].sum()) for kind in kinds if kind.name in EXCHANGES
    )


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
    kind = max(kinds, key=lambda kind: int(exposed_ns[kind.rows].max()))
    place = int(exposed_ns[kind.rows].argmax())
    dur_ns = int(trace.dur[kind.rows[place]])
    waits_ns = int(kind.waits_ns[place])
    median_ns = median(np.delete(trace.dur[kind.rows], place))
    longest_ns = int(exposed_ns[kind.rows[place]])
    takes = f"One {kind.name} alone takes {duration(dur_ns)}"
    if waits_ns and dur_ns >= FAR_LONGER * (dur_ns - waits_ns):
        text = (
            f"{takes}, of which its bytes explain {duration(dur_ns - waits_ns)}, judging by the "
            "others of its kind: it waits for another rank"
        )
        return LongTransfer(exposed_ns=longest_ns, waits=True, text=text)
    if kind.bytes is not None or dur_ns < FAR_LONGER * median_ns or not median_ns:
        return None
    text = (
        f"{takes}, {count(round(dur_ns / median_ns))} times the median of the others "
        f"({duration(median_ns)}): it waits for another rank, or moves more data (sizes were not "
        "recorded)"
    )
    return LongTransfer(exposed_ns=longest_ns, waits=False, text=text)


class ExposedTime(NamedTuple):
    """How long some kernels run without compute beside them, and with it, added up over
    devices (ns)."""

    exposed_ns: int
    hidden_ns: int


def _apart(kernels: Kernels, which: Flags) -> ExposedTime:
    """For how long these kernels run without compute beside them, and with it."""
    all_ns = 0
    hidden_ns = 0
    for device in kernels.devices:
        cover = kernels.cover(which, device)
        computing = kernels.cover(kernels.computes, device)
        all_ns += cover.ns
        hidden_ns += int(computing.within(cover.start, cover.end).sum())
    return ExposedTime(exposed_ns=all_ns - hidden_ns, hidden_ns=hidden_ns)


SHORT_NS: Final = 50_000
"""The median of a kind."""
SMALL_BYTES: Final = 1 << 20
"""Of a kind on average."""
MIN_COLLECTIVES: Final = 50
"""Of a kind."""
NO_SIZES: Final = (
    "That they are small is inferred from their durations: sizes were not recorded."
)


@Rule(
    remedy="Send less often: {training:larger buckets (DDP's bucket_cap_mb), larger FSDP units, }"
    "torch.distributed._coalescing_manager, several values in one tensor; in tensor-parallel "
    "decoding an all-reduce fused with the norm, or fewer ranks.",
    thresholds={
        "short_ns": SHORT_NS,
        "small_bytes": SMALL_BYTES,
        "fewest": MIN_COLLECTIVES,
    },
    of_kernels=True,
)
def small_collectives(facts: Facts) -> Iterator[Claim]:
    """One claim about the kinds of transfers of which there are many small and short
    ones (see _is_small); at stake is the time in which they run without compute beside
    them."""
    small = [kind for kind in transfers_of(facts) if _is_small(kind)]
    if not small:
        return
    kernels = facts.kernels
    is_small = np.isin(kernels.rows, np.concatenate([kind.rows for kind in small]))
    rows = kernels.rows[is_small]
    at_stake_ns = _apart(kernels, is_small).exposed_ns
    with_group = told_apart(transfers_of(facts))
    kinds = ", ".join(_small_kind(kind, with_group) for kind in small)
    yield Claim(
        text=f"Many small collectives run {of_span(facts, at_stake_ns)} without compute beside "
        f"them: {kinds}. Their time is latency and waiting for other ranks, not bandwidth.",
        at_stake_ns=at_stake_ns,
        wanted=kernels.without(is_small),
        rows=the_most(rows, facts.trace.dur[rows]),
        why_likely=NO_SIZES if any(kind.bytes is None for kind in small) else None,
        part_of="exposed-communication",
    )


def _is_small(kind: Transfers) -> bool:
    """Whether a kind of transfers is MIN_COLLECTIVES or more, short ones by their
    median, and small ones on average. A size that is not known does not count against
    that: the kernels of some libraries do not record it."""
    number = len(kind.rows)
    is_small = kind.bytes is None or kind.bytes <= SMALL_BYTES * number
    return number >= MIN_COLLECTIVES and kind.median_ns <= SHORT_NS and is_small


def _small_kind(kind: Transfers, with_group: bool) -> str:
    """`73 all_reduce of bfloat16 of 27.4 us (the median), 8.2 kB each on average`."""
    text = kind_text(kind, with_group)
    if kind.dtype:
        text += f" of {kind.dtype}"
    text += f" of {duration(kind.median_ns)} (the median)"
    if kind.bytes:
        text += f", {size(kind.bytes // len(kind.rows))} each on average"
    return text


MIN_RUNS: Final = 5
"""Of a kernel alone, and beside communication."""


@Rule(
    needs=("input shapes",),
    remedy="Fewer SMs for communication{nvidia: (NCCL_MAX_CTAS, NCCL_MIN_CTAS)|amd: "
    "(NCCL_MAX_NCHANNELS)}, copy engines instead of kernels, or communication beside work that is "
    "bound by arithmetic, not memory. The overlap may still pay off: compare this with the time "
    "that it hides.",
    thresholds={"fewest": MIN_RUNS},
    of_kernels=True,
)
def overlap_tax(facts: Facts) -> Iterator[Claim]:
    """One claim: how much longer kernels take beside communication than the same jobs
    usually take alone, added up over all of them (some may take less). None where no
    job has enough kernels of both sorts, or they take no longer."""
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    is_beside = kernels.computes & (kernels.during(kernels.communicates) > 0)
    is_alone = kernels.computes & kernels.alone
    job = np.where(is_beside | is_alone, kernels.job_numbers, -1)
    usual_ns = _usual_ns(job, is_alone, is_beside, kernels.effective_ns)
    is_measured = is_beside & (job >= 0) & (usual_ns[job] > 0)
    if not is_measured.any():
        return
    rows = kernels.rows[is_measured]
    alone_ns = usual_ns[job[is_measured]]
    slower_ns = kernels.effective_ns[is_measured] - alone_ns
    at_stake_ns = int(slower_ns.sum())
    if at_stake_ns > 0:
        yield Claim(
            text=f"{count(len(rows))} kernels beside communication take "
            f"{of_work(facts, at_stake_ns)} longer than the same ones alone, which is "
            f"{percent(at_stake_ns, int(alone_ns.sum()))} more.",
            at_stake_ns=at_stake_ns,
            rows=the_most(rows, slower_ns),
        )


def _usual_ns(job: Int64s, is_alone: Flags, is_beside: Flags, ns: Int64s) -> Int64s:
    """The upper median of the time that each job takes alone (ns), 0 for a job with
    fewer than MIN_RUNS kernels alone or beside communication; shape [jobs + 1], of which
    the last one, 0 too, is that of job -1. `job` (-1 for none), the flags and `ns` are
    those of each kernel."""
    jobs = int(job.max(initial=-1)) + 1
    alone = np.flatnonzero(is_alone & (job >= 0))
    beside = np.flatnonzero(is_beside & (job >= 0))
    runs_alone = np.bincount(job[alone], minlength=jobs)
    runs_beside = np.bincount(job[beside], minlength=jobs)
    # the runs alone of one job lie side by side, the shortest first
    by_job = alone[np.lexsort((ns[alone], job[alone]))]
    first_of_job = np.searchsorted(job[by_job], np.arange(jobs))
    middle_of_job = first_of_job + runs_alone // 2
    is_enough = (runs_alone >= MIN_RUNS) & (runs_beside >= MIN_RUNS)
    usual_ns = np.zeros(jobs + 1, dtype=np.int64)
    usual_ns[:-1][is_enough] = ns[by_job[middle_of_job[is_enough]]]
    return usual_ns


LEAST_SHARE: Final = 0.1
"""Of the recording, where there is no GPU."""
MAX_NAMES: Final = 3
TRANSFER: Final = lazy_pattern(r":(?:send|recv)\w*\Z")
LASTS_UNTIL_ALL: Final = "It lasts until all ranks of its group have arrived."
LASTS_UNTIL_PEER: Final = "It lasts until the other rank joins and the data has moved."


@Rule(
    without_gpu=True,
    remedy="Collectives of tensors on the GPU (backend {intel:xccl|:nccl}) overlap with compute; "
    "keep barriers, object collectives and tensors on the CPU out of the step. Compare the ranks "
    "to shorten waiting for another rank.",
    thresholds={"least": LEAST_SHARE},
)
def cpu_collectives(facts: Facts) -> Iterator[Claim]:
    """One claim about collectives that run on the CPU. With GPUs, at stake is how long
    they wait for a launch meanwhile; without, it is a note, if a collective runs for
    LEAST_SHARE of the recording."""
    trace = facts.trace
    rows = facts.inside(trace.rows_named(ON_CPU.match, Role.ANNOTATION))
    rows = rows[trace.end[rows] > trace.start[rows]]
    if not len(rows):
        return
    start = np.maximum(trace.start[rows], facts.begin_ns)
    end = np.minimum(trace.end[rows], facts.end_ns)
    running = union(start, end)
    longest = the_most(rows, trace.dur[rows])
    names = Counter(map(trace.name_of, rows.tolist())).most_common(MAX_NAMES)
    named = ", ".join(f"{count(number)} {printable(name)}" for name, number in names)
    if facts.devices:
        at_stake_ns = int(facts.host_under(running)[LATE].sum())
        if at_stake_ns:
            yield Claim(
                text=f"The GPU waits {of_span(facts, at_stake_ns)} for its next launch while a "
                f"collective runs on the CPU: {named}.",
                at_stake_ns=at_stake_ns,
                rows=longest,
                why_likely="What the launching thread waits for was not recorded.",
                part_of="host-bound",
            )
    elif running.ns >= LEAST_SHARE * (facts.end_ns - facts.begin_ns):
        are_transfers = bool(trace.matching(rows, TRANSFER.search).all())
        subject = "A transfer between ranks" if are_transfers else "A collective"
        yield Claim(
            text=f"{subject} runs on the CPU for {of_recording(facts, running.ns)}: {named}. "
            f"{LASTS_UNTIL_PEER if are_transfers else LASTS_UNTIL_ALL}",
            rows=longest,
        )
