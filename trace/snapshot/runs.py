"""Many events at once: the first of a form is read by its opcodes; a pattern made of it finds where
each of those that follow ends, and numpy takes them apart."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, distinct
from fusetui.trace.snapshot.memo import Memo, stack_code
from fusetui.trace.snapshot.tables import Fields, Kind, Rows, Stack, Tables, Wrong
from fusetui.trace.snapshot.walk import Walk

MOST, LEAST = 1 << 15, 16  # events that are read at once; fewer than LEAST are read one by one
FORMS = 8  # that are tried; torch writes about three
AFTER = 16  # bytes of the file that follow: Walk loads eight from any place of an event
DISTINCT = 300  # bytes in Python of a text or stack that is remembered, beside three times its own
PUT = rb"(?:\x94|q.|r....)?+"
GET = rb"(?:h.|j....)"
INT = rb"(?:K.|\x8a(?:\x06.{6}|\x07.{7}|\x05.{5}|\x08.{8})|J....|M..)"
LENGTHS = (3, 0, *(n for n in range(1, 40) if n != 3))  # N/A, nothing, and others
SHORT = rb"\x8c(?:%s)" % b"|".join(rb"\x%02x.{%d}" % (n, n) for n in LENGTHS)
LONG = rb"X(?:%s)" % b"|".join(rb"\x%02x\x00\x00\x00.{%d}" % (n, n) for n in LENGTHS)
TEXT = rb"(?:%s|(?:%s|%s)%s)" % (GET, SHORT, LONG, PUT)
STACK = rb"(?:\((?:(?:h.)++|(?:j....)++)++e|%sa)" % GET
FRAMES = rb"(?:%s|\]%s%s?+)" % (GET, PUT, STACK)
PAIR = rb"(?:%s|%s%s\x86%s)" % (GET, INT, INT, PUT)
NUMBERS = ("addr", "size", "stream", "time_us", "device_free")
TEXTS = ("compile_context", "user_metadata")
PATTERNS = {"action": GET, "frames": FRAMES, "pool_id": PAIR}
PATTERNS |= dict.fromkeys(NUMBERS, INT) | dict.fromkeys(TEXTS, TEXT)
START = re.compile(rb"\}%s\(" % PUT, re.DOTALL)
FIELD = re.compile(rb"(%s)(?:%s|%s|%s|%s)" % (GET, PAIR, INT, TEXT, FRAMES), re.DOTALL)
WHOLE = re.compile(rb"\](%s)(%s)(?!\(|\x95|%sa)" % (PUT, STACK, GET), re.DOTALL)
"""A list of one batch; more may follow a FRAME."""
FRAME = re.compile(rb"h(.)|j(....)", re.DOTALL)


class OtherList(Wrong):
    """A list of something else than frames."""


class Form(msgspec.Struct, frozen=True, eq=False):
    """Events with the same keys in the same order, of which `frames` may be missing."""

    names: tuple[str, ...]
    lengths: tuple[int, ...]  # of the bytes that refer to each
    pattern: re.Pattern[bytes]  # of one, and of what divides the batches of a list


class Known(dict[bytes, int]):
    """Codes of what bytes of the file mean, each worked out once."""

    def __init__(self, code: Callable[[bytes], int], memo: Memo) -> None:
        super().__init__()
        self._code, self._memo = code, memo

    def __missing__(self, raw: bytes) -> int:
        self._memo.take(DISTINCT + 3 * len(raw))
        found = self[raw] = self._code(raw)
        return found


class Runs:
    """Finds and reads runs of events."""

    def __init__(self, data: bytes, tables: Tables, memo: Memo) -> None:
        self.data, self.tables, self.memo = data, tables, memo
        self.forms: list[Form] = []
        self.slow_until = 0  # before this place, events are read one by one
        self.stacks = Known(self._stack, memo)
        self.texts = Known(lambda raw: memo.shared(str(raw, "utf-8", "surrogatepass")), memo)

    def learn(self, start: int, names: tuple[str, ...]) -> None:
        """Makes a form of the event that starts here, if it is one that runs may consist of."""
        if any(names in (one.names, one.names[:-1]) for one in self.forms):
            return
        references = list[bytes]()
        found = START.match(self.data, start)
        while found and self.data[found.end()] != ord("u"):
            if found := FIELD.match(self.data, found.end()):
                references.append(found[1])
        if not found or not set(names) <= PATTERNS.keys() or "frames" in names[:-1]:
            return
        fields = [re.escape(raw) + PATTERNS[n] for raw, n in zip(references, names, strict=True)]
        if names[-1] == "frames":
            fields[-1] = b"(?:%s)?+" % fields[-1]
        pattern = re.compile(START.pattern + b"".join(fields) + rb"u(?:e\()?+", re.DOTALL)
        others = [one for one in self.forms if one.names != names[:-1]]
        self.forms = [Form(names, tuple(map(len, references)), pattern), *others[: FORMS - 1]]

    def read(self, start: int) -> tuple[Rows, int] | None:
        """The events from here on, and where they end; None if there are too few."""
        if start < self.slow_until:
            return None
        for form in self.forms:
            ended = iter(cast(Any, form.pattern).scanner(self.data, start).match, None)
            ends = [found.end() for found in islice(ended, MOST)]
            while ends and ends[-1] > len(self.data) - AFTER:
                ends.pop()
            if len(ends) >= LEAST:
                self.forms.sort(key=lambda one: one is not form)
                return self._rows(form, np.array([start, *ends])), ends[-1]
            if ends:
                self.slow_until = ends[-1]
                return None
        return None

    def whole_stack(self, start: int) -> tuple[Stack, bytes, int] | None:
        """A list of frames that begins here, what numbers it, and where it ends."""
        found = WHOLE.match(self.data, start)
        if not found:
            return None
        try:
            return Stack(stack_code(self.stacks[found[2]])), found[1], found.end()
        except OtherList:
            return None

    def _rows(self, form: Form, places: Int64s) -> Rows:
        walk = Walk(self.data, places[:-1], places[1:])
        walk.put()
        walk.at = walk.at + 1
        columns, codes = dict[str, Int64s](), dict[str, tuple[Int64s, Int32s]]()
        for name, length in zip(form.names, form.lengths, strict=True):
            if name == "frames":
                codes[name] = self._frames(walk, length)
                break
            walk.at = walk.at + length
            if name in NUMBERS:
                columns[name] = walk.number()
            else:
                codes[name] = self._value(walk, name)
        walk.numbered(self.memo)
        meanings: dict[str, Callable[[Any], int]] = {
            "action": self.tables.action,
            "frames": self.tables.stack,
            "pool_id": self.tables.pool,
        }
        for name, (numbers, code) in codes.items():
            there = numbers >= 0
            code[there] = self.memo.codes_of(numbers[there])
            columns[name] = self._meant(code, meanings.get(name, self.tables.text))
        return self.tables.add_events(len(places) - 1, columns)

    def _value(self, walk: Walk, name: str) -> tuple[Int64s, Int32s]:
        """What is referred to, or -1 and the codes of what stands there."""
        numbers = walk.reference()
        inline = numbers < 0
        codes = np.zeros(len(numbers), np.int32)
        if name in TEXTS:
            texts = self.texts
            codes[inline] = [texts[raw] for raw in walk.text(inline)]
            walk.put(codes, inline)
        elif name == "pool_id":
            pairs = walk.number(inline), walk.number(inline)
            shared = self.memo.shared
            codes[inline] = [
                shared(pair) for pair in zip(*(one[inline].tolist() for one in pairs), strict=True)
            ]
            walk.at = walk.at + inline
            walk.put(codes, inline)
        return numbers, codes

    def _frames(self, walk: Walk, length: int) -> tuple[Int64s, Int32s]:
        """As `_value`, of the last field, which may be missing."""
        there = walk.at < walk.ends
        walk.at = walk.at + np.where(there, length, 0)
        numbers = walk.reference()
        inline = there & (numbers < 0)
        codes = np.full(len(numbers), stack_code(-1), np.int32)
        walk.at = walk.at + inline
        walk.put(codes, inline)  # the list has its number before what is in it is known
        filled, stacks = inline & (walk.at < walk.ends), self.stacks
        pieces = walk.pieces(walk.at[filled], walk.ends[filled])
        codes[filled] = [stacks[one] for one in pieces]
        return numbers, codes

    def _meant(self, codes: Int32s, meaning: Callable[[Any], int]) -> Int64s:
        kinds = distinct(codes)
        found = np.array([meaning(self.memo.thing(code)) for code in kinds.tolist()], np.int64)
        return found[np.searchsorted(kinds, codes)]

    def _stack(self, raw: bytes) -> int:
        """The code of the stack with these references to frames. Raises OtherList."""
        numbers = [int.from_bytes(one or other, "little") for one, other in FRAME.findall(raw)]
        frames = [self.memo[number] for number in numbers]
        if not all(type(one) is Fields and one.kind is Kind.FRAME for one in frames):
            raise OtherList("frames are not a list of frames")
        code: int = stack_code(self.tables.stack_of(array("i", [one.row for one in frames])))
        return code
