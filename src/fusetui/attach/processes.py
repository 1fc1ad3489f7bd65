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
        """Whether the process only starts others that compute, or compiles for them. It
        runs no operations itself."""
        is_compiling = any(COMPILE_WORKER in word for word in self.command)
        return self.program in LAUNCHERS or is_compiling


def process(pid: int) -> Process | None:
    """Return what /proc says about a process.

    It is None if the process has ended, belongs to another user, or is a part of the
    system, which has no command line.
    """
    folder = Path(f"/proc/{pid}")
    try:
        status = _stat(folder)
        command = _read_words(folder / "cmdline")
        environment = _read_words(folder / "environ")
        owner = folder.stat().st_uid
    except (OSError, ValueError, IndexError):
        return None
    has_command = command[0] != ""
    if status.has_ended or owner != os.geteuid() or not has_command:
        return None

    variables = dict(entry.split("=", 1) for entry in environment if "=" in entry)
    program = _find_program(command)
    return Process(
        pid=pid,
        parent=status.parent,
        started=status.started,
        command=command,
        program=program,
        names=frozenset({program, *_job_names(variables)}),
        folder=variables.get(FOLDER, "") if OPEN in variables else None,
        rank=variables.get("RANK", ""),
        ranks_here=_ranks_here(variables),
        stack=status.stack,
    )


def _job_names(variables: Mapping[str, str]) -> list[str]:
    """Return the names of the job of a process, by its environment: those of Slurm and
    of torchrun. torchrun says "none" for a job without a name."""
    names = [variables.get(variable, "") for variable in JOB_VARIABLES]
    return [name for name in names if name not in ("", "none")]


def _read_words(file: Path) -> tuple[str, ...]:
    r"""Return the texts of a file of /proc: b"python\0train.py\0" has two. Raises
    OSError."""
    text = os.fsdecode(file.read_bytes())
    return tuple(text.rstrip("\0").split("\0"))


