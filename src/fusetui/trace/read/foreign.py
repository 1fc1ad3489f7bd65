"""Recognizes the files of other programs by their content, and suggests what to do
instead of opening them.

Sources of the signatures: sqlite.org/fileformat.html; Nsight Compute,
extras/FileFormat; pickle protocols 2 to 5 (pickletools); perfetto trace.proto (packets
are field 1); tsl xplane.proto (XSpace has its planes in field 1, XPlane its name in
field 2); tensorflow record_writer.h and event.proto. The reports of Nsight Systems have
no documented signature: they are known by their name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.raw import Label

HEAD = 1 << 16  # bytes of a document that are looked at
RECORD = "record with torch.profiler and prof.export_chrome_trace"
ON_AMD = f"{RECORD}, which has the kernels of AMD GPUs too"
CONVERT = "convert it with Perfetto's trace_processor (trace_processor convert json IN OUT.json)"
COMPILE_LOG = lazy_pattern(
    rb"[VDIWEC][01][0-9][0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]+ "
)
"""The first words of a line that TORCH_LOGS or TORCH_TRACE writes (torch/_logging)."""
LOG_LEVELS = (b"V", b"D", b"I", b"W", b"E", b"C")  # the first letter of such a line
BLANKS = b" \t\r\n\xef\xbb\xbf"
STACK = lazy_pattern(rb"[^\0]*[^\s\0] [0-9]+\r?\Z")
"""A line of Brendan Gregg's folded stacks, as export_stacks writes them: frames with
semicolons between them, and a sum."""
LINES_OF_STACKS = 8  # lines that are looked at
UTF16_LE = lazy_pattern(rb"(?:[ \t\r\n]\0)*+[{\[]\0")
UTF16_BE = lazy_pattern(rb"(?:\0[ \t\r\n])*+\0[{\[]")
"""JSON in UTF-16 without a mark of the order of its bytes."""
TIMELINE = lazy_pattern(rb"\s*\[\s*\[\s*-?[0-9]+\s*(?:\]|,\s*[-0-9])")
"""A list whose first element is a list of numbers, as export_memory_timeline writes it: no
element is an event."""
TAR_MARK = slice(257, 262)  # bytes (POSIX.1-1988, ustar)
PACKET_TAG = 0x0A  # of protobuf: field 1, of known length
MAX_FIRST_PACKET_BYTES = 127  # of torch
SQLITE = b"SQLite format 3\0"
# The first page of a SQLite database, after a header of 100 bytes, holds the schema; its
# type is INTERIOR_TABLE_PAGE if the schema is on further pages (sqlite.org/fileformat).
SCHEMA_PAGE_TYPE_AT = 100
INTERIOR_TABLE_PAGE = b"\x05"
PLANE = lazy_pattern(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?"
    rb"\x12[\x01-\x7f](?:/host:|/device:|Task Environment)"
)
TABLE = lazy_pattern(
    rb'\W{0,4}(?:Kind"?,"?Agent_Id|Name"?,"?Calls"?,"?TotalDuration|Index"?,"?KernelName)'
)
ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")  # of a zip; the second is one without a file
NSIGHT_SYSTEMS = (".nsys-rep", ".qdrep", ".qdstrm")


XPROF = "pip install xprof, then xprof --logdir DIR"
JAX_REMARK = (
    "This trace is from the JAX or TensorFlow profiler (XProf), which does not mark "
    "kernels. The timeline shows its slices, but fusetui cannot analyze its GPU "
    f"work; to do so, open the profile folder in XProf ({XPROF})."
)
"""Beside a trace that opens as any other JSON of events."""


class ForeignFormat(NamedTuple):
    """A kind of files that are no traces."""

    what: str
    instead: str  # what to do
    is_of_format: Callable[[bytes], bool]  # by the first HEAD bytes


def explain_foreign(path: str, head: bytes) -> str | None:
    """Return a sentence about a file of another program: what it is, and what to do.

    "a.nsys-rep is an Nsight Systems report: run nsys export ...". It is None for
    anything else, also for what is no trace at all.

    Args:
        path: The file. Reports of Nsight Systems are known by their name.
        head: The first HEAD bytes of the document.
    """
    if path.endswith(NSIGHT_SYSTEMS) and not _is_json(head):
        return f"{path} is {SYSTEMS.what}: {SYSTEMS.instead}."
    for what, instead, is_of_format in FORMATS:
        if is_of_format(head):
            return f"{path} is {what}: {instead}."
    return None


def explain_foreign_database(path: str, tables: Iterable[str]) -> str | None:
    """Return the sentence of `explain_foreign` about a SQLite database with these
    tables; None if any of them is one of Nsight Systems."""
    # as of a database whose first page holds the schema
    header = SQLITE.ljust(SCHEMA_PAGE_TYPE_AT + 1, b"\0")
    head = header + " ".join(tables).encode("utf-8", "replace")
    return None if _names_a_table_of_nsys(head) else explain_foreign(path, head)


def is_of_jax(keys: Mapping[str, object], labels: Iterable[Label]) -> bool:
    """Whether the profiler of JAX or TensorFlow wrote this JSON, by the keys around its
    events and by the names of its processes (tsl trace_events_to_json.cc): `/host:CPU`,
    `/device:GPU:0`."""
    metadata = keys.get("metadata")
    if not isinstance(metadata, Mapping) or "highres-ticks" not in metadata:
        return False
    for label in labels:
        if label.kind == "process_name":
            name = str(label.value)
            if name.startswith(("/host:", "/device:")):
                return True
    return False


def is_archive(head: bytes) -> bool:
    """Whether a file is a zip, judged by its first bytes."""
    return head.startswith(ARCHIVE)


def _test_for_marks(*marks: bytes) -> Callable[[bytes], bool]:
    """A test of whether a file begins with one of these marks."""
    return lambda head: head.startswith(marks)


def _test_for_tables(*names: bytes) -> Callable[[bytes], bool]:
    """A test of whether a file is a SQLite database whose first pages name one of these
    tables."""
    return lambda head: head.startswith(SQLITE) and any(name in head for name in names)


_names_a_table_of_nsys = _test_for_tables(
    b"StringIds",
    b"TARGET_INFO_",
    b"META_DATA_EXPORT",
    b"CUPTI_ACTIVITY",
    b"NVTX_EVENTS",
)
_names_a_table_of_rocpd = _test_for_tables(b"rocpd_")


def is_export_of_nsys(head: bytes) -> bool:
    """Whether a file is an export of Nsight Systems, judged by its first bytes.

    Also true for a SQLite database of any program that keeps the names of its tables on
    other pages than the first, because these may lie anywhere in the file. The reader
    of exports then refuses a database without the tables it needs.
    """
    if _names_a_table_of_nsys(head):
        return True
    if not head.startswith(SQLITE) or _names_a_table_of_rocpd(head):
        return False
    schema_page_type = head[SCHEMA_PAGE_TYPE_AT : SCHEMA_PAGE_TYPE_AT + 1]
    return schema_page_type == INTERIOR_TABLE_PAGE


def is_pickle(head: bytes) -> bool:
    """Whether a file is a Python pickle of protocol 2 to 5, judged by its first bytes."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def may_hold_events(head: bytes) -> bool:
    """Whether the first bytes are those of a format that holds events or memory in
    another form than text."""
    return is_export_of_nsys(head) or is_pftrace_of_torch(head) or is_pickle(head)


