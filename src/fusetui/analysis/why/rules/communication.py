"""Rules about collectives and transfers of one rank.

They report what transfers moved and at what bandwidth, what hides them, how small they
are, and what they slow down.
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
from fusetui.analysis.why.facts import LATE_ACTIVITIES, Facts
from fusetui.analysis.why.kernels import Kernels, choose_heaviest_rows
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    format_share_of_recording,
    format_share_of_span,
    format_share_of_work,
)
from fusetui.analysis.why.transfers import (
    MIN_EQUAL_TRANSFERS,
    MIN_RATIO_TO_EXPLAINED,
    Transfers,
    find_transfers,
    format_kind,
    format_moved_bytes,
    needs_group_names,
)
from fusetui.gpu.roofline.many import NO_JOB
from fusetui.text.figures import count, duration, percent, size
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s, Rows, at
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import Cover, union
from fusetui.trace.model.quantiles import median

MIN_DOMINANT_SHARE: Final = 0.5
"""From this share of the exposed time on, waiting or one transfer is what it is about.
"""
MAX_KINDS_NAMED: Final = 3
"""How many kinds of transfers a sentence names."""
COMPARE_RANKS: Final = (
    "Compare the ranks, because this trace has no other work to overlap with "
    "communication."
)
"""The remedy where no kernel computes."""
FIND_LATE_RANK: Final = (
    "Run fusetui ranks to find the rank that arrives last, and why. Overlap does not "
    "shorten waits for another rank."
)
"""The remedy where most of the time is waiting."""
FIND_LATE_RANK_FIRST: Final = (
    "Run fusetui ranks first, because overlap does not help if another rank arrives late. Record "
    "with record_shapes=True to see whether this collective moves more data; if so, "
    "send less or overlap it."
)
"""The remedy where one transfer of unknown size takes most of the time."""
EXCHANGE_NAMES: Final = ("all_to_all", "send_recv", "send", "recv")
"""The names of transfers in which each rank gets other data.

