"""Creates the summary of a rank from its trace.

A summary is a pure function of what lies at a path or URL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from fusetui.analysis.questions import process_groups
from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.collectives import IssuedCollectives, find_collectives
from fusetui.analysis.questions.memory import find_memory_peaks
from fusetui.analysis.questions.note import note_of
from fusetui.analysis.questions.process_groups import infer_rank
from fusetui.analysis.ranks import model
from fusetui.analysis.ranks.code_regions import regions_before
from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace.cache import CacheRecord, record_for
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError

KEPT_AS = "ranks"
MAX_HOST_CHARACTERS = 200
MAX_KERNEL_CHARACTERS = 400
MAX_KERNELS_FOR_DEVICE = 1000
"""So many kernels that communicate decide whose device is the rank's."""


class KeptSummary(msgspec.Struct, frozen=True):
    """A summary as the cache holds it."""

    data: bytes


def read_summary(path: str, cached: bool = True) -> model.RankSummary | model.LeftOut:
    """Return the summary of the trace at a path or URL.

    Args:
        path: The path or URL.
        cached: Whether to read it from the cache if it is there, and to store it.

    Returns:
        The summary; if the trace cannot be read, the reason.
    """
    record = record_for(path, KEPT_AS) if cached else None
    cached_summary = _decode_record(record, path)
    if cached_summary is not None:
        return cached_summary

    try:
        summary = extract_summary(open_trace(path, cached=False, alone=True), path)
    except TraceError as error:
        return model.LeftOut(path, None, str(error))
    if record is not None:
        record.store(KeptSummary(model.encode_summary(summary)))
    return summary


def read_cached_summary(path: str) -> model.RankSummary | None:
    """Read the summary of the trace at a path from the cache.

    Returns None if the cache has none of this version for the trace as it is now.
    """
    return _decode_record(record_for(path, KEPT_AS), path)


def _decode_record(record: CacheRecord | None, path: str) -> model.RankSummary | None:
    """Read a summary from a record of the cache, and give it a path.

    Returns None without a record, and if the record has no summary of this version.
    """
    if record is None:
        return None
    # a record that is damaged or of another version counts as missing
    with suppress(msgspec.MsgspecError):
        kept_summary = record.load(KeptSummary)
        if kept_summary is not None:
            return msgspec.structs.replace(model.decoded(kept_summary.data), path=path)
    return None


def extract_summary(trace: Trace, path: str) -> model.RankSummary:
    """Extract from the trace of a rank all that is compared between ranks.

    Times of a trace count from its base (`epoch_ns`), those of the summary from 1970,
    so that ranks can be compared.

    Args:
        trace: The trace.
        path: Where it lies.
    """
    issued = _first_collectives(find_collectives(trace))
    groups = _list_groups(trace, issued)
    names = list(dict.fromkeys(collective.name for collective in issued.collectives))
    ended_before = _find_latest_ends_before(trace, issued)

    device = _choose_device(trace)
    steps = steps_of(trace)
    step_accounts: Sequence[DeviceAccount] = []
    if device and len(steps):
        step_accounts = device.over(steps.start, steps.end)
    whole_account = [device.span] if device else []

    rank, rank_by = infer_rank(trace.keys, path)
    peaks = [peak.allocated for peak in find_memory_peaks(trace).peaks]
    return model.RankSummary(
        version=model.VERSION,
        path=path,
        rank=rank,
        rank_by=rank_by,
        world_size=process_groups.world_size(trace.keys),
        host=_read_machine_name(trace),
        devices=_count_devices(trace),
        device=device.pid if device and isinstance(device.pid, int) else -1,
        device_name=device.axis.named[device.number].name if device else "",
        begin_ns=trace.begin_ns + trace.epoch_ns,
        end_ns=trace.end_ns + trace.epoch_ns,
        steps=tuple(map(trace.name_of, steps.rows.tolist())),
        step_start=steps.start + trace.epoch_ns,
        step_end=steps.end + trace.epoch_ns,
        accounts=_make_account_table(step_accounts),
        account=_make_account_table(whole_account).reshape(-1),
        kernels=_sum_kernel_runs(trace),
        groups=tuple(groups),
        names=tuple(names),
        collectives=_make_columns(trace, issued, groups, names, device, ended_before),
        cut=_find_cut_collectives(issued),
        regions=regions_before(trace, issued, ended_before),
        memory_peak=max(peaks, default=-1),
        note=note_of(trace),
        inferred=_collect_inferences(issued),
        damage=_describe_damage(trace, issued),
    )