def is_snapshot(head: bytes) -> bool:
    """Whether a file is a memory snapshot of torch, judged by its first bytes."""
    return is_pickle(head) and (b"segments" in head or b"device_traces" in head)


def _is_perfetto(head: bytes) -> bool:
    """Tell whether a document is a sequence of Perfetto's packets: each is PACKET_TAG,
    a size, and so many bytes. Three packets decide, or all of a shorter document."""
    at = packets = 0
    while at < len(head) and packets < 3:
        size, begin = _decode_varint(head, at + 1)
        if head[at] != PACKET_TAG or not size:
            return False
        at = begin + size
        packets += 1
    if packets == 3:
        return True
    # A short file, or a long second packet.
    return (packets == 2 and at >= len(head)) or (packets == 1 and at == len(head))


def is_pftrace_of_torch(head: bytes) -> bool:
    """Tell whether a document was written by torch's monitor of CUPTI, by its beginning.

    It begins with a packet of at most MAX_FIRST_PACKET_BYTES that has, in this order, a
    time (field 8), the sequence number 1 (field 10) and a snapshot of the clocks 6 and
    1 (field 6), which say the same time (torch/profiler/_cupti).
    """
    if head[:1] != bytes([PACKET_TAG]):
        return False
    size, at = _decode_varint(head, 1)
    if not 0 < size <= MAX_FIRST_PACKET_BYTES:
        return False
    if head[at : at + 1] != b"\x40":  # the tag of the time
        return False
    _, at = _decode_varint(head, at + 1)
    # the tag and the value of the sequence number, the tag of the snapshot
    if head[at : at + 3] != b"\x50\x01\x32":
        return False
    _, at = _decode_varint(head, at + 3)
    times = []
    for clock in (6, 1):
        length = head[at + 1] if at + 1 < len(head) else 0
        begin = at + 2
        at = begin + length
        message = head[begin:at]
        if message[:3] != bytes([8, clock, 16]):  # its number, and the tag of its time
            return False
        times.append(message[3:])
    return times[0] == times[1]


