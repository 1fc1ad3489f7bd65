"""The dicts of a snapshot -> rows of columns, each as soon as it is complete, so that no dict is
kept."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from fusetui.trace.snapshot.columns import Action, BlockState, Frame


class Wrong(Exception):  # noqa: N818
    """What makes the file no snapshot, as the end of a sentence."""


class Kind(IntEnum):
    """What a dict, or what all elements of a list are."""

    PLAIN = 0
    FRAME = 1
    BLOCK = 2
    SEGMENT = 3
    EVENT = 4
    ANNOTATION = 5


class Fields(dict[Any, Any]):
    """A dict of the file; a row of the table of its kind, and empty, once that is known."""

    __slots__ = ("kind", "row")

    def __init__(self) -> None:
        self.kind, self.row = Kind.PLAIN, -1


class Items(list[Any]):
    """A list of the file; of rows, it keeps only their numbers."""

    __slots__ = ("kind", "rows")

    def __init__(self) -> None:
        self.kind, self.rows = Kind.PLAIN, array("i")

    def add(self, values: list[Any]) -> None:
        """Raises Wrong if rows of one kind stand beside something else."""
        kind = values[0].kind if values and type(values[0]) is Fields else Kind.PLAIN
        if kind is Kind.PLAIN:
            if self.rows:
                raise Wrong("a list mixes its entries with others")
            return self.extend(values)
        if self or (self.rows and self.kind is not kind):
            raise Wrong("a list mixes its entries with others")
        self.kind = kind
        try:
            self.rows.extend([value.row for value in values if value.kind is kind])
        except AttributeError:
            raise Wrong("a list mixes its entries with others") from None
        return None


EVENT = {"action": "B", "addr": "q", "size": "q", "stream": "q", "time_us": "q", "stack": "i"}
EVENT |= {"device_free": "q", "compile_context": "i", "user_metadata": "i", "pool": "i"}
SEGMENT = {"device": "i", "address": "q", "total_size": "q", "allocated_size": "q"}
SEGMENT |= {"active_size": "q", "requested_size": "q", "stream": "q", "is_large": "B"}
SEGMENT |= {"pool": "i", "is_expandable": "B", "stack": "i"}
BLOCK = {"segment": "i", "address": "q", "size": "q", "requested_size": "q", "state": "B"}
BLOCK |= {"stack": "i"}
ANNOTATION = {"name": "i", "is_start": "B", "device": "i", "time_us": "q"}
COLUMNS = {
    Kind.EVENT: EVENT,
    Kind.SEGMENT: SEGMENT,
    Kind.BLOCK: BLOCK,
    Kind.ANNOTATION: ANNOTATION,
}
ACTIONS = {one.name.lower(): int(one) for one in Action if one is not Action.OTHER}
STATES = {one.name.lower(): int(one) for one in BlockState}
NOTHING: Items = Items()


class Tables:
    """All rows so far. Raises Wrong where a value has the wrong type."""

    def __init__(self) -> None:
        self.columns = {
            kind: {name: array(code) for name, code in columns.items()}
            for kind, columns in COLUMNS.items()
        }
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[bytes, int] = {}  # the numbers of their frames, as int32
        self.strings: dict[str, int] = {}
        self.pools: dict[tuple[int, int], int] = {}

    def settle(self, fields: Fields) -> None:
        """Makes a row of a complete dict, if it is of a known kind."""
        kind, make = self._kind_of(fields)
        if make is not None:
            fields.row = make(fields)
            fields.kind = kind
            fields.clear()

    def stack(self, frames: object) -> int:
        """The number of a stack; -1 of an empty one."""
        if type(frames) is not Items or frames or frames.kind not in (Kind.PLAIN, Kind.FRAME):
            raise Wrong("frames are not a list of frames")
        return (
            self.stacks.setdefault(frames.rows.tobytes(), len(self.stacks)) if frames.rows else -1
        )

    def _kind_of(self, fields: Fields) -> tuple[Kind, Callable[[Fields], int] | None]:
        if "action" in fields:
            return Kind.EVENT, self._event
        if "filename" in fields:
            return Kind.FRAME, self._frame
        if "state" in fields:
            return Kind.BLOCK, self._block
        if "total_size" in fields:
            return Kind.SEGMENT, self._segment
        if "stage" in fields:
            return Kind.ANNOTATION, self._annotation
        return Kind.PLAIN, None

    def _frame(self, fields: Fields) -> int:
        name, file = _text(fields, "name"), _text(fields, "filename")
        line = _number(fields, "line", 0)
        frame = Frame(name, file, line if 0 < line < 1 << 31 else 0)  # torch writes -1 as 2**64 - 1
        return self.frames.setdefault(frame, len(self.frames))

    def _event(self, fields: Fields) -> int:
        action = ACTIONS.get(_text(fields, "action"), 0)
        return self._row(
            Kind.EVENT,
            fields,
            action=action,
            stack=self.stack(fields.get("frames", NOTHING)),
            compile_context=self._string(fields, "compile_context"),
            user_metadata=self._string(fields, "user_metadata"),
            pool=self._pool(fields, "pool_id"),
        )

    def _block(self, fields: Fields) -> int:
        history = fields.get("history")  # before torch 2.1
        if isinstance(history, list) and history and isinstance(history[0], Fields):
            fields.setdefault("frames", history[0].get("frames", NOTHING))
            fields.setdefault("requested_size", history[0].get("real_size", -1))
        state = STATES.get(_text(fields, "state"))
        if state is None:
            raise Wrong("a block has a state of another name")
        stack = self.stack(fields.get("frames", NOTHING))
        return self._row(Kind.BLOCK, fields, segment=-1, state=state, stack=stack)

    def _segment(self, fields: Fields) -> int:
        row = self._row(
            Kind.SEGMENT,
            fields,
            is_large=_text(fields, "segment_type") == "large",
            pool=self._pool(fields, "segment_pool_id"),
            is_expandable=fields.get("is_expandable") is True,
            stack=self.stack(fields.get("frames", NOTHING)),
        )
        blocks = fields.get("blocks", NOTHING)
        if type(blocks) is not Items or blocks or blocks.kind not in (Kind.PLAIN, Kind.BLOCK):
            raise Wrong("blocks are not a list of blocks")
        self._place(blocks.rows, row, _number(fields, "address"))
        return row

    def _place(self, blocks: Iterable[int], segment: int, address: int) -> None:
        """Says of blocks where they are; files before torch 2.1 leave it to their sizes."""
        columns = self.columns[Kind.BLOCK]
        for row in blocks:
            if columns["segment"][row] != -1:
                raise Wrong("a block is in two segments")
            columns["segment"][row] = segment
            if columns["address"][row] == -1:
                columns["address"][row] = address
            address = columns["address"][row] + columns["size"][row]

    def _annotation(self, fields: Fields) -> int:
        is_start = _text(fields, "stage") == "START"
        name = self._string(fields, "name")
        return self._row(Kind.ANNOTATION, fields, name=name, is_start=is_start)

    def _row(self, kind: Kind, fields: Fields, **found: int) -> int:
        columns = self.columns[kind]
        row = len(next(iter(columns.values())))
        try:
            for name, column in columns.items():
                column.append(found[name] if name in found else _number(fields, name))
        except OverflowError:
            raise Wrong("a number is larger than any of a snapshot") from None
        return row

    def _string(self, fields: Fields, key: str) -> int:
        text = fields.get(key)
        return self.string(text) if isinstance(text, str) else -1

    def string(self, text: str) -> int:
        """The number of a text."""
        return self.strings.setdefault(text, len(self.strings))

    def _pool(self, fields: Fields, key: str) -> int:
        pair = fields.get(key)
        if not isinstance(pair, tuple) or len(pair) != 2 or {type(one) for one in pair} != {int}:
            return -1
        return self.pools.setdefault(pair, len(self.pools))


def _number(fields: Fields, key: str, missing: int = -1) -> int:
    value = fields.get(key, missing)
    if type(value) is not int:
        raise Wrong(f"{key} is not a whole number")
    return value


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise Wrong(f"{key} is not a text")
    return value
