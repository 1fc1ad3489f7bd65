"""A trace -> the summary of its rank: a pure function of what lies at a path or URL.
Part of it is what the issuing thread was doing before each collective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions import process_groups
from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.chain import rows_between
from fusetui.analysis.questions.collectives import IssuedCollectives, collectives_of
from fusetui.analysis.questions.memory import memory_peaks
from fusetui.analysis.questions.note import note_of
from fusetui.analysis.questions.process_groups import rank_of
from fusetui.analysis.ranks import model
from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace.cache import CacheRecord, record_for
from fusetui.trace.layout.steps import main_thread, steps_of
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.categories import STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.errors import TraceError

KEPT_AS = "ranks"


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
        found = summarized(open_trace(path, cached=False, alone=True), path)
    except TraceError as error:
        return model.LeftOut(path, None, str(error))
    if record is not None:
        record.store(KeptSummary(model.encoded(found)))
    return found


def known_summary(path: str) -> model.RankSummary | None:
    """The summary from the cache, None if it is not there."""
    return _kept(record_for(path, KEPT_AS), path)


def _kept(record: CacheRecord | None, path: str) -> model.RankSummary | None:
    with suppress(msgspec.MsgspecError):
        if record is not None and (kept := record.load(KeptSummary)) is not None:
            return msgspec.structs.replace(model.decoded(kept.data), path=path)
    return None


def summarized(trace: Trace, path: str) -> model.RankSummary:
    """The summary of an open trace; `path` is where it lies."""
    found = collectives_of(trace)
    most = slice(model.MOST_COLLECTIVES)
    found = IssuedCollectives(
        *(column[most] for column in msgspec.structs.astuple(found))
    )
    device, spans, base = _device(trace), steps_of(trace), trace.epoch_ns
    steps = device.over(spans.start, spans.end) if device and len(spans) else []
    groups = list(dict.fromkeys(one.group for one in found.told))
    if process_groups.UNKNOWN_GROUP in groups:
        of_file = process_groups.groups_of_file(trace.keys).values()
        groups = list(dict.fromkeys((*groups, *of_file)))
    names = list(dict.fromkeys(one.name for one in found.told))
    begin = _before(trace, found)
    listed, host = trace.keys.get("deviceProperties"), trace.keys.get("host_name")
    rank, rank_by = rank_of(trace.keys, path)
    report, all_used = trace.report, len(found.rows) < model.MOST_COLLECTIVES
    lost = f"{report.unreadable} of {report.events} events could not be read"
    damage = (
        report.cut or report.missing,
        lost if report.unreadable else "",
        ""
        if all_used
        else f"only its first {model.MOST_COLLECTIVES} collectives are used",
        _several_processes(trace),
    )
    return model.RankSummary(
        version=model.VERSION,
        path=path,
        rank=rank,
        rank_by=rank_by,
        world_size=process_groups.world_size(trace.keys),
        host=host[:200] if isinstance(host, str) else "",
        devices=len(listed) if isinstance(listed, list) else 0,
        device=device.pid if device and isinstance(device.pid, int) else -1,
        device_name=device.line.named[device.number].name if device else "",
        begin_ns=trace.begin_ns + base,
        end_ns=trace.end_ns + base,
        steps=tuple(map(trace.name_of, spans.rows.tolist())),
        step_start=spans.start + base,
        step_end=spans.end + base,
        accounts=_table(steps),
        account=_table([device.span] if device else []).reshape(-1),
        kernels=_kernels(trace),
        groups=tuple(groups),
        names=tuple(names),
        collectives=_columns(trace, found, groups, names, device, begin),
        cut=tuple(number for number, one in enumerate(found.told) if one.is_cut),
        places=places_before(trace, found, begin),
        memory_peak=max(
            (peak.allocated for peak in memory_peaks(trace).peaks), default=-1
        ),
        note=note_of(trace),
        inferred=tuple(
            dict.fromkeys(what for one in found.told for what in one.inferred)
        ),
        damage=tuple(filter(None, damage)),
    )


def _several_processes(trace: Trace) -> str:
    calls = trace.launch[trace.gpu_rows]
    tracks = np.unique(trace.track[calls[calls >= 0]]).tolist()
    count = len({trace.tracks[number].pid for number in tracks})
    return (
        f"{count} processes launched its work and are taken for one rank"
        if count > 1
        else ""
    )


def _device(trace: Trace) -> Device | None:
    """The device whose account is the rank's: the one that communicates most often."""
    devices = Accounts(trace).devices
    rows = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    pids = [trace.track_of(int(row)).pid for row in rows[:1000]]
    return max(devices, key=lambda device: pids.count(device.pid), default=None)


