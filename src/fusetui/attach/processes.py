"""The processes of this user as /proc shows them (Linux), and which of them have the
door open."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePath

from msgspec import Struct

OPEN, FOLDER = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
QUIET = "KINETO_LOG_LEVEL"
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Programs that start those that compute: they have the door too, and nothing to
record."""
# in the path of the script of such a process
COMPILE_WORKER = "torch/_inductor/compile_worker"
"""A process in which torch.compile compiles: it has torch, and runs no operations."""
MAX_ANCESTORS = 100  # that are followed: a process may get a new parent meanwhile
MAX_DIGITS, MAX_RANKS = 7, 1024  # of ranks: what an environment says may be anything
VALUED = ("-W", "-X", "--check-hash-based-pycs")  # options of Python that take a value


class Process(Struct, frozen=True):
    """`started` tells it from a later one with the same PID (ticks since the machine
    started). `program`: the name of its script or module. `names`: that, and those of
    its job. `folder`: that of its daemon's socket, "" for the abstract address; None:
    the door is closed. `ranks_here`: the ranks of its job on this machine, as torchrun
    says; empty if it does not. `stack`: the address of its stack, which a fork has in
    common with its parent; 0 if the system hides it."""

    pid: int
    parent: int
    started: int
    command: tuple[str, ...]
    program: str
    names: frozenset[str]
    folder: str | None
    rank: str = ""
    ranks_here: tuple[int, ...] = ()
    stack: int = 0

    @property
    def only_helps(self) -> bool:
        """Whether it starts those that compute, or compiles for them, and runs no
        operations."""
        is_compiling = any(COMPILE_WORKER in word for word in self.command)
        return self.program in LAUNCHERS or is_compiling


def process(pid: int) -> Process | None:
    """The process with this PID; None if it has ended, or is another user's."""
    place = Path(f"/proc/{pid}")
    try:
        found = _stat(place)
        command = tuple(
            os.fsdecode((place / "cmdline").read_bytes()).rstrip("\0").split("\0")
        )
        entries = os.fsdecode((place / "environ").read_bytes()).split("\0")
        if found.has_ended or place.stat().st_uid != os.geteuid() or not command[0]:
            return None
    except (OSError, ValueError, IndexError):
        return None
    given = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    named = {given.get(name, "") for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")}
    program = _program(command)
    names = frozenset(named - {"", "none"} | {program})
    return Process(
        pid=pid,
        parent=found.parent,
        started=found.started,
        command=command,
        program=program,
        names=names,
        folder=given.get(FOLDER, "") if OPEN in given else None,
        rank=given.get("RANK", ""),
        ranks_here=_ranks_here(given),
        stack=found.stack,
    )


def _ranks_here(given: Mapping[str, str]) -> tuple[int, ...]:
    """The ranks on this machine, by the environment that torchrun gives to each of
    them."""
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    texts = [given.get(name, "") for name in names]
    if not all(text.isdecimal() and len(text) < MAX_DIGITS for text in texts):
        return ()
    rank, local_rank, count = (int(text) for text in texts)
    first = rank - local_rank
    return tuple(range(first, first + min(count, MAX_RANKS)))


def is_alive(one: Process) -> bool:
    """Whether it still runs; one that ended and was not waited for does not. A process
    that cannot be looked at for another reason than its end, such as too many open
    files, is taken to run."""
    try:
        found = _stat(Path(f"/proc/{one.pid}"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError, IndexError):
        return True
    return not found.has_ended and found.started == one.started


def with_torch(folder: str | None = None) -> list[Process]:
    """Those with torch, without launchers and other helpers; if a folder is given,
    those with it. Forks, which have no thread that asks, are left out too: see
    `forks_of`."""
    return [
        one
        for one in _every_with_torch()
        if (folder is None or one.folder == folder)
        and not one.only_helps
        and not is_fork(one)
    ]


def forks_of(pids: Collection[int]) -> list[Process]:
    """The forks, direct or not, of the processes with these PIDs: they have torch from
    them."""
    return [
        one
        for one in _every_with_torch()
        if is_fork(one) and any(pid in pids for pid in _ancestors(one.pid))
    ]


def _every_with_torch() -> list[Process]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = []
    for pid in pids:
        one = process(pid)
        if one is not None and has_torch(pid):
            found.append(one)
    return found


def is_fork(one: Process) -> bool:
    """Whether it was forked by a process that had torch, and has run nothing else
    since: then it lacks the thread of libkineto that asks. One that was started by the
    same command is none."""
    parent = process(one.parent)
    if parent is None or parent.command != one.command or not has_torch(parent.pid):
        return False
    return parent.stack == one.stack


def is_ancestor(one: Process, other: Process) -> bool:
    """Whether `one` started `other`, or one that did."""
    return one.pid in _ancestors(other.pid)


def _ancestors(pid: int) -> list[int]:
    """The PIDs of the processes above this one, the nearest first."""
    found: list[int] = []
    while pid > 1 and len(found) < MAX_ANCESTORS:
        try:
            pid = _stat(Path(f"/proc/{pid}")).parent
        except (OSError, ValueError, IndexError):
            break
        found.append(pid)
    return found


def has_torch(pid: int) -> bool:
    """Whether a process has loaded the libraries of torch."""
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        return any(b"/libtorch" in line for line in maps)
    return False


def age_s(one: Process) -> float:
    """Seconds since it was started."""
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - one.started / os.sysconf("SC_CLK_TCK")


class _Stat(Struct, frozen=True):
    """What `/proc/PID/stat` says; see `Process` for the fields. `state`: a letter."""

    state: str
    parent: int
    started: int
    stack: int

    @property
    def has_ended(self) -> bool:
        """Whether it only waits for its parent to collect what it left."""
        return self.state in "ZX"


def _stat(place: Path) -> _Stat:
    """Raises OSError, ValueError, IndexError."""
    text = (place / "stat").read_text(errors="replace")
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return _Stat(
        state=fields[0],
        parent=int(fields[1]),
        started=int(fields[19]),
        stack=int(fields[25]),
    )


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
