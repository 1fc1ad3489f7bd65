"""Many events at once: the first of a form is read by its opcodes; those that follow
are divided at the bytes with which each begins, and numpy goes from value to value of
all."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, distinct
from fusetui.trace.snapshot.tables import (
    Kind,
    Memo,
    RowFields,
    RowRange,
    SnapshotTables,
    StackNumber,
    stack_code,
)
from fusetui.trace.snapshot.walk import PUTS, Walk

# bytes that are divided at once: more after each whole success
SMALL, LARGE = 1 << 15, 1 << 20
LEAST = 16  # events; fewer are read one by one
AFTER = 16  # bytes of the file that follow: Walk loads eight from any place
FORMS = 8  # that are tried; torch writes about three
# bytes in Python of a text or stack that is remembered, beside three times its own
DISTINCT = 300
NO_STACK = -(1 << 31)  # the code of what is none
TUPLE2 = 0x86
PUT, GET = rb"(?:\x94|q.|r....)?+", rb"(?:h.|j....)"
STACK = rb"(?:\((?:(?:h.)++|(?:j....)++)++e|%sa)" % GET
INT = rb"(?:K.|M..|J....|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
TEXTS = b"|".join(
    rb"\x8c\x%02x.{%d}|X\x%02x\0\0\0.{%d}" % (n, n, n, n) for n in range(40)
)
WHAT = {
    "": rb"%s|(?:%s)%s" % (GET, TEXTS, PUT),
    "frames": rb"%s|\]%s%s?+" % (GET, PUT, STACK),
}
"""The values of a field by its name, else a text."""
WHAT |= {"pool_id": rb"%s|%s%s\x86%s" % (GET, INT, INT, PUT)}
START = re.compile(rb"\}(%s)\(" % PUT, re.DOTALL)
FIELD = re.compile(rb"(%s)(?:%s|%s)" % (GET, b"|".join(WHAT.values()), INT), re.DOTALL)
WHOLE = re.compile(rb"\](%s)(%s)(?!\(|\x95|%sa)" % (PUT, STACK, GET), re.DOTALL)
"""A list of one batch; more may follow a FRAME."""
LIST, FRAME = re.compile(STACK, re.DOTALL), re.compile(GET, re.DOTALL)
NUMBERS = ("addr", "size", "stream", "time_us", "device_free")
WHAT |= dict.fromkeys(NUMBERS, INT)
NAMES = {*NUMBERS, "action", "compile_context", "user_metadata", "pool_id", "frames"}


class EventForm(msgspec.Struct, frozen=True, eq=False):
    """Events with the same keys in the same order, of which `frames`, the last, may be
    missing."""

    names: tuple[str, ...]
    keys: tuple[bytes, ...]  # how the file refers to each
    put: bytes  # the opcode that numbers the dict, if one does
    pattern: re.Pattern[bytes]  # of one


class KnownCodes(dict[bytes, int]):
    """Codes of what bytes of the file mean, each worked out once."""

    def __init__(self, code: Callable[[bytes], int], memo: Memo) -> None:
        super().__init__()
        self._code, self._memo = code, memo

    def __missing__(self, raw: bytes) -> int:
        if (found := self._code(raw)) != NO_STACK:
            self._memo.take(DISTINCT + 3 * len(raw))
            self[raw] = found
        return found


class RunReader:
    """Finds and reads runs of events."""

    def __init__(self, data: bytes, tables: SnapshotTables, memo: Memo) -> None:
        self.data, self.tables, self.memo = data, tables, memo
        self.forms: list[EventForm] = []
        self.slow_until = 0  # before this place, events are read one by one
        self.size = SMALL
        self.frames, self.stacks = (
            KnownCodes(self._frame, memo),
            KnownCodes(self._stack, memo),
        )
        self.texts = KnownCodes(
            lambda raw: memo.shared(str(raw, "utf-8", "replace")), memo
        )

    def learn(self, start: int, names: tuple[str, ...]) -> None:
        """Makes a form of the event that starts here, if it is one that runs may
        consist of."""
        if any(names in (one.names, one.names[:-1]) for one in self.forms):
            return
        keys = list[bytes]()
        found = begin = START.match(self.data, start)
        while found and self.data[found.end()] != ord("u"):
            if found := FIELD.match(self.data, found.end()):
                keys.append(found[1])
        if not begin or not found or begin[1][:1] == b"q" or "frames" in names[:-1]:
            return
        if (
            set(names) <= NAMES
            and names[0] == "action"
            and len(set(names)) == len(keys)
        ):
            others = [one for one in self.forms if one.names != names[:-1]]
            values = [WHAT.get(name, WHAT[""]) for name in names]
            fields = [
                b"%s(?:%s)" % (re.escape(k), v)
                for k, v in zip(keys, values, strict=True)
            ]
            fields[-1] = (
                b"(?:%s)?+" % fields[-1] if names[-1] == "frames" else fields[-1]
            )
            pattern = re.compile(START.pattern + b"".join(fields) + b"u", re.DOTALL)
            self.forms = [
                EventForm(names, tuple(keys), begin[1][:1], pattern),
                *others[: FORMS - 1],
            ]

    def read(self, start: int) -> tuple[RowRange, int] | None:
        """The events from here on, and where they end; None if there are too few."""
        if start < self.slow_until:
            return None
        for form in self.forms:
            end = start
            for _ in range(LEAST):
                if not (found := form.pattern.match(self.data, end)):
                    break
                end = found.end()
            else:
                self.forms.sort(key=lambda one: one is not form)
                return self._run(form, start)
            self.slow_until = max(end, self.slow_until)
        return None

    def whole_stack(self, start: int) -> tuple[StackNumber, bytes, int] | None:
        """A list of frames that begins here, what numbers it, and where it ends."""
        found = WHOLE.match(self.data, start)
        code = self.stacks[found[2]] if found else NO_STACK
        if not found or code == NO_STACK:
            return None
        return StackNumber(stack_code(code)), found[1], found.end()

    def _run(self, form: EventForm, start: int) -> tuple[RowRange, int] | None:
        mark, put = b"(" + form.keys[0], int(PUTS[form.put[0]]) if form.put else 0
        begin = start + 1 + put
        slab = self.data[begin : min(begin + self.size, len(self.data) - AFTER)]
        if not slab.startswith(mark):
            return None
        pieces = slab.split(mark)  # the first is empty, the last is cut short
        lengths = np.fromiter(map(len, pieces[:-1]), np.int64, len(pieces) - 1)
        begins = begin + np.cumsum(lengths + len(mark)) - len(mark)
        walk = Walk(self.data, begins[:-1] + len(mark))
        last = walk.ends(begins[1:], put, form.put)
        if put:
            walk.put(at=begins[:-1] - put)
        columns, codes = self._values(form, walk, last)
        count = walk.cut()
        whole = count == len(begins) - 1
        self.size = min(2 * self.size, LARGE) if whole else SMALL
        if count < LEAST:
            self.slow_until = int(begins[count])
            return None
        walk.numbered(self.memo, count)
        for name, (numbers, code) in codes.items():
            numbers, code = numbers[:count], code[:count]
            there = numbers >= 0
            code[there] = self.memo.codes_of(numbers[there])
            columns[name] = self._meant(code, name)
        rows = self.tables.add_events(
            count, {key: one[:count] for key, one in columns.items()}
        )
        return rows, int(last[count - 1]) + 1

    def _values(
        self, form: EventForm, walk: Walk, last: Int64s
    ) -> tuple[dict[str, Int64s], dict[str, tuple[Int64s, Int32s]]]:
        """Numbers; and of other values the number that each is referred to, or -1 and
        its code."""
        columns, codes = dict[str, Int64s](), dict[str, tuple[Int64s, Int32s]]()
        for place, (name, key) in enumerate(zip(form.names, form.keys, strict=True)):
            if name == "frames":
                codes[name] = self._frames(walk, key, last)
                return columns, codes
            if place:
                walk.pass_key(key)
            if name in NUMBERS:
                columns[name] = walk.number()
            else:
                codes[name] = self._value(walk, name)
        walk.ok &= walk.at == last[: len(walk.at)]
        return columns, codes

    def _value(self, walk: Walk, name: str) -> tuple[Int64s, Int32s]:
        numbers = walk.reference()
        if name == "action":
            walk.ok &= numbers >= 0
        numbers = numbers[: walk.cut()]
        inline = numbers < 0
        codes = np.zeros(len(numbers), np.int32)
        if name == "pool_id" and inline.any():
            pairs = (
                np.array([walk.number(inline), walk.number(inline)]).T[inline].tolist()
            )
            shared = self.memo.shared
            codes[inline] = [shared((one, other)) for one, other in pairs]
            walk.ok &= ~inline | (walk.byte() == TUPLE2)
            walk.step(inline.astype(np.int64))
        elif inline.any():
            texts = self.texts
            codes[inline] = [texts[raw] for raw in walk.text(inline)]
        if inline.any():
            walk.put(codes, inline)
        return numbers, codes

    def _frames(self, walk: Walk, key: bytes, last: Int64s) -> tuple[Int64s, Int32s]:
        """As `_value`, of the last field, which may be missing."""
        there = walk.at != last[: len(walk.at)]
        walk.pass_key(key, there)
        numbers = np.where(there, walk.reference(), -1)
        inline = there & (numbers < 0)
        walk.ok &= np.where(
            inline, walk.byte() == ord("]"), walk.at == last[: len(walk.at)]
        )
        count = walk.cut()
        numbers, inline, last = numbers[:count], inline[:count], last[:count]
        codes = np.full(count, stack_code(-1), np.int32)
        walk.step(inline.astype(np.int64))
        walk.put(codes, inline)  # the list has its number before what is in it is known
        filled, stacks = inline & (walk.at != last), self.stacks
        pieces = walk.pieces(walk.at[filled], last[filled])
        found = list[int]()
        for one in pieces:
            if (code := stacks[one]) == NO_STACK:
                break
            found.append(code)
        codes[filled] = found + [NO_STACK] * (len(pieces) - len(found))
        walk.ok &= codes != NO_STACK
        return numbers, codes

    def _meant(self, codes: Int32s, name: str) -> Int64s:
        """What codes mean in a column."""
        meanings: dict[str, Callable[[Any], int]] = {"action": self.tables.action}
        meanings |= {"frames": self.tables.stack, "pool_id": self.tables.pool}
        meaning, kinds = meanings.get(name, self.tables.text), distinct(codes)
        found = np.array(
            [meaning(self.memo.thing(code)) for code in kinds.tolist()], np.int64
        )
        return found[np.searchsorted(kinds, codes)]

    def _stack(self, raw: bytes) -> int:
        """The code of the stack with these references to frames; NO_STACK of anything
        else."""
        if not LIST.fullmatch(raw):
            return NO_STACK
        rows = list(map(self.frames.__getitem__, FRAME.findall(raw)))
        if min(rows) < 0:
            return NO_STACK
        code: int = stack_code(self.tables.stack_of(array("i", rows)))
        return code

    def _frame(self, raw: bytes) -> int:
        """The row of the frame that is referred to; NO_STACK of anything else."""
        found = self.memo.get(int.from_bytes(raw[1:], "little"))
        return (
            found.row
            if type(found) is RowFields and found.kind is Kind.FRAME
            else NO_STACK
        )
