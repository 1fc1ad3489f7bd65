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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Lane
from fusetui.trace.nsys.database import NONE, Export
from fusetui.trace.nsys.tables import PID, EventTable, fields, shown

OWN = 1 << 32
UNKNOWN = "not recorded"
PROPERTIES = {
    **{"name": "name", "totalGlobalMem": "totalMemory", "computeMajor": "computeMajor"},
    **{"computeMinor": "computeMinor", "maxThreadsPerBlock": "maxThreadsPerBlock"},
    **{"regsPerBlock": "maxRegistersPerBlock", "warpSize": "threadsPerWarp"},
    **{"sharedMemPerBlock": "maxShmemPerBlock", "numSms": "smCount"},
    "regsPerMultiprocessor": "maxRegistersPerSm",
    "sharedMemPerBlockOptin": "maxShmemPerBlockOptin",
    "sharedMemPerMultiprocessor": "maxShmemPerSm",
    "memoryBandwidth": "memoryBandwidth",  # bytes per second; torch has no name for it
}
"""Of deviceProperties, as torch writes them, by the columns of TARGET_INFO_GPU."""


class Processes:
    """Who did what, by the numbers of an export."""

    def __init__(self, db: Export, sources: Sequence[EventTable]) -> None:
        work: set[tuple[int, ...]] = set()
        hosts: set[int] = set()
        for source in sources:
            asked = fields(db, source)
            owner = f"distinct ({asked['owner']}) >> 24"
            rest = f"where {shown(db, source)}"
            if source.is_metrics:
                continue
            if source.works:
                columns = (owner, asked["device"], asked["stream"], asked["context"])
                work.update(db.rows(source.table, columns, rest))
            else:
                hosts.update(key for (key,) in db.rows(source.table, (owner,), rest))
        on_gpu = {key for key, *_ in work}
        # pids of GPU work
        self.working = sorted({key & PID for key in on_gpu if key >= 0})
        keys = [key for key in (*sorted(on_gpu), *sorted(hosts - on_gpu)) if key >= 0]
        self._db = db
        self._contexts = {(key, context): device for key, device, _, context in work}
        self._number = {key: number for number, key in enumerate(keys)}
        self._pids = Counter(key & PID for key in keys)
        self._gpus = {
            (pid, own): gpu
            for pid, own, gpu in db.records(
                "TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"
            )
            if isinstance(pid, int) and isinstance(own, int) and isinstance(gpu, int)
        }
        seen = {(key, device) for key, device, *_ in work if device != NONE}
        known = {
            (key, device) for key, device in seen if (key & PID, device) in self._gpus
        }
        self._told = known == seen
        self._shared = not self._told and len({device for _, device in seen}) < len(
            seen
        )
        self._streams = Counter(
            (self._gpu(key, device)[0], stream)
            for key, device, stream, _ in sorted(work)
        )

    def pid(self, key: int) -> Id:
        """Its pid; where two machines have one of the same pid, with the machine."""
        if key < 0:
            return UNKNOWN
        return (
            key & PID
            if self._pids[key & PID] < 2
            else f"{key & PID} of machine {key >> 24}"
        )

    def unique(
        self, owner: NDArray[np.int64], value: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Numbers of a process as numbers of the trace, -1 for none; shape [n]."""
        keys, which = np.unique(owner >> 24, return_inverse=True)
        own = np.array(list(map(self.number, keys.tolist())), np.int64)
        sound = (value > 0) & (value < OWN)
        return np.where(sound, value + own[which] * OWN if len(own) else value, -1)

    def number(self, key: int) -> int:
        """Of a process; one that was met only in damage is given a number beyond the
        others."""
        return self._number.get(key, PID + (key & PID))

    def lane(
        self, source: EventTable, owner: int, device: int, stream: int, context: int
    ) -> Lane:
        key = owner >> 24
        if not source.on_gpu:
            return self.pid(key), UNKNOWN if owner < 0 else owner & PID, None
        if not source.works:
            device = self._contexts.get((key, context), NONE)
        pid, number = self._gpu(key, device)
        tid: Id = None if stream == NONE else stream
        if self._streams[pid, stream] > 1 and stream != NONE:
            tid = f"stream {stream} of process {self.pid(key)}, context {context}"
        return pid, tid, number if source.works else None

    def _gpu(self, key: int, device: int) -> tuple[Id, int | None]:
        """The pid of the lanes of a device, and its number."""
        if device == NONE or not 0 <= device < 1 << 31:
            return "GPU", None
        if self._told:
            gpu = self._gpus.get((key & PID, device), device)
            return gpu, gpu if 0 <= gpu < 1 << 31 else None
        return (
            f"GPU {device} of process {self.pid(key)}" if self._shared else device
        ), device

    def labels(self, strings: Mapping[int, str]) -> Iterator[Label]:
        """The names of processes and threads that have events."""
        for owner, name in self._db.records("PROCESSES", "globalPid", "name"):
            if (
                isinstance(owner, int)
                and isinstance(name, str)
                and owner >> 24 in self._number
            ):
                yield Label("process_name", self.pid(owner >> 24), 0, name)
        for owner, name_id in self._db.records("ThreadNames", "globalTid", "nameId"):
            if (
                isinstance(owner, int)
                and owner >> 24 in self._number
                and name_id in strings
            ):
                tid = owner & PID
                name = f"thread {tid} ({strings[name_id]})"
                yield Label("thread_name", self.pid(owner >> 24), tid, name)


def keys_of(db: Export, begin: int, end: int) -> dict[str, Any]:
    """The keys around the events, as torch writes them; `begin` and `end` are those of
    all events, in ns. Those that the export does not say are left out."""
    columns = ("id", *PROPERTIES.values())
    devices = [
        {"id": row[0]}
        | {k: v for k, v in zip(PROPERTIES, row[1:], strict=True) if v is not None}
        for row in db.records("TARGET_INFO_GPU", *columns)
    ]
    version = dict(db.records("META_DATA_EXPORT", "name", "value")).get(
        "EXPORT_PRODUCT_VERSION"
    )
    capture = dict(db.records("META_DATA_CAPTURE", "name", "value"))
    found = {
        "deviceProperties": devices,
        "nsight_systems_version": version,
        "host_name": capture.get("DEVICE_DISPLAY_NAME"),
        "baseTimeNanoseconds": _base(db, begin, end),
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


def _base(db: Export, begin: int, end: int) -> int | None:
    """The UTC time of the zero of the events' clock, in ns: the session began at
    `startTime` of that clock and at `utcEpochNs`. None where the events are not within
    the session by it."""
    utc = db.records("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    session = db.records("ANALYSIS_DETAILS", "startTime", "stopTime")
    if len(utc) != 1 or len(session) != 1:
        return None
    (zero,), (first, last) = utc[0], session[0]
    if not all(isinstance(value, int) for value in (zero, first, last)):
        return None
    return zero - first if first <= begin and end <= last and zero > first else None
