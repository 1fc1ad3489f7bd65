"""The processes of this user as /proc shows them (Linux), and which of them have the door open."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePath

from msgspec import Struct

OPEN, FOLDER = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
QUIET = "KINETO_LOG_LEVEL"
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Programs that start those that compute: they have the door too, and nothing to record."""
VALUED = ("-W", "-X", "--check-hash-based-pycs")  # options of Python that take a value


class Process(Struct, frozen=True):
    """`started` tells it from a later one with the same PID (ticks since the machine started).
    `program`: the name of its script or module. `names`: that, and those of its job. `folder`: that
    of its daemon's socket, "" for the abstract address; None: the door is closed."""

    pid: int
    parent: int
    started: int
    command: tuple[str, ...]
    program: str
    names: frozenset[str]
    folder: str | None
    rank: str = ""


def process(pid: int) -> Process | None:
    """The process with this PID; None if it has ended, or is another user's."""
    place = Path(f"/proc/{pid}")
    try:
        state, parent, started = _stat(place)
        command = tuple(os.fsdecode((place / "cmdline").read_bytes()).rstrip("\0").split("\0"))
        entries = os.fsdecode((place / "environ").read_bytes()).split("\0")
        if state in "ZX" or place.stat().st_uid != os.geteuid() or not command[0]:
            return None
    except (OSError, ValueError, IndexError):
        return None
    given = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    named = {given.get(name, "") for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")}
    program = _program(command)
    names = frozenset(named - {"", "none"} | {program})
    folder, rank = given.get(FOLDER, "") if OPEN in given else None, given.get("RANK", "")
    return Process(pid, parent, started, command, program, names, folder, rank)


def is_alive(one: Process) -> bool:
    """Whether it still runs; one that ended and was not waited for does not."""
    with suppress(OSError, ValueError, IndexError):
        state, _, started = _stat(Path(f"/proc/{one.pid}"))
        return state not in "ZX" and started == one.started
    return False


def with_torch() -> list[Process]:
    """Those with torch, without launchers, and forks, which have no thread that asks."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    every = {pid: one for pid in pids if (one := process(pid)) is not None and has_torch(pid)}
    return [
        one
        for one in every.values()
        if one.program not in LAUNCHERS
        and ((above := every.get(one.parent)) is None or above.command != one.command)
    ]


def has_torch(pid: int) -> bool:
    """Whether a process has loaded the libraries of torch."""
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        return any(b"/libtorch" in line for line in maps)
    return False


def age_s(one: Process) -> float:
    """Seconds since it was started."""
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - one.started / os.sysconf("SC_CLK_TCK")


def _stat(place: Path) -> tuple[str, int, int]:
    """State, parent, start; the name may hold anything. Raises OSError, ValueError, IndexError."""
    fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


def _program(command: tuple[str, ...]) -> str:
    first, *words = command
    if not PurePath(first).name.startswith("python"):
        return PurePath(first).name
    rest = iter(words)
    for word in rest:
        if word == "-m":
            return next(rest, "python")
        if word == "-c":
            break
        if word in VALUED:
            next(rest, "")
        elif not word.startswith("-"):
            return PurePath(word).name
    return "python"