def _read_machine_name(trace: Trace) -> str:
    """Read the name of the machine from a trace; "" if the file has none.

    It is cut after MAX_HOST_CHARACTERS.
    """
    name = trace.keys.get("host_name")
    return name[:MAX_HOST_CHARACTERS] if isinstance(name, str) else ""


def _count_devices(trace: Trace) -> int:
    """Return how many devices the machine has; 0 if the file does not say."""
    devices = trace.keys.get("deviceProperties")
    return len(devices) if isinstance(devices, list) else 0


def _find_cut_collectives(issued: IssuedCollectives) -> tuple[int, ...]:
    """Find the collectives of which the recording misses the start or the end.

    Returns their indices, ascending.
    """
    indices = []
    for index, collective in enumerate(issued.collectives):
        if collective.is_cut:
            indices.append(index)
    return tuple(indices)


def _collect_inferences(issued: IssuedCollectives) -> tuple[str, ...]:
    """Collect the sentences on what was inferred about the collectives, each once."""
    inferred: list[str] = []
    for collective in issued.collectives:
        inferred += collective.inferred
    return tuple(dict.fromkeys(inferred))


def _first_collectives(issued: IssuedCollectives) -> IssuedCollectives:
    """Return the first MAX_COLLECTIVES collectives."""
    columns = msgspec.structs.asdict(issued)
    first = {name: column[: model.MAX_COLLECTIVES] for name, column in columns.items()}
    return IssuedCollectives(**first)


def _list_groups(
    trace: Trace, issued: IssuedCollectives
) -> list[process_groups.ProcessGroup]:
    """List the process groups of the collectives, each once.

    If some collective names no group, the groups that the file lists are added.
    """
    groups = [collective.group for collective in issued.collectives]
    if process_groups.UNKNOWN_GROUP in groups:
        groups += process_groups.read_process_groups(trace.keys).values()
    return list(dict.fromkeys(groups))


def _describe_damage(trace: Trace, issued: IssuedCollectives) -> tuple[str, ...]:
    """Describe what is missing of a trace or wrong with it, one phrase for each.

    E.g. "3 of 120 events could not be read"; () if nothing is.
    """
    report = trace.report
    damage: list[str] = []
    if report.cut or report.missing:
        damage.append(report.cut or report.missing)
    if report.unreadable:
        damage.append(
            f"{report.unreadable} of {report.events} events could not be read"
        )
    if len(issued.rows) >= model.MAX_COLLECTIVES:
        damage.append(f"only its first {model.MAX_COLLECTIVES} collectives are used")

    processes = _count_launching_processes(trace)
    if processes > 1:
        damage.append(f"{processes} processes launched its work and count as one rank")
    return tuple(damage)


def _count_launching_processes(trace: Trace) -> int:
    """Count the processes that launched GPU work."""
    launches = trace.launch[trace.gpu_rows]
    tracks = distinct(trace.track[launches[launches >= 0]]).tolist()
    return len({trace.tracks[track].pid for track in tracks})


def _choose_device(trace: Trace) -> Device | None:
    """Choose the device whose account stands for the rank; None without a GPU.

    It is the device that communicates most often, judged by the first
    MAX_KERNELS_FOR_DEVICE kernels that communicate.
    """
    devices = Accounts(trace).devices
    rows = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    pids = [trace.track_of(int(row)).pid for row in rows[:MAX_KERNELS_FOR_DEVICE]]
    return max(devices, key=lambda device: pids.count(device.pid), default=None)


def _find_latest_ends_before(trace: Trace, issued: IssuedCollectives) -> Int64s:
    """Find when the collectives before each collective had ended.

    The time from there to its start, or to its issue, is what the rank did before it.

    Returns:
        For each collective the latest end of those that started earlier, but at most
        its own start; for the first one the begin of the trace. In ns of the trace.
    """
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    by_start = np.argsort(start, kind="stable")
    ends_before = np.concatenate(([trace.begin_ns], end[by_start][:-1]))

    # Without collectives there is still the begin of the trace, which is cut off.
    latest_ends = np.maximum.accumulate(ends_before)[: len(start)]
    ended_before = np.empty_like(start)
    ended_before[by_start] = np.minimum(latest_ends, start[by_start])
    return ended_before


def _make_account_table(accounts: Sequence[DeviceAccount]) -> Int64s:
    """Turn accounts into a table of ns, with a row for each account and a column for
    each class.

    An account says for how long a device computed, communicated or was idle. The
    columns are those of CLASSES. Returns an empty table for no accounts.
    """
    rows: list[list[int]] = []
    for account in accounts:
        row = []
        for name in model.CLASSES:
            # A class is either a field of the account or one of the kinds of idle time.
            idle_ns = account.idle.get(name, 0)
            row.append(getattr(account, f"{name}_ns", idle_ns))
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, len(model.CLASSES))


