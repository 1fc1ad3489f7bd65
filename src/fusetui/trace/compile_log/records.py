"""The records of one compile log as columns.

A record is one line `V1128 17:05:01.123456 PID file:line] {json}`. Where its JSON has
`has_payload`, the payload follows, each of its lines after a tab. Source:
torch/_logging/_internal.py (`trace_structured`, TorchLogsFormatter).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.read.document import Document
from fusetui.trace.read.foreign import COMPILE_LOG, LOG_LEVELS
from fusetui.trace.read.memory import file_on_disk
from fusetui.trace.read.source import open_stored, present, reason, unpacked

CHUNK_BYTES = 1 << 22  # that are searched for records at once
MAX_HEADER_BYTES = 1 << 24  # of the line of a record
MAX_PAYLOAD_BYTES = 1 << 26  # that are read for a screen or an answer
MAX_UNREAD_NAMED = 5  # records with a reason; the rest are counted
UNKNOWN = -1
"""A number that the record does not have."""

NEWLINE, TAB = 10, 9
HEADER_END = b"] {"
UNUSED = (b'{"chromium_event"', b'{"describe_')
"""How the JSON of records begins that nothing here asks for. They are most of a log."""


class ArtifactHeader(msgspec.Struct, frozen=True):
    name: str


class OutputCodeHeader(msgspec.Struct, frozen=True):
    file_path: str | None = None
    filename: str | None = None


class RecordHeader(msgspec.Struct, frozen=True):
    """What every record may have, and the fields of those that are looked at at once."""

    frame_id: int | None = None
    frame_compile_id: int | None = None
    attempt: int | None = None
    rank: int | None = None
    has_payload: str | None = None
    artifact: ArtifactHeader | None = None
    inductor_output_code: OutputCodeHeader | None = None
    # a text, and the number that stands for it
    interned: tuple[str, int] | None = msgspec.field(name="str", default=None)
    compilation_metrics: msgspec.Raw = msgspec.Raw()
    bwd_compilation_metrics: msgspec.Raw = msgspec.Raw()
    dynamo_start: msgspec.Raw = msgspec.Raw()
    aot_forward_graph: msgspec.Raw = msgspec.Raw()
    aot_backward_graph: msgspec.Raw = msgspec.Raw()
    aot_inference_graph: msgspec.Raw = msgspec.Raw()
    dynamo_output_graph: msgspec.Raw = msgspec.Raw()
    dynamo_cpp_guards_str: msgspec.Raw = msgspec.Raw()
    inductor_post_grad_graph: msgspec.Raw = msgspec.Raw()

    @property
    def kind(self) -> str:
        """The kind of the record: the name of an artifact, or of another known kind; ""
        for all others."""
        if self.artifact is not None:
            return self.artifact.name
        for name in PLAIN_KINDS:
            value = getattr(self, name)
            if isinstance(value, msgspec.Raw):
                if len(bytes(value)):
                    return name
            elif value is not None:
                return name
        return ""


PLAIN_KINDS = (
    "inductor_output_code",
    "compilation_metrics",
    "bwd_compilation_metrics",
    "dynamo_start",
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
    "dynamo_output_graph",
    "dynamo_cpp_guards_str",
    "inductor_post_grad_graph",
)
"""Records that are no artifacts."""


class UnreadRecord(msgspec.Struct, frozen=True):
    """A record that could not be read."""

    byte: int
    reason: str  # the end of a sentence


class LogRecords(msgspec.Struct, frozen=True, eq=False):
    """The records of one file: arrays of shape [records], in the order of the file.

    A header is [header, payload) of the document, a payload [payload, end). Records of
    no use here (`UNUSED`) are counted only.
    """

    path: str
    document: Document
    kinds: tuple[str, ...]
    kind: Int32s  # index into `kinds`
    frame: Int64s  # UNKNOWN: the record belongs to no compiled frame
    compile: Int64s
    attempt: Int64s
    header: Int64s
    payload: Int64s
    end: Int64s
    digests: tuple[str, ...]  # of the payloads, MD5 as torch wrote it; "" without one
    paths: dict[int, str]  # the texts that `str` records number
    rank: int  # UNKNOWN: not of a distributed job
    process: int  # the first process id in the file; UNKNOWN: none
    unused: int
    unread: tuple[UnreadRecord, ...]  # the first MAX_UNREAD_NAMED
    unread_count: int
    cut: str  # how the file ends too early; "" if it does not

    def __len__(self) -> int:
        return len(self.kind)

    def header_json(self, record: int) -> dict[str, Any]:
        """The JSON in the line of a record; {} if it can no longer be read."""
        line = self.document[int(self.header[record]) : int(self.payload[record])]
        brace = line.find(HEADER_END)
        try:
            fields = msgspec.json.decode(line[brace + 2 :])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def text(self, record: int) -> str:
        """The payload of a record as text, without the tabs before its lines. Invalid
        UTF-8 becomes replacement characters. Raises CannotReadError."""
        return self.bytes_of(record, MAX_PAYLOAD_BYTES).decode("utf-8", "replace")

    def stored_bytes(self, record: int) -> int:
        """The size of the payload of a record in bytes, with the tabs before its lines."""
        return int(self.end[record] - self.payload[record])

    def bytes_of(self, record: int, most: int) -> bytes:
        """The payload of a record as it was logged, without the tabs before its lines.
        At most `most` bytes of the file are read. Raises CannotReadError."""
        start = int(self.payload[record])
        size = min(self.stored_bytes(record), most)
        try:
            payload = self.document[start : start + size]
        except OSError as error:
            raise CannotReadError(
                f"{self.path} can no longer be read: {reason(error)}."
            ) from None
        payload = payload.removeprefix(b"\t").replace(b"\n\t", b"\n")
        return payload.removesuffix(b"\n")


class _Line(NamedTuple):
    """A line of a record, without its newline, and where it is."""

    start: int
    end: int
    bytes: bytes


def is_compile_log(head: bytes) -> bool:
    """Whether the first bytes of a document are those of a log of TORCH_TRACE."""
    if head[:1] not in LOG_LEVELS or COMPILE_LOG.match(head) is None:
        return False
    first_line = head.partition(b"\n")[0]
    return HEADER_END in first_line


def read_records(path: str) -> LogRecords:
    """Read the records of a log of TORCH_TRACE, which may be compressed.

    Raises CannotReadError, or NotATraceError for a file that is no such log.
    """
    stored = open_stored(path)
    try:
        with closing(stored.file):
            room = stored.file if stored.packing is None else file_on_disk()
            with closing(room):
                source = unpacked(stored, room, is_meant=is_compile_log)
                document = present(room)
        if not is_compile_log(document[: 1 << 16]):
            raise NotATraceError(f"{path} is not a TORCH_TRACE log.")
        return _scan_records(path, document, source.cut or "")
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None


def _scan_records(path: str, document: Document, cut: str) -> LogRecords:
    """Read the records of a document. `cut` says how it ends too early, "" if it does
    not."""
    columns = _Columns()
    for line in _find_record_lines(document):
        columns.end_record(line.start)
        columns.add(line)
    columns.end_record(len(document))
    return columns.records(path, document, cut)


def _find_record_lines(document: Document) -> Iterator[_Line]:
    """Yield the lines that begin a record: those that are not empty and do not begin
    with a tab, as the lines of a payload do."""
    size = len(document)
    start = 0  # of the chunk, always the start of a line
    while start < size:
        chunk = document[start : start + CHUNK_BYTES]
        if not chunk:  # the file has shrunk
            return
        ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == NEWLINE)
        is_last_chunk = start + len(chunk) >= size
        if is_last_chunk and not chunk.endswith(b"\n"):
            ends = np.append(ends, len(chunk))  # the last line has no newline
        if not len(ends):  # a line longer than a chunk
            start = _find_next_line(document, start + len(chunk))
            continue
        yield from _record_lines_of_chunk(chunk, ends, chunk_start=start)
        start += int(ends[-1]) + 1


def _record_lines_of_chunk(
    chunk: bytes, ends: Int64s, chunk_start: int
) -> Iterator[_Line]:
    """Yield the lines of a chunk that begin a record.

    Args:
        chunk: Bytes that begin with a line.
        ends: The place in the chunk behind each line, where its newline is.
        chunk_start: The place of the chunk in the document.
    """
    starts = np.concatenate(([0], ends[:-1] + 1))
    first_bytes = np.frombuffer(chunk, dtype=np.uint8)[starts]
    begins_record = (starts < ends) & (first_bytes != TAB)
    line_numbers = np.flatnonzero(begins_record)
    for number in line_numbers.tolist():
        start = int(starts[number])
        end = int(ends[number])
        yield _Line(
            start=chunk_start + start,
            end=chunk_start + end,
            bytes=chunk[start:end],
        )


def _find_next_line(document: Document, start: int) -> int:
    """Return where the next line begins, after the line in which byte `start` is; the
    size of the document if there is none."""
    while start < len(document):
        chunk = document[start : start + CHUNK_BYTES]
        if not chunk:
            break
        newline = chunk.find(b"\n")
        if newline >= 0:
            return start + newline + 1
        start += len(chunk)
    return len(document)


class _Columns:
    """Takes the lines of records in the order of the file."""

    def __init__(self) -> None:
        """Start without records."""
        self._numbers = {
            name: array("q")
            for name in ("kind", "frame", "compile", "attempt", "header", "payload")
        }
        self._end = array("q")
        self._digests: list[str] = []
        self._kinds: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._decoder = msgspec.json.Decoder(RecordHeader)
        self._rank = UNKNOWN
        self._process = UNKNOWN
        self._unused = 0
        self._unread: list[UnreadRecord] = []
        self._unread_count = 0

    def end_record(self, byte: int) -> None:
        """Let the last record end at this byte, if it has no end yet."""
        if len(self._end) < len(self._digests):
            self._end.append(byte)

    def add(self, line: _Line) -> None:
        """Add the record that a line begins. Its payload is what follows, up to the
        next record.

        Lines that are no record, or cannot be read, are counted. Records that only give
        a number to a path, or that nothing here needs, add no row.
        """
        prefix_end = line.bytes.find(HEADER_END)
        if prefix_end < 0:
            self._leave_out(line, "it is not a line of a record")
            return
        json_start = prefix_end + len(b"] ")
        if line.bytes.startswith(UNUSED, json_start):
            self._unused += 1
            return
        if len(line.bytes) > MAX_HEADER_BYTES:
            self._leave_out(line, "its line is too long")
            return
        try:
            header = self._decoder.decode(line.bytes[json_start:])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._leave_out(line, "its JSON is invalid")
            return
        if header.interned is not None:
            text, number = header.interned
            self._paths[number] = text
            return
        if not header.kind:
            self._unused += 1
            return
        if self._rank == UNKNOWN and header.rank is not None:
            self._rank = header.rank
        if self._process == UNKNOWN:
            self._process = _parse_process_id(line.bytes[:prefix_end])
        self._add_row(line, header)

    def _add_row(self, line: _Line, header: RecordHeader) -> None:
        """Add a row to the columns.

        Args:
            line: The first line of the record.
            header: What its JSON says; it has a kind.
        """
        row = {
            "kind": self._kinds.setdefault(header.kind, len(self._kinds)),
            "frame": _column_number(header.frame_id),
            "compile": _column_number(header.frame_compile_id),
            "attempt": _column_number(header.attempt),
            "header": line.start,
            "payload": line.end + 1,
        }
        for name, column in self._numbers.items():
            column.append(row[name])
        self._digests.append(header.has_payload or "")

    def _leave_out(self, line: _Line, why: str) -> None:
        """Count a line that cannot be read, and name it with its reason if there are
        few so far."""
        self._unread_count += 1
        if len(self._unread) < MAX_UNREAD_NAMED:
            self._unread.append(UnreadRecord(line.start, why))

    def records(self, path: str, document: Document, cut: str) -> LogRecords:
        """Return all records that were added.

        Args:
            path: The file.
            document: Its content, which the records point into.
            cut: How the file ends too early; "" if it does not.
        """
        columns = {
            name: np.frombuffer(column, dtype=np.int64)
            for name, column in self._numbers.items()
        }
        return LogRecords(
            path=path,
            document=document,
            kinds=tuple(self._kinds),
            kind=columns["kind"].astype(np.int32),
            frame=columns["frame"],
            compile=columns["compile"],
            attempt=columns["attempt"],
            header=columns["header"],
            payload=np.minimum(columns["payload"], len(document)),
            end=np.frombuffer(self._end, dtype=np.int64),
            digests=tuple(self._digests),
            paths=self._paths,
            rank=self._rank,
            process=self._process,
            unused=self._unused,
            unread=tuple(self._unread),
            unread_count=self._unread_count,
            cut=cut,
        )


def _column_number(number: int | None) -> int:
    """Return a number as a column has it; UNKNOWN for None, and for one that torch does
    not write: negative, or more than 31 bits."""
    if number is None or not 0 <= number < 1 << 31:
        return UNKNOWN
    return number


def _parse_process_id(prefix: bytes) -> int:
    """Return the process id in the prefix of a line: 5539 in `V1128 17:05:01.123456
    5539 torch/x.py:12`; UNKNOWN without one."""
    words = prefix.split(b" ", 3)
    if len(words) < 3 or not words[2].isdigit() or len(words[2]) > 10:
        return UNKNOWN
    return int(words[2])
