"""Names the files of other programs by their content, and says what to do instead of opening them.

Sources of the signatures: sqlite.org/fileformat.html; Nsight Compute, extras/FileFormat; pickle
protocols 2 to 5 (pickletools); perfetto trace.proto (packets are field 1); tsl xplane.proto (XSpace
has its planes in field 1, XPlane its name in field 2); tensorflow record_writer.h and event.proto.
The reports of Nsight Systems have no documented signature: they are known by their name.
"""

from __future__ import annotations

from collections.abc import Callable

from fusetui.text.patterns import late

HEAD = 1 << 16  # bytes of a document that are looked at
RECORD = "record with torch.profiler and prof.export_chrome_trace"
CONVERT = "convert it with Perfetto's traceconv (traceconv json IN OUT.json)"
FIRST_PACKET = 128  # bytes: that of torch has fewer
SQLITE = b"SQLite format 3\0"
PLANE = late(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?"
    rb"\x12[\x01-\x7f](?:/host:|/device:|Task Environment)"
)
TABLE = late(rb'\W{0,4}(?:Kind"?,"?Agent_Id|Name"?,"?Calls"?,"?TotalDuration|Index"?,"?KernelName)')
ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")  # of a zip; the second is one without a file
NSIGHT_SYSTEMS = (".nsys-rep", ".qdrep", ".qdstrm")


ForeignFormat = tuple[str, str, Callable[[bytes], bool]]
"""Files that are no traces: what they are, what to do, and how they are recognized."""


def foreign(path: str, head: bytes) -> str | None:
    """One sentence that names a file of another program; None for anything else.

    `head` is the first HEAD bytes of the document.
    """
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]
    if path.endswith(NSIGHT_SYSTEMS) and start not in (b"{", b"["):
        return f"{path} is {SYSTEMS[0]}: {SYSTEMS[1]}."
    known = (f"{path} is {what}: {instead}." for what, instead, is_one in FORMATS if is_one(head))
    return next(known, None)


def is_archive(head: bytes) -> bool:
    """Whether a file is a zip, by its first bytes."""
    return head.startswith(ARCHIVE)


def _starts(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(marks)


def _database_with(*names: bytes) -> Callable[[bytes], bool]:
    """A SQLite database whose first pages name one of these tables."""
    return lambda head: head.startswith(SQLITE) and any(name in head for name in names)


is_export_of_nsys = _database_with(
    *(b"StringIds", b"TARGET_INFO_", b"META_DATA_EXPORT", b"CUPTI_ACTIVITY", b"NVTX_EVENTS")
)


def is_pickle(head: bytes) -> bool:
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def may_hold_events(head: bytes) -> bool:
    """Whether it is of a format that holds events, or memory, in another form than text."""
    return is_export_of_nsys(head) or is_pftrace_of_torch(head) or is_pickle(head)


def is_snapshot(head: bytes) -> bool:
    return is_pickle(head) and (b"segments" in head or b"device_traces" in head)


def _is_perfetto(head: bytes) -> bool:
    """A sequence of packets: each is the tag of field 1, a length, and so many bytes."""
    at = packets = 0
    while at < len(head) and packets < 3:
        size, after = _varint(head, at + 1)
        if head[at] != 0x0A or not size:
            return False
        at, packets = after + size, packets + 1
    return packets == 3 or (packets == 2 and at >= len(head)) or (packets == 1 and at == len(head))


def is_pftrace_of_torch(head: bytes) -> bool:
    """torch's monitor of CUPTI: the first packet has the time, the number of its sequence, and a
    snapshot of two clocks that says the same time for both (torch/profiler/_cupti)."""
    size, at = _varint(head, 1)
    if not head.startswith(b"\x0a") or head[at : at + 1] != b"\x40" or not 0 < size < FIRST_PACKET:
        return False
    _, at = _varint(head, at + 1)
    if head[at : at + 3] != b"\x50\x01\x32":
        return False
    _, at = _varint(head, at + 3)
    clocks = []
    for number in (6, 1):
        length = head[at + 1] if at + 1 < len(head) else 0
        part, at = head[at + 2 : at + 2 + length], at + 2 + length
        if part[:3] != bytes([8, number, 16]):
            return False
        clocks.append(part[3:])
    return clocks[0] == clocks[1]


def _varint(head: bytes, at: int) -> tuple[int, int]:
    """A number of protobuf and the byte after it; (0, at) where there is none."""
    found = 0
    for place, byte in enumerate(head[at : at + 10]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, at + place + 1
    return 0, at


SYSTEMS: ForeignFormat = (
    "a report of Nsight Systems",
    "run nsys export --type sqlite on it, and open the .sqlite that this gives",
    _starts(b"QDSTRM"),
)
FORMATS: tuple[ForeignFormat, ...] = (
    SYSTEMS,
    (
        "a report of Nsight Compute",
        f"it holds metrics of single kernels and no timeline; {RECORD}",
        _starts(b"NVR\0"),
    ),
    (
        "a database of rocprofv3",
        f"run rocpd convert -i IN.db --output-format pftrace, then {CONVERT}",
        _database_with(b"rocpd_"),
    ),
    (
        "an export of Nsight Systems",
        "fusetui convert IN OUT.json.gz makes JSON of it, which this takes",
        is_export_of_nsys,
    ),
    ("a SQLite database", RECORD, _starts(SQLITE)),
    ("a memory snapshot of PyTorch", "fusetui memory FILE answers it", is_snapshot),
    ("a pickle file", RECORD, is_pickle),
    (
        "a TensorBoard event file",
        "the traces of torch.profiler are named .pt.trace.json; open one of those",
        lambda head: b"brain.Event:" in head[:64],  # a record with the version of the format
    ),
    (
        "an XPlane file of JAX or TensorFlow",
        "open the .trace.json.gz next to it, or record with "
        "jax.profiler.trace(DIR, create_perfetto_trace=True)",
        lambda head: PLANE.match(head) is not None,
    ),
    (
        "a Perfetto trace (protobuf)",
        CONVERT,
        lambda head: _is_perfetto(head) and not is_pftrace_of_torch(head),
    ),
    (
        "the JSON of rocprofv3",
        f"run rocprofv3 with --output-format pftrace, then {CONVERT}",
        lambda head: head.lstrip()[:1] == b"{" and b'"rocprofiler-sdk-tool"' in head[:256],
    ),
    (
        "a table of rocprof",
        f"run rocprofv3 with --output-format pftrace, then {CONVERT}",
        lambda head: TABLE.match(head) is not None,
    ),
    (
        "a pointer of Git LFS",
        "fetch the file itself with git lfs pull",
        _starts(b"version https://git-lfs"),
    ),
    (
        "a web page",
        "the download gave a page, perhaps one to log in, not the file",
        lambda head: head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")),
    ),
)
