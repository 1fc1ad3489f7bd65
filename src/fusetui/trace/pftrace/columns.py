"""From a scanned document to the columns of its slices: names, categories, lanes."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.raw import MEMORY, Label, Lane
from fusetui.trace.pftrace.index import PacketIndex
from fusetui.trace.pftrace.tables import numbered
from fusetui.trace.read.gather import Interner

MOST_KINDS = 16  # of memory
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


def columns_of(index: PacketIndex) -> Columns:
    tables, begins, stages = index.tables, index.begins, index.stages
    names, categories, threads = Interner(), Interner(), Interner()
    tracks = tables.threads()

    def lane_of(track: int) -> Lane:
        return (
            (*tracks[track][0], None)
            if track in tracks
            else (None, f"track {track}", None)
        )

    def name_of(key: int) -> str:
        return tables.names.get(key, "")

    named = numbered(begins.name, name_of, names)
    kinds = numbered(
        begins.category, lambda key: tables.categories.get(key, ""), categories
    )
    kinds[begins.is_sync] = categories["cuda_sync"]
    on = numbered(begins.track, lane_of, threads)
    overhead = np.array([pid == -1 for pid, _, _ in threads] or [False])[on]
    kinds[overhead & (begins.category < 0)] = categories["overhead"]

    def kind_of(key: int) -> str:
        return tables.queues.get(key, f"stage {key}")

    def category_of(key: int) -> str:
        return CATEGORIES.get(kind_of(key), kind_of(key))

    def named_by_kind(key: int) -> str:
        name = kind_of(key // MOST_KINDS)
        known = MEMORY.get(key % MOST_KINDS) if name == "Memset" else None
        return f"{name} ({known})" if known else name

    stage_kinds = numbered(stages.kind, category_of, categories)
    own, stage_names = stages.name >= 0, np.empty(len(stages.at), np.int64)
    stage_names[own] = numbered(stages.name[own], name_of, names)
    memory = np.clip(stages.memory, 0, MOST_KINDS - 1)
    by_kind = (stages.kind * MOST_KINDS + memory)[~own]
    stage_names[~own] = numbered(by_kind, named_by_kind, names)
    is_work = np.array([role(name) in GPU_ROLES for name in categories] or [False])[
        stage_kinds
    ]
    written, lane, labels = _lanes(index, is_work, threads)
    return Columns(
        names=tuple(names),
        categories=tuple(categories),
        threads=tuple(threads),
        labels=tuple(dict.fromkeys((*tables.labels(), *labels))),
        name=np.concatenate((named, stage_names)).astype(np.int32),
        category=np.concatenate((kinds, stage_kinds)).astype(np.int32),
        thread=np.concatenate((on, lane)).astype(np.int32),
        written=np.concatenate((on, written)).astype(np.int32),
    )


def _lanes(
    index: PacketIndex, is_work: Flags, threads: Interner
) -> tuple[Int64s, Int64s, list[Label]]:
    """The lane of each event of a GPU as the file says it, and that of the stream it
    ran on, as numbers in `threads`; and the names of all lanes."""
    gpus, queues, streams = Interner(), Interner(), Interner()
    gpu = numbered(index.stages.gpu, lambda key: key, gpus)
    queue = numbered(index.stages.queue, lambda key: key, queues)
    stream = numbered(index.stages.stream, lambda key: key, streams)
    gpu_keys, queue_keys, stream_keys = list(gpus), list(queues), list(streams)
    labels: list[Label] = []

    def lane(key: int) -> Lane:
        (of_gpu, of_queue), work = divmod(key // 2, len(queue_keys)), key % 2
        device = gpu_keys[of_gpu]
        tid, name = index.tables.queue(queue_keys[of_queue])
        labels.append(Label("process_labels", device, 0, device_label(device)))
        if name:
            labels.append(Label("thread_name", device, tid, name))
        return device, tid, device if work and 0 <= device < 1 << 31 else None

    def lane_of_stream(key: int) -> Lane:
        lane_key, of_stream = divmod(key, len(stream_keys))
        device, tid, of_device = lane(lane_key)
        ran_on = stream_keys[of_stream]
        is_moved = lane_key % 2 and ran_on >= 0
        return device, ran_on if is_moved else tid, of_device

    place = (gpu * len(queue_keys) + queue) * 2 + is_work
    written = numbered(place, lane, threads)
    real = numbered(place * len(stream_keys) + stream, lane_of_stream, threads)
    return written, real, labels
