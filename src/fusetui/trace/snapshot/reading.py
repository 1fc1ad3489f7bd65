"""A file -> a Snapshot."""

from __future__ import annotations

from array import array
from contextlib import closing
from typing import Any

import numpy as np

from fusetui.own_memory import without_collector
from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.document import Document
from fusetui.trace.read.foreign import is_pickle
from fusetui.trace.read.source import open_stored, reason, unpacked
from fusetui.trace.snapshot.columns import (
    Annotations,
    Blocks,
    MemoryEvents,
    Segments,
    Snapshot,
    Stacks,
)
from fusetui.trace.snapshot.opcodes import Machine
from fusetui.trace.snapshot.tables import (
    Kind,
    ListItems,
    MalformedError,
    RowFields,
    SnapshotTables,
)

# the opcode; bytes of a frame that is not the last: 64 KB
FRAME, SMALLEST = b"\x95", 1 << 12
SIZES = {
    "size",
    "requested_size",
    "total_size",
    "allocated_size",
    "active_size",
    "device_free",
}
MOST = float(1 << 62)  # bytes that all events may have together: their sums are exact


def read_snapshot(path: str, progress: Progress = silent) -> Snapshot:
    """Reads a snapshot, compressed or not. Raises CannotReadError or NotATraceError
    with one plain sentence."""
    data, size = _document(path)
    tables = SnapshotTables()
    try:
        with without_collector():
            return _snapshot(path, size, Machine(data, tables, progress).run(), tables)
    except MalformedError as wrong:
        raise NotATraceError(
            f"{path} is not a readable memory snapshot: {wrong}."
        ) from None


def _document(path: str) -> tuple[bytes, int]:
    """The bytes of the pickle, and how many the file has."""
    stored = open_stored(path)
    try:
        with closing(stored.file), closing(stored.room()) as room:
            source = unpacked(stored, room, is_meant=is_pickle)
            data = _unframed(source.document)
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None
    if source.cut:
        raise CannotReadError(f"{path} cannot be read to its end: {source.cut}.")
    if not is_pickle(data[:2]):
        raise NotATraceError(f"{path} is no memory snapshot, which is a pickle.")
    return data, stored.size


def _unframed(document: Document) -> bytes:
    """What the frames of protocols 4 and 5 hold, which begin anywhere between two
    opcodes; those that are smaller than Python makes them stay."""
    pieces, at = [document[:2]], 2
    while (head := document[at : at + 9])[:1] == FRAME:
        size = int.from_bytes(head[1:], "little")
        if size < SMALLEST and at + 9 + size < len(document):
            break
        pieces.append(document[at + 9 : at + 9 + size])
        at += 9 + size
    return b"".join([*pieces, document[at:]])


def _snapshot(path: str, size: int, root: Any, tables: SnapshotTables) -> Snapshot:
    if type(root) is ListItems and root.rows:  # of torch.cuda.memory_snapshot()
        root = {"segments": root}
    if not isinstance(root, dict) or "segments" not in root:
        raise MalformedError("it has no segments")
    segments = _rows(root["segments"], Kind.SEGMENT)
    traces = root.get("device_traces", ListItems())
    if type(traces) is not ListItems or traces.rows:
        raise MalformedError("device_traces is not a list of lists")
    of_devices = [_rows(one, Kind.EVENT) for one in traces]
    settings = root.get("allocator_settings", {})
    noted = _rows(root.get("external_annotations", ListItems()), Kind.ANNOTATION)
    found = tables.columns
    _check_sizes(found)
    return Snapshot(
        path=path,
        bytes=size,
        segments=Segments(**_taken(found[Kind.SEGMENT], segments)),
        blocks=_blocks(found[Kind.BLOCK], segments),
        events=tuple(
            MemoryEvents(device=device, **_taken(found[Kind.EVENT], rows))
            for device, rows in enumerate(of_devices)
            if len(rows)
        ),
        annotations=Annotations(**_taken(found[Kind.ANNOTATION], noted)),
        stacks=_stacks(tables),
        strings=tuple(tables.strings),
        pools=tuple(tables.pools),
        settings=_plain(settings) if isinstance(settings, dict) else {},
    )


def _check_sizes(tables: dict[Kind, dict[str, array[int]]]) -> None:
    """Raises MalformedError unless they can be added up."""
    for columns in tables.values():
        for name in columns.keys() & SIZES:
            sizes = _array(columns[name])
            if sizes.min(initial=0) < -1:
                raise MalformedError("a size is negative")
            if float(sizes.sum(dtype=float)) > MOST:
                raise MalformedError("its sizes add up to more than any device has")


def _rows(items: object, kind: Kind) -> Int32s:
    """The rows that a list consists of. Raises MalformedError if it holds anything
    else."""
    if type(items) is not ListItems or items or items.kind not in (Kind.PLAIN, kind):
        raise MalformedError(
            f"a list that should hold {kind.name.lower()}s holds something else"
        )
    return np.frombuffer(items.rows, np.int32)


def _array(column: array[int]) -> Any:
    return np.frombuffer(column, column.typecode)


def _taken(columns: dict[str, array[int]], rows: Int32s) -> dict[str, Any]:
    """These rows of each column; a view where they follow one another."""
    whole = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    which = slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows
    return {
        name: _array(column)[which].astype(
            np.bool_ if name.startswith("is_") else column.typecode
        )
        for name, column in columns.items()
    }


def _blocks(columns: dict[str, array[int]], segments: Int32s) -> Blocks:
    """Those of segments of the file, which may have been written in any order."""
    # the last place is that of no segment
    place_of_segment = np.full(int(segments.max(initial=-1)) + 2, -1, np.int32)
    place_of_segment[segments] = np.arange(len(segments), dtype=np.int32)
    none = len(place_of_segment) - 1
    segment_of_block = place_of_segment[np.minimum(_array(columns["segment"]), none)]
    rows = np.flatnonzero(segment_of_block >= 0)
    address = _array(columns["address"])[rows]
    by_address = np.lexsort((address, segment_of_block[rows]))
    order = rows[by_address].astype(np.int32)
    return Blocks(**(_taken(columns, order) | {"segment": segment_of_block[order]}))


def _stacks(tables: SnapshotTables) -> Stacks:
    lengths = np.fromiter(
        (len(one) // 4 for one in tables.stacks), np.int64, len(tables.stacks)
    )
    start: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Stacks(
        tuple(tables.frames), np.frombuffer(b"".join(tables.stacks), np.int32), start
    )


def _plain(value: Any, depth: int = 8) -> Any:
    """Settings as dicts, lists and values that JSON has."""
    if not depth:
        raise MalformedError("its settings are nested too deeply")
    if isinstance(value, RowFields):
        return {key: _plain(one, depth - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth - 1) for one in value]
    return value
