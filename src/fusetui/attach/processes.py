"""The processes of this user in /proc (Linux), and which of them accept on-demand
profiling."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePath

from msgspec import Struct

OPEN = "KINETO_USE_DAEMON"
FOLDER = "KINETO_IPC_SOCKET_DIR"
QUIET = "KINETO_LOG_LEVEL"
"""Environment variables of libkineto: on-demand profiling is on; the folder of the
sockets; how little it prints."""

JOB_VARIABLES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")
"""Environment variables with the name of a job."""

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Programs that start those that compute: they have the door too, and nothing to
record."""
# in the path of the script of such a process
COMPILE_WORKER = "torch/_inductor/compile_worker"
"""A process in which torch.compile compiles: it has torch, and runs no operations."""
MAX_ANCESTORS = 100  # that are followed: a process may get a new parent meanwhile
MAX_RANK_DIGITS = 6
MAX_RANKS = 1024
"""Of a machine; what an environment says may be anything."""

OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Of Python, where the value is a word of its own."""


class Process(Struct, frozen=True):
    """A process as /proc shows it."""

    pid: int
    parent: int  # a PID
    # ticks since the machine started: tells it from a later one with the same PID
    started: int
    command: tuple[str, ...]
    program: str  # the name of its script or module
    names: frozenset[str]  # that, and those of its job
    # that of its daemon's socket, "" for the abstract address; None: the door is closed
    folder: str | None
    rank: str = ""
    # the ranks of its job on this machine, as torchrun says; empty if it does not
    ranks_here: tuple[int, ...] = ()
    # the address of its stack, which a fork has in common with its parent; 0 if the
    # system hides it
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
        status = _stat(place)
        command = _words(place / "cmdline")
        entries = _words(place / "environ")
        if status.has_ended or place.stat().st_uid != os.geteuid() or not command[0]:
            return None
    except (OSError, ValueError, IndexError):
        return None
    variables = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    program = _program(command)
    names = {program}
    for variable in JOB_VARIABLES:
        name = variables.get(variable, "")
        if name not in ("", "none"):
            names.add(name)
    return Process(
        pid=pid,
        parent=status.parent,
        started=status.started,
        command=command,
        program=program,
        names=frozenset(names),
        folder=variables.get(FOLDER, "") if OPEN in variables else None,
        rank=variables.get("RANK", ""),
        ranks_here=_ranks_here(variables),
        stack=status.stack,
    )


def _words(file: Path) -> tuple[str, ...]:
    """The texts of a file of /proc, each of which ends with a zero byte. Raises
    OSError."""
    return tuple(os.fsdecode(file.read_bytes()).rstrip("\0").split("\0"))


def _ranks_here(variables: Mapping[str, str]) -> tuple[int, ...]:
    """The ranks on this machine, by the environment that torchrun gives to each of
    them; empty if it is not complete."""
    rank = _whole_number(variables.get("RANK", ""))
    local_rank = _whole_number(variables.get("LOCAL_RANK", ""))
    count = _whole_number(variables.get("LOCAL_WORLD_SIZE", ""))
    if rank is None or local_rank is None or count is None:
        return ()
    first = rank - local_rank
    return tuple(range(first, first + min(count, MAX_RANKS)))


def _whole_number(text: str) -> int | None:
    """The number of at most MAX_RANK_DIGITS digits; None for any other text."""
    if not text.isdecimal() or len(text) > MAX_RANK_DIGITS:
        return None
    return int(text)


def is_alive(one: Process) -> bool:
    """Whether it still runs; one that ended and was not waited for does not. A process
    that cannot be looked at for another reason than its end, such as too many open
    files, is taken to run."""
    try:
        status = _stat(Path(f"/proc/{one.pid}"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError, IndexError):
        return True
    return not status.has_ended and status.started == one.started


def with_torch(folder: str | None = None) -> list[Process]:
    """Those with torch, without launchers and other helpers; if a folder is given,
    those with it. Forks, which have no thread that asks, are left out too: see
    `forks_of`."""
    chosen = []
    for one in _every_with_torch():
        has_folder = folder is None or one.folder == folder
        if has_folder and not one.only_helps and not is_fork(one):
            chosen.append(one)
    return chosen


def forks_of(pids: Collection[int]) -> list[Process]:
    """The forks, direct or not, of the processes with these PIDs: they have torch from
    them."""
    forks = []
    for one in _every_with_torch():
        if is_fork(one) and not set(_ancestors(one.pid)).isdisjoint(pids):
            forks.append(one)
    return forks


def _every_with_torch() -> list[Process]:
    """All processes of this user that have loaded torch."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    with_torch = []
    for pid in pids:
        one = process(pid)
        if one is not None and has_torch(pid):
            with_torch.append(one)
    return with_torch


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
    ancestors: list[int] = []
    while pid > 1 and len(ancestors) < MAX_ANCESTORS:
        try:
            pid = _stat(Path(f"/proc/{pid}")).parent
        except (OSError, ValueError, IndexError):
            break
        ancestors.append(pid)
    return ancestors


def has_torch(pid: int) -> bool:
    """Whether a process has loaded the libraries of torch."""
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        return any(b"/libtorch" in line for line in maps)
    return False


def age_s(one: Process) -> float:
    """Seconds since it was started."""
    machine_s = float(Path("/proc/uptime").read_text().split()[0])
    started_s = one.started / os.sysconf("SC_CLK_TCK")
    return machine_s - started_s


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
    """The name of the script or module that Python runs (`python` if it has none), or
    of any other program."""
    first, *words = command
    if not PurePath(first).name.startswith("python"):
        return PurePath(first).name
    rest = iter(words)
    for word in rest:
        if word == "-m":
            return next(rest, "python")
        if word == "-c":
            break
        if word in OPTIONS_WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return PurePath(word).name
    return "python"
