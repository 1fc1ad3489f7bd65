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
from fusetui.trace.pftrace.scan import CLOCK, TRACK, TablePacket
from fusetui.trace.pftrace.wire import decoded
from fusetui.trace.read.document_text import MAX_SHARED_NAME, shorten_shared_name
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


class NamedThread(NamedTuple):
    """A thread of the trace."""

    pid: Id
    tid: Id
    name: str  # "" if it says no more than the tid


class WrittenThread(NamedTuple):
    """The ids of a thread as they are written: see `restore_id`."""

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
        """Start with empty tables."""
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

    def add(self, packets: Sequence[TablePacket]) -> tuple[list[Skipped], int]:
        """Add what can be read of some packets.

        Only MAX_TABLE_PACKETS packets of a file are read. Returns the damaged packets,
        and how many packets were not read to their end.
        """
        readable = packets[: self._packets_left]
        too_many = packets[self._packets_left :]
        self._packets_left -= len(readable)
        skipped: list[Skipped] = []
        for packet in readable:
            try:
                self._add_packet(packet.kind, packet.content)
            except ValueError as error:
                skipped.append(Skipped(packet.byte, f"a damaged table: {error}"))
        skipped_count = len(skipped) + len(too_many)
        if too_many:
            reason = f"only {MAX_TABLE_PACKETS} tables are read"
            skipped.append(Skipped(too_many[0].byte, reason))
        return skipped, skipped_count

    def _add_packet(self, kind: int, content: bytes) -> None:
        """Add the content of one packet. Raises ValueError where it is damaged; what
        was read before that is kept."""
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
        """Take the base time from a packet of clocks, unless an earlier packet had one."""
        if self.base:
            return
        for _, _, data in decoded(content):
            clock = _decode_message(data)
            time = _varint_field(clock, CLOCK_TIME)
            if _varint_field(clock, CLOCK_ID) == REALTIME and time <= LIMIT_NS:
                self.base = time
                return

    def _add_track(self, content: bytes) -> None:
        """Add the process and the thread of a track, as its packet describes them."""
        track = _decode_message(content)
        uuid = _varint_field(track, TRACK_UUID)
        if TRACK_PROCESS in track:
            process = _decode_message(_bytes_field(track, TRACK_PROCESS))
            pid = _varint_field(process, PROCESS_PID)
            name = _text_field(process, PROCESS_NAME)
            self._processes.setdefault(uuid, (pid, name))
        if TRACK_THREAD in track:
            thread = _decode_message(_bytes_field(track, TRACK_THREAD))
            written = WrittenThread(
                pid=_varint_field(thread, THREAD_PID),
                tid=_varint_field(thread, THREAD_TID),
                name=_text_field(thread, THREAD_NAME),
            )
            self._threads.setdefault(uuid, written)

    def _add_entry(self, table: int, data: bytes) -> None:
        """Add an entry of interned data to the table with this number. Entries of
        unknown tables are left out."""
        if table in self._texts_of_table:
            texts = self._texts_of_table[table]
            entry = _decode_message(data)
            number = _varint_field(entry, NUMBER)
            if number not in texts:
                texts[number] = _shared_text(entry, number)
        elif table == COUNTERS:
            entry = _decode_message(data)
            counters = GpuCounters(
                gpu=_varint_field(entry, COUNTER_GPU),
                names=_read_counter_names(_bytes_field(entry, COUNTER_DESCRIPTOR)),
            )
            self.counters.setdefault(_varint_field(entry, NUMBER), counters)

    def threads(self) -> dict[int, NamedThread]:
        """Each track that is a thread, by the number of the track."""
        process_names = dict(self._processes.values())  # by pid as it is written
        threads: dict[int, NamedThread] = {}
        known_threads: set[Thread] = set()
        for track, written in self._threads.items():
            name = written.name
            pid = _restore_process_id(written.pid, process_names.get(written.pid, ""))
            tid = restore_id(written.tid, name)
            # Two threads must not share one lane, but the file keeps 31 bits of an id.
            if (pid, tid) in known_threads:
                tid = f"{name or written.tid} ({track})"
            known_threads.add((pid, tid))
            is_only_id = name == str(tid)
            threads[track] = NamedThread(pid, tid, name="" if is_only_id else name)
        return threads

    def labels(self) -> Iterable[Label]:
        """Yield the names of processes and threads. If a process is described several
        times, its last name counts."""
        name_by_pid = dict(self._processes.values())
        for written_pid, name in name_by_pid.items():
            pid = _restore_process_id(written_pid, name)
            if name != str(pid):
                yield Label("process_name", pid, 0, name)
        for thread in self.threads().values():
            if thread.name:
                yield Label("thread_name", thread.pid, thread.tid, thread.name)

    def queue(self, number: int) -> tuple[Id, str]:
        """The id and the name of a lane of a GPU, given the number of its queue. The
        name is "" if it says no more than the id."""
        name = self.queues.get(number, "")
        match = QUEUE.fullmatch(name)
        if match is None:
            return name or f"queue {number}", ""
        return int(match[1]), match[2]