Expert parallelism, sharded embeddings and pipelines have them.
"""
REDUCE_EXCHANGES: Final = (
    "Send less, or overlap the exchange with the compute of another batch or "
    "half-batch. Larger gradient buckets do not help, because exchanges take most of "
    "the time. To find the late rank, run fusetui ranks on all traces of the job."
)
"""The remedy where most of the time is in EXCHANGE_NAMES."""
MAY_MOVE_MORE: Final = (
    "The trace does not show whether the longest transfer moved data or waited."
)
"""Why a finding about one long transfer of unknown size is only likely."""


@Rule(
    remedy="{training:Overlap communication with compute: tune DDP's bucket_cap_mb and "
    "gradient_as_bucket_view or FSDP's prefetching, or use a separate "
    "stream|:Overlap communication with compute: let one half of the batch compute "
    "while the other half communicates. With tensor parallelism, fuse the all-reduce with the next "
    "norm, or use fewer ranks}. To find the late rank, run fusetui ranks on "
    "all traces of the job.",
    thresholds={
        "fewest": MIN_EQUAL_TRANSFERS,
        "far_longer": MIN_RATIO_TO_EXPLAINED,
        "dominates": MIN_DOMINANT_SHARE,
    },
    of_kernels=True,
)
def exposed_communication(facts: Facts) -> Iterator[Claim]:
    """Report the time in which communication runs without compute.

    All of that time is at stake. The remedy depends on what takes most of it: one very
    long transfer, waiting for other ranks, or exchanges.
    """
    kernels = facts.kernels
    if not kernels.is_communication.any():
        return

    times = _measure_exposure(kernels, kernels.is_communication)
    if times.exposed_ns <= 0:
        return

    exposed_ns = _measure_exposed_ns(kernels)
    kinds = _rank_exposed_kinds(facts, exposed_ns)
    least_ns = MIN_DOMINANT_SHARE * times.exposed_ns
    longest = _find_dominating_transfer(facts, exposed_ns, least_ns)
    longest_text = f". {longest.text}" if longest else ""
    hidden = percent(times.hidden_ns, times.hidden_ns + times.exposed_ns)
    transfers = kernels.rows[kernels.is_communication]

    yield Claim(
        text=f"Exposed communication takes {format_share_of_span(facts, times.exposed_ns)}; "
        f"{hidden} of all communication is hidden. Exposed: "
        f"{_describe_kinds(kinds, exposed_ns)}{_describe_waiting(facts)}{longest_text}.",
        at_stake_ns=times.exposed_ns,
        wanted="comm x0",
        rows=choose_heaviest_rows(transfers, exposed_ns[transfers]),
        remedy=_choose_exposed_remedy(facts, kinds, exposed_ns, longest, least_ns),
        why_likely=MAY_MOVE_MORE if longest and not longest.waits else None,
    )


def _find_dominating_transfer(
    facts: Facts, exposed_ns: Int64s, least_ns: float
) -> LongTransfer | None:
    """Return the one transfer that takes most of the exposed time, if any.

    It takes far longer than others of its kind.

    Args:
        exposed_ns: The exposed time of each event of the trace.
        least_ns: The exposed time that it must have.
    """
    longest = _find_longest_transfer(facts, exposed_ns)
    if longest is None or longest.exposed_ns < least_ns:
        return None
    return longest


def _choose_exposed_remedy(
    facts: Facts,
    kinds: Sequence[Transfers],
    exposed_ns: Int64s,
    longest: LongTransfer | None,
    least_ns: float,
) -> str | None:
    """Choose what to do about exposed communication; None for the remedy of the rule.

    It depends on what takes most of the exposed time: one transfer, waiting for other
    ranks, or exchanges.

    Args:
        kinds: The kinds of transfers with exposed time.
        exposed_ns: The exposed time of each event of the trace.
        longest: The one transfer that takes most of the time, if there is one.
        least_ns: The time that counts as most of it.
    """
    if longest is not None:
        return FIND_LATE_RANK if longest.waits else FIND_LATE_RANK_FIRST
    if _measure_exposed_waits(facts.trace, kinds, exposed_ns) >= least_ns:
        return FIND_LATE_RANK
    if not facts.kernels.is_compute.any():
        return COMPARE_RANKS
    if _add_up_exchanges(kinds, exposed_ns) >= least_ns:
        return REDUCE_EXCHANGES

    return None


def _measure_exposed_ns(kernels: Kernels) -> Int64s:
    """Measure how long each communication kernel runs without compute beside it.

    Such time is called exposed, because no computation hides it.

    Returns:
        ns for each event of the trace, 0 for all other events.
    """
    running_ns = kernels.end - kernels.start
    without_compute_ns = running_ns - kernels.measure_overlap(kernels.is_compute)

    communicates = kernels.is_communication
    exposed_ns = np.zeros(len(kernels.trace), dtype=np.int64)
    exposed_ns[kernels.rows[communicates]] = without_compute_ns[communicates]

    return exposed_ns


def _rank_exposed_kinds(facts: Facts, exposed_ns: Int64s) -> list[Transfers]:
    """Return the kinds of transfers that have exposed time, those with the most first.

    Args:
        exposed_ns: The exposed time of each event of the trace.
    """

    def by_exposed_time(kind: Transfers) -> tuple[int, str, str]:
        return -int(exposed_ns[kind.rows].sum()), kind.name, kind.group

    kinds = [kind for kind in find_transfers(facts) if exposed_ns[kind.rows].any()]
    return sorted(kinds, key=by_exposed_time)


def _describe_kinds(kinds: Sequence[Transfers], exposed_ns: Int64s) -> str:
    """Describe the first MAX_KINDS_NAMED kinds with their time, bytes and bandwidth.

    Sentences about what these figures mean follow.

    Args:
        kinds: The kinds, the longest first.
        exposed_ns: The exposed time of each event of the trace.
    """
    with_group = needs_group_names(kinds)
    shown_kinds = kinds[:MAX_KINDS_NAMED]

    texts = []
    for kind in shown_kinds:
        name = format_kind(kind, with_group)
        kind_ns = int(exposed_ns[kind.rows].sum())
        texts.append(f"{duration(kind_ns)} in {name}{format_moved_bytes(kind)}")

    return (
        ", ".join(texts)
        + _explain_bandwidth_range(shown_kinds)
        + _explain_guessed_groups(shown_kinds)
    )


def _explain_bandwidth_range(kinds: Sequence[Transfers]) -> str:
    """Say what the two bounds of a bandwidth mean, if any of these kinds has two."""
    if not any(kind.is_range for kind in kinds):
        return ""
    return (
        ". The lower bandwidth is the average over all transfers; the upper one "
        "is that of the fastest transfers of each size"
    )


def _explain_guessed_groups(kinds: Sequence[Transfers]) -> str:
    """Say which groups of ranks are assumed, if a shown bandwidth depends on a guess."""
    guessed = [kind for kind in kinds if kind.is_guessed]
    if not any(kind.bus_bytes_per_s for kind in guessed):
        return ""
    return (
        f". Bytes and bandwidth assume groups of all {count(guessed[0].ranks)} ranks, "
        "because process groups were not recorded"
    )


def _describe_waiting(facts: Facts) -> str:
    """Say how long transfers wait for other ranks, and how that was estimated.

    The text is a sentence that begins with `. `, and "" if no transfer is known to
    wait.
    """
    waits_ns = 0
    is_any_by_fastest = False
    is_any_by_bytes = False
    for kind in find_transfers(facts):
        waits_ns += int(kind.waits_ns.sum())
        is_any_by_fastest |= bool(kind.waits_ns[~kind.is_by_bytes].any())
        is_any_by_bytes |= bool(kind.waits_ns[kind.is_by_bytes].any())

    if not waits_ns:
        return ""

    measures = []
    if is_any_by_fastest:
        measures.append("the fastest transfer of each size")

    if is_any_by_bytes:
        measures.append("the time that the bytes of a transfer explain")
    return (
        f". {duration(waits_ns)} of all communication time is contention or "
        f"waiting for other ranks, judging by {' and '.join(measures)}"
    )


def _measure_exposed_waits(
    trace: Trace, kinds: Sequence[Transfers], exposed_ns: Int64s
) -> int:
    """Measure how much of the exposed time is at least waiting for other ranks, in ns.

    Exposed time is that of communication without compute beside it. Of each transfer,
    all the time in which it moves data is taken as exposed, and the rest must be
    waiting.

    Args:
        kinds: The kinds of transfers that count.
        exposed_ns: The exposed time of each event of the trace.
    """
    total_ns = 0
    for kind in kinds:
        moving_ns = trace.dur[kind.rows] - kind.waits_ns
        exposed_waits_ns = np.maximum(exposed_ns[kind.rows] - moving_ns, 0)
        total_ns += int(exposed_waits_ns.sum())

    return total_ns


def _add_up_exchanges(kinds: Sequence[Transfers], exposed_ns: Int64s) -> int:
    """Add up the exposed time of transfers of the kinds in EXCHANGE_NAMES, in ns."""
    total_ns = 0
    for kind in kinds:
        if kind.name in EXCHANGE_NAMES:
            total_ns += int(exposed_ns[kind.rows].sum())

    return total_ns


class LongTransfer(msgspec.Struct, frozen=True):
    """One transfer that takes far longer than others of its kind."""

    exposed_ns: int
    # Whether it takes longer than its bytes explain; False where sizes are not known.
    waits: bool
    text: str


def _find_longest_transfer(facts: Facts, exposed_ns: Int64s) -> LongTransfer | None:
    """Return the transfer with the most exposed time, if it takes far too long.

    Where sizes are known, it must take MIN_RATIO_TO_EXPLAINED times as long as its
    bytes explain. Where they are not, the median of the others of its kind is the
    measure. Only kinds with more than MIN_EQUAL_TRANSFERS transfers count. Returns None
    otherwise.

    Args:
        exposed_ns: The time of each event of the trace without compute beside it.
    """
    kind = _find_kind_of_longest(facts, exposed_ns)
    if kind is None:
        return None

    longest = int(exposed_ns[kind.rows].argmax())  # an index into kind.rows
    dur_ns_of_kind = facts.trace.dur[kind.rows]
    dur_ns = int(dur_ns_of_kind[longest])
    waited_ns = int(kind.waits_ns[longest])
    explained_ns = dur_ns - waited_ns
    median_ns = median(np.delete(dur_ns_of_kind, longest))  # of the others

    waits = waited_ns > 0 and dur_ns >= MIN_RATIO_TO_EXPLAINED * explained_ns
    is_far_longer = median_ns > 0 and dur_ns >= MIN_RATIO_TO_EXPLAINED * median_ns
    if waits:
        text = (
            f"but its bytes account for only {duration(explained_ns)}, judging by the others "
            "of its kind: it waits for another rank"
        )
    elif kind.bytes is None and is_far_longer:
        text = (
            f"{count(round(dur_ns / median_ns))} times the median of the others "
            f"({duration(median_ns)}): it waits for another rank, or moves more data (sizes were not "
            "recorded)"
        )
    else:
        return None

    return LongTransfer(
        exposed_ns=int(exposed_ns[kind.rows[longest]]),
        waits=waits,
        text=f"One {kind.name} alone takes {duration(dur_ns)}, {text}",
    )


def _find_kind_of_longest(facts: Facts, exposed_ns: Int64s) -> Transfers | None:
    """Find the kind of the transfer with the most exposed time.

    Only kinds with more than MIN_EQUAL_TRANSFERS transfers count: fewer do not show how
    long one usually takes. None if there are none.
    """
    kinds = [
        kind for kind in find_transfers(facts) if len(kind.rows) > MIN_EQUAL_TRANSFERS
    ]
    if not kinds:
        return None
    return max(kinds, key=lambda kind: int(exposed_ns[kind.rows].max()))


class ExposedTime(NamedTuple):
    """How long some kernels run without compute beside them, and with it.

    Both are added up over the devices, in ns.
    """

    exposed_ns: int
    hidden_ns: int


def _measure_exposure(kernels: Kernels, is_selected: Flags) -> ExposedTime:
    """Measure how long kernels run without compute beside them, and with it.

    Args:
        is_selected: True for these kernels.
    """
    all_ns = 0
    hidden_ns = 0
    for device in kernels.devices:
        running = kernels.cover_events(is_selected, device)
        computing = kernels.cover_events(kernels.is_compute, device)
        all_ns += running.ns
        hidden_ns += int(computing.within(running.start, running.end).sum())

    return ExposedTime(exposed_ns=all_ns - hidden_ns, hidden_ns=hidden_ns)


SHORT_NS: Final = 50_000
"""Transfers of a kind are short if their median takes no longer than this."""
SMALL_BYTES: Final = 1 << 20
"""Transfers of a kind are small if they have no more bytes than this on average."""
MIN_COLLECTIVES: Final = 50
"""Fewer transfers of a kind are not many."""
NO_SIZES: Final = "Sizes were not recorded; judging by their durations, the collectives are probably small."
"""Why a finding about small transfers of unknown size is only likely."""


@Rule(
    remedy="Communicate less often: use {training:larger buckets (DDP's "
    "bucket_cap_mb), larger FSDP units, "
    "}torch.distributed._coalescing_manager, or one tensor for several "
    "values. In tensor-parallel decoding, fuse the all-reduce with the norm, "
    "or use fewer ranks.",
    thresholds={
        "short_ns": SHORT_NS,
        "small_bytes": SMALL_BYTES,
        "fewest": MIN_COLLECTIVES,
    },
    of_kernels=True,
)
def small_collectives(facts: Facts) -> Iterator[Claim]:
    """Report kinds of transfers of which there are many small and short ones.

    See _is_small. At stake is the time in which they run without compute beside them.
    """
    small_kinds = [kind for kind in find_transfers(facts) if _is_small(kind)]
    if not small_kinds:
        return

    kernels = facts.kernels
    small_rows = np.concatenate([kind.rows for kind in small_kinds])
    is_small = np.isin(kernels.rows, small_rows)
    small_transfers = kernels.rows[is_small]
    at_stake_ns = _measure_exposure(kernels, is_small).exposed_ns

    with_group = needs_group_names(find_transfers(facts))
    kinds_text = ", ".join(
        _describe_small_kind(kind, with_group) for kind in small_kinds
    )
    lacks_sizes = any(kind.bytes is None for kind in small_kinds)

    yield Claim(
        text="Many small collectives are exposed for "
        f"{format_share_of_span(facts, at_stake_ns)}: {kinds_text}. They spend their time on "
        "latency and waiting for other ranks, not on moving data.",
        at_stake_ns=at_stake_ns,
        wanted=kernels.make_removal(is_small),
        rows=choose_heaviest_rows(small_transfers, facts.trace.dur[small_transfers]),
        why_likely=NO_SIZES if lacks_sizes else None,
        part_of="exposed-communication",
    )


def _is_small(kind: Transfers) -> bool:
    """Whether there are many transfers of a kind, short by median and small on average.

    A size that is not known does not count against that: the kernels of some libraries
    do not record it.
    """
    transfer_count = len(kind.rows)
    is_frequent = transfer_count >= MIN_COLLECTIVES
    is_short = kind.median_ns <= SHORT_NS
    has_few_bytes = kind.bytes is None or kind.bytes <= SMALL_BYTES * transfer_count

    return is_frequent and is_short and has_few_bytes


def _describe_small_kind(kind: Transfers, with_group: bool) -> str:
    """Describe one kind of small transfers.

    An example is `73 x all_reduce of bfloat16, 27.4 us each (median) and 8.2 kB each (mean)`.
    The type and the size are left out where they are not known.

    Args:
        with_group: Whether the process group is named.
    """
    text = format_kind(kind, with_group)
    if kind.dtype:
        text += f" of {kind.dtype}"

    text += f", {duration(kind.median_ns)} each (median)"
    if kind.bytes:
        text += f" and {size(kind.bytes // len(kind.rows))} each (mean)"
    return text


MIN_RUNS: Final = 5
"""So many runs of a kernel are needed, both alone and beside communication."""


@Rule(
    needs=("input shapes",),
    remedy="Use fewer SMs for communication{nvidia: (NCCL_MAX_CTAS, "
    "NCCL_MIN_CTAS)|amd: (NCCL_MAX_NCHANNELS)}, use copy engines instead of "
    "kernels, or overlap communication with compute-bound work. The overlap "
    "may still pay off: compare this cost with the time that it hides.",
    thresholds={"fewest": MIN_RUNS},
    of_kernels=True,
)
def overlap_tax(facts: Facts) -> Iterator[Claim]:
    """Report how much longer kernels take beside communication than alone.

    What single kernels take longer is added up; some may take less. There is no claim
    where no job has enough kernels of both sorts, or if they take no longer.
    """
    kernels = facts.kernels
    if not kernels.is_communication.any():
        return

    overlaps = kernels.measure_overlap(kernels.is_communication) > 0
    is_beside = kernels.is_compute & overlaps
    is_alone = kernels.is_compute & kernels.runs_alone
    usual_ns_alone = _find_usual_ns_alone(
        kernels.job_indices, is_alone, is_beside, kernels.effective_ns
    )
    is_measured = is_beside & (usual_ns_alone > 0)
    if not is_measured.any():
        return

    kernel_rows = kernels.rows[is_measured]
    alone_ns = usual_ns_alone[is_measured]
    slower_ns = kernels.effective_ns[is_measured] - alone_ns
    at_stake_ns = int(slower_ns.sum())
    if at_stake_ns <= 0:
        return

    increase = percent(at_stake_ns, int(alone_ns.sum()))
    yield Claim(
        text=f"{count(len(kernel_rows))} kernels that overlap communication take "
        f"{format_share_of_work(facts, at_stake_ns)} longer ({increase} more) than the "
        "same kernels alone.",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(kernel_rows, slower_ns),
    )


def _find_usual_ns_alone(
    job: Int64s, is_alone: Flags, is_beside: Flags, ns: Int64s
) -> Int64s:
    """Return for each kernel how long its job usually takes alone.

    A *job* is the same kernel on inputs of the same shapes. Its usual time is the upper
    median of its runs alone: if five of them take 10, 10, 12, 14 and 15 ns, all kernels
    of the job get 12.

    >>> is_alone = np.arange(10) < 5
    >>> ns = np.array([10, 10, 12, 14, 15, 20, 20, 20, 20, 20])
    >>> _find_usual_ns_alone(np.zeros(10, np.int64), is_alone, ~is_alone, ns).tolist()[:2]
    [12, 12]

    Args:
        job: The index of the job of each kernel, NO_JOB for none.
        is_alone: Which kernels run alone.
        is_beside: Which kernels run beside communication.
        ns: How long each kernel takes.

    Returns:
        ns for each kernel: 0 without a job, and where the job has fewer than MIN_RUNS
        runs alone, or fewer beside communication.
    """
    has_job = job != NO_JOB
    alone = np.flatnonzero(is_alone & has_job)
    beside = np.flatnonzero(is_beside & has_job)
    alone_by_job = grouped(job[alone], then_by=ns[alone])  # the shortest run first
    median_ns = ns[alone[alone_by_job.upper_median]]

    job_count = int(job.max(initial=NO_JOB)) + 1
    runs_beside_of_job = np.bincount(job[beside], minlength=job_count)
    runs_beside = runs_beside_of_job[alone_by_job.keys]
    has_enough = (alone_by_job.counts >= MIN_RUNS) & (runs_beside >= MIN_RUNS)

    usual_ns_of_job = np.zeros(job_count, dtype=np.int64)
    usual_ns_of_job[alone_by_job.keys[has_enough]] = median_ns[has_enough]
    return at(usual_ns_of_job, job, missing=0)  # NO_JOB finds `missing`


LEAST_SHARE: Final = 0.1
"""Without a GPU, collectives are worth a note from this share of the recording on."""
MAX_NAMES: Final = 3
"""How many names of collectives a sentence has."""
TRANSFER: Final = lazy_pattern(r":(?:send|recv)\w*\Z")
"""Matches names of transfers between two ranks."""
LASTS_UNTIL_ALL: Final = "Each collective lasts until all ranks of its group arrive."
LASTS_UNTIL_PEER: Final = (
    "Each transfer lasts until the other rank joins and the data has moved."
)


@Rule(
    without_gpu=True,
    remedy="Use GPU tensors with the {intel:xccl|:nccl} backend, whose collectives "
    "overlap with compute. Keep barriers, object collectives and collectives "
    "on CPU tensors out of the step. To find the late rank, run fusetui ranks "
    "on all traces of the job.",
    thresholds={"least": LEAST_SHARE},
)
def cpu_collectives(facts: Facts) -> Iterator[Claim]:
    """Report collectives that run on the CPU.

    With GPUs, at stake is how long they wait for a launch meanwhile. Without, it is a
    note, if a collective runs for LEAST_SHARE of the recording.
    """
    trace = facts.trace
    collectives = facts.select_rows_in_window(
        trace.rows_named(ON_CPU.match, Role.ANNOTATION)
    )
    collectives = collectives[trace.end[collectives] > trace.start[collectives]]
    if not len(collectives):
        return

    start_in_window = np.maximum(trace.start[collectives], facts.begin_ns)
    end_in_window = np.minimum(trace.end[collectives], facts.end_ns)
    running = union(start_in_window, end_in_window)
    if facts.devices:
        yield from _claim_delays(facts, collectives, running)
    elif running.ns >= LEAST_SHARE * (facts.end_ns - facts.begin_ns):
        yield _note_collectives(facts, collectives, running)


def _claim_delays(facts: Facts, collectives: Rows, running: Cover) -> Iterator[Claim]:
    """Claim the time for which GPUs wait during collectives, if any of them waits.

    Args:
        collectives: The collectives, as rows of the trace.
        running: When they run, in ns of the file.
    """
    ns_of_activities = facts.measure_activities_during(
        running
    )  # [ThreadActivity, gaps]
    at_stake_ns = int(ns_of_activities[LATE_ACTIVITIES].sum())
    if at_stake_ns:
        yield Claim(
            text=f"The GPU waits {format_share_of_span(facts, at_stake_ns)} for its next launch while a "
            f"collective runs on the CPU: {_list_frequent_names(facts.trace, collectives)}.",
            at_stake_ns=at_stake_ns,
            rows=choose_heaviest_rows(collectives, facts.trace.dur[collectives]),
            why_likely="The trace does not record what the launching thread waits for.",
            part_of="host-bound",
        )


def _note_collectives(facts: Facts, collectives: Rows, running: Cover) -> Claim:
    """Note collectives where there is no GPU.

    Args:
        collectives: The collectives, as rows of the trace.
        running: When they run, in ns of the file.
    """
    are_transfers = bool(facts.trace.matching(collectives, TRANSFER.search).all())
    subject = "Transfers between ranks" if are_transfers else "Collectives"
    lasts_until = LASTS_UNTIL_PEER if are_transfers else LASTS_UNTIL_ALL

    return Claim(
        text=f"{subject} on the CPU take {format_share_of_recording(facts, running.ns)}: "
        f"{_list_frequent_names(facts.trace, collectives)}. {lasts_until}",
        rows=choose_heaviest_rows(collectives, facts.trace.dur[collectives]),
    )


def _list_frequent_names(trace: Trace, rows: Rows) -> str:
    """Name the MAX_NAMES most frequent names of some rows.

    An example is `12 x gloo:all_reduce, 3 x gloo:broadcast`.
    """
    names = Counter(trace.name_of(row) for row in rows.tolist())
    texts = []
    for name, frequency in names.most_common(MAX_NAMES):
        texts.append(f"{count(frequency)} x {printable(name)}")

    return ", ".join(texts)
