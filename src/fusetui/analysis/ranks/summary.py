"""A trace -> the summary of its rank: a pure function of what lies at a path or URL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from fusetui.analysis.questions import process_groups
from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.collectives import IssuedCollectives, collectives_of
from fusetui.analysis.questions.memory import memory_peaks
from fusetui.analysis.questions.note import note_of
from fusetui.analysis.questions.process_groups import rank_of
from fusetui.analysis.ranks import model
from fusetui.analysis.ranks.places import places_before
from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace.cache import CacheRecord, record_for
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError

KEPT_AS = "ranks"
MAX_HOST_CHARACTERS = 200
MAX_KERNEL_CHARACTERS = 400
MAX_KERNELS_FOR_DEVICE = 1000
"""So many kernels that communicate decide whose device is the rank's."""


class KeptSummary(msgspec.Struct, frozen=True):
    """A summary as it lies in the cache."""

    data: bytes


def summary_of(path: str, cached: bool = True) -> model.RankSummary | model.LeftOut:
    """The summary of the trace at a path or URL; a second time it is read from the
    cache."""
    record = record_for(path, KEPT_AS) if cached else None
    known = _kept(record, path)
    if known is not None:
        return known
    try:
        summary = summarized(open_trace(path, cached=False, alone=True), path)
    except TraceError as error:
        return model.LeftOut(path, None, str(error))
    if record is not None:
        record.store(KeptSummary(model.encoded(summary)))
    return summary


def known_summary(path: str) -> model.RankSummary | None:
    """The summary from the cache, None if it is not there."""
    return _kept(record_for(path, KEPT_AS), path)


def _kept(record: CacheRecord | None, path: str) -> model.RankSummary | None:
    if record is None:
        return None
    with suppress(msgspec.MsgspecError):
        kept = record.load(KeptSummary)
        if kept is not None:
            return msgspec.structs.replace(model.decoded(kept.data), path=path)
    return None


def summarized(trace: Trace, path: str) -> model.RankSummary:
    """The summary of an open trace; `path` is where it lies."""
    issued = _first_collectives(collectives_of(trace))
    device = _device(trace)
    spans = steps_of(trace)
    epoch_ns = trace.epoch_ns
    has_step_accounts = device is not None and len(spans) > 0
    steps = device.over(spans.start, spans.end) if device and has_step_accounts else []
    groups = _groups(trace, issued)
    names = list(dict.fromkeys(one.name for one in issued.told))
    begin = _begin_before(trace, issued)
    devices = trace.keys.get("deviceProperties")
    host = trace.keys.get("host_name")
    rank, rank_by = rank_of(trace.keys, path)
    peaks = [peak.allocated for peak in memory_peaks(trace).peaks]
    inferred = [what for one in issued.told for what in one.inferred]
    return model.RankSummary(
        version=model.VERSION,
        path=path,
        rank=rank,
        rank_by=rank_by,
        world_size=process_groups.world_size(trace.keys),
        host=host[:MAX_HOST_CHARACTERS] if isinstance(host, str) else "",
        devices=len(devices) if isinstance(devices, list) else 0,
        device=device.pid if device and isinstance(device.pid, int) else -1,
        device_name=device.line.named[device.number].name if device else "",
        begin_ns=trace.begin_ns + epoch_ns,
        end_ns=trace.end_ns + epoch_ns,
        steps=tuple(map(trace.name_of, spans.rows.tolist())),
        step_start=spans.start + epoch_ns,
        step_end=spans.end + epoch_ns,
        accounts=_table(steps),
        account=_table([device.span] if device else []).reshape(-1),
        kernels=_kernels(trace),
        groups=tuple(groups),
        names=tuple(names),
        collectives=_columns(trace, issued, groups, names, device, begin),
        cut=tuple(number for number, one in enumerate(issued.told) if one.is_cut),
        places=places_before(trace, issued, begin),
        memory_peak=max(peaks, default=-1),
        note=note_of(trace),
        inferred=tuple(dict.fromkeys(inferred)),
        damage=_damage(trace, issued),
    )


def _first_collectives(issued: IssuedCollectives) -> IssuedCollectives:
    """At most MOST_COLLECTIVES."""
    columns = msgspec.structs.asdict(issued)
    first = {name: column[: model.MOST_COLLECTIVES] for name, column in columns.items()}
    return IssuedCollectives(**first)