def _make_columns(
    trace: Trace,
    issued: IssuedCollectives,
    groups: Sequence[process_groups.ProcessGroup],
    names: Sequence[str],
    device: Device | None,
    ended_before: Int64s,
) -> model.Collectives:
    """Make the columns of the collectives, in the order in which they were issued.

    Args:
        trace: The trace.
        issued: The collectives.
        groups: The process groups, into which a column has indices.
        names: The names of collectives, likewise.
        device: The device of the rank. Without one all accounts are empty or 0.
        ended_before: The result of `_find_latest_ends_before`. The account from there to the
            start of each collective is kept.
    """
    index_of_group = {group: index for index, group in enumerate(groups)}
    index_of_name = {name: index for index, name in enumerate(names)}
    collectives = issued.collectives
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    ready = determine_ready_times(trace, issued)
    accounts_before = device.over(ended_before, start) if device else []
    return model.Collectives(
        group=_make_array(index_of_group[each.group] for each in collectives),
        name=_make_array(index_of_name[each.name] for each in collectives),
        sequence=_make_array(each.sequence for each in collectives),
        size=_make_array(each.bytes for each in collectives),
        peer=_make_array(each.peer for each in collectives),
        issued=issued.issued + trace.epoch_ns,
        start=start + trace.epoch_ns,
        end=end + trace.epoch_ns,
        covered=_measure_computed_ns(device, start, end),
        ready=ready + trace.epoch_ns,
        ahead=_measure_computed_ns(device, ready, start),
        stalled=_measure_stalls(trace, issued, ready),
        before=model.packed(_make_account_table(accounts_before)),
    )


def _measure_computed_ns(device: Device | None, begin: Int64s, end: Int64s) -> Int64s:
    """Measure for how long a device computed in each of some windows of time.

    Args:
        device: The device; without one, all times are 0.
        begin: The begin of each window, in ns of the file.
        end: The end of each window.

    Returns:
        ns per window.
    """
    if device is None:
        return np.zeros(len(begin), dtype=np.int64)
    return _make_array(account.compute_ns for account in device.over(begin, end))


def _make_array(numbers: Iterable[int]) -> Int64s:
    """Make an int64 array of some numbers, which may be none."""
    return np.array(list(numbers), dtype=np.int64)


MAX_QUEUED_GAP_NS = 10_000
"""A collective that starts so soon after another one on its stream ended was queued
there."""


def determine_ready_times(trace: Trace, issued: IssuedCollectives) -> Int64s:
    """Determine when each collective could have started, because its inputs were there.

    Usually that is its start. A collective that was queued behind another one on its
    stream, while compute went on, could have started when the last kernel that was
    launched before it had ended: one from 50 to 60 us behind an all-reduce, whose
    inputs a kernel computed until 42 us, was ready at 42 us. That kernel is looked for
    on the stream with the most compute.

    If one launch starts several kernels, as a CUDA graph does, their order is unknown
    and the start is taken; likewise if no kernel was launched between the two
    collectives.

    Returns:
        A time per collective, in ns of the file.
    """
    ready: Int64s = trace.start[issued.rows].copy()
    queued = _find_queued(trace, issued)
    compute = _find_launched_compute(trace)
    if not len(queued.collective) or not len(compute.launched):
        return ready

    # How many kernels that compute were launched before each collective.
    launched_before = np.searchsorted(compute.launched, issued.issued)
    kernels_before = launched_before[queued.collective]
    computed_between = kernels_before > launched_before[queued.behind]

    delayed = queued.collective[computed_between]
    inputs_end = compute.latest_end[kernels_before[computed_between] - 1]
    could_start = np.maximum(inputs_end, issued.issued[delayed])
    ready[delayed] = np.minimum(ready[delayed], could_start)
    return ready


class _LaunchedCompute(msgspec.Struct, frozen=True, eq=False):
    """The kernels that compute on one stream, in the order of their launches.

    Times are ns of the file, one per kernel.
    """

    launched: Int64s
    latest_end: Int64s  # of the kernels up to this one


def _find_launched_compute(trace: Trace) -> _LaunchedCompute:
    """Return the kernels that compute, on the stream on which they take the most time.

    Kernels whose launch is unknown are left out.
    """
    kernels = trace.rows_of(Role.KERNEL)
    is_launched = trace.launch[kernels] >= 0
    computes = kernels[~communicates(trace, kernels) & is_launched]
    if len(computes):
        track = trace.track[computes]
        busy_ns = summed(track, trace.dur[computes], len(trace.tracks))
        computes = computes[track == np.argmax(busy_ns)]

    launched = trace.start[trace.launch[computes]]
    by_launch = np.argsort(launched, kind="stable")
    return _LaunchedCompute(
        launched=launched[by_launch],
        latest_end=np.maximum.accumulate(trace.end[computes[by_launch]]),
    )