def _before(trace: Trace, found: IssuedCollectives) -> Int64s:
    """For each collective, when those that started earlier had ended, but not after its
    start."""
    start, end = trace.start[found.rows], trace.end[found.rows]
    order = np.argsort(start, kind="stable")
    latest = np.maximum.accumulate(np.concatenate(([trace.begin_ns], end[order][:-1])))
    begin = np.empty_like(start)
    begin[order] = np.minimum(latest[: len(order)], start[order])
    return begin


def _table(found: Sequence[DeviceAccount]) -> Int64s:
    """Accounts as rows of CLASSES."""
    rows = [
        [getattr(one, f"{name}_ns", one.idle.get(name, 0)) for name in model.CLASSES]
        for one in found
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(model.CLASSES))


def _columns(
    trace: Trace,
    found: IssuedCollectives,
    groups: Sequence[process_groups.ProcessGroup],
    names: Sequence[str],
    device: Device | None,
    begin: Int64s,
) -> model.Collectives:
    """`begin`: of the time before each, whose account is kept."""
    group, name = (
        {value: n for n, value in enumerate(values)} for values in (groups, names)
    )
    rows = [
        (group[one.group], name[one.name], one.sequence, one.bytes, one.peer)
        for one in found.told
    ]
    start, end, base = trace.start[found.rows], trace.end[found.rows], trace.epoch_ns
    ready = ready_of(trace, found)
    covered, ahead = np.zeros((2, len(start)), dtype=np.int64)
    if device:
        covered[:] = [one.compute_ns for one in device.over(start, end)]
        ahead[:] = [one.compute_ns for one in device.over(ready, start)]
    stalled = _stalled(trace, found, ready)
    fields = ("group", "name", "sequence", "size", "peer")
    told = np.array(rows, dtype=np.int64).reshape(-1, len(fields)).T.copy()
    return model.Collectives(
        **dict(zip(fields, told, strict=True)),
        issued=found.issued + base,
        start=start + base,
        end=end + base,
        covered=covered,
        ready=ready + base,
        ahead=ahead,
        stalled=stalled,
        before=model.packed(_table(device.over(begin, start) if device else [])),
    )


QUEUED_NS = 10_000
"""A collective that starts so soon after another one on its stream ended was queued
there."""


def ready_of(trace: Trace, found: IssuedCollectives) -> Int64s:
    """When each collective could have started, in ns of the file: its start, or where
    it was queued behind another one on its stream while compute went on, the end of the
    last kernel that was launched before it on the stream with the most compute. Arrays
    of shape [collectives].

    Where one launch starts several kernels, as a CUDA graph does, their order is not
    known, and ready is the start; also where no kernel was launched between the two
    collectives."""
    ready: Int64s = trace.start[found.rows].copy()
    queued, behind = _queued(trace, found)
    kernels = trace.rows_of(Role.KERNEL)
    computes = kernels[~communicates(trace, kernels) & (trace.launch[kernels] >= 0)]
    if not len(queued) or not len(computes):
        return ready
    busy = summed(trace.track[computes], trace.dur[computes], len(trace.tracks))
    computes = computes[trace.track[computes] == np.argmax(busy)]
    launched = trace.start[trace.launch[computes]]
    order = np.argsort(launched, kind="stable")
    ends = np.maximum.accumulate(trace.end[computes[order]])
    kernels_before = np.searchsorted(launched[order], found.issued)
    computed_between = kernels_before[queued] > kernels_before[behind]
    queued = queued[computed_between]
    inputs = ends[kernels_before[queued] - 1]
    ready[queued] = np.minimum(ready[queued], np.maximum(inputs, found.issued[queued]))
    return ready