def _groups(
    trace: Trace, issued: IssuedCollectives
) -> list[process_groups.ProcessGroup]:
    """The process groups of the collectives; where some name none, also those that the
    file lists."""
    groups = [one.group for one in issued.told]
    if process_groups.UNKNOWN_GROUP in groups:
        groups += process_groups.groups_of_file(trace.keys).values()
    return list(dict.fromkeys(groups))


def _damage(trace: Trace, issued: IssuedCollectives) -> tuple[str, ...]:
    """What is missing of the file; sentences."""
    report = trace.report
    damage: list[str] = []
    if report.cut or report.missing:
        damage.append(report.cut or report.missing)
    if report.unreadable:
        damage.append(
            f"{report.unreadable} of {report.events} events could not be read"
        )
    if len(issued.rows) >= model.MOST_COLLECTIVES:
        damage.append(f"only its first {model.MOST_COLLECTIVES} collectives are used")
    processes = _launching_processes(trace)
    if processes > 1:
        damage.append(
            f"{processes} processes launched its work and are taken for one rank"
        )
    return tuple(damage)


def _launching_processes(trace: Trace) -> int:
    calls = trace.launch[trace.gpu_rows]
    tracks = np.unique(trace.track[calls[calls >= 0]]).tolist()
    return len({trace.tracks[number].pid for number in tracks})


def _device(trace: Trace) -> Device | None:
    """The device whose account is the rank's: the one that communicates most often."""
    devices = Accounts(trace).devices
    rows = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    pids = [trace.track_of(int(row)).pid for row in rows[:MAX_KERNELS_FOR_DEVICE]]
    return max(devices, key=lambda device: pids.count(device.pid), default=None)


def _begin_before(trace: Trace, issued: IssuedCollectives) -> Int64s:
    """For each collective, when those that started earlier had ended, but not after its
    start."""
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    order = np.argsort(start, kind="stable")
    ends_before = np.concatenate(([trace.begin_ns], end[order][:-1]))
    latest = np.maximum.accumulate(ends_before)
    begin = np.empty_like(start)
    begin[order] = np.minimum(latest[: len(order)], start[order])
    return begin


def _table(accounts: Sequence[DeviceAccount]) -> Int64s:
    """Accounts as rows of CLASSES."""
    rows: list[list[int]] = []
    for account in accounts:
        row = []
        for name in model.CLASSES:
            idle_ns = account.idle.get(name, 0)
            row.append(getattr(account, f"{name}_ns", idle_ns))
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, len(model.CLASSES))


def _columns(
    trace: Trace,
    issued: IssuedCollectives,
    groups: Sequence[process_groups.ProcessGroup],
    names: Sequence[str],
    device: Device | None,
    begin: Int64s,
) -> model.Collectives:
    """`begin`: of the time before each, whose account is kept."""
    number_of_group = {group: number for number, group in enumerate(groups)}
    number_of_name = {name: number for number, name in enumerate(names)}
    told = issued.told
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    ready = ready_of(trace, issued)
    covered = np.zeros(len(start), dtype=np.int64)
    ahead = np.zeros(len(start), dtype=np.int64)
    before: Sequence[DeviceAccount] = []
    if device:
        covered[:] = [account.compute_ns for account in device.over(start, end)]
        ahead[:] = [account.compute_ns for account in device.over(ready, start)]
        before = device.over(begin, start)
    return model.Collectives(
        group=_column(number_of_group[one.group] for one in told),
        name=_column(number_of_name[one.name] for one in told),
        sequence=_column(one.sequence for one in told),
        size=_column(one.bytes for one in told),
        peer=_column(one.peer for one in told),
        issued=issued.issued + trace.epoch_ns,
        start=start + trace.epoch_ns,
        end=end + trace.epoch_ns,
        covered=covered,
        ready=ready + trace.epoch_ns,
        ahead=ahead,
        stalled=_stalled(trace, issued, ready),
        before=model.packed(_table(before)),
    )


def _column(numbers: Iterable[int]) -> Int64s:
    return np.array(list(numbers), dtype=np.int64)


QUEUED_NS = 10_000
"""A collective that starts so soon after another one on its stream ended was queued
there."""


