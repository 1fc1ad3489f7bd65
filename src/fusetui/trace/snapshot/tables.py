"""The dicts of a snapshot -> rows of columns, each as soon as it is complete, so that
no dict is kept; and what the pickle refers to by number, and how much its objects may
take."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.snapshot.columns import (
    Annotations,
    Blocks,
    BlockState,
    Frame,
    MemoryAction,
    MemoryEvents,
    Segments,
)


class MalformedError(Exception):
    """What makes the file no snapshot, as the end of a sentence."""


class Kind(IntEnum):
    """What a dict, or what all elements of a list are."""

    PLAIN = 0
    FRAME = 1
    BLOCK = 2
    SEGMENT = 3
    EVENT = 4
    ANNOTATION = 5


class RowFields(dict[Any, Any]):
    """A dict of the file; a row of the table of its kind, and empty, once that is
    known."""

    __slots__ = ("kind", "row")

    def __init__(self) -> None:
        self.kind, self.row = Kind.PLAIN, -1


class RowRange(NamedTuple):
    """Entries of a list that became the rows [first, end) of a table."""

    kind: Kind
    first: int
    end: int


class StackNumber(int):
    """The number of a stack whose list was read as a whole."""


class ListItems(list[Any]):
    """A list of the file; of rows, it keeps only their numbers."""

    __slots__ = ("kind", "rows")

    def __init__(self) -> None:
        self.kind, self.rows = Kind.PLAIN, array("i")

    def add(self, values: list[Any]) -> None:
        """Raises MalformedError if rows of one kind stand beside something else."""
        append = self.rows.append
        for value in values:
            if type(value) is RowFields and value.row >= 0:
                if value.kind is not self.kind:
                    self._expect(value.kind)
                append(value.row)
            elif type(value) is RowRange:
                self._expect(value.kind)
                self.rows.extend(range(value.first, value.end))
            else:
                self.append(value)
        if self and self.rows:
            raise MalformedError("a list mixes its entries with others")

    def _expect(self, kind: Kind) -> None:
        if kind is not self.kind and self.rows:
            raise MalformedError("a list mixes entries of two kinds")
        self.kind = kind


CODES = {Int64s: "q", Int32s: "i", Flags: "B", NDArray[np.uint8]: "B"}
COLUMNS = {
    kind: {
        name: CODES[hint]
        for name, hint in get_type_hints(record).items()
        if hint in CODES
    }
    for kind, record in (
        (Kind.EVENT, MemoryEvents),
        (Kind.SEGMENT, Segments),
        (Kind.BLOCK, Blocks),
        (Kind.ANNOTATION, Annotations),
    )
}
"""The types of arrays, by kind and column."""
ACTIONS = {
    one.name.lower(): int(one) for one in MemoryAction if one is not MemoryAction.OTHER
}
STATES = {one.name.lower(): int(one) for one in BlockState}
EVENT_KEYS = {"stack": "frames", "pool": "pool_id"}
NOTHING: ListItems = ListItems()


class SnapshotTables:
    """All rows so far. Raises MalformedError where a value has the wrong type."""

    def __init__(self) -> None:
        self.columns = {
            kind: {name: array(code) for name, code in columns.items()}
            for kind, columns in COLUMNS.items()
        }
        self._appends = {
            kind: [(name, column.append) for name, column in columns.items()]
            for kind, columns in self.columns.items()
        }
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[bytes, int] = {}  # the numbers of their frames, as int32
        self.strings: dict[str, int] = {}
        self.pools: dict[tuple[int, int], int] = {}
        self._makers: tuple[tuple[str, Kind, Callable[[RowFields], int]], ...] = (
            ("action", Kind.EVENT, self._event),
            ("filename", Kind.FRAME, self._frame),
            ("state", Kind.BLOCK, self._block),
            ("total_size", Kind.SEGMENT, self._segment),
            ("stage", Kind.ANNOTATION, self._annotation),
        )

    def settle(self, fields: RowFields) -> Kind:
        """Makes a row of a complete dict, if it is of a known kind."""
        for key, kind, make in self._makers:
            if key in fields:
                try:
                    fields.row = make(fields)
                except OverflowError:
                    raise MalformedError(
                        "a number is larger than any of a snapshot"
                    ) from None
                fields.kind = kind
                fields.clear()
                return kind
        return Kind.PLAIN

    def stack(self, frames: object) -> int:
        """The number of a stack; -1 of an empty one."""
        if type(frames) is StackNumber:
            return int(frames)
        if (
            type(frames) is not ListItems
            or frames
            or frames.kind not in (Kind.PLAIN, Kind.FRAME)
        ):
            raise MalformedError("frames are not a list of frames")
        return self.stack_of(frames.rows)

    def stack_of(self, frames: array[int]) -> int:
        """The number of the stack with these frames."""
        return (
            self.stacks.setdefault(frames.tobytes(), len(self.stacks)) if frames else -1
        )

    def action(self, name: object) -> int:
        """The Action with this name."""
        if not isinstance(name, str):
            raise MalformedError("action is not a text")
        return ACTIONS.get(name, 0)

    def text(self, text: object) -> int:
        """The number of a text; -1 of anything else."""
        return (
            self.strings.setdefault(text, len(self.strings))
            if isinstance(text, str)
            else -1
        )

    def pool(self, pair: object) -> int:
        """The number of a pair of numbers; -1 of anything else."""
        if not isinstance(pair, tuple) or [type(one) for one in pair] != [int, int]:
            return -1
        return self.pools.setdefault(pair, len(self.pools))

    def add_events(self, count: int, found: dict[str, Int64s]) -> RowRange:
        """Many events at once; -1 for what is not found."""
        columns = self.columns[Kind.EVENT]
        first, missing = len(columns["action"]), np.full(count, -1)
        for name, column in columns.items():
            values = found.get(EVENT_KEYS.get(name, name), missing)
            column.frombytes(values.astype(column.typecode).tobytes())
        return RowRange(Kind.EVENT, first, first + count)

    def _frame(self, fields: RowFields) -> int:
        name, file = _text(fields, "name"), _text(fields, "filename")
        line = _number(fields, "line", 0)
        # torch writes -1 as 2**64 - 1
        frame = Frame(name, file, line if 0 < line < 1 << 31 else 0)
        return self.frames.setdefault(frame, len(self.frames))

    def _event(self, fields: RowFields) -> int:
        free = fields.get("device_free")  # of an `oom`; None is not known
        return self._row(
            Kind.EVENT,
            fields,
            action=self.action(fields["action"]),
            device_free=-1 if free is None else free,
            stack=self.stack(fields.get("frames", NOTHING)),
            compile_context=self.text(fields.get("compile_context")),
            user_metadata=self.text(fields.get("user_metadata")),
            pool=self.pool(fields.get("pool_id")),
        )

    def _block(self, fields: RowFields) -> int:
        history = fields.get("history")  # before torch 2.1
        if isinstance(history, list) and history and isinstance(history[0], RowFields):
            fields.setdefault("frames", history[0].get("frames", NOTHING))
            fields.setdefault("requested_size", history[0].get("real_size", -1))
        state = STATES.get(_text(fields, "state"))
        if state is None:
            raise MalformedError("a block has a state of another name")
        stack = self.stack(fields.get("frames", NOTHING))
        return self._row(Kind.BLOCK, fields, segment=-1, state=state, stack=stack)

    def _segment(self, fields: RowFields) -> int:
        row = self._row(
            Kind.SEGMENT,
            fields,
            is_large=_text(fields, "segment_type") == "large",
            pool=self.pool(fields.get("segment_pool_id")),
            is_expandable=fields.get("is_expandable") is True,
            stack=self.stack(fields.get("frames", NOTHING)),
        )
        blocks = fields.get("blocks", NOTHING)
        if (
            type(blocks) is not ListItems
            or blocks
            or blocks.kind not in (Kind.PLAIN, Kind.BLOCK)
        ):
            raise MalformedError("blocks are not a list of blocks")
        self._place(blocks.rows, row, _number(fields, "address"))
        return row

    def _place(self, blocks: Iterable[int], segment: int, address: int) -> None:
        """Says of blocks where they are; files before torch 2.1 leave it to their
        sizes."""
        columns = self.columns[Kind.BLOCK]
        for row in blocks:
            if columns["segment"][row] != -1:
                raise MalformedError("a block is in two segments")
            columns["segment"][row] = segment
            if columns["address"][row] == -1:
                columns["address"][row] = address
            address = columns["address"][row] + columns["size"][row]

    def _annotation(self, fields: RowFields) -> int:
        name, is_start = (
            self.text(fields.get("name")),
            _text(fields, "stage") == "START",
        )
        return self._row(Kind.ANNOTATION, fields, name=name, is_start=is_start)

    def _row(self, kind: Kind, fields: RowFields, **found: int) -> int:
        fields.update(found)
        appends, value = self._appends[kind], fields.get
        row = len(self.columns[kind][appends[0][0]])
        name = ""
        try:
            for name, append in appends:
                append(value(name, -1))
        except TypeError:
            raise MalformedError(f"{name} is not a whole number") from None
        return row


def _number(fields: RowFields, key: str, missing: int = -1) -> int:
    value = fields.get(key, missing)
    if type(value) is not int:
        raise MalformedError(f"{key} is not a whole number")
    return value


def _text(fields: RowFields, key: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise MalformedError(f"{key} is not a text")
    return value


LEAST, SHARE = 128 << 20, 4
"""All objects of a file may take LEAST bytes and SHARE times its size."""
PLACE = 12  # bytes that a number takes, and a thing with it
ROW = -1
"""The code of a dict of which only a row is left; codes above are of things, below of
stacks."""


class Memo:
    """Four bytes for each number: the code of what it stands for."""

    def __init__(self, size: int) -> None:
        self.codes = array("i")
        self.things: list[Any] = []
        self.left = LEAST + SHARE * size
        self._shared: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> Any:
        """Raises MalformedError if nothing has this number."""
        if index >= len(self.codes):
            raise MalformedError("it refers to what it does not hold")
        return self.thing(self.codes[index])

    def get(self, index: int) -> Any:
        """The thing with this number, if there is one."""
        code = self.codes[index] if index < len(self.codes) else ROW
        return self.things[code] if code > ROW else None

    def thing(self, code: int) -> Any:
        """What a code stands for."""
        if code == ROW:
            raise MalformedError("it has one event in two places")
        return self.things[code] if code > ROW else StackNumber(stack_code(code))

    def put(self, thing: Any) -> None:
        """Gives it the next number."""
        if type(thing) is StackNumber:
            self.codes.append(stack_code(int(thing)))
        else:
            self.codes.append(len(self.things))
            self.things.append(thing)

    def shared(self, thing: str | tuple[int, ...]) -> int:
        """The code of a text or tuple, the same for all equal ones."""
        if thing not in self._shared:
            self._shared[thing] = len(self.things)
            self.things.append(thing)
        return self._shared[thing]

    def codes_of(self, numbers: Int64s) -> Int32s:
        """The codes of what has these numbers."""
        if len(numbers) and int(numbers.max()) >= len(self.codes):
            raise MalformedError("it refers to what it does not hold")
        return np.frombuffer(self.codes, np.int32)[numbers]

    def take(self, size: int) -> None:
        """Counts bytes that objects take in Python. Raises MalformedError if they are
        too many."""
        self.left -= size
        if self.left < 0:
            raise MalformedError("it holds more objects than a snapshot of its size")

    def check(self, beside: int) -> None:
        """As `take`, of what is counted again each time."""
        if self.left < beside + PLACE * len(self.codes):
            self.take(self.left + 1)


def stack_code(number: Any) -> Any:
    """The code of a stack by its number (-1: none), and the other way round."""
    return -3 - number
