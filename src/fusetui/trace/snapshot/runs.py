"""Processes many events at once. The first event of a form is read by its opcodes.
Those that follow are divided at the bytes with which each begins, and numpy goes from
value to value of all of them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s, distinct
from fusetui.trace.snapshot.tables import (
    Kind,
    PickleMemo,
    RowFields,
    RowRange,
    SnapshotTables,
    StackNumber,
    stack_code,
)
from fusetui.trace.snapshot.walk import PUT_BYTES, EventWalk

MIN_SLAB_BYTES = 1 << 15
MAX_SLAB_BYTES = 1 << 20
"""Bytes that are divided at once: twice as many after each slab that was read
whole."""
MIN_RUN_EVENTS = 16  # fewer are read one by one
BYTES_AFTER_SLAB = 16  # of the file: EventWalk loads eight bytes from any place
MAX_FORMS = 8  # that are tried; torch writes about three
KNOWN_CODE_BYTES = 300
"""Bytes in Python of a text or stack that is remembered, beside three times its
own."""
NO_CODE = -(1 << 31)  # the code of what is neither a frame nor a stack
TUPLE2 = 0x86

# Patterns of opcodes, see pickletools of Python.
PUT = rb"(?:\x94|q.|r....)?+"  # MEMOIZE, BINPUT or LONG_BINPUT, if there is one
GET = rb"(?:h.|j....)"  # BINGET or LONG_BINGET
STACK = rb"(?:\((?:(?:h.)++|(?:j....)++)++e|%sa)" % GET  # frames appended to a list
INT = rb"(?:K.|M..|J....|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
MAX_TEXT_BYTES = 39
TEXTS = b"|".join(
    rb"\x8c\x%02x.{%d}|X\x%02x\0\0\0.{%d}" % (size, size, size, size)
    for size in range(MAX_TEXT_BYTES + 1)
)
TEXT_VALUE = rb"%s|(?:%s)%s" % (GET, TEXTS, PUT)
FRAMES_VALUE = rb"%s|\]%s%s?+" % (GET, PUT, STACK)
POOL_VALUE = rb"%s|%s%s\x86%s" % (GET, INT, INT, PUT)

NUMBER_FIELDS = ("addr", "size", "stream", "time_us", "device_free")
VALUE_OF_FIELD = {
    "action": TEXT_VALUE,
    "compile_context": TEXT_VALUE,
    "user_metadata": TEXT_VALUE,
    "pool_id": POOL_VALUE,
    "frames": FRAMES_VALUE,
    "addr": INT,
    "size": INT,
    "stream": INT,
    "time_us": INT,
    "device_free": INT,
}
"""The value of each field of an event that a run may consist of."""
EVENT_START = re.compile(rb"\}(%s)\(" % PUT, re.DOTALL)
ANY_FIELD = re.compile(
    rb"(%s)(?:%s|%s|%s|%s)" % (GET, TEXT_VALUE, FRAMES_VALUE, POOL_VALUE, INT),
    re.DOTALL,
)
SETITEMS = ord("u")
WHOLE_LIST = re.compile(rb"\](%s)(%s)(?!\(|\x95|%sa)" % (PUT, STACK, GET), re.DOTALL)
"""A list of one batch; more may follow a FRAME."""
FRAME_REFERENCES = re.compile(STACK, re.DOTALL)
FRAME_REFERENCE = re.compile(GET, re.DOTALL)


class EventForm(msgspec.Struct, frozen=True, eq=False):
    """Events with the same keys in the same order, of which `frames`, the last, may be
    missing."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]  # how the file refers to each name
    put: bytes  # the opcode that numbers the dict, or empty
    pattern: re.Pattern[bytes]  # of one event


class EventRun(NamedTuple):
    """Events that were read together."""

    rows: RowRange
    end: int  # the place in the file after them


class WholeStack(NamedTuple):
    """A list of frames that was read as a whole."""

    stack: StackNumber
    put: bytes  # what numbers the list, or empty
    end: int  # the place in the file after it


class FieldCodes(NamedTuple):
    """The values of a field of many events; arrays of shape [events]."""

    references: Int64s  # the number that each refers to, or -1 for a value in place
    codes: Int32s  # of the values in place


class _FieldValues(NamedTuple):
    """The values of many events, by the names of their fields."""

    numbers: dict[str, Int64s]  # of fields that are numbers
    codes: dict[str, FieldCodes]  # of all others


