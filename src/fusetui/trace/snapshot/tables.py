"""Converts the dicts of a snapshot to rows of columns as soon as each is complete, so
that no dict is kept; and limits the objects and memo entries of the pickle."""

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
        """Start as a plain dict that is not a row of any table yet."""
        self.kind = Kind.PLAIN
        self.row = -1


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
        """Start as an empty list without rows."""
        self.kind = Kind.PLAIN
        self.rows = array("i")

    def add(self, values: list[Any]) -> None:
        """Append values; of those that became rows of a table, only the row numbers are
        kept. Raises MalformedError if rows of a table stand beside anything else."""
        append = self.rows.append
        for value in values:
            if type(value) is RowFields and value.row >= 0:
                if value.kind is not self.kind:
                    self._require_kind(value.kind)
                append(value.row)
            elif type(value) is RowRange:
                self._require_kind(value.kind)
                self.rows.extend(range(value.first, value.end))
            else:
                self.append(value)
        if self and self.rows:
            raise MalformedError("a list mixes its entries with others")

    def _require_kind(self, kind: Kind) -> None:
        """Note that the next row is of this kind. Raises MalformedError if the rows so
        far are of another kind."""
        if kind is not self.kind and self.rows:
            raise MalformedError("a list mixes entries of two kinds")
        self.kind = kind

    def rows_of(self, kind: Kind) -> array[int] | None:
        """The row numbers in the list, if all of its elements are rows of this kind, or
        it is empty. None otherwise."""
        holds_others = len(self) > 0 or self.kind not in (Kind.PLAIN, kind)
        return None if holds_others else self.rows


TYPE_CODES = {Int64s: "q", Int32s: "i", Flags: "B", NDArray[np.uint8]: "B"}
"""The typecode of an array.array for each type of column."""
RECORD_OF_KIND = {
    Kind.EVENT: MemoryEvents,
    Kind.SEGMENT: Segments,
    Kind.BLOCK: Blocks,
    Kind.ANNOTATION: Annotations,
}


def _typecodes_of(record: type) -> dict[str, str]:
    """The names of the array columns of a record, with the typecode of array.array for
    each."""
    columns = {}
    for name, hint in get_type_hints(record).items():
        if hint in TYPE_CODES:
            columns[name] = TYPE_CODES[hint]
    return columns


COLUMNS = {kind: _typecodes_of(record) for kind, record in RECORD_OF_KIND.items()}
"""The typecodes of columns, by kind and name."""

ACTIONS = {
    action.name.lower(): int(action)
    for action in MemoryAction
    if action is not MemoryAction.OTHER
}
"""The MemoryAction of each text that torch writes."""
STATES = {state.name.lower(): int(state) for state in BlockState}
"""The BlockState of each text that torch writes."""
KEY_OF_COLUMN = {"stack": "frames", "pool": "pool_id"}
"""The keys of events in the file, where they are not those of the columns."""
MAX_LINE = (1 << 31) - 1
EMPTY_LIST: ListItems = ListItems()


