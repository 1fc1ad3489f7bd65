"""The datagrams between libkineto and its daemon: pure functions from bytes to values and back.

Each begins with the size of its body (8 bytes, of this machine's order) and a type of 32 bytes that
ends with zeros. A process registers each GPU with `ctxt`, and asks with `req` every 5 s.
"""

from __future__ import annotations

import struct
from pathlib import Path

from msgspec import Struct

from fusetui.text.patterns import late

HEAD = struct.Struct("=Q32s")
CONTEXT = struct.Struct("=iiq")  # GPU, PID, job; of a request: kind, number of PIDs, job
ACTIVITIES = 2  # the bit of a kind: it is not recording, and would
DATAGRAM = 64 * 1024  # bytes that are read of one; an honest one has some hundred
CLIENT = "dynoconfigclient"  # how the sockets of processes are called, with a UUID behind it
DAEMON = "dynolog"  # how the daemon's is called
LONGEST_FOLDER = 107 - len(f"/{CLIENT}") - 36
"""Bytes of the path of a folder of sockets: libkineto writes beyond its buffer for longer ones."""
SAFE = late(r"[\w./+:,@~-]+")  # a configuration has comments (#), and strips blanks


class Asked(Struct, frozen=True):
    """A process asks for a configuration: its PID and those of its ancestors, as it sees them."""

    kind: int
    job: int
    pids: tuple[int, ...]

    @property
    def is_free(self) -> bool:
        """Whether it would record now."""
        return bool(self.kind & ACTIVITIES)


class Registered(Struct, frozen=True):
    """A process tells that it uses a GPU."""

    gpu: int
    pid: int
    job: int


class Wish(Struct, frozen=True):
    """What to record: a time in ms, or optimizer steps."""

    milliseconds: int = 500
    steps: int = 0
    extras: frozenset[str] = frozenset({"shapes"})


EXTRAS = {
    "stack": "PROFILE_WITH_STACK",
    "shapes": "PROFILE_REPORT_INPUT_SHAPES",
    "memory": "PROFILE_PROFILE_MEMORY",
}


def decoded(datagram: bytes) -> Asked | Registered | None:
    """The message in a datagram; None for one of another type, or whose sizes do not agree."""
    if len(datagram) < HEAD.size:
        return None
    size, name = HEAD.unpack_from(datagram)
    body = datagram[HEAD.size :]
    if size != len(body) or size < CONTEXT.size:
        return None
    first, second, job = CONTEXT.unpack_from(body)
    match name.rstrip(b"\0"):
        case b"ctxt" if size == CONTEXT.size:
            return Registered(first, second, job)
        case b"req" if second > 0 and size == CONTEXT.size + 4 * second:
            return Asked(first, job, struct.unpack_from(f"={second}i", body, CONTEXT.size))
    return None


def answer(name: str, body: bytes) -> bytes:
    """A datagram; that to `ctxt` has a number of 4 bytes, that to `req` a configuration."""
    return HEAD.pack(len(body), name.encode()) + body


def configuration(wish: Wish, file: Path, start_ms: int = 0) -> str:
    """What a process is told. It writes the trace as `written(file, pid)`.

    `start_ms`: when it begins, in ms since 1970, so that several begin at once; 0: right away.
    Raises ValueError if libkineto could not be told the name of the file.
    """
    if not SAFE.fullmatch(str(file)):
        raise ValueError(file)
    lines = [f"ACTIVITIES_LOG_FILE={file}"]
    if wish.steps:
        lines += ["PROFILE_START_ITERATION=0", f"ACTIVITIES_ITERATIONS={wish.steps}"]
    else:
        lines += [f"PROFILE_START_TIME={start_ms}"]
        lines += [f"ACTIVITIES_DURATION_MSECS={wish.milliseconds}"]
        lines += ["ACTIVITIES_WARMUP_PERIOD_SECS=1"] if start_ms else []
    return "\n".join([*lines, *(f"{EXTRAS[extra]}=true" for extra in sorted(wish.extras))])


def written(file: Path, pid: int) -> Path:
    """Where a process with this PID, as it sees it, writes a trace for which it was told `file`."""
    return file.with_name(f"{file.stem}_{pid}{file.suffix}")
