"""Reads a file into a Snapshot."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from fusetui.own_memory import without_collector
from fusetui.trace.model.arrays import Int32s, prefix_sums
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
    """Read a memory snapshot of torch, compressed or not. `progress` is called while it
    is read. Raises CannotReadError or NotATraceError with one plain sentence."""
    data, size = _read_pickle(path)
    tables = SnapshotTables()
    try:
        with without_collector():
            root = PickleMachine(data, tables, progress).run()
            return _build_snapshot(path, size, root, tables)
    except MalformedError as wrong:
        raise NotATraceError(
            f"{path} is not a readable memory snapshot: {wrong}."
        ) from None


def _read_pickle(path: str) -> tuple[bytes, int]:
    """Read a file into memory.

    Returns:
        The bytes of the pickle, unpacked and without frames, and the size of the file
        as stored.

    Raises CannotReadError, or NotATraceError for what is no pickle.
    """
    stored = open_stored(path)
    try:
        with closing(stored.file), closing(stored.room()) as room:
            source = unpacked(stored, room, is_meant=is_pickle)
            data = _remove_frames(source.document)
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None
    if source.cut:
        raise CannotReadError(f"{path} cannot be read to the end: {source.cut}.")
    if not is_pickle(data[:2]):
        raise NotATraceError(f"{path} is not a memory snapshot: it is not a pickle.")
    return data, stored.size


def _remove_frames(document: Document) -> bytes:
    """Return a pickle without the heads of its frames (protocols 4 and 5).

    A frame may begin between any two opcodes, so that its head would be in the middle
    of what is read as a whole elsewhere. Removing stops at a frame that is smaller than
    Python makes them, unless it is the last; the opcode FRAME is allowed there.
    """
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


def _build_snapshot(
    path: str, size: int, root: Any, tables: SnapshotTables
) -> Snapshot:
    """Make the snapshot of what a pickle holds.

    Args:
        path: The file.
        size: How many bytes the file has as stored.
        root: The value of the pickle: a dict with lists of segments and events, or the
            list of segments that torch.cuda.memory_snapshot() returns. Raises
            MalformedError if it is neither.
        tables: The rows that the dicts of these lists became.
    """
    is_list_of_segments = type(root) is ListItems and root.rows
    if is_list_of_segments:
        root = {"segments": root}
    if not isinstance(root, dict) or "segments" not in root:
        raise MalformedError("it has no segments")
    no_items = ListItems()
    device_traces = root.get("device_traces", no_items)
    external_annotations = root.get("external_annotations", no_items)
    settings = root.get("allocator_settings", {})

    segment_rows = _rows_of_list(root["segments"], Kind.SEGMENT)
    # `rows` would be dicts of events, without a list for each device around them
    if type(device_traces) is not ListItems or device_traces.rows:
        raise MalformedError("device_traces is not a list of lists")
    event_rows_of_devices = [
        _rows_of_list(device_trace, Kind.EVENT) for device_trace in device_traces
    ]
    annotation_rows = _rows_of_list(external_annotations, Kind.ANNOTATION)
    columns = tables.columns
    _check_sizes(columns)
    return Snapshot(
        path=path,
        bytes=size,
        segments=Segments(**_take_rows(columns[Kind.SEGMENT], segment_rows)),
        blocks=_make_blocks(columns[Kind.BLOCK], segment_rows),
        events=_make_events(columns[Kind.EVENT], event_rows_of_devices),
        annotations=Annotations(
            **_take_rows(columns[Kind.ANNOTATION], annotation_rows)
        ),
        stacks=_make_stacks(tables),
        strings=tuple(tables.strings),
        pools=tuple(tables.pools),
        settings=_to_plain(settings) if isinstance(settings, dict) else {},
    )


def _make_events(
    columns: dict[str, array[int]], rows_of_devices: Sequence[Int32s]
) -> tuple[MemoryEvents, ...]:
    """Make the events of each device; devices without events are left out.

    Args:
        columns: The events of all devices.
        rows_of_devices: The rows of each device, by its number.
    """
    events = []
    for device, rows in enumerate(rows_of_devices):
        if len(rows):
            events.append(MemoryEvents(device=device, **_take_rows(columns, rows)))
    return tuple(events)


def _check_sizes(tables: dict[Kind, dict[str, array[int]]]) -> None:
    """Raise MalformedError if a size is negative, or if those of a column add up to
    more than fits into 64 bits. -1 stands for a size that the file does not say."""
    for columns in tables.values():
        for name in columns.keys() & SIZE_COLUMNS:
            sizes = _as_array(columns[name])
            if sizes.min(initial=0) < -1:
                raise MalformedError("a size is negative")
            if float(sizes.sum(dtype=float)) > MAX_TOTAL_BYTES:
                raise MalformedError("its sizes add up to more than any device has")


def _rows_of_list(items: object, kind: Kind) -> Int32s:
    """The numbers of the rows that a list consists of. Raises MalformedError if it
    holds anything but rows of this kind."""
    rows = items.rows_of(kind) if type(items) is ListItems else None
    if rows is None:
        raise MalformedError(f"a list of {kind.name.lower()}s contains something else")
    return np.frombuffer(rows, np.int32)


def _as_array(column: array[int]) -> Any:
    """A column as a numpy array, without a copy."""
    return np.frombuffer(column, column.typecode)


def _take_rows(columns: dict[str, array[int]], rows: Int32s) -> dict[str, Any]:
    """Return some rows of each column as arrays.

    Columns whose name begins with `is_` become flags; others keep their type.

    Args:
        columns: The columns by their names.
        rows: The rows, in the order of the result.
    """
    is_range = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
    # a range needs no copy
    which = slice(int(rows[0]), int(rows[-1]) + 1) if is_range else rows
    taken = {}
    for name, column in columns.items():
        is_flag = name.startswith("is_")
        dtype = np.bool_ if is_flag else column.typecode
        taken[name] = _as_array(column)[which].astype(dtype)
    return taken


def _make_blocks(columns: dict[str, array[int]], segments: Int32s) -> Blocks:
    """Make the blocks of some segments, sorted by segment and address.

    Blocks of other segments are left out.

    Args:
        columns: All blocks of the file, in any order. `segment` is the row of the
            segment of each among all segments of the file.
        segments: The rows of the segments. The blocks number them from 0 in this order.
    """
    # The last entry stands for all rows after the last of `segments`.
    number_of_row = np.full(int(segments.max(initial=-1)) + 2, -1, np.int32)
    number_of_row[segments] = np.arange(len(segments), dtype=np.int32)
    segment_row = np.minimum(_as_array(columns["segment"]), len(number_of_row) - 1)
    segment_of_block = number_of_row[segment_row]
    rows = np.flatnonzero(segment_of_block >= 0)
    address = _as_array(columns["address"])[rows]
    by_address = np.lexsort((address, segment_of_block[rows]))
    in_order = rows[by_address].astype(np.int32)
    taken = _take_rows(columns, in_order)
    taken["segment"] = segment_of_block[in_order]
    return Blocks(**taken)


def _make_stacks(tables: SnapshotTables) -> Stacks:
    """Make the table of stacks: stack n has the frames
    frame[start[n] : start[n + 1]]."""
    bytes_of_stacks = np.fromiter(map(len, tables.stacks), np.int64, len(tables.stacks))
    frames_of_stacks = bytes_of_stacks // np.dtype(np.int32).itemsize
    return Stacks(
        frames=tuple(tables.frames),
        frame=np.frombuffer(b"".join(tables.stacks), np.int32),
        start=prefix_sums(frames_of_stacks),
    )


def _to_plain(value: Any, depth_left: int = MAX_SETTINGS_DEPTH) -> Any:
    """Settings as dicts, lists and values that JSON has. Raises MalformedError if they
    are nested more than `depth_left` deep."""
    if not depth_left:
        raise MalformedError("its settings are nested too deeply")
    if isinstance(value, RowFields):
        return {key: _to_plain(item, depth_left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item, depth_left - 1) for item in value]
    return value
