"""What events name by number: names, categories, tracks, queues, kinds, counters; and
the clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

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
REALTIME = 1
MASK = 0x7FFFFFFF  # of the ids of processes and threads in a file
OWN_ID = re.compile(
    r"(?:(?:thread|stream|process) )?(-?[0-9]{1,18})(?: \(.*)?", re.DOTALL
)
QUEUE = re.compile(r"\[([0-9]{1,18})\] (.*)", re.DOTALL)
OVERHEAD = "Overhead"
EXPORTER = ("arch", "process_id", "process_name")
"""What the extras of every event say of the process that exported; the keys of an
annotation follow."""
NOTHING = 0, b""
MAX_BYTES_A_CHARACTER = 4  # of UTF-8
MOST, MOST_NAMES = 1 << 16, 1 << 20  # packets of tables, and names of one


class Tables:
    """Filled packet by packet, in the order of the file; the first of equal numbers
    counts."""

    def __init__(self) -> None:
        self._room = MOST
        self.base = 0  # ns since the epoch
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.queues: dict[int, str] = {}  # also the kinds of stages
        self.arg_names: dict[int, str] = {}
        self.counters: dict[int, tuple[int, dict[int, str]]] = {}  # GPU, and names
        self.exporter: dict[str, str] = {}
        self._texts = {
            CATEGORIES: self.categories,
            NAMES: self.names,
            QUEUES: self.queues,
            ARGS: self.arg_names,
        }
        self._processes: dict[int, tuple[int, str]] = {}  # pid as written, and name
        self._threads: dict[int, tuple[int, int, str]] = {}  # pid and tid as written

    def add(
        self, packets: Sequence[tuple[int, int, bytes]]
    ) -> tuple[list[Skipped], int]:
        """Adds what can be read of some packets, up to MOST of them in all; returns
        those that are damaged, and how many were not read to their end."""
        wrong: list[Skipped] = []
        room, self._room = self._room, max(self._room - len(packets), 0)
        for byte, kind, content in packets[:room]:
            try:
                self._packet(kind, content)
            except ValueError as error:
                wrong.append(Skipped(byte, f"a damaged table: {error}"))
        if len(packets) > room:
            wrong.append(Skipped(packets[room][0], f"only {MOST} tables are read"))
        return wrong, len(wrong) + max(len(packets) - room - 1, 0)

    def _packet(self, kind: int, content: bytes) -> None:
        if kind == CLOCK:
            self._clock(content)
        elif kind == TRACK:
            self._track(content)
        else:
            for place, (number, _, entry) in enumerate(decoded(content)):
                if place > MOST_NAMES:
                    raise ValueError("too many names")
                self._interned(number, entry)

    def _clock(self, content: bytes) -> None:
        clocks = (_message(clock) for _, _, clock in decoded(content))
        known = (_value(clock, 2) for clock in clocks if _value(clock, 1) == REALTIME)
        self.base = self.base or next((time for time in known if time <= LIMIT_NS), 0)

    def _track(self, content: bytes) -> None:
        found = _message(content)
        uuid = found.get(1, NOTHING)[0]
        if process := found.get(3):
            one = _message(process[1])
            self._processes.setdefault(uuid, (_value(one, 1), _text(one, 6)))
        if thread := found.get(4):
            one = _message(thread[1])
            self._threads.setdefault(
                uuid, (_value(one, 1), _value(one, 2), _text(one, 5))
            )

    def _interned(self, number: int, entry: bytes) -> None:
        table = self._texts.get(number)
        if table is not None:
            found = _message(entry)
            key = _value(found, 1)
            if key not in table:
                table[key] = _shared(found, key)
        elif number == COUNTERS:
            found = _message(entry)
            parts = (
                part
                for field, _, part in decoded(found.get(2, NOTHING)[1])
                if field == 1
            )
            specs = [_message(part) for part in parts]
            names = {_value(spec, 1): _shared(spec, _value(spec, 1)) for spec in specs}
            self.counters.setdefault(_value(found, 1), (_value(found, 3), names))

    def threads(self) -> dict[int, tuple[Thread, str]]:
        """The ids of each track of a thread and its name, "" if it has none."""
        names = {pid: name for pid, name in self._processes.values()}
        found: dict[int, tuple[Thread, str]] = {}
        used: set[Thread] = set()
        for uuid, (pid, tid, name) in self._threads.items():
            own: Thread = (_process(pid, names.get(pid, "")), true_id(tid, name))
            if own in used:  # the file keeps 31 bits of an id
                own = (own[0], f"{name or tid} ({uuid})")
            used.add(own)
            found[uuid] = own, "" if name == str(own[1]) else name
        return found

    def labels(self) -> Iterable[Label]:
        for number, name in dict(self._processes.values()).items():
            own = _process(number, name)
            if name != str(own):
                yield Label("process_name", own, 0, name)
        for (pid, tid), name in self.threads().values():
            if name:
                yield Label("thread_name", pid, tid, name)

    def queue(self, number: int) -> tuple[Id, str]:
        """The id of a lane of a GPU, and its name."""
        name = self.queues.get(number, "")
        found = QUEUE.fullmatch(name)
        return (int(found[1]), found[2]) if found else (name or f"queue {number}", "")


def true_id(masked: int, name: str) -> Id:
    """An id, of which a file keeps 31 bits; its name often has all of it. JSON has no
    sign."""
    found = OWN_ID.fullmatch(name)
    if found and int(found[1]) & MASK == masked:
        return abs(int(found[1]))
    return masked if masked >> 63 == 0 else str(masked)


def _process(pid: int, name: str) -> Id:
    return -1 if (pid, name) == (MASK, OVERHEAD) else true_id(pid, name)


def numbered(keys: Int64s, value: Callable[[int], object], table: Interner) -> Int64s:
    """The number that the value of each key has in `table`."""
    known = distinct(keys)
    numbers = np.array([table[value(key)] for key in known.tolist()], np.int64)
    return numbers[np.searchsorted(known, keys)]


Message = dict[int, tuple[int, bytes]]


def _message(data: bytes) -> Message:
    """Its fields by number, of equal ones the last."""
    return {number: (value, part) for number, value, part in decoded(data)}


def _value(message: Message, number: int) -> int:
    return message.get(number, NOTHING)[0]


def _text(message: Message, number: int) -> str:
    return message.get(number, NOTHING)[1].decode("utf-8", "replace")


def _shared(message: Message, key: int) -> str:
    """The text of an entry, which many events may have; only what is kept of it is
    decoded."""
    text = message.get(2, NOTHING)[1][: MAX_BYTES_A_CHARACTER * (MAX_SHARED_NAME + 1)]
    return shared_name(text.decode("utf-8", "replace"), key)


def key_and_text(extra: bytes) -> tuple[str, str]:
    """One of the extras of an event of a GPU."""
    try:
        found = _message(extra)
    except ValueError:
        return "unreadable", "a damaged extra"
    return _text(found, 1), _text(found, 2)