def _queued(trace: Trace, found: IssuedCollectives) -> tuple[Rows, Rows]:
    """Which collectives have a launch of their own and were queued behind another one,
    and behind which."""
    track, start, end = (
        column[found.rows] for column in (trace.track, trace.start, trace.end)
    )
    order = np.lexsort((start, track))
    since = start[order[1:]] - end[order[:-1]]
    follows = (
        (track[order[1:]] == track[order[:-1]]) & (since >= 0) & (since <= QUEUED_NS)
    )
    places, behind = order[1:][follows], order[:-1][follows]
    launches = trace.launch[trace.gpu_rows]
    runs = np.bincount(launches[launches >= 0], minlength=len(trace.start))
    host = found.host[places]
    on_gpu = trace.launch[found.rows[places]] >= 0
    alone = on_gpu & (runs[np.maximum(host, 0)] == 1)
    return places[alone], behind[alone]


RESUMED_NS = 5_000
"""Compute that resumes so shortly before the recorded end of a collective resumes
because of it: recorded times are rounded, and programmatic launches begin before the
kernel ahead has ended."""


def _stalled(trace: Trace, found: IssuedCollectives, ready: Int64s) -> Int64s:
    """For how many ns before the end of each collective, and since it was ready, no
    kernel that computes ran: at most so long its inputs' consumers can have waited for
    it."""
    end = trace.end[found.rows]
    kernels = trace.rows_of(Role.KERNEL)
    computes = kernels[~communicates(trace, kernels)]
    if not len(computes):
        return end - ready
    order = np.argsort(trace.start[computes], kind="stable")
    starts = trace.start[computes[order]]
    ends = np.maximum.accumulate(trace.end[computes[order]])
    kernels_before = np.searchsorted(starts, end - RESUMED_NS)
    last_end = np.where(
        kernels_before > 0, ends[np.maximum(kernels_before - 1, 0)], ready
    )
    stalled: Int64s = end - np.clip(last_end, ready, end)
    return stalled


def _kernels(trace: Trace) -> tuple[model.KernelRuns, ...]:
    rows = trace.rows_of(Role.KERNEL)
    counts = np.bincount(trace.name[rows], minlength=len(trace.names))
    total = summed(trace.name[rows], trace.dur[rows], len(trace.names))
    first = np.zeros(len(trace.names), dtype=np.intp)
    first[trace.name[rows[::-1]]] = rows[::-1]
    names = np.argsort(-total, kind="stable")[
        : min(model.MOST_KERNELS, np.count_nonzero(counts))
    ]
    comm = communicates(trace, first[names])
    return tuple(
        model.KernelRuns(
            trace.names[n][:400], int(counts[n]), int(total[n]), bool(moves)
        )
        for n, moves in zip(names.tolist(), comm, strict=True)
    )


KINDS = {Layer.ANNOTATIONS: "annotation", Layer.OPS: "op", Layer.PYTHON: "frame"}


