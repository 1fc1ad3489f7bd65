"""The values that events refer to by number: names, categories, tracks, queues, kinds
and counters; and the clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Int64s, distinct
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Thread
from fusetui.trace.model.report import Skipped
from fusetui.trace.pftrace.scan import CLOCK, TRACK
from fusetui.trace.pftrace.wire import decoded
from fusetui.trace.read.document_text import MAX_SHARED_NAME, shared_name
from fusetui.trace.read.gather import Interner
from fusetui.trace.read.times import LIMIT_NS

CATEGORIES, NAMES, QUEUES, COUNTERS, ARGS = 1, 2, 24, 47, 1001
"""Fields of interned data (interned_data.proto, gpu_interned_data.proto)."""
NUMBER, TEXT = 1, 2
"""Fields of an entry of interned data."""
EXTRA_KEY, EXTRA_TEXT = 1, 2
"""Fields of an extra of a stage (gpu_render_stage_event.proto)."""
COUNTER_DESCRIPTOR, COUNTER_GPU = 2, 3
"""Fields of an entry of COUNTERS."""
COUNTER_SPECS = 1
"""Field of a descriptor: a message with the NUMBER and the TEXT of each counter."""
TRACK_UUID, TRACK_PROCESS, TRACK_THREAD = 1, 3, 4
"""Fields of a track (track_descriptor.proto)."""
PROCESS_PID, PROCESS_NAME = 1, 6
THREAD_PID, THREAD_TID, THREAD_NAME = 1, 2, 5
CLOCK_ID, CLOCK_TIME = 1, 2
"""Fields of a clock (clock_snapshot.proto)."""
REALTIME = 1  # CLOCK_ID

ID_MASK = 0x7FFFFFFF  # of the ids of processes and threads in a file
ID_IN_NAME = re.compile(
    r"(?:(?:thread|stream|process) )?(-?[0-9]{1,18})(?: \(.*)?", re.DOTALL
)
QUEUE = re.compile(r"\[([0-9]{1,18})\] (.*)", re.DOTALL)
OVERHEAD = "Overhead"
EXPORTER = ("arch", "process_id", "process_name")
"""What the extras of every event say of the process that exported; the keys of an
annotation follow."""
MAX_BYTES_A_CHARACTER = 4  # of UTF-8
MAX_TABLE_PACKETS = 1 << 16  # of a file
MAX_ENTRIES = 1 << 20  # of a packet

Message = dict[int, tuple[int, bytes]]
"""The value and the bytes of each field, by its number; see `decoded`."""
ABSENT = 0, b""


class WrittenThread(NamedTuple):
    """The ids of a thread as they are written: see `true_id`."""

    pid: int
    tid: int
    name: str


class GpuCounters(NamedTuple):
    """The counters of a descriptor."""

    gpu: int
    names: dict[int, str]


class Tables:
    """Filled packet by packet, in the order of the file; the first of equal numbers
    counts."""

    def __init__(self) -> None:
        """Empty tables."""
        self._packets_left = MAX_TABLE_PACKETS
        self.base = 0  # ns since the epoch
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.queues: dict[int, str] = {}  # also the kinds of stages
        self.arg_names: dict[int, str] = {}
        self.counters: dict[int, GpuCounters] = {}  # by descriptor
        self.exporter: dict[str, str] = {}
        self._texts_of_table = {
            CATEGORIES: self.categories,
            NAMES: self.names,
            QUEUES: self.queues,
            ARGS: self.arg_names,
        }
        # by track; pid as it is written, and name
        self._processes: dict[int, tuple[int, str]] = {}
        self._threads: dict[int, WrittenThread] = {}

    def add(
        self, packets: Sequence[tuple[int, int, bytes]]
    ) -> tuple[list[Skipped], int]:
        """Adds what can be read of some packets (byte, field, content), up to
        MAX_TABLE_PACKETS of them in all; returns those that are damaged, and how many
        were not read to their end."""
        readable = packets[: self._packets_left]
        too_many = packets[self._packets_left :]
        self._packets_left -= len(readable)
        skipped: list[Skipped] = []
        for byte, kind, content in readable:
            try:
                self._add_packet(kind, content)
            except ValueError as error:
                skipped.append(Skipped(byte, f"a damaged table: {error}"))
        skipped_count = len(skipped) + len(too_many)
        if too_many:
            first_byte = too_many[0][0]
            reason = f"only {MAX_TABLE_PACKETS} tables are read"
            skipped.append(Skipped(first_byte, reason))
        return skipped, skipped_count

    def _add_packet(self, kind: int, content: bytes) -> None:
        """Adds one packet. Raises ValueError where it is damaged, and keeps what was
        read before."""
        if kind == CLOCK:
            self._add_clock(content)
        elif kind == TRACK:
            self._add_track(content)
        else:
            for place, (table, _, entry) in enumerate(decoded(content)):
                if place > MAX_ENTRIES:
                    raise ValueError("too many names")
                self._add_entry(table, entry)

    def _add_clock(self, content: bytes) -> None:
        """Takes the base time from the first packet that has it."""
        if self.base:
            return
        for _, _, data in decoded(content):
            clock = _message(data)
            time = _value(clock, CLOCK_TIME)
            if _value(clock, CLOCK_ID) == REALTIME and time <= LIMIT_NS:
                self.base = time
                return

    def _add_track(self, content: bytes) -> None:
        """Adds the process and the thread that a packet describes."""
        track = _message(content)
        uuid = _value(track, TRACK_UUID)
        if TRACK_PROCESS in track:
            process = _message(_bytes(track, TRACK_PROCESS))
            pid = _value(process, PROCESS_PID)
            name = _text(process, PROCESS_NAME)
            self._processes.setdefault(uuid, (pid, name))
        if TRACK_THREAD in track:
            thread = _message(_bytes(track, TRACK_THREAD))
            written = WrittenThread(
                pid=_value(thread, THREAD_PID),
                tid=_value(thread, THREAD_TID),
                name=_text(thread, THREAD_NAME),
            )
            self._threads.setdefault(uuid, written)

    def _add_entry(self, table: int, data: bytes) -> None:
        """Adds an entry of interned data to its table; those of unknown tables are left
        out."""
        if table in self._texts_of_table:
            texts = self._texts_of_table[table]
            entry = _message(data)
            number = _value(entry, NUMBER)
            if number not in texts:
                texts[number] = _shared_text(entry, number)
        elif table == COUNTERS:
            entry = _message(data)
            counters = GpuCounters(
                gpu=_value(entry, COUNTER_GPU),
                names=_counter_names(_bytes(entry, COUNTER_DESCRIPTOR)),
            )
            self.counters.setdefault(_value(entry, NUMBER), counters)

    def threads(self) -> dict[int, tuple[Thread, str]]:
        """The ids of each track of a thread and its name, "" if it has none beside its
        id."""
        process_names = dict(self._processes.values())  # by pid as it is written
        threads: dict[int, tuple[Thread, str]] = {}
        known_threads: set[Thread] = set()
        for uuid, written in self._threads.items():
            name = written.name
            pid = _process_id(written.pid, process_names.get(written.pid, ""))
            tid = true_id(written.tid, name)
            if (pid, tid) in known_threads:  # the file keeps 31 bits of an id
                tid = f"{name or written.tid} ({uuid})"
            known_threads.add((pid, tid))
            is_only_id = name == str(tid)
            threads[uuid] = (pid, tid), "" if is_only_id else name
        return threads

    def labels(self) -> Iterable[Label]:
        """The names of processes and of threads; where one process is described several
        times, its last name."""
        name_by_pid = dict(self._processes.values())
        for written_pid, name in name_by_pid.items():
            pid = _process_id(written_pid, name)
            if name != str(pid):
                yield Label("process_name", pid, 0, name)
        for (pid, tid), name in self.threads().values():
            if name:
                yield Label("thread_name", pid, tid, name)

    def queue(self, number: int) -> tuple[Id, str]:
        """The id of a lane of a GPU, and its name, "" if it has none beside its id."""
        name = self.queues.get(number, "")
        match = QUEUE.fullmatch(name)
        if match is None:
            return name or f"queue {number}", ""
        return int(match[1]), match[2]


def true_id(masked: int, name: str) -> Id:
    """An id, of which a file keeps 31 bits; its name often has all of it. JSON has no
    sign."""
    match = ID_IN_NAME.fullmatch(name)
    if match:
        id_in_name = int(match[1])
        if id_in_name & ID_MASK == masked:
            return abs(id_in_name)
    fits_int64 = masked >> 63 == 0
    return masked if fits_int64 else str(masked)


def _process_id(pid: int, name: str) -> Id:
    """The id of a process, from its written id and its name; -1 of what torch calls
    overhead."""
    if (pid, name) == (ID_MASK, OVERHEAD):
        return -1
    return true_id(pid, name)


def _counter_names(descriptor: bytes) -> dict[int, str]:
    """The name of each counter of a descriptor, by its number. Raises ValueError where
    it is damaged."""
    names: dict[int, str] = {}
    for field, _, part in decoded(descriptor):
        if field == COUNTER_SPECS:
            spec = _message(part)
            counter = _value(spec, NUMBER)
            names[counter] = _shared_text(spec, counter)
    return names


def numbered(keys: Int64s, value: Callable[[int], object], table: Interner) -> Int64s:
    """The number that the `value` of each key has in `table`; `value` is called once for
    each distinct key, in ascending order."""
    distinct_keys = distinct(keys)
    numbers = [table[value(key)] for key in distinct_keys.tolist()]
    return np.array(numbers, np.int64)[np.searchsorted(distinct_keys, keys)]


def key_and_text(extra: bytes) -> tuple[str, str]:
    """One of the extras of an event of a GPU."""
    try:
        message = _message(extra)
    except ValueError:
        return "unreadable", "a damaged extra"
    return _text(message, EXTRA_KEY), _text(message, EXTRA_TEXT)


def _message(data: bytes) -> Message:
    """Its fields by number, of equal ones the last. Raises ValueError."""
    return {number: (value, part) for number, value, part in decoded(data)}


def _value(message: Message, field: int) -> int:
    return message.get(field, ABSENT)[0]


def _bytes(message: Message, field: int) -> bytes:
    return message.get(field, ABSENT)[1]


def _text(message: Message, field: int) -> str:
    return _bytes(message, field).decode("utf-8", "replace")


def _shared_text(entry: Message, number: int) -> str:
    """The text of an entry, which many events may have; only what is kept of it is
    decoded."""
    kept = _bytes(entry, TEXT)[: MAX_BYTES_A_CHARACTER * (MAX_SHARED_NAME + 1)]
    return shared_name(kept.decode("utf-8", "replace"), number)