class KnownCodes(dict[bytes, int]):
    """Codes of what bytes of the file mean, each worked out once. Bytes that mean
    nothing have the code NO_CODE and are not remembered."""

    def __init__(self, code_of: Callable[[bytes], int], memo: PickleMemo) -> None:
        """Start without codes. `code_of` works out the code of bytes that were not met
        before; `memo` counts the memory for remembered ones."""
        super().__init__()
        self._code_of = code_of
        self._memo = memo

    def __missing__(self, raw: bytes) -> int:
        """Work out the code of bytes that were not met before. It is remembered unless
        it is NO_CODE."""
        code = self._code_of(raw)
        if code != NO_CODE:
            self._memo.take(KNOWN_CODE_BYTES + 3 * len(raw))
            self[raw] = code
        return code


class _Probe(NamedTuple):
    """How many events of a form follow each other, and the place after the last."""

    events: int
    end: int


class _EventMarks(NamedTuple):
    """Where the MARK of each event is; arrays of shape [events]."""

    at: Int64s
    behind: Int64s  # behind the MARK and the first key


class RunReader:
    """Finds and reads runs of events."""

    def __init__(self, data: bytes, tables: SnapshotTables, memo: PickleMemo) -> None:
        """Prepare to read events of `data`: their rows go to `tables`, the values that
        the pickle numbers go to `memo`."""
        self.data = data
        self.tables = tables
        self.memo = memo
        self.forms: list[EventForm] = []  # the one that fitted last comes first
        self.slow_until = 0  # before this place, events are read one by one
        self.slab_bytes = MIN_SLAB_BYTES
        self.frames = KnownCodes(self._find_frame_row, memo)
        self.stacks = KnownCodes(self._encode_stack, memo)
        self.texts = KnownCodes(self._encode_text, memo)

    def learn(self, start: int, names: tuple[str, ...]) -> None:
        """Learn the form of an event, so that events like it can be read together.

        Nothing is learned of an event with unknown keys, or one that is written in
        another way than torch's.

        Args:
            start: The place in the file where the event begins, at EMPTY_DICT.
            names: Its keys, in order.
        """
        for form in self.forms:
            if names in (form.names, form.names[:-1]):
                return
        if not _may_be_in_run(names):
            return
        begin = EVENT_START.match(self.data, start)
        if begin is None:
            return
        put = begin[1][:1]
        if put == b"q":  # its number has one byte, those of later events have four
            return
        keys = self._written_keys(begin.end())
        if len(keys) != len(names):
            return
        form = EventForm(
            names=names, keys=keys, put=put, pattern=_compile_event_pattern(names, keys)
        )
        # one without frames is a case of this form
        others = [known for known in self.forms if known.names != names[:-1]]
        self.forms = [form, *others[: MAX_FORMS - 1]]

    def _written_keys(self, at: int) -> tuple[bytes, ...]:
        """Return the bytes by which the file refers to each key of an event.

        Args:
            at: The place where the first field begins.

        Returns:
            The keys up to the end of the event; () if a field has another form.
        """
        keys: list[bytes] = []
        while self.data[at] != SETITEMS:
            field = ANY_FIELD.match(self.data, at)
            if field is None:
                return ()
            keys.append(field[1])
            at = field.end()
        return tuple(keys)

    def read(self, start: int) -> EventRun | None:
        """Read the events that begin at a place of the file, all of one form.

        Returns:
            The events; None unless MIN_RUN_EVENTS of them follow each other. Then none
            is looked for again before the place where the form ended.
        """
        if start < self.slow_until:
            return None
        for form in self.forms:
            probe = self._probe(form, start)
            if probe.events == MIN_RUN_EVENTS:
                self.forms.remove(form)
                self.forms.insert(0, form)
                return self._run(form, start)
            self.slow_until = max(probe.end, self.slow_until)
        return None

    def _probe(self, form: EventForm, start: int) -> _Probe:
        """Match events of a form one after the other from the byte `start` on, at most
        MIN_RUN_EVENTS."""
        end = start
        for count in range(MIN_RUN_EVENTS):
            event = form.pattern.match(self.data, end)
            if event is None:
                return _Probe(events=count, end=end)
            end = event.end()
        return _Probe(events=MIN_RUN_EVENTS, end=end)

    def whole_stack(self, start: int) -> WholeStack | None:
        """Read a complete list of frames that begins at the byte `start`. None if
        anything else is there."""
        whole = WHOLE_LIST.match(self.data, start)
        if whole is None:
            return None
        code = self.stacks[whole[2]]
        if code == NO_CODE:
            return None
        return WholeStack(
            stack=StackNumber(stack_code(code)), put=whole[1], end=whole.end()
        )

    def _run(self, form: EventForm, start: int) -> EventRun | None:
        """Read the events of one form from the byte `start` on, within one slab of the
        file. None if there are fewer than MIN_RUN_EVENTS.

        A slab is the range of bytes that is divided into events at once.
        """
        put_bytes = int(PUT_BYTES[form.put[0]]) if form.put else 0
        marks = self._find_event_marks(form, start + 1 + put_bytes)
        if marks is None:
            return None
        walk = EventWalk(self.data, marks.behind[:-1])
        ends = walk.ends(marks.at[1:], put_bytes, form.put)
        if put_bytes:
            walk.put(at=marks.at[:-1] - put_bytes)
        fields = self._values(form, walk, ends)
        event_count = walk.cut()  # up to the first event that does not fit the form
        self._fit_slab(is_whole=event_count == len(marks.at) - 1)
        if event_count < MIN_RUN_EVENTS:
            self.slow_until = int(marks.at[event_count])
            return None
        walk.number_values(self.memo, event_count)
        column_of_field = {}
        for name, numbers in fields.numbers.items():
            column_of_field[name] = numbers[:event_count]
        for name, values in fields.codes.items():
            codes = self._codes(values, event_count)
            column_of_field[name] = self._column(name, codes)
        rows = self.tables.add_events(event_count, column_of_field)
        after_last = int(ends[event_count - 1]) + 1  # behind its SETITEMS
        return EventRun(rows=rows, end=after_last)

    def _codes(self, values: FieldCodes, count: int) -> Int32s:
        """The codes of the first `count` values of a field. Where a value refers to an
        earlier one, its code is looked up and set in place."""
        references = values.references[:count]
        codes = values.codes[:count]
        refers = references >= 0
        codes[refers] = self.memo.codes_of(references[refers])
        return codes

    def _find_event_marks(self, form: EventForm, begin: int) -> _EventMarks | None:
        """Find where the fields of each event begin, in a slab of the file from the
        byte `begin` on.

        None if no event of this form begins there. The last event of the slab may be
        cut short.
        """
        mark = b"(" + form.keys[0]  # behind the number of each event
        slab_end = min(begin + self.slab_bytes, len(self.data) - BYTES_AFTER_SLAB)
        slab = self.data[begin:slab_end]
        if not slab.startswith(mark):
            return None
        # the first piece is empty, and the last one may be cut short
        *pieces, _ = slab.split(mark)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        behind = begin + np.cumsum(lengths + len(mark))
        return _EventMarks(at=behind - len(mark), behind=behind)

    def _fit_slab(self, is_whole: bool) -> None:
        """Double the size of the next slab if the last one was read to its end;
        otherwise make it small again. A slab is a range of the file that is read at
        once."""
        if is_whole:
            self.slab_bytes = min(2 * self.slab_bytes, MAX_SLAB_BYTES)
        else:
            self.slab_bytes = MIN_SLAB_BYTES

    def _values(self, form: EventForm, walk: EventWalk, ends: Int64s) -> _FieldValues:
        """Read the fields of many events, field by field.

        Args:
            form: The fields that the events have, in order.
            walk: The events, at the value of their first field.
            ends: Where each event ends. One that does not end there does not fit.
        """
        numbers: dict[str, Int64s] = {}
        codes: dict[str, FieldCodes] = {}
        first_name = form.names[0]
        for name, key in zip(form.names, form.keys, strict=True):
            if name == "frames":  # the last one
                codes[name] = self._frames(walk, key, ends)
                return _FieldValues(numbers=numbers, codes=codes)
            if name != first_name:  # its key is part of what each event begins with
                walk.pass_key(key)
            if name in NUMBER_FIELDS:
                numbers[name] = walk.number()
            else:
                codes[name] = self._value(walk, name)
        walk.fits &= walk.at == ends[: len(walk.at)]
        return _FieldValues(numbers=numbers, codes=codes)

    def _value(self, walk: EventWalk, name: str) -> FieldCodes:
        """Read one field of all events that is a text or, for `pool_id`, a pair of
        numbers.

        Events are dropped from the first one on that has anything else.
        """
        references = walk.reference()
        if name == "action":  # has been written before
            walk.fits &= references >= 0
        references = references[: walk.cut()]
        codes = np.zeros(len(references), np.int32)
        in_place = references < 0
        if in_place.any():
            if name == "pool_id":
                codes[in_place] = self._pairs(walk, in_place)
            else:
                codes[in_place] = [self.texts[raw] for raw in walk.text(in_place)]
            walk.put(codes, in_place)
        return FieldCodes(references=references, codes=codes)

    def _pairs(self, walk: EventWalk, which: Flags) -> list[int]:
        """The codes of the pairs of numbers that stand in the events selected by
        `which`. Clears `fits` of those that have no pair."""
        first = walk.number(which)[which].tolist()
        second = walk.number(which)[which].tolist()
        is_pair = walk.byte() == TUPLE2
        walk.fits &= ~which | is_pair
        walk.step(which.astype(np.int64))
        pairs = zip(first, second, strict=True)
        return [self.memo.shared(pair) for pair in pairs]

    def _frames(self, walk: EventWalk, key: bytes, ends: Int64s) -> FieldCodes:
        """Read the stack of each event, which is its last field and may be missing.

        `key` is how the file refers to the field, and `ends` says where each event
        ends. Clears `fits` of events whose stack has another form.
        """
        has_frames = walk.at != ends[: len(walk.at)]
        walk.pass_key(key, has_frames)
        references = np.where(has_frames, walk.reference(), -1)
        in_place = has_frames & (references < 0)  # the list itself is written here
        is_list = walk.byte() == ord("]")
        is_at_end = walk.at == ends[: len(walk.at)]
        walk.fits &= np.where(in_place, is_list, is_at_end)

        count = walk.cut()
        references = references[:count]
        in_place = in_place[:count]
        ends = ends[:count]
        no_frames = stack_code(-1)
        codes = np.full(count, no_frames, np.int32)
        walk.step(in_place.astype(np.int64))
        # the list has its number before what is in it is known
        walk.put(codes, in_place)

        has_items = in_place & (walk.at != ends)
        lists = walk.pieces(walk.at[has_items], ends[has_items])
        codes[has_items] = self._encode_stacks(lists)
        walk.fits &= codes != NO_CODE
        return FieldCodes(references=references, codes=codes)

    def _encode_stacks(self, lists: list[bytes]) -> list[int]:
        """The codes of stacks, each given as the bytes of its list of frames.

        The first one that is no list of frames has NO_CODE, and so has everything after
        it, as reading ends there anyway.
        """
        codes: list[int] = []
        for raw in lists:
            code = self.stacks[raw]
            if code == NO_CODE:
                break
            codes.append(code)
        return codes + [NO_CODE] * (len(lists) - len(codes))

    def _column(self, name: str, codes: Int32s) -> Int64s:
        """The numbers that stand in one column of the events for these codes; shape
        [events]. Each distinct code is looked up once."""
        number_of: Callable[[Any], int]
        if name == "action":
            number_of = self.tables.action
        elif name == "frames":
            number_of = self.tables.stack
        elif name == "pool_id":
            number_of = self.tables.pool
        else:
            number_of = self.tables.text
        kinds = distinct(codes)
        numbers = [number_of(self.memo.thing(code)) for code in kinds.tolist()]
        return np.array(numbers, np.int64)[np.searchsorted(kinds, codes)]

    def _encode_text(self, raw: bytes) -> int:
        """The code of a text in UTF-8; equal texts have the same one."""
        return self.memo.shared(str(raw, "utf-8", "replace"))

    def _encode_stack(self, raw: bytes) -> int:
        """The code of a stack given as references to frames. NO_CODE if the bytes are
        anything else."""
        if not FRAME_REFERENCES.fullmatch(raw):
            return NO_CODE
        rows = [self.frames[reference] for reference in FRAME_REFERENCE.findall(raw)]
        if min(rows) < 0:
            return NO_CODE
        code: int = stack_code(self.tables.stack_of(array("i", rows)))
        return code

    def _find_frame_row(self, raw: bytes) -> int:
        """The row of the frame that the bytes refer to. NO_CODE if they refer to
        anything else."""
        thing = self.memo.get(int.from_bytes(raw[1:], "little"))
        is_frame = type(thing) is RowFields and thing.kind is Kind.FRAME
        return thing.row if is_frame else NO_CODE


def _may_be_in_run(names: tuple[str, ...]) -> bool:
    """Whether events with these keys can be read together: the keys are known,
    distinct, `action` is first, and `frames` is last if it is there."""
    has_known_keys = set(names) <= VALUE_OF_FIELD.keys()
    is_distinct = len(set(names)) == len(names)
    has_frames_last = "frames" not in names[:-1]
    return has_known_keys and is_distinct and has_frames_last and names[0] == "action"


def _compile_event_pattern(
    names: tuple[str, ...], keys: tuple[bytes, ...]
) -> re.Pattern[bytes]:
    """The compiled pattern of an event with these fields in this order. `keys` are the
    bytes by which the file refers to each name. The field `frames` may be missing."""
    fields = []
    for name, key in zip(names, keys, strict=True):
        value = VALUE_OF_FIELD[name]
        field = b"%s(?:%s)" % (re.escape(key), value)
        fields.append(b"(?:%s)?+" % field if name == "frames" else field)
    pattern = b"%s%su" % (EVENT_START.pattern, b"".join(fields))
    return re.compile(pattern, re.DOTALL)
