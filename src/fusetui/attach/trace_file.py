"""The file that libkineto writes for a recording, while it grows and when it is
complete. It is the file of another program: no link is followed, and what is read of it
is bounded."""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from fusetui.text.figures import size
from fusetui.text.patterns import lazy_pattern

HEAD_BYTES = 64
TAIL_BYTES = 8 * 1024
"""At the two ends of a trace, that are looked at."""

CHUNK_BYTES = 1 << 20
"""That are searched at once."""

OPERATIONS = (b'"cpu_op"', b'"cat": "kernel"', b'"cat": "gpu_memcpy"')
"""A trace with one of these holds work; with CUDA graphs there may be kernels alone."""
MARKS = {
    "stack": b'"python_function"',
    "shapes": b'"Input Dims"',
    "memory": b'"[memory]"',
}
"""What a trace holds if that was recorded."""
COMPILING = (b'"PythonDispatchMode"', b'(dynamo_timed)"')
"""What a trace holds while torch.compile traces: ops that run on fake tensors do so
below a dispatch mode, and each finished part of a compilation has an annotation of its
own."""
OPERATION = lazy_pattern(
    rb'"cat": "(?:cpu_op|user_annotation)",\s*"name": "(?P<name>[^"]*)",\s*"pid": [^,]*,'
    rb'\s*"tid": [^,]*,\s*"ts": (?P<begin_us>[0-9.]+)[\s,}]'
)
"""An op or annotation as libkineto writes it: its name, and its begin in us."""
MAX_NAMED = 500_000  # operations that are looked at by name
REPEATED_SHARE = 0.9
"""Share of the operations of a loop that both halves of its trace have, by name, at
least."""
# of two chunks: more than these texts, and than an operation up to its begin
OVERLAP_BYTES = 512


class FileState(enum.Enum):
    """What is there."""

    ABSENT = "there is no file"
    EMPTY = "is empty"
    PARTIAL = "does not end as a trace does"
    GARBAGE = "does not begin as a trace does"
    SPARSE = "is sparse: parts of it were never written"
    STRANGE = "is not a file of yours"
    UNREADABLE = "cannot be read"
    WHOLE = "is whole"


class TraceFile(Struct, frozen=True):
    """`path`: the trace, or the file that libkineto renames to it; `size`: its
    bytes."""

    path: Path
    state: FileState
    size: int = 0


def partial_file(file: Path) -> Path:
    """Return the file that libkineto writes first, and renames to `file` once it is
    complete."""
    return file.with_name(f"{file.name}.tmp")


def inspect_trace(file: Path) -> TraceFile:
    """Find the state of a trace by reading its two ends. A file that libkineto has not
    renamed yet is partial even if its ends are complete."""
    renamed = _inspect_file(file)
    if renamed.state is not FileState.ABSENT:
        return renamed
    partial = _inspect_file(partial_file(file))
    if partial.state is FileState.WHOLE:
        return replace(partial, state=FileState.PARTIAL)
    return partial


def _inspect_file(path: Path) -> TraceFile:
    """Find the state of the file at this path alone. Only a regular file of this user
    is opened."""
    try:
        entry = path.lstat()
        is_own = entry.st_uid == os.geteuid()
        if not is_own or not stat.S_ISREG(entry.st_mode):
            return TraceFile(path, FileState.STRANGE)
        number = _open_file(path)
    except FileNotFoundError:
        return TraceFile(path, FileState.ABSENT)
    except OSError:
        return TraceFile(path, FileState.UNREADABLE)
    try:
        opened = os.fstat(number)
        was_replaced = not os.path.samestat(entry, opened)  # since the call of lstat
        if was_replaced:
            state = FileState.PARTIAL
        else:
            state = _check_ends(number, opened.st_size)
        return TraceFile(path, state, opened.st_size)
    except OSError:
        return TraceFile(path, FileState.UNREADABLE, entry.st_size)
    finally:
        os.close(number)