class SnapshotTables:
    """All rows so far. Raises MalformedError where a value has the wrong type."""

    def __init__(self) -> None:
        """Start with empty tables."""
        self.columns: dict[Kind, dict[str, array[int]]] = {}
        self._appends: dict[Kind, list[tuple[str, Callable[[Any], None]]]] = {}
        for kind, codes in COLUMNS.items():
            columns = {name: array(code) for name, code in codes.items()}
            self.columns[kind] = columns
            self._appends[kind] = [
                (name, column.append) for name, column in columns.items()
            ]
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[bytes, int] = {}  # the numbers of their frames, as int32
        self.strings: dict[str, int] = {}
        self.pools: dict[tuple[int, int], int] = {}
        # the key that only dicts of a kind have, the kind, and what makes its row
        self._makers: tuple[tuple[str, Kind, Callable[[RowFields], int]], ...] = (
            ("action", Kind.EVENT, self._event),
            ("filename", Kind.FRAME, self._frame),
            ("state", Kind.BLOCK, self._block),
            ("total_size", Kind.SEGMENT, self._segment),
            ("stage", Kind.ANNOTATION, self._annotation),
        )

    def settle(self, fields: RowFields) -> Kind:
        """Turn a complete dict into a row, if it is of a known kind, and empty it.
        Return the kind, PLAIN for any other dict. Raises MalformedError if a value does
        not fit."""
        for key, kind, make in self._makers:
            if key in fields:
                try:
                    fields.row = make(fields)
                except OverflowError:
                    raise MalformedError(
                        "a number is larger than any in a snapshot"
                    ) from None
                fields.kind = kind
                fields.clear()
                return kind
        return Kind.PLAIN

    def stack(self, frames: object) -> int:
        """The number of the stack with these frames; -1 for an empty one. Raises
        MalformedError unless it is a list of frames."""
        if type(frames) is StackNumber:
            return int(frames)
        rows = frames.rows_of(Kind.FRAME) if type(frames) is ListItems else None
        if rows is None:
            raise MalformedError("frames are not a list of frames")
        return self.stack_of(rows)

    def stack_of(self, frames: array[int]) -> int:
        """The number of a stack, given the numbers of its frames; -1 if there are none.
        Equal stacks have the same number."""
        if not frames:
            return -1
        return self.stacks.setdefault(frames.tobytes(), len(self.stacks))

    def action(self, name: object) -> int:
        """The number of the MemoryAction with this name; that of OTHER for an unknown
        one. Raises MalformedError if the name is not a text."""
        if not isinstance(name, str):
            raise MalformedError("action is not a string")
        return ACTIONS.get(name, int(MemoryAction.OTHER))

    def text(self, text: object) -> int:
        """The number of a text, the same for equal ones; -1 for anything that is not a
        text."""
        if not isinstance(text, str):
            return -1
        return self.strings.setdefault(text, len(self.strings))

    def pool(self, pair: object) -> int:
        """The number of a memory pool, which is a pair of integers; -1 for anything
        else."""
        if not isinstance(pair, tuple) or [type(half) for half in pair] != [int, int]:
            return -1
        return self.pools.setdefault(pair, len(self.pools))

    def add_events(self, count: int, values_of_key: dict[str, Int64s]) -> RowRange:
        """Add many events at once and return their rows.

        `values_of_key` has an array of shape [count] for each key of the file. Columns
        whose key is missing are filled with -1.
        """
        columns = self.columns[Kind.EVENT]
        first = len(columns["action"])
        missing = np.full(count, -1)
        for name, column in columns.items():
            key = KEY_OF_COLUMN.get(name, name)
            values = values_of_key.get(key, missing)
            column.frombytes(values.astype(column.typecode).tobytes())
        return RowRange(kind=Kind.EVENT, first=first, end=first + count)

    def _frame(self, fields: RowFields) -> int:
        """The number of a stack frame; equal frames have the same one. A line number
        out of range becomes 0."""
        line = _int_field(fields, "line", 0)
        if not 0 < line <= MAX_LINE:  # torch writes -1 as 2**64 - 1
            line = 0
        frame = Frame(
            name=_text_field(fields, "name"),
            file=_text_field(fields, "filename"),
            line=line,
        )
        return self.frames.setdefault(frame, len(self.frames))

    def _event(self, fields: RowFields) -> int:
        """Add a row for an event of the allocator, and return its number."""
        device_free = fields.get("device_free")  # of an `oom`; None is not known
        return self._row(
            Kind.EVENT,
            fields,
            action=self.action(fields["action"]),
            device_free=-1 if device_free is None else device_free,
            stack=self.stack(fields.get("frames", EMPTY_LIST)),
            compile_context=self.text(fields.get("compile_context")),
            user_metadata=self.text(fields.get("user_metadata")),
            pool=self.pool(fields.get("pool_id")),
        )

    def _block(self, fields: RowFields) -> int:
        """Add a row for a block of memory, and return its number.

        Before torch 2.1, stack and requested size are in the first entry of its
        `history`. Raises MalformedError if its state is unknown.
        """
        history = fields.get("history")  # before torch 2.1
        if isinstance(history, list) and history and isinstance(history[0], RowFields):
            last = history[0]
            fields.setdefault("frames", last.get("frames", EMPTY_LIST))
            fields.setdefault("requested_size", last.get("real_size", -1))
        state = STATES.get(_text_field(fields, "state"))
        if state is None:
            raise MalformedError("a block has an unknown state")
        stack = self.stack(fields.get("frames", EMPTY_LIST))
        return self._row(Kind.BLOCK, fields, segment=-1, state=state, stack=stack)

    def _segment(self, fields: RowFields) -> int:
        """Add a row for a segment of memory, note it in its blocks, and return its
        number. Raises MalformedError unless `blocks` is a list of blocks."""
        row = self._row(
            Kind.SEGMENT,
            fields,
            is_large=_text_field(fields, "segment_type") == "large",
            pool=self.pool(fields.get("segment_pool_id")),
            is_expandable=fields.get("is_expandable") is True,
            stack=self.stack(fields.get("frames", EMPTY_LIST)),
        )
        blocks = fields.get("blocks", EMPTY_LIST)
        rows = blocks.rows_of(Kind.BLOCK) if type(blocks) is ListItems else None
        if rows is None:
            raise MalformedError("blocks are not a list of blocks")
        self._place(rows, row, _int_field(fields, "address"))
        return row

    def _place(self, blocks: Iterable[int], segment: int, address: int) -> None:
        """Set the segment of each block, and its address if the file does not have one.

        Before torch 2.1, addresses follow from the sizes of the blocks, which lie one
        behind the other. `address` is that of the segment. Raises MalformedError if a
        block is in two segments.
        """
        segments = self.columns[Kind.BLOCK]["segment"]
        addresses = self.columns[Kind.BLOCK]["address"]
        sizes = self.columns[Kind.BLOCK]["size"]
        next_address = address
        for block in blocks:
            if segments[block] != -1:
                raise MalformedError("a block is in two segments")
            segments[block] = segment
            if addresses[block] == -1:
                addresses[block] = next_address
            next_address = addresses[block] + sizes[block]

    def _annotation(self, fields: RowFields) -> int:
        """Add a row for the start or the end of an annotation, and return its number."""
        return self._row(
            Kind.ANNOTATION,
            fields,
            name=self.text(fields.get("name")),
            is_start=_text_field(fields, "stage") == "START",
        )

    def _row(self, kind: Kind, fields: RowFields, **columns: int) -> int:
        """Add a row to the table of a kind, and return its number.

        `columns` has the values that were worked out; all other columns come from the
        fields of the same name. -1 stands for those that are missing. Raises
        MalformedError if a value is not a whole number.
        """
        fields.update(columns)
        appends = self._appends[kind]
        value = fields.get
        first_column, _ = appends[0]
        row = len(self.columns[kind][first_column])
        name = ""
        try:
            for name, append in appends:
                append(value(name, -1))
        except TypeError:
            raise MalformedError(f"{name} is not an integer") from None
        return row


