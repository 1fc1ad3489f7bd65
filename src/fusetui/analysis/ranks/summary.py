"""Creates the summary of a rank from its trace.

A summary is a pure function of what lies at a path or URL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions import process_groups
from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.collectives import IssuedCollectives, find_collectives
from fusetui.analysis.questions.memory import find_memory_peaks
from fusetui.analysis.questions.note import note_of
from fusetui.analysis.questions.process_groups import infer_rank
from fusetui.analysis.ranks import model
from fusetui.analysis.ranks.code_regions import measure_regions_before_collectives
from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace.cache import CacheRecord, record_for
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.ids import Id

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
        trace = open_trace(path, cached=False, alone=True)
        summary = extract_summary(trace, path)
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
    try:
        kept_summary = record.load(KeptSummary)
        if kept_summary is None:
            return None
        summary = model.decode_summary(kept_summary.data)
    except msgspec.MsgspecError:
        return None  # a record that is damaged or of another version counts as missing
    return msgspec.structs.replace(summary, path=path)


def extract_summary(trace: Trace, path: str) -> model.RankSummary:
    """Extract from the trace of a rank all that is compared between ranks.

    Times of a trace count from its base (`epoch_ns`), those of the summary from 1970,
    so that ranks can be compared.

    Args:
        trace: The trace.
        path: Where it lies.
    """
    issued = _keep_first_collectives(find_collectives(trace))
    groups = _list_groups(trace, issued)
    names = list(dict.fromkeys(collective.name for collective in issued.collectives))
    ended_before = _find_latest_ends_before(trace, issued)

    device = _choose_device(trace)
    device_number = model.NO_DEVICE
    device_name = ""
    if device is not None:
        device_name = device.axis.identities[device.index_on_axis].name
        if isinstance(device.pid, int):
            device_number = device.pid

    steps = steps_of(trace)
    step_accounts: Sequence[DeviceAccount] = []
    if device is not None and len(steps):
        step_accounts = device.account_for_windows(steps.start, steps.end)
    whole_account = [device.span] if device is not None else []

    rank, rank_by = infer_rank(trace.keys, path)
    peaks = [peak.allocated for peak in find_memory_peaks(trace).peaks]
    return model.RankSummary(
        version=model.VERSION,
        path=path,
        rank=rank,
        rank_by=rank_by,
        world_size=process_groups.read_world_size(trace.keys),
        host=_read_machine_name(trace),
        devices=_count_devices(trace),
        device=device_number,
        device_name=device_name,
        begin_ns=trace.begin_ns + trace.epoch_ns,
        end_ns=trace.end_ns + trace.epoch_ns,
        steps=tuple(trace.name_of(row) for row in steps.rows.tolist()),
        step_start=steps.start + trace.epoch_ns,
        step_end=steps.end + trace.epoch_ns,
        accounts=_make_account_table(step_accounts),
        account=_make_account_table(whole_account).reshape(-1),
        kernels=_sum_kernel_runs(trace),
        groups=tuple(groups),
        names=tuple(names),
        collectives=_make_columns(trace, issued, groups, names, device, ended_before),
        cut=_find_cut_collectives(issued),
        regions=measure_regions_before_collectives(trace, issued, ended_before),
        memory_peak=max(peaks, default=model.UNKNOWN_BYTES),
        note=note_of(trace),
        inferred=_collect_inferences(issued),
        damage=_describe_damage(trace, issued),
    )


def _read_machine_name(trace: Trace) -> str:
    """Read the name of the machine from a trace; "" if the file has none.

    It is cut after MAX_HOST_CHARACTERS.
    """
    name = trace.keys.get("host_name")
    if not isinstance(name, str):
        return ""
    return name[:MAX_HOST_CHARACTERS]


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


def _keep_first_collectives(issued: IssuedCollectives) -> IssuedCollectives:
    """Return the first MAX_COLLECTIVES collectives."""
    return IssuedCollectives(
        rows=issued.rows[: model.MAX_COLLECTIVES],
        issuer=issued.issuer[: model.MAX_COLLECTIVES],
        issued=issued.issued[: model.MAX_COLLECTIVES],
        collectives=issued.collectives[: model.MAX_COLLECTIVES],
    )


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
    what_is_missing = report.cut or report.missing
    if what_is_missing:
        damage.append(what_is_missing)
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
    launch = trace.launch[trace.gpu_rows]
    has_launch = launch != NO_ROW
    launching_calls = launch[has_launch]
    launching_tracks = distinct(trace.track[launching_calls]).tolist()
    pids = {trace.tracks[track].pid for track in launching_tracks}
    return len(pids)


def _choose_device(trace: Trace) -> Device | None:
    """Choose the device whose account stands for the rank; None without a GPU.

    It is the device that communicates most often, judged by the first
    MAX_KERNELS_FOR_DEVICE kernels that communicate. Of equals it is the first one.
    """
    is_communication = communicates(trace, trace.gpu_rows)
    rows = trace.gpu_rows[is_communication]
    kernels_of_pid: Counter[Id] = Counter()
    for row in rows[:MAX_KERNELS_FOR_DEVICE].tolist():
        kernels_of_pid[trace.track_of(row).pid] += 1

    devices = Accounts(trace).devices
    return max(devices, key=lambda device: kernels_of_pid[device.pid], default=None)


def _find_latest_ends_before(trace: Trace, issued: IssuedCollectives) -> Int64s:
    """Find when the collectives before each collective had ended.

    The time from there to its start, or to its issue, is what the rank did before it.
    E.g. for collectives from 2 to 9, from 5 to 7 and from 20 to 30 us, in a trace that
    begins at 0: 0, 5 and 9 us.

    Returns:
        For each collective the latest end of those that started earlier, but at most
        its own start; for the first one the begin of the trace. In ns of the trace.
    """
    start = trace.start[issued.rows]
    by_start = np.argsort(start, kind="stable")
    sorted_end = trace.end[issued.rows][by_start]
    sorted_start = start[by_start]

    # Before the first collective, the trace begins; before the n-th, n - 1 have ended.
    latest_end = np.maximum.accumulate(np.append(trace.begin_ns, sorted_end))
    latest_end_before = latest_end[:-1]
    ended_before = np.empty_like(start)
    ended_before[by_start] = np.minimum(latest_end_before, sorted_start)
    return ended_before


def _make_account_table(accounts: Sequence[DeviceAccount]) -> Int64s:
    """Turn accounts into a table of ns, with a row for each account and a column for
    each class.

    An account says for how long a device computed, communicated or was idle. The
    columns are those of CLASSES. Returns an empty table for no accounts.
    """
    table = np.zeros((len(accounts), len(model.CLASSES)), dtype=np.int64)
    for row, account in enumerate(accounts):
        ns_of_class = {
            "span": account.span_ns,
            "compute": account.compute_ns,
            "exposed_comm": account.exposed_comm_ns,
            "exposed_copy": account.exposed_copy_ns,
            "idle": account.idle_ns,
            **account.idle,  # the kinds of idle time that occurred
        }
        for column, name in enumerate(model.CLASSES):
            table[row, column] = ns_of_class.get(name, 0)
    return table


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
        ended_before: When the collectives before each one had ended. The account from
            there to the start of each collective is kept.
    """
    index_of_group = {group: index for index, group in enumerate(groups)}
    index_of_name = {name: index for index, name in enumerate(names)}
    collectives = issued.collectives
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    ready = determine_ready_times(trace, issued)
    accounts_before = (
        device.account_for_windows(ended_before, start) if device is not None else []
    )
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
        before=model.pack_table(_make_account_table(accounts_before)),
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
    return _make_array(
        account.compute_ns for account in device.account_for_windows(begin, end)
    )


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

    # How many kernels that compute were launched before each collective. Those that
    # were launched after the collective ahead of it computed its inputs.
    kernels_before = np.searchsorted(compute.launched, issued.issued)
    has_inputs = kernels_before[queued.collective] > kernels_before[queued.behind]
    collective = queued.collective[has_inputs]

    # It cannot start before it was issued, and it did start as recorded.
    last_kernel = kernels_before[collective] - 1
    inputs_end = compute.latest_end[last_kernel]
    could_start = np.maximum(inputs_end, issued.issued[collective])
    ready[collective] = np.minimum(ready[collective], could_start)
    return ready


