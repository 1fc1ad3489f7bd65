"""The opcodes of a pickle that plain data needs; no opcode imports or calls anything.

Source: pickletools of Python, protocols 2 to 5. What an opcode does is one method of
`PickleMachine`.
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
    PickleMemo,
    RowFields,
    SnapshotTables,
)

# what objects take in Python
CONTAINER_BYTES = 120  # an empty one; a list has an array, too
TABLE_BYTES = 300  # of a dict
TEXT_BYTES = 60  # of an empty text
BYTES_PER_CHAR = 4
ELEMENT_BYTES = 40

OPCODES_BETWEEN_CHECKS = 4096  # of the size of the stack
MAX_LONG_BYTES = 9  # an unsigned number of 64 bits has 9

INT32 = struct.Struct("<i")
UINT16 = struct.Struct("<H")
UINT32 = struct.Struct("<I")
FLOAT = struct.Struct(">d")
MAX_OPERAND_BYTES = 9  # with the opcode

STOP = ord(".")
GET = ord("h")
MEMOIZE = 0x94
CALLING_OPCODES = b"\x81\x82\x83\x84\x92\x93PQRbcio"
"""Opcodes that import or call something, which only those of a class need."""
TEXTS_ONLY = {str}
Step = Callable[[int], int]
"""Takes the place after the opcode, returns that of the next."""


class PickleMachine:
    """Makes rows of a snapshot. `run` returns what is on top of the stack in the
    end."""

    what = "a snapshot"
    """What the file should be, as messages name it."""

    def __init__(
        self, data: bytes, tables: SnapshotTables, progress: Progress = silent
    ) -> None:
        """Prepare to read the pickle `data`, whose rows are added to `tables`.
        `progress` is called with the bytes that were read and those there are."""
        self.data = data
        self.tables = tables
        self.progress = progress
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo = PickleMemo(len(data))
        self.runs = RunReader(data, tables, self.memo)
        self.newest_dict: RowFields | None = None
        self.newest_dict_begins = 0  # place in the file
        self.steps: list[Step] = [self._refuse] * 256  # by opcode
        for opcode, step in self._accepted_steps().items():
            self.steps[opcode[0]] = step

    def _accepted_steps(self) -> dict[bytes, Step]:
        """The method for each opcode that a snapshot may have. It gets the place after
        the opcode, and returns that of the next one."""
        return {
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
            b"s": lambda at: self._set(self._take_last_two(), at),
            b"u": lambda at: self._set(self._since_mark(), at),
            b"\x85": lambda at: self._tuple(1, at),
            b"\x86": lambda at: self._tuple(2, at),
            b"\x87": lambda at: self._tuple(3, at),
            b"t": lambda at: self._push(tuple(self._since_mark()), at),
        }

    def run(self) -> Any:
        """Return the value of the pickle.

        Raises MalformedError with what is wrong, as the end of a sentence: "it is cut
        short".
        """
        data = self.data
        steps = self.steps
        codes = self.memo.codes
        things = self.memo.things
        push = self.stack.append
        at = 0
        try:
            while data[at] != STOP:
                # The two most frequent opcodes are carried out here, the others by
                # their method.
                for _ in repeat(None, OPCODES_BETWEEN_CHECKS):
                    opcode = data[at]
                    if opcode == GET:  # by far the most
                        code = codes[data[at + 1]]
                        push(things[code] if code > ROW else self.memo.thing(code))
                        at += 2
                    elif opcode == MEMOIZE:
                        codes.append(len(things))
                        things.append(self.stack[-1])
                        at += 1
                    elif opcode == STOP:
                        break
                    else:
                        at = steps[opcode](at + 1)
                self.memo.check(ELEMENT_BYTES * (len(self.stack) + len(self.marks)))
                self.progress(at, len(data))
            if len(self.stack) != 1 or self.marks:
                raise MalformedError("it does not end with a single value")
            return self.stack[0]
        except (IndexError, struct.error):
            if at >= len(data) - MAX_OPERAND_BYTES:
                raise MalformedError("it is truncated") from None
            raise MalformedError("its opcodes do not fit together") from None

    def _refuse(self, at: int) -> int:
        """Raise MalformedError for the opcode before this place, which a snapshot never
        has."""
        if self.data[at - 1] in CALLING_OPCODES:
            raise MalformedError(
                f"it asks Python to import or call something, which {self.what} never does"
            )
        raise MalformedError(f"it has opcodes that {self.what} never has")

    def _push(self, value: Any, at: int) -> int:
        """Put a value on the stack, and return the place `at`."""
        self.stack.append(value)
        return at

    def _mark(self, at: int) -> int:
        """Mark the present height of the stack, and return the place `at`."""
        self.marks.append(len(self.stack))
        return at

    def _take_last_two(self) -> list[Any]:
        """Take the two values on top of the stack, the upper one last."""
        value = self.stack.pop()
        key = self.stack.pop()
        return [key, value]

    def _since_mark(self) -> list[Any]:
        """Take the values above the last mark from the stack, and the mark too."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        self.memo.take(ELEMENT_BYTES * len(values))
        return values

    def _empty_list(self, at: int) -> int:
        """Put an empty list on the stack, or a whole list of frames at once.

        Most lists of a snapshot are stacks of frames. One that is written in the usual
        way is read with a pattern, and everything up to its end is passed.

        Args:
            at: The place after the opcode EMPTY_LIST.

        Returns:
            The place of the next opcode to carry out.
        """
        whole = self.runs.whole_stack(at - 1)
        if whole is not None:
            self.stack.append(whole.stack)
            number = whole.put[1:]
            if number:
                self._put(int.from_bytes(number, "little"), at)
            elif whole.put:  # MEMOIZE gives the next number
                self._put(len(self.memo), at)
            return whole.end
        self.stack.append(ListItems())
        self.memo.take(2 * CONTAINER_BYTES)
        return at

    def _empty_dict(self, at: int) -> int:
        """Put an empty dict on the stack, or a run of events at once.

        Where a dict becomes an item of a list, it may be the first of many events of
        the same form, which are then read together.

        Args:
            at: The place after the opcode EMPTY_DICT.

        Returns:
            The place of the next opcode to carry out.
        """
        if self._is_list_at_mark():
            run = self.runs.read(at - 1)
            if run is not None:
                self.progress(run.end, len(self.data))  # up to a MB later
                return self._push(run.rows, run.end)
        self.newest_dict = RowFields()
        self.newest_dict_begins = at - 1
        self.stack.append(self.newest_dict)
        self.memo.take(CONTAINER_BYTES)
        return at

    def _is_list_at_mark(self) -> bool:
        """Whether the values after the last mark will be appended to a list."""
        mark = self.marks[-1] if self.marks else 0
        return mark > 0 and type(self.stack[mark - 1]) is ListItems

    def _long(self, at: int) -> int:
        """Put a number on the stack: the byte 2 and then e8 03 are 1000.

        The first byte says how many bytes follow, little endian and signed. Raises
        MalformedError for more than MAX_LONG_BYTES.
        """
        size = self.data[at]
        if size > MAX_LONG_BYTES:
            raise MalformedError(f"a number is larger than any in {self.what}")
        digits = self._bytes(at + 1, size)
        number = int.from_bytes(digits, "little", signed=True)
        return self._push(number, at + 1 + size)

    def _text(self, at: int, size: int) -> int:
        """Put a UTF-8 text of `size` bytes on the stack, and return the place after it."""
        self.memo.take(TEXT_BYTES + BYTES_PER_CHAR * size)
        text = str(self._bytes(at, size), "utf-8", "replace")
        return self._push(text, at + size)

    def _bytes(self, at: int, size: int) -> bytes:
        """The next `size` bytes from a place on. Raises MalformedError if the file ends
        before that."""
        if at + size > len(self.data):
            raise MalformedError("it is truncated")
        return self.data[at : at + size]

    def _put(self, number: int, at: int) -> int:
        """Give the value on top of the stack the next number, and return the place
        `at`. Raises MalformedError if the file gives it another one."""
        if number != len(self.memo):
            raise MalformedError("its parts are not numbered as Python does")
        self.memo.put(self.stack[-1])
        return at

    def _tuple(self, size: int, at: int) -> int:
        """Replace the last `size` values of the stack by a tuple of them.

        Raises MalformedError if some of them lie below the last MARK.
        """
        start = len(self.stack) - size
        last_mark = self.marks[-1] if self.marks else 0
        if start < last_mark:
            raise MalformedError("its opcodes do not fit together")
        values = tuple(self.stack[start:])
        self.stack[start:] = [values]
        self.memo.take(CONTAINER_BYTES + ELEMENT_BYTES * size)
        return at

    def _append(self, values: list[Any], at: int) -> int:
        """Append values to the list on top of the stack, and return the place `at`.
        Raises MalformedError if it is not a list."""
        items = self.stack[-1]
        if type(items) is not ListItems:
            raise MalformedError("its opcodes do not fit together")
        items.add(values)
        self.memo.take(ELEMENT_BYTES)
        return at

    def _set(self, pairs: list[Any], at: int) -> int:
        """Add keys and values to the dict on top of the stack.

        A dict with the keys of a segment, a block, an event or a frame then becomes a
        row of `tables`, to which nothing can be added.

        Args:
            pairs: Keys and values in turn: ["addr", 4096, "size", 512]. Raises
                MalformedError if a key is no text.
            at: The place after the opcode, which is returned.
        """
        fields = self.stack[-1]
        keys = pairs[::2]
        values = pairs[1::2]
        is_open = type(fields) is RowFields and fields.kind is Kind.PLAIN
        if not is_open or len(keys) != len(values):
            raise MalformedError("its opcodes do not fit together")
        # hashing nested tuples may end the process
        if not set(map(type, keys)) <= TEXTS_ONLY:
            raise MalformedError("a key is not a string")
        fields.update(zip(keys, values, strict=True))
        kind = self.tables.settle(fields)
        if kind is Kind.PLAIN:
            self.memo.take(TABLE_BYTES)
        else:  # the row keeps none of the values
            self.memo.take(-ELEMENT_BYTES * len(pairs))
        if kind is Kind.EVENT and fields is self.newest_dict:
            self.runs.learn(self.newest_dict_begins, tuple(keys))
        return at