def _ranks_here(variables: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ranks of the job on this machine, by the environment of one of them.

    torchrun sets RANK=10, LOCAL_RANK=2 and LOCAL_WORLD_SIZE=4 for the third rank of the
    second machine of a job: these are (8, 9, 10, 11). It is () if one is missing.
    """
    rank = _whole_number(variables.get("RANK", ""))
    local_rank = _whole_number(variables.get("LOCAL_RANK", ""))
    count = _whole_number(variables.get("LOCAL_WORLD_SIZE", ""))
    if rank is None or local_rank is None or count is None:
        return ()
    first_rank = rank - local_rank
    end_rank = first_rank + min(count, MAX_RANKS)
    return tuple(range(first_rank, end_rank))


def _whole_number(text: str) -> int | None:
    """Return the number that a text of digits is; None for "", "-1", "x", and for more
    than MAX_RANK_DIGITS digits."""
    if not text.isdecimal() or len(text) > MAX_RANK_DIGITS:
        return None
    return int(text)


def is_alive(one: Process) -> bool:
    """Tell whether a process still runs.

    A zombie does not, nor does another process that got its PID. One that cannot be
    looked at for another reason than its end, such as too many open files, is taken to
    run.
    """
    try:
        status = _stat(Path(f"/proc/{one.pid}"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError, IndexError):
        return True
    return not status.has_ended and status.started == one.started


def with_torch(folder: str | None = None) -> list[Process]:
    """Return the processes of this user that have torch and may run operations.

    Launchers and workers of torch.compile are left out; so are forks (`forks_of`), in
    which libkineto has no thread that would ask for a recording.

    Args:
        folder: If given, only processes whose sockets are in this folder; "" is the
            abstract address.
    """
    matching_processes = []
    for candidate in _all_with_torch():
        has_folder = folder is None or candidate.folder == folder
        if has_folder and not candidate.only_helps and not is_fork(candidate):
            matching_processes.append(candidate)
    return matching_processes


def forks_of(pids: Collection[int]) -> list[Process]:
    """Return the processes that were forked, directly or not, from the processes with
    these PIDs. They have torch from those."""
    forks = []
    for candidate in _all_with_torch():
        if not is_fork(candidate):
            continue
        if any(ancestor in pids for ancestor in _ancestors(candidate.pid)):
            forks.append(candidate)
    return forks


def _all_with_torch() -> list[Process]:
    """List all processes of this user that have loaded torch, forks and launchers
    included."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    torch_processes = []
    for pid in pids:
        candidate = process(pid)
        if candidate is not None and has_torch(pid):
            torch_processes.append(candidate)
    return torch_processes


def is_fork(one: Process) -> bool:
    """Tell whether a process was forked from one that had torch, and has not executed
    another program since.

    Such a process has no thread of libkineto. It has the command line and the stack
    address of its parent; one that was started anew by the same command has another
    stack address.
    """
    parent = process(one.parent)
    if parent is None or parent.command != one.command or not has_torch(parent.pid):
        return False
    return parent.stack == one.stack


def is_ancestor(one: Process, other: Process) -> bool:
    """Return whether `one` started the process `other`, directly or through others."""
    return one.pid in _ancestors(other.pid)


def _ancestors(pid: int) -> list[int]:
    """Return the PIDs of the parent of a process, of its parent, and so on, at most
    MAX_ANCESTORS."""
    ancestors: list[int] = []
    oldest = pid
    while oldest > 1 and len(ancestors) < MAX_ANCESTORS:  # process 1 has no parent
        try:
            status = _stat(Path(f"/proc/{oldest}"))
        except (OSError, ValueError, IndexError):
            break
        ancestors.append(status.parent)
        oldest = status.parent
    return ancestors


def has_torch(pid: int) -> bool:
    """Return whether a process has loaded the libraries of torch. False if it cannot be
    looked at."""
    with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
        return any(b"/libtorch" in line for line in maps)
    return False


def age_s(one: Process) -> float:
    """Return how many seconds ago a process was started."""
    uptime_text, _idle_text = Path("/proc/uptime").read_text().split()
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return float(uptime_text) - one.started / ticks_per_s


class _Stat(Struct, frozen=True):
    """What `/proc/PID/stat` says; see `Process` for the fields. `state`: a letter."""

    state: str
    parent: int
    started: int
    stack: int

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and only waits for its parent to collect its
        exit code."""
        return self.state in "ZX"


def _stat(place: Path) -> _Stat:
    """Read the file `stat` of a process.

    Args:
        place: Its folder: /proc/7. Raises OSError, ValueError or IndexError if that has
            no such file, or one of another form.
    """
    text = (place / "stat").read_text(errors="replace")
    # The text is `7 (python) S 1 ...`. The name may hold anything, also brackets.
    _, _, behind_name = text.rpartition(")")
    # Numbered as in proc(5), from the third field on, which is the state.
    field = dict(enumerate(behind_name.split(), start=3))
    if 28 not in field:
        raise ValueError(text)
    return _Stat(
        state=field[3],
        parent=int(field[4]),
        started=int(field[22]),
        stack=int(field[28]),
    )


def _find_program(command: tuple[str, ...]) -> str:
    """Return the name of the script or module that a command line runs.

    ("python3", "-u", "src/train.py", "--lr", "1") gives "train.py", ("python", "-m",
    "torchrun") gives "torchrun", ("python", "-c", "...") gives "python", and
    ("/usr/bin/bash",) gives "bash".
    """
    executable, *arguments = command
    executable_name = PurePath(executable).name
    if not executable_name.startswith("python"):
        return executable_name

    remaining = iter(arguments)
    for argument in remaining:
        if argument == "-m":
            return next(remaining, "python")
        if argument == "-c":
            return "python"
        if argument in OPTIONS_WITH_VALUE:
            next(remaining, "")  # skip the value
        elif not argument.startswith("-"):
            return PurePath(argument).name
    return "python"