class _LaunchedCompute(msgspec.Struct, frozen=True, eq=False):
    """The kernels that compute on one stream, in the order of their launches.

    Times are ns of the file, one per kernel.
    """

    launched: Int64s
    latest_end: Int64s  # of the kernels up to this one


def _find_launched_compute(trace: Trace) -> _LaunchedCompute:
    """Find the kernels that compute, on the stream on which they take the most time.

    They are in the order of their launches. Kernels whose launch is unknown are left
    out.
    """
    kernels = trace.rows_of(Role.KERNEL)
    has_launch = trace.launch[kernels] != NO_ROW
    computing = kernels[~communicates(trace, kernels) & has_launch]

    if len(computing):
        track = trace.track[computing]
        busy_ns = summed(track, trace.dur[computing], len(trace.tracks))
        busiest_track = np.argmax(busy_ns)
        computing = computing[track == busiest_track]

    launch_calls = trace.launch[computing]
    launched = trace.start[launch_calls]
    by_launch = np.argsort(launched, kind="stable")
    sorted_end = trace.end[computing][by_launch]
    return _LaunchedCompute(
        launched=launched[by_launch], latest_end=np.maximum.accumulate(sorted_end)
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

    # Pair each collective with the one before it, which may be on another track.
    by_track_and_start = np.lexsort((start, track))
    collective = by_track_and_start[1:]
    behind = by_track_and_start[:-1]
    is_same_track = track[collective] == track[behind]

    gap_ns = start[collective] - end[behind]
    is_small_gap = (gap_ns >= 0) & (gap_ns <= MAX_QUEUED_GAP_NS)
    has_own_launch = _has_own_launch(trace, issued)[collective]
    is_queued = is_same_track & is_small_gap & has_own_launch
    return _Queued(collective=collective[is_queued], behind=behind[is_queued])


def _has_own_launch(trace: Trace, issued: IssuedCollectives) -> Flags:
    """Mark the collectives that were launched by a call that launched nothing else."""
    launch = trace.launch[trace.gpu_rows]
    known_launches = launch[launch != NO_ROW]
    events_of_call = np.bincount(known_launches, minlength=len(trace.start))

    has_issuer = issued.issuer != NO_ROW
    is_launched = trace.launch[issued.rows] != NO_ROW

    known_issuers = issued.issuer[has_issuer]
    launches_one_event = np.zeros(len(issued.rows), dtype=np.bool_)
    launches_one_event[has_issuer] = events_of_call[known_issuers] == 1
    return np.asarray(is_launched & launches_one_event)


RESUMED_NS = 5_000
"""Compute that resumes so shortly before the recorded end of a collective resumes
because of it: recorded times are rounded, and programmatic launches begin before the
kernel ahead has ended."""


def _measure_stalls(trace: Trace, issued: IssuedCollectives, ready: Int64s) -> Int64s:
    """Measure how long compute may have waited for the result of each collective.

    It is the time up to its end in which the collective was ready and no kernel
    computed: 15 us for one that was ready at 10 us and ended at 50 us, if the last
    kernel before ended at 35 us.

    Args:
        trace: The trace.
        issued: The collectives.
        ready: When each of them was ready.

    Returns:
        ns per collective.
    """
    end = trace.end[issued.rows]
    kernels = trace.rows_of(Role.KERNEL)
    computing = kernels[~communicates(trace, kernels)]

    # The latest end of all kernels that started before compute could resume.
    by_start = computing[np.argsort(trace.start[computing], kind="stable")]
    latest_end_so_far = np.maximum.accumulate(trace.end[by_start])
    resumes_at = end - RESUMED_NS
    kernels_before = np.searchsorted(trace.start[by_start], resumes_at)
    has_kernel_before = kernels_before > 0

    computed_until = ready.copy()
    last_kernel = kernels_before[has_kernel_before] - 1
    computed_until[has_kernel_before] = latest_end_so_far[last_kernel]
    stalled_ns: Int64s = end - np.clip(computed_until, ready, end)
    return stalled_ns


def _sum_kernel_runs(trace: Trace) -> tuple[model.KernelRuns, ...]:
    """Add up the runs of the kernels of each name.

    Returns:
        The MAX_KERNEL_NAMES names with the longest totals, the longest first.
    """
    rows = trace.rows_of(Role.KERNEL)
    by_name = grouped(trace.name[rows])
    counts = by_name.counts
    total_ns = by_name.sums(trace.dur[rows])
    # All kernels of a name communicate, or none does.
    is_communication = communicates(trace, rows[by_name.first])

    longest_first = np.argsort(-total_ns, kind="stable")
    kernels = []
    for index in longest_first[: model.MAX_KERNEL_NAMES].tolist():
        name = trace.names[by_name.keys[index]]
        kernel = model.KernelRuns(
            name=name[:MAX_KERNEL_CHARACTERS],
            count=int(counts[index]),
            total_ns=int(total_ns[index]),
            communicates=bool(is_communication[index]),
        )
        kernels.append(kernel)
    return tuple(kernels)
