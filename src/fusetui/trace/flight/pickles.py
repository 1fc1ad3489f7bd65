"""Reads a pickle of plain values into dicts, lists, tuples, strings and numbers."""

from __future__ import annotations

import re
import struct
from typing import Any

from fusetui.trace.snapshot.opcodes import (
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    MEMOIZE,
    STOP,
    TABLE_BYTES,
    UINT32,
    PickleMachine,
)
from fusetui.trace.snapshot.tables import MalformedError, SnapshotTables

MARK = ord("(")
BINGET, LONG_BINGET, BINPUT = ord("h"), ord("j"), ord("q")
BININT1, NONE, NEWTRUE, NEWFALSE = ord("K"), ord("N"), 0x88, 0x89
EMPTY_LIST, EMPTY_DICT = ord("]"), ord("}")
APPENDS, SETITEMS = ord("e"), ord("u")
TEXTS_ONLY = {str}
ATOM = rb"(?:h.|j.{4}|K.|M..|J.{4}|N)"
"""A value that stands alone: a reference to a text, a number, None."""
REPEATED = re.compile(
    rb"\]\((?:%b|\]\(%b{0,16}+e|\}\(%b{0,16}+u){1,512}+e(?![(a])" % (ATOM, ATOM, ATOM),
    re.DOTALL,
)
"""A list of atoms, and of lists and dicts of atoms, that nothing is appended to
later: the frames of an entry, its sizes, its dtypes. Equal bytes mean equal values."""


class PlainMachine(PickleMachine):
    """Keeps dicts and lists as they are, where that of a memory snapshot makes rows of
    them."""

    what = "a flight-recorder dump"

    def __init__(self, data: bytes) -> None:
        """Prepare to read the pickle in `data`."""
        super().__init__(data, SnapshotTables())
        self._things: list[Any] = []  # by the number of their PUT
        self._list_of_bytes: dict[bytes, list[Any]] = {}  # those that are REPEATED
        # the bytes of REPEATED lists that are being read, by the place after them
        self._bytes_until: dict[int, bytes] = {}
        self.steps[LONG_BINGET] = self._long_get
        self.steps[MEMOIZE] = lambda at: self._put(len(self._things), at)

    def run(self) -> Any:  # noqa: C901
        """Return the value of the pickle.

        Raises MalformedError with what is wrong, as the end of a sentence: "it is cut
        short".
        """
        data, steps, stack, marks = self.data, self.steps, self.stack, self.marks
        things = self._things
        at = 0
        try:
            # The opcodes that are nearly all of a dump are carried out here, the others
            # by their method: a job has thousands of dumps, and a call for each opcode
            # would take three times as long.
            while (code := data[at]) != STOP:
                at += 1
                if code == BINGET:
                    stack.append(things[data[at]])
                    at += 1
                elif code == MARK:
                    marks.append(len(stack))
                elif code == BININT1:
                    stack.append(data[at])
                    at += 1
                elif code == BINPUT:
                    at = self._put(data[at], at + 1)
                elif code == EMPTY_LIST:
                    at = self._begin_list(at)
                elif code == APPENDS:
                    self._end_list(at)
                elif code == NONE:
                    stack.append(None)
                elif code == SETITEMS:
                    at = self._set(self._since_mark(), at)
                elif code == EMPTY_DICT:
                    stack.append({})
                    self.memo.take(CONTAINER_BYTES)
                elif code == NEWTRUE:
                    stack.append(True)
                elif code == NEWFALSE:
                    stack.append(False)
                else:
                    at = steps[code](at)
                    self.memo.check(ELEMENT_BYTES * (len(stack) + len(marks)))
            if len(stack) != 1 or marks:
                raise MalformedError("it does not end with a single value")
            return stack[0]
        except (IndexError, struct.error):
            if at >= len(data) - 9:
                raise MalformedError("it is truncated") from None
            raise MalformedError("its opcodes do not fit together") from None

    def _begin_list(self, at: int) -> int:
        """Put a list on the stack: an empty one, or one whose bytes were read before.

        The frames of an entry stand in a dump as often as the line was called. Equal
        bytes are read once, and are one list.

        Args:
            at: The place after the opcode EMPTY_LIST.

        Returns:
            The place to go on at: that, or the place after the known list.
        """
        repeated = REPEATED.match(self.data, at - 1)
        if repeated:
            list_bytes = repeated.group()
            known = self._list_of_bytes.get(list_bytes)
            if known is not None:
                self.stack.append(known)
                return repeated.end()
            self._bytes_until[repeated.end()] = list_bytes
        self.stack.append([])
        self.memo.take(CONTAINER_BYTES)
        return at

    def _end_list(self, at: int) -> None:
        """Append the values since the last mark to the list below them.

        Args:
            at: The place after the opcode APPENDS. If a REPEATED list ends there, its
                bytes are known from now on.
        """
        values = self._since_mark()
        items = self.stack[-1]
        if type(items) is not list:
            raise MalformedError("its opcodes do not fit together")
        items += values
        if at in self._bytes_until:
            self._list_of_bytes[self._bytes_until.pop(at)] = items

    def _long_get(self, at: int) -> int:
        """Push the value whose number stands in the next four bytes; return the place
        after them."""
        return self._push(self._things[UINT32.unpack_from(self.data, at)[0]], at + 4)

    def _put(self, number: int, at: int) -> int:
        """Number the value on top of the stack, so that later opcodes can refer to it.

        Raises MalformedError unless the number, which the file gives, is the next one.
        """
        if number != len(self._things):
            raise MalformedError("its parts are not numbered as torch and Python do")
        self._things.append(self.stack[-1])
        self.memo.take(ELEMENT_BYTES)
        return at

    def _append(self, values: list[Any], at: int) -> int:
        """Append values to the list on top of the stack, and return the place `at`.
        Raises MalformedError if it is not a list."""
        items = self.stack[-1]
        if type(items) is not list:
            raise MalformedError("its opcodes do not fit together")
        items += values
        self.memo.take(ELEMENT_BYTES)
        return at

    def _set(self, pairs: list[Any], at: int) -> int:
        """Add keys and values to the dict on top of the stack.

        Args:
            pairs: Keys and values in turn: ["version", "2.9", "rank", 3]. Raises
                MalformedError if a key is no text.
            at: The place after the opcode, which is returned.
        """
        fields = self.stack[-1]
        keys = pairs[::2]
        values = pairs[1::2]
        if type(fields) is not dict or len(keys) != len(values):
            raise MalformedError("its opcodes do not fit together")
        # hashing nested tuples may end the process
        if not set(map(type, keys)) <= TEXTS_ONLY:
            raise MalformedError("a key is not a string")
        fields.update(zip(keys, values, strict=True))
        self.memo.take(TABLE_BYTES)
        return at


def plain_value(data: bytes) -> Any:
    """The value that a pickle of plain dicts, lists, texts and numbers holds. Raises
    MalformedError with the end of a sentence."""
    return PlainMachine(data).run()