def restore_id(masked: int, name: str) -> Id:
    """Return the id of a process or thread.

    The file keeps only its lower 31 bits, but its name often begins with all of it:
    for 1 and "thread 2147483649 (worker)" it is 2147483649. A negative id loses its
    sign, as JSON has none.

    Args:
        masked: The id as the file has it.
        name: The name. It counts if its number has the same lower 31 bits.
    """
    match = ID_IN_NAME.fullmatch(name)
    if match:
        id_in_name = int(match[1])
        if id_in_name & ID_MASK == masked:
            return abs(id_in_name)
    fits_int64 = masked >> 63 == 0
    return masked if fits_int64 else str(masked)


def _restore_process_id(pid: int, name: str) -> Id:
    """The id of a process, from its written id and its name; -1 for what torch calls
    overhead."""
    if (pid, name) == (ID_MASK, OVERHEAD):
        return -1
    return restore_id(pid, name)


def _read_counter_names(descriptor: bytes) -> dict[int, str]:
    """The name of each counter in a descriptor, by its number. Raises ValueError if the
    descriptor is damaged."""
    names: dict[int, str] = {}
    for field, _, part in decoded(descriptor):
        if field == COUNTER_SPECS:
            spec = _decode_message(part)
            counter = _varint_field(spec, NUMBER)
            names[counter] = _shared_text(spec, counter)
    return names


def number_values(
    keys: Int64s, value: Callable[[int], object], table: Interner
) -> Int64s:
    """Number what keys stand for.

    With the names {3: "a", 8: "b"} and an empty table, the keys [8, 3, 8] give
    [1, 0, 1], and the table is ("a", "b").

    Args:
        keys: The keys, in any order.
        value: What a key stands for. It is called once for each distinct key, in
            ascending order.
        table: The table of values, which new ones are added to.

    Returns:
        The index in the table of the value of each key.
    """
    distinct_keys = distinct(keys)
    numbers = [table[value(key)] for key in distinct_keys.tolist()]
    return np.array(numbers, np.int64)[np.searchsorted(distinct_keys, keys)]


def key_and_text(extra: bytes) -> tuple[str, str]:
    """The key and the text of one extra of a GPU event. A damaged one has the key
    `unreadable`."""
    try:
        message = _decode_message(extra)
    except ValueError:
        return "unreadable", "a damaged extra"
    return _text_field(message, EXTRA_KEY), _text_field(message, EXTRA_TEXT)


def _decode_message(data: bytes) -> Message:
    """The fields of a message by their number; of several with one number, the last
    counts. Raises ValueError if it is damaged."""
    return {number: (value, part) for number, value, part in decoded(data)}


def _varint_field(message: Message, field: int) -> int:
    """The number in a field of a message; 0 if the field is missing."""
    return message.get(field, ABSENT)[0]


def _bytes_field(message: Message, field: int) -> bytes:
    """The bytes in a field of a message; b"" if the field is missing."""
    return message.get(field, ABSENT)[1]


def _text_field(message: Message, field: int) -> str:
    """The text in a field of a message; "" if the field is missing."""
    return _bytes_field(message, field).decode("utf-8", "replace")


def _shared_text(entry: Message, number: int) -> str:
    """The text of an entry that many events may refer to. Only the part that is kept of
    a very long one is decoded."""
    kept = _bytes_field(entry, TEXT)[: MAX_BYTES_A_CHARACTER * (MAX_SHARED_NAME + 1)]
    return shorten_shared_name(kept.decode("utf-8", "replace"), number)
