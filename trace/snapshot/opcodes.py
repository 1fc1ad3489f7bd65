"""The opcodes of a pickle, those that data alone needs: nothing is imported or called.

Source: pickletools of Python, protocols 2 to 5. What an opcode does is one method of `Machine`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fusetui.trace.snapshot.tables import Fields, Items, Kind, Tables, Wrong

CONTAINER, TABLE, TEXT, NUMBER, PLACE = 100, 300, 60, 32, 8  # bytes that objects take in Python
LEAST, SHARE = 128 << 20, 4
"""All objects of a file may take LEAST bytes and SHARE times its size."""
INT32, FLOAT = struct.Struct("<i"), struct.Struct(">d")
UINT16, UINT32, UINT64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
Step = Callable[[int], int]
"""Takes the place after the opcode, returns the place of the next."""


class Machine:
    """Makes rows of a snapshot. `run` returns what is on top of the stack in the end."""

    def __init__(self, data: bytes, tables: Tables) -> None:
        self.data, self.tables = data, tables
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.left = LEAST + SHARE * len(data)
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
            b"M": lambda at: self._number(UINT16, at),
            b"J": lambda at: self._number(INT32, at),
            b"G": lambda at: self._number(FLOAT, at),
            b"\x8a": self._long,
            b"\x8c": lambda at: self._text(at + 1, self.data[at]),
            b"X": lambda at: self._text(at + 4, UINT32.unpack_from(self.data, at)[0]),
            b"h": lambda at: self._get(self.data[at], at + 1),
            b"j": lambda at: self._get(UINT32.unpack_from(self.data, at)[0], at + 4),
            b"q": lambda at: self._put(self.data[at], at + 1),
            b"r": lambda at: self._put(UINT32.unpack_from(self.data, at)[0], at + 4),
            b"\x94": lambda at: self._put(len(self.memo), at),
            b"a": self._append,
            b"e": self._appends,
            b"s": self._set_item,
            b"u": self._set_items,
            b"\x85": lambda at: self._tuple(1, at),
            b"\x86": lambda at: self._tuple(2, at),
            b"\x87": lambda at: self._tuple(3, at),
            b"t": lambda at: self._tuple(len(self._since_mark(keep=True)), at, marked=True),
        }
        self.steps: list[Step | None] = [None] * 256
        for code, step in steps.items():
            self.steps[code[0]] = step

    def run(self) -> Any:
        """Raises Wrong with what is wrong, as the end of a sentence."""
        data, steps, at = self.data, self.steps, 0
        try:
            while (code := data[at]) != ord("."):
                step = steps[code]
                if step is None:
                    raise Wrong(_refusal(code))
                at = step(at + 1)
            if len(self.stack) != 1 or self.marks:
                raise Wrong("it does not end with one value")
            return self.stack[0]
        except (IndexError, struct.error):
            cut = at >= len(data) - 9
            raise Wrong("it is cut short" if cut else "its opcodes do not fit together") from None
        except TypeError:
            raise Wrong("its opcodes do not fit together") from None

    def _push(self, value: Any, at: int) -> int:
        self.stack.append(value)
        return self._took(PLACE, at)

    def _took(self, size: int, at: int) -> int:
        self.left -= size
        if self.left < 0:
            raise Wrong("it holds more objects than a snapshot of its size")
        return at

    def _mark(self, at: int) -> int:
        self.marks.append(len(self.stack))
        return self._took(PLACE, at)

    def _since_mark(self, keep: bool = False) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        if not keep:
            del self.stack[start:]
        return values

    def _empty_list(self, at: int) -> int:
        self.stack.append(Items())
        return self._took(2 * CONTAINER, at)

    def _empty_dict(self, at: int) -> int:
        self.stack.append(Fields())
        return self._took(CONTAINER, at)

    def _number(self, form: struct.Struct, at: int) -> int:
        self.stack.append(form.unpack_from(self.data, at)[0])
        return self._took(NUMBER, at + form.size)

    def _long(self, at: int) -> int:
        size = self.data[at]
        if size > 9:  # an unsigned one of 64 bits has 9
            raise Wrong("a number is larger than any of a snapshot")
        digits = self._bytes(at + 1, size)
        self.stack.append(int.from_bytes(digits, "little", signed=True))
        return self._took(NUMBER, at + 1 + size)

    def _text(self, at: int, size: int) -> int:
        text = str(self._bytes(at, size), "utf-8", "surrogatepass")
        self.stack.append(text)
        return self._took(TEXT + 4 * size, at + size)

    def _bytes(self, at: int, size: int) -> bytes:
        if at + size > len(self.data):
            raise Wrong("it is cut short")
        return self.data[at : at + size]

    def _get(self, index: int, at: int) -> int:
        if index >= len(self.memo):
            raise Wrong("it refers to what it does not hold")
        return self._push(self.memo[index], at)

    def _put(self, index: int, at: int) -> int:
        if index != len(self.memo):
            raise Wrong("its parts are not numbered as Python does")
        self.memo.append(self.stack[-1])
        return self._took(PLACE, at)

    def _tuple(self, size: int, at: int, marked: bool = False) -> int:
        start = len(self.stack) - size
        if start < 0 or (not marked and self.marks and start < self.marks[-1]):
            raise Wrong("its opcodes do not fit together")
        self.stack[start:] = [tuple(self.stack[start:])]
        return self._took(CONTAINER + PLACE * size, at)

    def _append(self, at: int) -> int:
        value = self.stack.pop()
        return self._added([value], at)

    def _appends(self, at: int) -> int:
        return self._added(self._since_mark(), at)

    def _added(self, values: list[Any], at: int) -> int:
        items = self.stack[-1]
        if type(items) is not Items:
            raise Wrong("its opcodes do not fit together")
        items.add(values)
        return self._took(PLACE * len(values), at)

    def _set_item(self, at: int) -> int:
        value, key = self.stack.pop(), self.stack.pop()
        return self._set([key], [value], at)

    def _set_items(self, at: int) -> int:
        found = self._since_mark()
        return self._set(found[::2], found[1::2], at)

    def _set(self, keys: list[Any], values: list[Any], at: int) -> int:
        fields = self.stack[-1]
        if type(fields) is not Fields or len(keys) != len(values) or fields.kind is not Kind.PLAIN:
            raise Wrong("its opcodes do not fit together")
        if not all(type(key) is str for key in keys):  # hashing nested tuples may end the process
            raise Wrong("a key is no text")
        self._took(TABLE + 2 * PLACE * len(keys), at)
        fields.update(zip(keys, values, strict=True))
        self.tables.settle(fields)
        if fields.kind is not Kind.PLAIN:
            self.left += TABLE + 2 * PLACE * len(keys)
        return at


def _refusal(code: int) -> str:
    if code in b"c\x93iRob\x81\x82\x83\x84PQ\x92":
        return "it asks Python to import or call something, which a snapshot never does"
    return "it has opcodes that a snapshot never has"
