"""The processes, threads and devices of an export, and the lanes of their events.

A process has the upper bits of its globalPid and its globalTids for a key: a machine
and a pid. Numbers that are unique only within a process (correlationId, op_id) become
unique in the trace by the number of their process above 32 bits; that of the first one
is 0, so one process keeps its own.

A deviceId counts the devices that a process sees. Which GPU that is,
TARGET_INFO_CUDA_DEVICE says. Synchronizations have a context only
(CUpti_ActivitySynchronization), whatever their deviceId says: their device is that of
the work in their context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Lane
from fusetui.trace.nsys.database import NONE, Export
from fusetui.trace.nsys.tables import PID_MASK, EventTable, fields, shown_condition

NUMBERS_A_PROCESS = 1 << 32
MAX_DEVICES = 1 << 31
UNKNOWN = "not recorded"
COLUMN_OF_PROPERTY = {
    "name": "name",
    "totalGlobalMem": "totalMemory",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "regsPerBlock": "maxRegistersPerBlock",
    "warpSize": "threadsPerWarp",
    "sharedMemPerBlock": "maxShmemPerBlock",
    "numSms": "smCount",
    "regsPerMultiprocessor": "maxRegistersPerSm",
    "sharedMemPerBlockOptin": "maxShmemPerBlockOptin",
    "sharedMemPerMultiprocessor": "maxShmemPerSm",
    "memoryBandwidth": "memoryBandwidth",  # bytes per second; torch has no name for it
}
"""Of deviceProperties, as torch writes them: the columns of TARGET_INFO_GPU."""


class WorkPlace(NamedTuple):
    """Where GPU work is: a process by its key, and its own numbers of the rest."""

    process: int
    device: int
    stream: int
    context: int


class Processes:
    """Who did what, by the numbers of an export."""

    def __init__(self, db: Export, sources: Sequence[EventTable]) -> None:
        """Read which processes, devices and streams the tables of events name.
        Processes with GPU work are numbered first."""
        places = _find_places(db, sources)
        work = places.work
        working = {place.process for place in work}
        without_work = places.calling_processes - working
        # those with GPU work first; below zero only where no process is recorded
        in_order = [*sorted(working), *sorted(without_work)]
        keys = [key for key in in_order if key >= 0]
        self.working = sorted({key & PID_MASK for key in working if key >= 0})
        """The pids of processes with GPU work."""
        self._db = db
        self._number = {key: number for number, key in enumerate(keys)}
        self._processes_with_pid = Counter(key & PID_MASK for key in keys)
        self._gpus = _gpus(db)
        self._note_devices(work)
        self._uses_of_stream: Counter[tuple[Id, int]] = Counter()
        for place in work:
            pid, _ = self._gpu(place.process, place.device)
            self._uses_of_stream[pid, place.stream] += 1

    def _note_devices(self, work: Collection[WorkPlace]) -> None:
        """Note the device of each CUDA context, and whether the GPU of each device is
        known.

        If it is not, also note whether two processes have a device of the same number,
        because these may be different GPUs. `work` has the places of all GPU work.
        """
        self._device_of_context: dict[tuple[int, int], int] = {}
        devices: set[tuple[int, int]] = set()  # process and device
        for place in work:
            self._device_of_context[place.process, place.context] = place.device
            if place.device != NONE:
                devices.add((place.process, place.device))
        self._are_gpus_known = all(
            (process & PID_MASK, device) in self._gpus for process, device in devices
        )
        distinct_numbers = {device for _, device in devices}
        is_number_shared = len(distinct_numbers) < len(devices)
        self._are_numbers_shared = not self._are_gpus_known and is_number_shared

    def pid(self, key: int) -> Id:
        """The pid of a process by its key, which is a machine and a pid.

        If two machines have a process of the same pid, the machine is added in words.
        UNKNOWN for a negative key.
        """
        if key < 0:
            return UNKNOWN
        pid = key & PID_MASK
        if self._processes_with_pid[pid] < 2:
            return pid
        return f"{pid} of machine {key >> 24}"

    def unique(
        self, owner: NDArray[np.int64], value: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Make numbers that are unique in a process unique in the trace.

        Correlation 7 of the process number 2 becomes 7 + 2 * NUMBERS_A_PROCESS.

        Args:
            owner: The globalPid or globalTid that each number is of.
            value: The numbers.

        Returns:
            A number for each; -1 for one that is not positive, or too large.
        """
        keys, key_of_row = np.unique(owner >> 24, return_inverse=True)
        numbers = [self.number(key) for key in keys.tolist()]
        number = np.array(numbers, np.int64)[key_of_row]
        is_sound = (value > 0) & (value < NUMBERS_A_PROCESS)
        unique_value = value + number * NUMBERS_A_PROCESS
        return np.where(is_sound, unique_value, -1)

    def number(self, key: int) -> int:
        """The number of a process by its key. A process that occurs only in damaged
        rows gets a number beyond all others."""
        number_beyond = PID_MASK + (key & PID_MASK)
        return self._number.get(key, number_beyond)

    def lane(
        self, source: EventTable, owner: int, device: int, stream: int, context: int
    ) -> Lane:
        """Return the lane of an event: pid, tid, and of GPU work the device.

        A call of the CPU is on its thread, a kernel on the stream of its device.

        Args:
            source: The table of the event.
            owner: Its globalPid or globalTid; NONE if unknown, likewise the others.
            device: Its device. Of synchronizations it follows from the context.
            stream: Its stream.
            context: Its CUDA context.
        """
        key = owner >> 24
        if not source.on_gpu:
            tid = UNKNOWN if owner < 0 else owner & PID_MASK
            return self.pid(key), tid, None
        if not source.is_gpu_work:
            device = self._device_of_context.get((key, context), NONE)
        pid, gpu = self._gpu(key, device)
        lane_stream = self._stream(pid, key, stream, context)
        return pid, lane_stream, gpu if source.is_gpu_work else None

    def _stream(self, gpu: Id, key: int, stream: int, context: int) -> Id:
        """The tid of the lane of a stream; None if the event has no stream.

        If several processes or contexts use a stream of this number on one GPU, the
        process and the context are added in words.
        """
        if stream == NONE:
            return None
        is_shared = self._uses_of_stream[gpu, stream] > 1
        if is_shared:
            return f"stream {stream} of process {self.pid(key)}, context {context}"
        return stream

    def _gpu(self, key: int, device: int) -> tuple[Id, int | None]:
        """The pid of the lanes of a device, and the number of its GPU, or None if that
        is unknown.

        The export may say which GPU a device of a process is. If not, its own number
        stands for it, with the process where two processes use the same number.
        """
        if not 0 <= device < MAX_DEVICES:
            return "GPU", None
        if self._are_gpus_known:
            gpu = self._gpus.get((key & PID_MASK, device), device)
            return gpu, gpu if 0 <= gpu < MAX_DEVICES else None
        if self._are_numbers_shared:
            return f"GPU {device} of process {self.pid(key)}", device
        return device, device

    def labels(self, strings: Mapping[int, str]) -> Iterator[Label]:
        """Yield the names of the processes and threads that have events. `strings` has
        the texts of the export by number."""
        for owner, name in self._db.records("PROCESSES", "globalPid", "name"):
            if self._has_events(owner) and isinstance(name, str):
                pid = self.pid(owner >> 24)
                yield Label("process_name", pid, 0, name)
        for owner, name_id in self._db.records("ThreadNames", "globalTid", "nameId"):
            if self._has_events(owner) and name_id in strings:
                pid = self.pid(owner >> 24)
                tid = owner & PID_MASK
                name = f"thread {tid} ({strings[name_id]})"
                yield Label("thread_name", pid, tid, name)

    def _has_events(self, owner: object) -> bool:
        """Whether the process of a globalPid or a globalTid has events."""
        return isinstance(owner, int) and owner >> 24 in self._number