def _decode_varint(head: bytes, at: int) -> tuple[int, int]:
    """Return the number of protobuf that begins at a byte, and the byte after it.

    The bytes 96 01 are 150. It is (0, at) if no number of at most 10 bytes is there.
    """
    number = 0
    for place, byte in enumerate(head[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    return 0, at


def _is_json(head: bytes) -> bool:
    """Whether a document begins as JSON does; cheaper than a pattern, which every trace
    would be compared with."""
    return head.lstrip(BLANKS)[:1] in (b"{", b"[")


def _is_memory_timeline(head: bytes) -> bool:
    """Whether a document is the JSON of a memory timeline of torch, judged by its first
    bytes."""
    return head.lstrip(BLANKS)[:1] == b"[" and TIMELINE.match(head) is not None


def _is_timeline_document(head: bytes) -> bool:
    """Whether a document is the HTML of a memory timeline of torch, judged by its first
    bytes."""
    return _is_html(head) and b"GPU Memory Timeline HTML" in head[:4096]


def _is_html(head: bytes) -> bool:
    """Whether a document begins as HTML does."""
    return head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html"))


def _is_file_of_stacks(head: bytes) -> bool:
    """Tell whether a document has lines such as `main;train;step 42`.

    Each of the first LINES_OF_STACKS lines has to be a stack with a sum, and one of
    them has to have two frames.
    """
    if _is_json(head) or _is_html(head):
        return False
    lines = head.split(b"\n", LINES_OF_STACKS + 1)[: LINES_OF_STACKS + 1]
    if len(lines) > 1:
        del lines[-1]  # it may be cut, or behind the last line break
    has_frames = any(b";" in line for line in lines)
    return has_frames and all(STACK.match(line) for line in lines)


def is_flight_dump(head: bytes) -> bool:
    """Whether a document is a dump of the flight recorder of torch.distributed, as a
    pickle or as JSON, judged by its first bytes."""
    has_keys = b"pg_config" in head or (
        b"profiling_name" in head and b"collective_seq_id" in head
    )
    if not has_keys:
        return False
    is_json = head.lstrip(BLANKS)[:1] == b"{" and b"traceEvents" not in head
    return is_pickle(head) or is_json


SYSTEMS = ForeignFormat(
    "an Nsight Systems report",
    "run nsys export --type sqlite on it, and open the resulting .sqlite file",
    _test_for_marks(b"QDSTRM"),
)
FORMATS: tuple[ForeignFormat, ...] = (
    SYSTEMS,
    ForeignFormat(
        "an Nsight Compute report",
        f"it contains metrics of single kernels and no timeline; {RECORD}",
        _test_for_marks(b"NVR\0"),
    ),
    ForeignFormat(
        "an RPD database (rocmProfileData)",
        ON_AMD,
        _test_for_tables(b"rocpd_api"),
    ),
    ForeignFormat(
        "a rocprofv3 database (rocpd)",
        ON_AMD,
        _names_a_table_of_rocpd,
    ),
    ForeignFormat(
        "an Nsight Systems export",
        "convert it first with fusetui convert IN OUT.json.gz",
        is_export_of_nsys,
    ),
    ForeignFormat("a SQLite database", RECORD, _test_for_marks(SQLITE)),
    ForeignFormat(
        "a PyTorch memory snapshot",
        "open it with fusetui memory FILE",
        is_snapshot,
    ),
    ForeignFormat(
        "a torch.distributed flight-recorder dump",
        "analyze it with fusetui hang FILE",
        is_flight_dump,
    ),
    ForeignFormat("a pickle file", RECORD, is_pickle),
    ForeignFormat(
        "a TensorBoard event file",
        "torch.profiler traces are named .pt.trace.json; open one of those",
        # a record with the version of the format
        lambda head: b"brain.Event:" in head[:64],
    ),
    ForeignFormat(
        "an XPlane file of JAX or TensorFlow",
        f"fusetui reads PyTorch traces; open this file in XProf ({XPROF})",
        lambda head: PLANE.match(head) is not None,
    ),
    ForeignFormat(
        "a Perfetto trace (protobuf)",
        CONVERT,
        lambda head: _is_perfetto(head) and not is_pftrace_of_torch(head),
    ),
    ForeignFormat(
        "rocprofv3 JSON",
        ON_AMD,
        lambda head: (
            head.lstrip()[:1] == b"{" and b'"rocprofiler-sdk-tool"' in head[:256]
        ),
    ),
    ForeignFormat(
        "a rocprof table",
        ON_AMD,
        lambda head: TABLE.match(head) is not None,
    ),
    ForeignFormat(
        "a Git LFS pointer",
        "fetch the file itself with git lfs pull",
        _test_for_marks(b"version https://git-lfs"),
    ),
    ForeignFormat(
        "a tar archive",
        "unpack it with tar -xf, and open the trace or the folder",
        lambda head: head[TAR_MARK] == b"ustar",
    ),
    ForeignFormat(
        "compressed with bzip2",
        "unpack it with bunzip2; fusetui reads plain, .gz and .zst",
        lambda head: head[:3] == b"BZh" and head[4:10] == b"1AY&SY",
    ),
    ForeignFormat(
        "compressed with xz",
        "unpack it with xz -d; fusetui reads plain, .gz and .zst",
        _test_for_marks(b"\xfd7zXZ\0"),
    ),
    ForeignFormat(
        "a 7z archive",
        "unpack it, and open the trace or the folder",
        _test_for_marks(b"7z\xbc\xaf\x27\x1c"),
    ),
    ForeignFormat(
        "text in UTF-16",
        "write it as UTF-8 (iconv -f UTF-16 -t UTF-8 IN > OUT.json)",
        _test_for_marks(b"\xff\xfe", b"\xfe\xff"),
    ),
    ForeignFormat(
        "text in UTF-16",
        "write it as UTF-8 (iconv -f UTF-16LE -t UTF-8 IN > OUT.json)",
        lambda head: head[1:2] == b"\0" and UTF16_LE.match(head) is not None,
    ),
    ForeignFormat(
        "text in UTF-16",
        "write it as UTF-8 (iconv -f UTF-16BE -t UTF-8 IN > OUT.json)",
        lambda head: head[:1] == b"\0" and UTF16_BE.match(head) is not None,
    ),
    ForeignFormat(
        "a torch.compile log",
        "view it with tlparse; for a timeline " + RECORD,
        lambda head: head[:1] in LOG_LEVELS and COMPILE_LOG.match(head) is not None,
    ),
    ForeignFormat(
        "a file of stacks (export_stacks)",
        f"it has totals for a flame graph but no timeline; {RECORD}",
        _is_file_of_stacks,
    ),
    ForeignFormat(
        "a torch.profiler memory timeline",
        "record a memory snapshot with torch.cuda.memory._dump_snapshot, which fusetui memory "
        "reads",
        lambda head: _is_memory_timeline(head) or _is_timeline_document(head),
    ),
    ForeignFormat(
        "a web page",
        "the download returned a web page, possibly a login page, not the file",
        _is_html,
    ),
)