def _open_file(path: Path) -> int:
    """Open a file for reading, and return its number. Links are not followed, and a
    pipe at its place is not waited for. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _check_ends(number: int, byte_count: int) -> FileState:
    """Judge the state of an open file with `byte_count` bytes by its two ends. Raises
    OSError."""
    if byte_count == 0:
        return FileState.EMPTY
    if _has_hole(number, byte_count):
        return FileState.SPARSE

    head = os.pread(number, HEAD_BYTES, 0)
    if not head.lstrip().startswith(b"{"):
        return FileState.GARBAGE

    tail_start = max(byte_count - TAIL_BYTES, 0)
    tail = os.pread(number, TAIL_BYTES, tail_start).rstrip()
    has_last_key = b'"traceName"' in tail  # which libkineto writes last
    is_whole = has_last_key and tail.endswith(b"}")
    return FileState.WHOLE if is_whole else FileState.PARTIAL


def _has_hole(number: int, byte_count: int) -> bool:
    """Return whether a part of an open file was never written, as far as the system
    knows. The text of a trace has no such parts."""
    if not hasattr(os, "SEEK_HOLE"):
        return False
    with suppress(OSError):  # the file system does not tell
        # Without a hole, the first one begins at the end of the file.
        first_hole = os.lseek(number, 0, os.SEEK_HOLE)
        return first_hole < byte_count
    return False


def describe_file(trace: TraceFile) -> str:
    """Return a clause about the file of a trace: `train_7.json (12 kB) does not end as
    a trace does`."""
    if trace.state is FileState.ABSENT:
        return str(trace.state.value)
    size_text = f" ({size(trace.size)})" if trace.size else ""
    return f"{trace.path.name}{size_text} {trace.state.value}"


class TraceContents(Struct, frozen=True):
    """What a trace holds."""

    extras: frozenset[str]  # which of stack, shapes and memory
    has_operations: bool
    # it shows torch.compile at work, and not mostly a loop after that
    is_compiling: bool
    # the same operations come again and again, or it has none with names; otherwise it
    # may show how the program starts
    is_loop: bool


def inspect_contents(file: Path) -> TraceContents:
    """Find out what a trace shows: operations, optional records, torch.compile at work,
    a loop.

    It shows none of these if it cannot be read.
    """
    extras: set[str] = set()
    has_operations = False
    for chunk in _read_chunks(file):
        has_operations |= any(mark in chunk.content for mark in OPERATIONS)
        for extra, mark in MARKS.items():
            if mark in chunk.content:
                extras.add(extra)

    names = _operation_names(file)
    names_after_compilation = _names_after_compilation(names)
    shows_compilation = len(names_after_compilation) < len(names)
    is_mostly_after = len(names_after_compilation) >= len(names) / 2
    is_loop = is_mostly_after and _is_repeated(names_after_compilation)
    return TraceContents(
        extras=frozenset(extras),
        has_operations=has_operations,
        is_compiling=shows_compilation and not is_loop,
        is_loop=is_loop,
    )


def _is_repeated(names: Sequence[bytes]) -> bool:
    """Return whether both halves of a sequence of names, in the order of time, have
    nearly the same names. Then the trace shows a loop."""
    middle = len(names) // 2
    in_both = set(names[:middle]) & set(names[middle:])
    repeated = sum(name in in_both for name in names)
    return repeated >= REPEATED_SHARE * len(names)


def _is_of_compilation(name: bytes) -> bool:
    """Return whether the name of an operation shows torch.compile at work."""
    return any(mark.strip(b'"') in name for mark in COMPILING)


def _names_after_compilation(names: Sequence[bytes]) -> Sequence[bytes]:
    """Return the names that come after the last operation of torch.compile; all if
    there is none."""
    first_after = 0
    for index, name in enumerate(names):
        if _is_of_compilation(name):
            first_after = index + 1
    return names[first_after:]


def _operation_names(file: Path) -> list[bytes]:
    """List the names of the operations of a trace, sorted by their begin. Reading stops
    once there are more than MAX_NAMED."""
    operations: list[tuple[float, bytes]] = []  # begin in us, name
    for chunk in _read_chunks(file):
        for match in OPERATION.finditer(chunk.content):
            was_in_chunk_before = match.end() <= chunk.overlap_bytes
            if not was_in_chunk_before:
                operations.append((float(match["begin_us"]), match["name"]))
        if len(operations) > MAX_NAMED:
            break
    return [name for _, name in sorted(operations)]


class _Chunk(NamedTuple):
    """Some bytes of a file."""

    content: bytes
    overlap_bytes: int  # so many at the beginning are in the chunk before, too


def _read_chunks(file: Path) -> Iterator[_Chunk]:
    """Yield the bytes of a file in chunks that overlap.

    So a text that is shorter than the overlap is whole in at least one chunk. Bytes
    that are written meanwhile are left out. Yields nothing for a link.
    """
    try:
        number = _open_file(file)
    except OSError:
        return
    with open(number, "rb") as opened:
        bytes_left = os.fstat(number).st_size
        overlap = b""
        while bytes_left > 0:
            new_bytes = opened.read(min(CHUNK_BYTES, bytes_left))
            if not new_bytes:
                break
            content = overlap + new_bytes
            yield _Chunk(content, overlap_bytes=len(overlap))
            overlap = content[-OVERLAP_BYTES:]
            bytes_left -= len(new_bytes)


def remove_if_own(file: Path) -> None:
    """Remove a trace that was asked for and is not wanted. Anything but a regular file
    of this user is kept."""
    with suppress(OSError):
        entry = file.lstat()
        if stat.S_ISREG(entry.st_mode) and entry.st_uid == os.geteuid():
            file.unlink()
