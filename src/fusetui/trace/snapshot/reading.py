"""Reads a file into a Snapshot."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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
from fusetui.trace.snapshot.opcodes import PickleMachine
from fusetui.trace.snapshot.tables import (
    Kind,
    ListItems,
    MalformedError,
    RowFields,
    SnapshotTables,
)

FRAME = b"\x95"  # the opcode
FRAME_HEAD_BYTES = 9  # the opcode and the size
MIN_FRAME_BYTES = 1 << 12  # of one that is not the last; Python makes them of 64 KB
SIZE_COLUMNS = {
    "size",
    "requested_size",
    "total_size",
    "allocated_size",
    "active_size",
    "device_free",
}
MAX_TOTAL_BYTES = float(1 << 62)
"""Bytes that all sizes of a column may have together, so that their sums are exact."""
MAX_SETTINGS_DEPTH = 8


def read_snapshot(path: str, progress: Progress = silent) -> Snapshot:
    """Reads a snapshot, compressed or not. Raises CannotReadError or NotATraceError with one
    plain sentence."""
    data, size = _document(path)
    tables = SnapshotTables()
    try:
        with without_collector():
            root = PickleMachine(data, tables, progress).run()
            return _snapshot(path, size, root, tables)
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
        raise CannotReadError(f"{path} cannot be read to the end: {source.cut}.")
    if not is_pickle(data[:2]):
        raise NotATraceError(f"{path} is not a memory snapshot: it is not a pickle.")
    return data, stored.size


def _unframed(document: Document) -> bytes:
    """What the frames of protocols 4 and 5 hold, which begin anywhere between two
    opcodes; those that are smaller than Python makes them stay."""
    pieces = [document[:2]]  # PROTO
    at = 2
    while document[at : at + 1] == FRAME:
        contents = at + FRAME_HEAD_BYTES
        size = int.from_bytes(document[at + 1 : contents], "little")
        is_last = contents + size >= len(document)
        if size < MIN_FRAME_BYTES and not is_last:
            break
        pieces.append(document[contents : contents + size])
        at = contents + size
    pieces.append(document[at:])
    return b"".join(pieces)


def _snapshot(path: str, size: int, root: Any, tables: SnapshotTables) -> Snapshot:
    """The snapshot of a pickle. `root`: its value; `size`: bytes of the file as stored.
    Raises MalformedError if it is none."""
    if type(root) is ListItems and root.rows:  # of torch.cuda.memory_snapshot()
        root = {"segments": root}
    if not isinstance(root, dict) or "segments" not in root:
        raise MalformedError("it has no segments")
    no_items = ListItems()
    segments = _rows(root["segments"], Kind.SEGMENT)
    device_traces = root.get("device_traces", no_items)
    if type(device_traces) is not ListItems or device_traces.rows:
        raise MalformedError("device_traces is not a list of lists")
    events_of_devices = [_rows(trace, Kind.EVENT) for trace in device_traces]
    annotations = _rows(root.get("external_annotations", no_items), Kind.ANNOTATION)
    settings = root.get("allocator_settings", {})
    columns = tables.columns
    _check_sizes(columns)
    return Snapshot(
        path=path,
        bytes=size,
        segments=Segments(**_taken(columns[Kind.SEGMENT], segments)),
        blocks=_blocks(columns[Kind.BLOCK], segments),
        events=_events(columns[Kind.EVENT], events_of_devices),
        annotations=Annotations(**_taken(columns[Kind.ANNOTATION], annotations)),
        stacks=_stacks(tables),
        strings=tuple(tables.strings),
        pools=tuple(tables.pools),
        settings=_plain(settings) if isinstance(settings, dict) else {},
    )


def _events(
    columns: dict[str, array[int]], rows_of_devices: Sequence[Int32s]
) -> tuple[MemoryEvents, ...]:
    """The events of each device that has any."""
    events = []
    for device, rows in enumerate(rows_of_devices):
        if len(rows):
            events.append(MemoryEvents(device=device, **_taken(columns, rows)))
    return tuple(events)


def _check_sizes(tables: dict[Kind, dict[str, array[int]]]) -> None:
    """Raises MalformedError unless the sizes can be added up."""
    for columns in tables.values():
        for name in columns.keys() & SIZE_COLUMNS:
            sizes = _array(columns[name])
            if sizes.min(initial=0) < -1:
                raise MalformedError("a size is negative")
            if float(sizes.sum(dtype=float)) > MAX_TOTAL_BYTES:
                raise MalformedError("its sizes add up to more than any device has")


def _rows(items: object, kind: Kind) -> Int32s:
    """The rows that a list consists of. Raises MalformedError if it holds anything
    else."""
    rows = items.rows_of(kind) if type(items) is ListItems else None
    if rows is None:
        raise MalformedError(f"a list of {kind.name.lower()}s contains something else")
    return np.frombuffer(rows, np.int32)


def _array(column: array[int]) -> Any:
    return np.frombuffer(column, column.typecode)


def _taken(columns: dict[str, array[int]], rows: Int32s) -> dict[str, Any]:
    """These rows of each column, as arrays of the types of the records."""
    is_range = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    # a range needs no copy
    which = slice(int(rows[0]), int(rows[-1]) + 1) if is_range else rows
    taken = {}
    for name, column in columns.items():
        is_flag = name.startswith("is_")
        dtype = np.bool_ if is_flag else column.typecode
        taken[name] = _array(column)[which].astype(dtype)
    return taken


def _blocks(columns: dict[str, array[int]], segments: Int32s) -> Blocks:
    """The blocks of segments of the file, which may have been written in any order: by
    segment and address. `segments` are rows of the file."""
    # by the row of a segment in the file; the last place is that of no segment
    place_of_segment = np.full(int(segments.max(initial=-1)) + 2, -1, np.int32)
    place_of_segment[segments] = np.arange(len(segments), dtype=np.int32)
    no_segment = len(place_of_segment) - 1
    row_of_segment = np.minimum(_array(columns["segment"]), no_segment)
    segment_of_block = place_of_segment[row_of_segment]
    rows = np.flatnonzero(segment_of_block >= 0)
    address = _array(columns["address"])[rows]
    by_address = np.lexsort((address, segment_of_block[rows]))
    in_order = rows[by_address].astype(np.int32)
    taken = _taken(columns, in_order)
    taken["segment"] = segment_of_block[in_order]
    return Blocks(**taken)


def _stacks(tables: SnapshotTables) -> Stacks:
    """All stacks: their frames one after the other, and where each stack begins."""
    bytes_of_stacks = np.fromiter(map(len, tables.stacks), np.int64, len(tables.stacks))
    frames_of_stacks = bytes_of_stacks // np.dtype(np.int32).itemsize
    ends = np.cumsum(frames_of_stacks)
    start: Int64s = np.concatenate([np.zeros(1, np.int64), ends])
    return Stacks(
        frames=tuple(tables.frames),
        frame=np.frombuffer(b"".join(tables.stacks), np.int32),
        start=start,
    )


def _plain(value: Any, depth_left: int = MAX_SETTINGS_DEPTH) -> Any:
    """Settings as dicts, lists and values that JSON has."""
    if not depth_left:
        raise MalformedError("its settings are nested too deeply")
    if isinstance(value, RowFields):
        return {key: _plain(item, depth_left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth_left - 1) for item in value]
    return value