def places_before(
    trace: Trace, found: IssuedCollectives, begin: Int64s
) -> model.Places:
    """Where the issuing thread was longest from `begin` to the issue; of the longest
    stretches."""
    length = found.issued - begin
    longest = np.argsort(-length, kind="stable")[: model.MOST_PLACES]
    wanted = np.sort(longest[length[longest] > 0])
    threads = _threads(trace, found)
    tracks_of_thread: dict[int, list[Track]] = {}
    for number, track in enumerate(trace.tracks):
        if track.layer in KINDS:
            thread = int(trace.thread_of_track[number])
            tracks_of_thread.setdefault(thread, []).append(track)
    before: dict[int, model.PlacesBefore] = {}
    for number in wanted.tolist():
        tracks = tracks_of_thread.get(int(threads[number]), [])
        stretch = (int(begin[number]), int(found.issued[number]))
        times = _times_by_kind(trace, tracks, *stretch)
        if any(times.values()):
            before[number] = _longest(times)
    return model.places_of(before)


def _longest(times: Mapping[str, Counter[str]]) -> model.PlacesBefore:
    """Of each kind the names with the most time, and the longest that is left out."""
    ns: dict[model.Place, int] = {}
    left_out_ns: dict[str, int] = {}
    for kind, of_kind in times.items():
        by_time = of_kind.most_common()
        for name, name_ns in by_time[: model.MAX_NAMES_OF_A_KIND]:
            ns[kind, name] = name_ns
        for _, name_ns in by_time[model.MAX_NAMES_OF_A_KIND :][:1]:
            left_out_ns[kind] = name_ns
    return model.PlacesBefore(ns=ns, left_out_ns=left_out_ns)


def _times_by_kind(
    trace: Trace, tracks: Sequence[Track], begin: int, end: int
) -> dict[str, Counter[str]]:
    """How long a thread was in each name (ns), without what is inside of that, by the
    kind of slice."""
    times: dict[str, Counter[str]] = {}
    for track in tracks:
        of_kind = times.setdefault(KINDS[track.layer], Counter())
        for name, ns in _on_track(trace, track, begin, end):
            of_kind[name] += ns
    return times


def _threads(trace: Trace, found: IssuedCollectives) -> NDArray[np.int32]:
    """The thread that issued each; where that is not known, the one with most
    annotations."""
    marks = trace.rows_of(Role.ANNOTATION)
    usual = -1
    if len(marks):
        usual = int(trace.thread_of_track[trace.track[main_thread(trace, marks)[0]]])
    known = found.host >= 0
    thread = np.full(len(found.host), usual, dtype=np.int32)
    thread[known] = trace.thread_of_track[trace.track[found.host[known]]]
    return thread


def _on_track(
    trace: Trace, track: Track, begin: int, end: int
) -> Iterator[tuple[str, int]]:
    """The names on a track, the longest first, and the time in each that is in no slice
    inside of it (ns)."""
    rows = _touching(trace, track, begin, end)
    if not len(rows):
        return
    inside = np.minimum(trace.end[rows], end) - np.maximum(trace.start[rows], begin)
    alone = inside.copy()
    place = np.searchsorted(rows, trace.parent[rows])
    nested = (place < len(rows)) & (
        rows[np.minimum(place, len(rows) - 1)] == trace.parent[rows]
    )
    np.subtract.at(alone, place[nested], inside[nested])
    names, which = np.unique(trace.name[rows], return_inverse=True)
    ns = summed(which, alone, len(names))
    for longest in np.argsort(-ns, kind="stable").tolist():
        name = trace.names[int(names[longest])][:200]
        if ns[longest] > 0 and not name.startswith(STEP_PREFIX):
            yield name, int(ns[longest])


def _touching(trace: Trace, track: Track, begin: int, end: int) -> Rows:
    """The rows of a track that overlap [begin, end), in their order."""
    first, last = rows_between(trace, track, [begin, end])
    outer: list[int] = []
    row = first - 1
    # what contains the begin: the slice before it, or its parents
    while row >= track.first_row:
        outer.append(row)
        row = int(trace.parent[row])
    around = np.array(outer[::-1], dtype=np.intp)
    return np.concatenate((around[trace.end[around] > begin], np.arange(first, last)))