class _Queued(msgspec.Struct, frozen=True, eq=False):
    """Collectives that were queued behind another one, by index.

    Each of them has a launch of its own.
    """

    collective: Rows
    behind: Rows  # the collective before it on its stream


def _find_queued(trace: Trace, issued: IssuedCollectives) -> _Queued:
    """Find the collectives that were queued behind another one on their stream.

    They start at most MAX_QUEUED_GAP_NS after the end of the one before, and the call
    that launched them launched nothing else.
    """
    track = trace.track[issued.rows]
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]

    # Each collective with its predecessor, which counts if it is on the same track.
    in_order = np.lexsort((start, track))
    collective = in_order[1:]
    behind = in_order[:-1]
    is_same_track = track[collective] == track[behind]

    gap_ns = start[collective] - end[behind]
    follows = is_same_track & (gap_ns >= 0) & (gap_ns <= MAX_QUEUED_GAP_NS)
    is_queued = follows & _has_own_launch(trace, issued)[collective]
    return _Queued(collective=collective[is_queued], behind=behind[is_queued])


def _has_own_launch(trace: Trace, issued: IssuedCollectives) -> Flags:
    """Mark the collectives that were launched by a call that launched nothing else."""
    launch = trace.launch[trace.gpu_rows]
    launched_by_call = np.bincount(launch[launch >= 0], minlength=len(trace.start))
    is_launched = trace.launch[issued.rows] >= 0

    # Without an issuer (-1) there was no launch, so any call may stand in.
    call = np.maximum(issued.issuer, 0)
    return np.asarray(is_launched & (launched_by_call[call] == 1))


RESUMED_NS = 5_000
"""Compute that resumes so shortly before the recorded end of a collective resumes
because of it: recorded times are rounded, and programmatic launches begin before the
kernel ahead has ended."""


def _measure_stalls(trace: Trace, issued: IssuedCollectives, ready: Int64s) -> Int64s:
    """Measure how long compute may have waited for the result of each collective.

    It is the time up to its end in which the collective was ready and no kernel
    computed.

    Args:
        trace: The trace.
        issued: The collectives.
        ready: When each of them was ready.

    Returns:
        ns per collective.
    """
    end = trace.end[issued.rows]
    kernels = trace.rows_of(Role.KERNEL)
    computes = kernels[~communicates(trace, kernels)]
    if not len(computes):
        return end - ready

    # The latest end of all kernels that started before compute could resume.
    by_start = computes[np.argsort(trace.start[computes], kind="stable")]
    latest_ends = np.maximum.accumulate(trace.end[by_start])
    kernels_before = np.searchsorted(trace.start[by_start], end - RESUMED_NS)
    latest_end = latest_ends[np.maximum(kernels_before - 1, 0)]
    computed_until = np.where(kernels_before > 0, latest_end, ready)

    stalled: Int64s = end - np.clip(computed_until, ready, end)
    return stalled


def _sum_kernel_runs(trace: Trace) -> tuple[model.KernelRuns, ...]:
    """Add up the runs of the kernels of each name.

    Returns:
        The MAX_KERNEL_NAMES names with the longest totals, the longest first.
    """
    rows = trace.rows_of(Role.KERNEL)
    name_of_row = trace.name[rows]
    counts = np.bincount(name_of_row, minlength=len(trace.names))
    total_ns = summed(name_of_row, trace.dur[rows], len(trace.names))

    # Assign backwards, so that the first row of each name is assigned last and stays.
    first_row = np.zeros(len(trace.names), dtype=np.intp)
    first_row[name_of_row[::-1]] = rows[::-1]

    longest_first = np.argsort(-total_ns, kind="stable")
    kept_names = min(model.MAX_KERNEL_NAMES, np.count_nonzero(counts))
    names = longest_first[:kept_names].tolist()
    communicates_flags = communicates(trace, first_row[names]).tolist()
    kernels = []
    for name, name_communicates in zip(names, communicates_flags, strict=True):
        kernel = model.KernelRuns(
            name=trace.names[name][:MAX_KERNEL_CHARACTERS],
            count=int(counts[name]),
            total_ns=int(total_ns[name]),
            communicates=name_communicates,
        )
        kernels.append(kernel)
    return tuple(kernels)
