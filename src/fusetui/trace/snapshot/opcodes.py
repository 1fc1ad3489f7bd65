"""The opcodes of a pickle, those that data alone needs: nothing is imported or called.

Source: pickletools of Python, protocols 2 to 5. What an opcode does is one method of
`Machine`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any

from fusetui.trace.model.report import Progress, silent
from fusetui.trace.snapshot.runs import RunReader
from fusetui.trace.snapshot.tables import (
    ROW,
    Kind,
    ListItems,
    MalformedError,
    Memo,
    RowFields,
    SnapshotTables,
)

CONTAINER, TABLE, TEXT, PLACE = 120, 300, 60, 40
"""Bytes of an empty container (a list has an array, too), of a dict's own table, of a
text, and of an element."""
OFTEN = 4096  # opcodes after which the stack is measured
INT32, FLOAT = struct.Struct("<i"), struct.Struct(">d")
UINT16, UINT32 = struct.Struct("<H"), struct.Struct("<I")
STOP, GET, MEMOIZE = ord("."), ord("h"), 0x94
ASKS = b"\x81\x82\x83\x84\x92\x93PQRbcio"
"""Opcodes that import or call something, which only those of a class need."""
Step = Callable[[int], int]
"""Takes the place after the opcode, returns that of the next."""


class Machine:
    """Makes rows of a snapshot. `run` returns what is on top of the stack in the
    end."""

    what = "a snapshot"
    """What the file should be, as messages name it."""

    def __init__(
        self, data: bytes, tables: SnapshotTables, progress: Progress = silent
    ) -> None:
        self.data, self.tables, self.progress = data, tables, progress
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo = Memo(len(data))
        self.runs = RunReader(data, tables, self.memo)
        self.began = 0  # where the newest dict begins
        self.newest: RowFields | None = None
        steps: dict[bytes, Step] = {
            b"\x80": lambda at: at + 1,  # PROTO
            b"\x95": lambda at: at + 8,  # FRAME
            b"(": self._mark,
            b"]": self._empty_list,
            b"}": self._empty_dict,
            b")": lambda at: self._push((), at),
            b"N": lambda at: self._push(None, at),
            b"\x88": lambda at: self._push(True, at),
            b"\x89": lambda at: self._push(False, at),
            b"K": lambda at: self._push(self.data[at], at + 1),
            b"M": lambda at: self._push(UINT16.unpack_from(self.data, at)[0], at + 2),
            b"J": lambda at: self._push(INT32.unpack_from(self.data, at)[0], at + 4),
            b"G": lambda at: self._push(FLOAT.unpack_from(self.data, at)[0], at + 8),
            b"\x8a": self._long,
            b"\x8c": lambda at: self._text(at + 1, self.data[at]),
            b"X": lambda at: self._text(at + 4, UINT32.unpack_from(self.data, at)[0]),
            b"j": lambda at: self._push(
                self.memo[UINT32.unpack_from(self.data, at)[0]], at + 4
            ),
            b"q": lambda at: self._put(self.data[at], at + 1),
            b"r": lambda at: self._put(UINT32.unpack_from(self.data, at)[0], at + 4),
            b"a": lambda at: self._append([self.stack.pop()], at),
            b"e": lambda at: self._append(self._since_mark(), at),
            b"s": lambda at: self._set([self.stack.pop(), self.stack.pop()][::-1], at),
            b"u": lambda at: self._set(self._since_mark(), at),
            b"\x85": lambda at: self._tuple(1, at),
            b"\x86": lambda at: self._tuple(2, at),
            b"\x87": lambda at: self._tuple(3, at),
            b"t": lambda at: self._push(tuple(self._since_mark()), at),
        }
        self.steps: list[Step] = [self._refuse] * 256
        for code, step in steps.items():
            self.steps[code[0]] = step

    def run(self) -> Any:
        """Raises MalformedError with what is wrong, as the end of a sentence."""
        data, steps, at = self.data, self.steps, 0
        codes, things, push = self.memo.codes, self.memo.things, self.stack.append
        try:
            while data[at] != STOP:
                for _ in repeat(None, OFTEN):
                    if (code := data[at]) == GET:  # by far the most
                        found = codes[data[at + 1]]
                        push(things[found] if found > ROW else self.memo.thing(found))
                        at += 2
                    elif code == MEMOIZE:
                        codes.append(len(things))
                        things.append(self.stack[-1])
                        at += 1
                    elif code == STOP:
                        break
                    else:
                        at = steps[code](at + 1)
                self.memo.check(PLACE * (len(self.stack) + len(self.marks)))
                self.progress(at, len(data))
            if len(self.stack) != 1 or self.marks:
                raise MalformedError("it does not end with one value")
            return self.stack[0]
        except (IndexError, struct.error):
            if at >= len(data) - 9:
                raise MalformedError("it is cut short") from None
            raise MalformedError("its opcodes do not fit together") from None

    def _refuse(self, at: int) -> int:
        if self.data[at - 1] in ASKS:
            raise MalformedError(
                f"it asks Python to import or call something, which {self.what} never does"
            )
        raise MalformedError(f"it has opcodes that {self.what} never has")

    def _push(self, value: Any, at: int) -> int:
        self.stack.append(value)
        return at

    def _mark(self, at: int) -> int:
        self.marks.append(len(self.stack))
        return at

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        self.memo.take(PLACE * len(values))
        return values

    def _empty_list(self, at: int) -> int:
        if found := self.runs.whole_stack(at - 1):
            stack, number, end = found
            self.stack.append(stack)
            if number:  # a MEMOIZE has none of its own
                own = int.from_bytes(number[1:], "little")
                self._put(own if number[1:] else len(self.memo), at)
            return end
        self.stack.append(ListItems())
        self.memo.take(2 * CONTAINER)
        return at

    def _empty_dict(self, at: int) -> int:
        mark = self.marks[-1] if self.marks else 0
        if (
            mark
            and type(self.stack[mark - 1]) is ListItems
            and (found := self.runs.read(at - 1))
        ):
            rows, end = found
            self.progress(end, len(self.data))  # up to a MB later
            return self._push(rows, end)
        self.newest, self.began = RowFields(), at - 1
        self.stack.append(self.newest)
        self.memo.take(CONTAINER)
        return at

    def _long(self, at: int) -> int:
        size = self.data[at]
        if size > 9:  # an unsigned one of 64 bits has 9
            raise MalformedError(f"a number is larger than any of {self.what}")
        digits = self._bytes(at + 1, size)
        return self._push(int.from_bytes(digits, "little", signed=True), at + 1 + size)

    def _text(self, at: int, size: int) -> int:
        self.memo.take(TEXT + 4 * size)
        return self._push(str(self._bytes(at, size), "utf-8", "replace"), at + size)

    def _bytes(self, at: int, size: int) -> bytes:
        if at + size > len(self.data):
            raise MalformedError("it is cut short")
        return self.data[at : at + size]

    def _put(self, number: int, at: int) -> int:
        if number != len(self.memo):
            raise MalformedError("its parts are not numbered as Python does")
        self.memo.put(self.stack[-1])
        return at

    def _tuple(self, size: int, at: int) -> int:
        start = len(self.stack) - size
        if start < (self.marks[-1] if self.marks else 0):
            raise MalformedError("its opcodes do not fit together")
        self.stack[start:] = [tuple(self.stack[start:])]
        self.memo.take(CONTAINER + PLACE * size)
        return at

    def _append(self, values: list[Any], at: int) -> int:
        items = self.stack[-1]
        if type(items) is not ListItems:
            raise MalformedError("its opcodes do not fit together")
        items.add(values)
        self.memo.take(PLACE)
        return at

    def _set(self, found: list[Any], at: int) -> int:
        fields, keys = self.stack[-1], found[::2]
        if (
            type(fields) is not RowFields
            or len(found) % 2
            or fields.kind is not Kind.PLAIN
        ):
            raise MalformedError("its opcodes do not fit together")
        # hashing nested tuples may end the process
        if not set(map(type, keys)) <= {str}:
            raise MalformedError("a key is no text")
        fields.update(zip(keys, found[1::2], strict=True))
        kind = self.tables.settle(fields)
        self.memo.take(TABLE if kind is Kind.PLAIN else -PLACE * len(found))
        if kind is Kind.EVENT and fields is self.newest:
            self.runs.learn(self.began, tuple(keys))
        return at
