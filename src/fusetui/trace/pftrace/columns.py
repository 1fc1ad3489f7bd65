"""Converts a scanned document to the columns of its slices: names, categories,
lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.raw import MEMORY_KINDS, Label, Lane
from fusetui.trace.pftrace.index import PacketIndex
from fusetui.trace.pftrace.tables import number_values
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
    """The columns of all begins of slices and all GPU stages of a scanned document."""
    names, categories, threads = Interner(), Interner(), Interner()
    begins = _number_begins(index, names, categories, threads)
    stages, lane_labels = _number_stages(index, names, categories, threads)
    labels = [*index.tables.labels(), *lane_labels]
    return Columns(
        names=tuple(names),
        categories=tuple(categories),
        threads=tuple(threads),
        labels=tuple(dict.fromkeys(labels)),
        name=_join_columns(begins.name, stages.name),
        category=_join_columns(begins.category, stages.category),
        thread=_join_columns(begins.thread, stages.thread),
        written=_join_columns(begins.written, stages.written),
    )


def _join_columns(of_begins: Int64s, of_stages: Int64s) -> Int32s:
    """One column of all begins, followed by all stages."""
    return np.concatenate((of_begins, of_stages)).astype(np.int32)


def _look_up_flags(numbers: Int64s, flag_of_number: list[bool]) -> Flags:
    """The flag of each number; shape [numbers]. `flag_of_number` may be empty if there
    are no numbers."""
    return np.array(flag_of_number or [False])[numbers]


def _find_name(index: PacketIndex, key: int) -> str:
    """The name with this key in the file; "" if it has none."""
    return index.tables.names.get(key, "")


def _number_begins(
    index: PacketIndex, names: Interner, categories: Interner, threads: Interner
) -> _Slices:
    """Number the names, categories and lanes of the begins of slices.

    Args:
        index: The scanned document.
        names: The table of names, which new ones are added to; likewise the others.
        categories: The table of categories. Waits for the GPU get `cuda_sync`; what
            torch calls overhead and has no category gets `overhead`.
        threads: The table of lanes. A track that the file does not describe gets one of
            its own: `track 7`.
    """
    tables = index.tables
    begins = index.begins
    thread_of_track = tables.threads()

    def name_of(key: int) -> str:
        return _find_name(index, key)

    def category_of(key: int) -> str:
        return tables.categories.get(key, "")

    def lane_of(track: int) -> Lane:
        described = thread_of_track.get(track)
        if described is None:
            return None, f"track {track}", None
        return described.pid, described.tid, None

    name = number_values(begins.name, name_of, names)
    category = number_values(begins.category, category_of, categories)
    category[begins.is_sync] = categories["cuda_sync"]
    thread = number_values(begins.track, lane_of, threads)
    # the process of what torch calls overhead, see tables.py
    is_overhead = _look_up_flags(thread, [pid == -1 for pid, _, _ in threads])
    has_no_category = begins.category < 0
    category[is_overhead & has_no_category] = categories["overhead"]
    return _Slices(name=name, category=category, thread=thread, written=thread)


def _number_stages(
    index: PacketIndex, names: Interner, categories: Interner, threads: Interner
) -> tuple[_Slices, list[Label]]:
    """Number the names, categories and lanes of the GPU events, adding new ones to the
    three tables. The second value has the names of their lanes."""
    queues = index.tables.queues

    def category_of(kind_key: int) -> str:
        kind = _find_stage_kind(queues, kind_key)
        return CATEGORIES.get(kind, kind)

    category = number_values(index.stages.kind, category_of, categories)
    name = _number_stage_names(index, names)
    is_work = _look_up_flags(category, [role(name) in GPU_ROLES for name in categories])
    lanes = _number_stage_lanes(index, is_work, threads)
    slices = _Slices(
        name=name, category=category, thread=lanes.ran_on, written=lanes.written
    )
    return slices, lanes.labels


def _find_stage_kind(queues: Mapping[int, str], kind_key: int) -> str:
    """What the file calls a kind of GPU stages: `Kernel`. A kind without a name is
    `stage 7`."""
    return queues.get(kind_key, f"stage {kind_key}")


def _number_stage_names(index: PacketIndex, names: Interner) -> Int64s:
    """The number of the name of each GPU stage; new names are added to `names`. A stage
    without a name is called by its kind, such as `Memset (Device)`. Shape [stages]."""
    stages = index.stages
    memory_kind = np.clip(stages.memory, 0, MAX_MEMORY_KINDS - 1)
    kind_and_memory = stages.kind * MAX_MEMORY_KINDS + memory_kind

    def name_of(key: int) -> str:
        return _find_name(index, key)

    def name_of_kind(kind_and_memory: int) -> str:
        """What a stage without a name is called."""
        kind_key, memory_kind = divmod(kind_and_memory, MAX_MEMORY_KINDS)
        kind = _find_stage_kind(index.tables.queues, kind_key)
        if kind == "Memset" and memory_kind in MEMORY_KINDS:
            return f"{kind} ({MEMORY_KINDS[memory_kind]})"
        return kind

    has_name = stages.name >= 0
    name = np.empty(len(stages.at), np.int64)
    name[has_name] = number_values(stages.name[has_name], name_of, names)
    name[~has_name] = number_values(kind_and_memory[~has_name], name_of_kind, names)
    return name


class _StageLanes(NamedTuple):
    """The lanes of the events of GPUs as numbers of lanes; arrays of shape [stages]."""

    written: Int64s  # as the file says it
    ran_on: Int64s  # of the stream that the event ran on
    labels: list[Label]  # of all lanes; one may be there several times


class _LaneKeys:
    """One number for each lane of the events of GPUs, of which ascending ones are
    lanes by GPU, queue, whether the event is work, and stream."""

    def __init__(self, index: PacketIndex, is_work: Flags) -> None:
        """Compute the numbers of the lanes of all events.

        `written` is (gpu * queues + queue) * 2 + is_work, and `ran_on` is that times
        the number of streams, plus the stream: the methods take the parts off again.

        Args:
            index: The scanned document.
            is_work: Whether each event is work of a GPU.
        """
        self.labels: list[Label] = []  # of all lanes that were asked for
        self._tables = index.tables
        gpus, queues, streams = Interner(), Interner(), Interner()
        gpu = number_values(index.stages.gpu, _identity, gpus)
        queue = number_values(index.stages.queue, _identity, queues)
        stream = number_values(index.stages.stream, _identity, streams)
        self._gpus = list(gpus)
        self._queues = list(queues)
        self._streams = list(streams)
        gpu_and_queue = gpu * len(self._queues) + queue
        self.written = gpu_and_queue * 2 + is_work
        self.ran_on = self.written * len(self._streams) + stream

    def written_lane(self, key: int) -> Lane:
        """Return the lane that the file says, for one of `written`.

        It is the number of the GPU, the queue, and once more the GPU if the event is
        work. The names of the GPU and of the queue are added to `labels`.
        """
        gpu_and_queue, is_work = divmod(key, 2)
        gpu, queue = divmod(gpu_and_queue, len(self._queues))
        device = self._gpus[gpu]
        tid, name = self._tables.queue(self._queues[queue])
        self.labels.append(Label("process_labels", device, 0, device_label(device)))
        if name:
            self.labels.append(Label("thread_name", device, tid, name))
        is_on_device = is_work and 0 <= device < MAX_DEVICES
        return device, tid, device if is_on_device else None

    def stream_lane(self, key: int) -> Lane:
        """Return the lane of the stream that an event ran on, for one of `ran_on`.

        It is the lane that the file says, with the stream in place of the queue if the
        event is work and says its stream: the queue may only be a lane for display.
        """
        written_key, stream = divmod(key, len(self._streams))
        pid, tid, device = self.written_lane(written_key)
        stream_id = self._streams[stream]
        is_work = written_key % 2
        if is_work and stream_id >= 0:
            tid = stream_id
        return pid, tid, device


def _number_stage_lanes(
    index: PacketIndex, is_work: Flags, threads: Interner
) -> _StageLanes:
    """Number the lanes of the GPU events, adding new ones to `threads`. `is_work` says
    of each event whether it is work; shape [stages]."""
    keys = _LaneKeys(index, is_work)
    written = number_values(keys.written, keys.written_lane, threads)
    ran_on = number_values(keys.ran_on, keys.stream_lane, threads)
    return _StageLanes(written=written, ran_on=ran_on, labels=keys.labels)


def _identity(key: int) -> int:
    """The key itself, for tables whose keys are their values."""
    return key
