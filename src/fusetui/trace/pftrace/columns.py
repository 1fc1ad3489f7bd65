"""From a scanned document to the columns of its slices: names, categories, lanes."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.raw import MEMORY_KINDS, Label, Lane
from fusetui.trace.pftrace.index import PacketIndex
from fusetui.trace.pftrace.tables import numbered
from fusetui.trace.read.gather import Interner

MAX_MEMORY_KINDS = 16
MAX_DEVICES = 1 << 31
CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
"""What Kineto calls the kinds of events of GPUs."""


class Columns(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [begins + stages], in this order."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Lane, ...]
    labels: tuple[Label, ...]
    name: Int32s
    category: Int32s
    thread: Int32s  # of GPU work that of the stream it ran on
    # the thread that the file says: a lane for display may be none of the streams
    written: Int32s


class _Slices(msgspec.Struct, frozen=True, eq=False):
    """Of begins or of stages, as numbers in the tables of Columns."""

    name: Int64s
    category: Int64s
    thread: Int64s
    written: Int64s


def columns_of(index: PacketIndex) -> Columns:
    names, categories, threads = Interner(), Interner(), Interner()
    begins = _begins(index, names, categories, threads)
    stages, lane_labels = _stages(index, names, categories, threads)
    labels = [*index.tables.labels(), *lane_labels]
    return Columns(
        names=tuple(names),
        categories=tuple(categories),
        threads=tuple(threads),
        labels=tuple(dict.fromkeys(labels)),
        name=_joined(begins.name, stages.name),
        category=_joined(begins.category, stages.category),
        thread=_joined(begins.thread, stages.thread),
        written=_joined(begins.written, stages.written),
    )


def _joined(of_begins: Int64s, of_stages: Int64s) -> Int32s:
    return np.concatenate((of_begins, of_stages)).astype(np.int32)


def _is_true(numbers: Int64s, by_number: list[bool]) -> Flags:
    """What is true of the entry of a table with each of these numbers; the table may be
    empty, then there are none."""
    return np.array(by_number or [False])[numbers]


def _name(index: PacketIndex, key: int) -> str:
    return index.tables.names.get(key, "")


def _begins(
    index: PacketIndex, names: Interner, categories: Interner, threads: Interner
) -> _Slices:
    tables = index.tables
    begins = index.begins
    tracks = tables.threads()

    def lane_of(track: int) -> Lane:
        if track not in tracks:
            return None, f"track {track}", None
        (pid, tid), _ = tracks[track]
        return pid, tid, None

    name = numbered(begins.name, lambda key: _name(index, key), names)
    category = numbered(
        begins.category, lambda key: tables.categories.get(key, ""), categories
    )
    category[begins.is_sync] = categories["cuda_sync"]
    thread = numbered(begins.track, lane_of, threads)
    is_overhead = _is_true(thread, [pid == -1 for pid, _, _ in threads])
    category[is_overhead & (begins.category < 0)] = categories["overhead"]
    return _Slices(name=name, category=category, thread=thread, written=thread)


def _stages(
    index: PacketIndex, names: Interner, categories: Interner, threads: Interner
) -> tuple[_Slices, list[Label]]:
    """The events of GPUs, and the names of their lanes."""
    stages = index.stages

    def kind_of(key: int) -> str:
        return index.tables.queues.get(key, f"stage {key}")

    def category_of(key: int) -> str:
        return CATEGORIES.get(kind_of(key), kind_of(key))

    def name_of_kind(key: int) -> str:
        kind_key, memory_kind = divmod(key, MAX_MEMORY_KINDS)
        kind = kind_of(kind_key)
        if kind == "Memset" and memory_kind in MEMORY_KINDS:
            return f"{kind} ({MEMORY_KINDS[memory_kind]})"
        return kind

    category = numbered(stages.kind, category_of, categories)
    has_name = stages.name >= 0
    memory_kind = np.clip(stages.memory, 0, MAX_MEMORY_KINDS - 1)
    kind_key = stages.kind * MAX_MEMORY_KINDS + memory_kind
    name = np.empty(len(stages.at), np.int64)
    name[has_name] = numbered(
        stages.name[has_name], lambda key: _name(index, key), names
    )
    name[~has_name] = numbered(kind_key[~has_name], name_of_kind, names)
    is_work = _is_true(category, [role(name) in GPU_ROLES for name in categories])
    written, thread, labels = _lanes(index, is_work, threads)
    slices = _Slices(name=name, category=category, thread=thread, written=written)
    return slices, labels


def _lanes(
    index: PacketIndex, is_work: Flags, threads: Interner
) -> tuple[Int64s, Int64s, list[Label]]:
    """The lane of each event of a GPU as the file says it, and that of the stream it
    ran on, as numbers in `threads`; and the names of all lanes."""
    gpus, queues, streams = Interner(), Interner(), Interner()
    gpu = numbered(index.stages.gpu, lambda key: key, gpus)
    queue = numbered(index.stages.queue, lambda key: key, queues)
    stream = numbered(index.stages.stream, lambda key: key, streams)
    gpu_of_number, queue_of_number = list(gpus), list(queues)
    stream_of_number = list(streams)
    labels: list[Label] = []

    # Both keys have the digits of one number: GPU, queue, is it work, and the stream.
    lane_key = (gpu * len(queues) + queue) * 2 + is_work
    stream_key = lane_key * len(streams) + stream

    def written_lane(lane_key: int) -> Lane:
        place, is_work = divmod(lane_key, 2)
        gpu_number, queue_number = divmod(place, len(queue_of_number))
        device = gpu_of_number[gpu_number]
        tid, name = index.tables.queue(queue_of_number[queue_number])
        labels.append(Label("process_labels", device, 0, device_label(device)))
        if name:
            labels.append(Label("thread_name", device, tid, name))
        is_on_device = is_work and 0 <= device < MAX_DEVICES
        return device, tid, device if is_on_device else None

    def stream_lane(stream_key: int) -> Lane:
        lane_key, stream_number = divmod(stream_key, len(stream_of_number))
        pid, tid, device = written_lane(lane_key)
        is_work = lane_key % 2
        stream = stream_of_number[stream_number]
        if is_work and stream >= 0:
            tid = stream
        return pid, tid, device

    written = numbered(lane_key, written_lane, threads)
    ran_on = numbered(stream_key, stream_lane, threads)
    return written, ran_on, labels
