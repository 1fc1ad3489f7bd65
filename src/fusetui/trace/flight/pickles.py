"""A pickle of plain values -> dicts, lists, tuples, texts and numbers."""

from __future__ import annotations

from typing import Any

from fusetui.trace.snapshot.opcodes import CONTAINER, PLACE, TABLE, Machine
from fusetui.trace.snapshot.tables import SnapshotTables, Wrong


class PlainMachine(Machine):
    """Keeps dicts and lists as they are, where that of a memory snapshot makes rows of
    them."""

    what = "a flight-recorder dump"

    def __init__(self, data: bytes) -> None:
        super().__init__(data, SnapshotTables())

    def _empty_list(self, at: int) -> int:
        self.memo.take(CONTAINER)
        return self._push([], at)

    def _empty_dict(self, at: int) -> int:
        self.memo.take(CONTAINER)
        return self._push({}, at)

    def _append(self, values: list[Any], at: int) -> int:
        items = self.stack[-1]
        if type(items) is not list:
            raise Wrong("its opcodes do not fit together")
        items.extend(values)
        self.memo.take(PLACE * len(values))
        return at

    def _set(self, pairs: list[Any], at: int) -> int:
        fields = self.stack[-1]
        keys = pairs[::2]
        if type(fields) is not dict or len(pairs) % 2:
            raise Wrong("its opcodes do not fit together")
        # hashing nested tuples may end the process
        if not set(map(type, keys)) <= {str}:
            raise Wrong("a key is no text")
        fields.update(zip(keys, pairs[1::2], strict=True))
        self.memo.take(TABLE)
        return at


def plain_value(data: bytes) -> Any:
    """The value that a pickle holds. Raises Wrong with the end of a sentence."""
    return PlainMachine(data).run()