def ready_of(trace: Trace, issued: IssuedCollectives) -> Int64s:
    """When each collective could have started, in ns of the file: its start, or where
    it was queued behind another one on its stream while compute went on, the end of the
    last kernel that was launched before it on the stream with the most compute. Arrays
    of shape [collectives].

    Where one launch starts several kernels, as a CUDA graph does, their order is not
    known, and ready is the start; also where no kernel was launched between the two
    collectives."""
    ready: Int64s = trace.start[issued.rows].copy()
    queued = _queued(trace, issued)
    kernels = trace.rows_of(Role.KERNEL)
    is_launched = trace.launch[kernels] >= 0
    computes = kernels[~communicates(trace, kernels) & is_launched]
    if not len(queued.collective) or not len(computes):
        return ready
    busy_ns = summed(trace.track[computes], trace.dur[computes], len(trace.tracks))
    computes = computes[trace.track[computes] == np.argmax(busy_ns)]
    launched = trace.start[trace.launch[computes]]
    order = np.argsort(launched, kind="stable")
    ends = np.maximum.accumulate(trace.end[computes[order]])
    kernels_before = np.searchsorted(launched[order], issued.issued)
    until_queued = kernels_before[queued.collective]
    computed_between = until_queued > kernels_before[queued.behind]
    late = queued.collective[computed_between]
    inputs_end = ends[until_queued[computed_between] - 1]
    could_start = np.maximum(inputs_end, issued.issued[late])
    ready[late] = np.minimum(ready[late], could_start)
    return ready


class _Queued(msgspec.Struct, frozen=True, eq=False):
    """Collectives that have a launch of their own and were queued behind another one;
    arrays of shape [n], numbers of collectives."""

    collective: Rows
    behind: Rows


def _queued(trace: Trace, issued: IssuedCollectives) -> _Queued:
    track = trace.track[issued.rows]
    start = trace.start[issued.rows]
    end = trace.end[issued.rows]
    order = np.lexsort((start, track))
    collective = order[1:]
    behind = order[:-1]
    since_ns = start[collective] - end[behind]
    is_same_track = track[collective] == track[behind]
    follows = is_same_track & (since_ns >= 0) & (since_ns <= QUEUED_NS)
    collective = collective[follows]
    behind = behind[follows]
    launches = trace.launch[trace.gpu_rows]
    started_by = np.bincount(launches[launches >= 0], minlength=len(trace.start))
    call = np.maximum(issued.issuer[collective], 0)
    is_on_gpu = trace.launch[issued.rows[collective]] >= 0
    has_own_launch = is_on_gpu & (started_by[call] == 1)
    return _Queued(collective=collective[has_own_launch], behind=behind[has_own_launch])


RESUMED_NS = 5_000
"""Compute that resumes so shortly before the recorded end of a collective resumes
because of it: recorded times are rounded, and programmatic launches begin before the
kernel ahead has ended."""


def _stalled(trace: Trace, issued: IssuedCollectives, ready: Int64s) -> Int64s:
    """For how many ns before the end of each collective, and since it was ready, no
    kernel that computes ran: at most so long its inputs' consumers can have waited for
    it."""
    end = trace.end[issued.rows]
    kernels = trace.rows_of(Role.KERNEL)
    computes = kernels[~communicates(trace, kernels)]
    if not len(computes):
        return end - ready
    order = np.argsort(trace.start[computes], kind="stable")
    starts = trace.start[computes[order]]
    ends = np.maximum.accumulate(trace.end[computes[order]])
    kernels_before = np.searchsorted(starts, end - RESUMED_NS)
    last_end = ends[np.maximum(kernels_before - 1, 0)]
    computed_until = np.where(kernels_before > 0, last_end, ready)
    stalled: Int64s = end - np.clip(computed_until, ready, end)
    return stalled


def _kernels(trace: Trace) -> tuple[model.KernelRuns, ...]:
    """The names with the longest totals."""
    rows = trace.rows_of(Role.KERNEL)
    counts = np.bincount(trace.name[rows], minlength=len(trace.names))
    total_ns = summed(trace.name[rows], trace.dur[rows], len(trace.names))
    first_row = np.zeros(len(trace.names), dtype=np.intp)
    first_row[trace.name[rows[::-1]]] = rows[::-1]
    longest_first = np.argsort(-total_ns, kind="stable")
    names = longest_first[: min(model.MOST_KERNELS, np.count_nonzero(counts))]
    is_communication = communicates(trace, first_row[names])
    kernels: list[model.KernelRuns] = []
    for name, moves in zip(names.tolist(), is_communication.tolist(), strict=True):
        kernel = model.KernelRuns(
            name=trace.names[name][:MAX_KERNEL_CHARACTERS],
            count=int(counts[name]),
            total_ns=int(total_ns[name]),
            communicates=moves,
        )
        kernels.append(kernel)
    return tuple(kernels)