class _Places(NamedTuple):
    """Where the events of an export are."""

    work: set[WorkPlace]  # of all GPU work
    calling_processes: set[int]  # of all other events


def _find_places(db: Export, sources: Sequence[EventTable]) -> _Places:
    """The distinct places of all events. Tables of GPU metrics are left out, because
    they belong to no process."""
    work: set[WorkPlace] = set()
    calling_processes: set[int] = set()
    for source in sources:
        if source.is_metrics:
            continue
        expressions = fields(db, source)
        process = f"distinct ({expressions['owner']}) >> 24"
        condition = f"where {shown_condition(db, source)}"
        if source.is_gpu_work:
            columns = (
                process,
                expressions["device"],
                expressions["stream"],
                expressions["context"],
            )
            rows = db.rows(source.table, columns, condition)
            work.update(WorkPlace._make(row) for row in rows)
        else:
            rows = db.rows(source.table, (process,), condition)
            calling_processes.update(key for (key,) in rows)
    return _Places(work=work, calling_processes=calling_processes)


def _gpus(db: Export) -> dict[tuple[int, int], int]:
    """The number of the GPU by pid and device, as the export says. Rows that are not
    whole numbers are left out."""
    gpus: dict[tuple[int, int], int] = {}
    records = db.records("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    for pid, device, gpu in records:
        if isinstance(pid, int) and isinstance(device, int) and isinstance(gpu, int):
            gpus[pid, device] = gpu
    return gpus


def keys_of(db: Export, begin: int, end: int) -> dict[str, Any]:
    """The keys around the events as torch writes them: devices, version, host and the
    base of the clock.

    `begin` and `end` are those of all events, in ns. Keys that the export does not know
    are left out.
    """
    devices = _read_device_properties(db)
    exported = dict(db.records("META_DATA_EXPORT", "name", "value"))
    captured = dict(db.records("META_DATA_CAPTURE", "name", "value"))
    keys = {
        "deviceProperties": devices,
        "nsight_systems_version": exported.get("EXPORT_PRODUCT_VERSION"),
        "host_name": captured.get("DEVICE_DISPLAY_NAME"),
        "baseTimeNanoseconds": _clock_base_ns(db, begin, end),
    }
    return {key: value for key, value in keys.items() if value not in (None, [])}


def _read_device_properties(db: Export) -> list[dict[str, Any]]:
    """The properties of each GPU in the export, under the names that torch uses in
    `deviceProperties`. Unknown properties are left out."""
    devices = []
    columns = ("id", *COLUMN_OF_PROPERTY.values())
    for number, *values in db.records("TARGET_INFO_GPU", *columns):
        device = {"id": number}
        for name, value in zip(COLUMN_OF_PROPERTY, values, strict=True):
            if value is not None:
                device[name] = value
        devices.append(device)
    return devices


def _clock_base_ns(db: Export, begin: int, end: int) -> int | None:
    """The UTC time in ns at which the clock of the events is zero.

    It follows from the start of the session, which the export has on both clocks. None
    if the export lacks it, if it has several sessions, or if the events are not within
    the session.
    """
    utc = db.records("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    session = db.records("ANALYSIS_DETAILS", "startTime", "stopTime")
    if len(utc) != 1 or len(session) != 1:
        return None
    ((utc_start,),) = utc
    ((start, stop),) = session
    if not all(isinstance(value, int) for value in (utc_start, start, stop)):
        return None
    is_within = start <= begin and end <= stop
    return utc_start - start if is_within and utc_start > start else None