def _int_field(fields: RowFields, key: str, missing: int = -1) -> int:
    """The whole number at a key; `missing` if the key is not there. Raises
    MalformedError for anything else."""
    value = fields.get(key, missing)
    if type(value) is not int:
        raise MalformedError(f"{key} is not an integer")
    return value


def _text_field(fields: RowFields, key: str) -> str:
    """The text at a key; "" if the key is not there. Raises MalformedError for anything
    else."""
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise MalformedError(f"{key} is not a string")
    return value


MIN_OBJECT_BYTES = 128 << 20
OBJECT_BYTES_PER_BYTE = 4
"""All objects of a file may take MIN_OBJECT_BYTES, and so many bytes for each byte of
it."""
NUMBER_BYTES = 12  # that a number takes, and a thing with it
ROW = -1
"""The code of a dict of which only a row is left; codes above are of things, below of
stacks."""


class PickleMemo:
    """What a pickle refers to by number. Four bytes for each number: the code of what
    it stands for."""

    def __init__(self, file_bytes: int) -> None:
        """Start without values. The size of the file in bytes limits how much memory
        its objects may take."""
        self.codes = array("i")  # by number
        self.things: list[Any] = []  # by code
        self.bytes_left = MIN_OBJECT_BYTES + OBJECT_BYTES_PER_BYTE * file_bytes
        self._code_of_thing: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> Any:
        """The object that the pickle numbered `index`. Raises MalformedError if there
        is none."""
        if index >= len(self.codes):
            raise MalformedError("it refers to what it does not hold")
        return self.thing(self.codes[index])

    def get(self, index: int) -> Any:
        """The object that the pickle numbered `index`; None if there is none, or only a
        row is left of it."""
        code = self.codes[index] if index < len(self.codes) else ROW
        return self.things[code] if code > ROW else None

    def thing(self, code: int) -> Any:
        """The object that a code stands for. Codes above ROW are objects, those below
        it stacks. Raises MalformedError for ROW itself, of which no object is left."""
        if code == ROW:
            raise MalformedError("it contains one event in two places")
        return self.things[code] if code > ROW else StackNumber(stack_code(code))

    def put(self, thing: Any) -> None:
        """Give an object the next number, as the pickle does."""
        if type(thing) is StackNumber:
            self.codes.append(stack_code(int(thing)))
        else:
            self.codes.append(len(self.things))
            self.things.append(thing)

    def shared(self, thing: str | tuple[int, ...]) -> int:
        """The code of a text or tuple, the same for all equal ones."""
        code = self._code_of_thing.get(thing)
        if code is None:
            code = len(self.things)
            self._code_of_thing[thing] = code
            self.things.append(thing)
        return code

    def codes_of(self, numbers: Int64s) -> Int32s:
        """The codes of the values with these numbers; shape as `numbers`. Raises
        MalformedError if a number is not given yet."""
        if len(numbers) and int(numbers.max()) >= len(self.codes):
            raise MalformedError("it refers to what it does not hold")
        return np.frombuffer(self.codes, np.int32)[numbers]

    def take(self, size: int) -> None:
        """Count bytes of memory that objects take. Raises MalformedError if the file
        has more than a snapshot of its size."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise MalformedError(
                "it contains more objects than a snapshot of its size can"
            )

    def check(self, other_bytes: int) -> None:
        """Raise MalformedError if these bytes would exceed the memory that is left,
        together with all numbers so far. The bytes are not counted, because they are
        measured anew each time."""
        if self.bytes_left < other_bytes + NUMBER_BYTES * len(self.codes):
            self.take(self.bytes_left + 1)


def stack_code(number: Any) -> Any:
    """Turn the number of a stack into its code, or a code into the number: -1, for no
    stack, and -2 belong together. Codes of stacks are below ROW, those of other things
    above it."""
    return -3 - number
