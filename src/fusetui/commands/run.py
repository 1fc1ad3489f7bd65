"""`run`: starts a program with on-demand profiling switched on, and records all of its
processes that have torch while they compute."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic as now
from types import FrameType

from fusetui.attach.door import LONGEST_FOLDER, Door, Wish
from fusetui.attach.processes import (
    FOLDER,
    OPEN,
    QUIET,
    Process,
    is_alive,
    process,
    with_torch,
)
from fusetui.attach.recording import AttachedProcess, Recording
from fusetui.commands.errors import NO, CommandError, say
from fusetui.commands.record import (
    TURN_S,
    are_recorded,
    follow,
    forks_left_out,
    opened,
    trace_folder,
    wish_of,
)
from fusetui.signals import ENDED, handled, numbers_of

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
OF_TERMINALS = (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT))
LOOK_S = 1.0  # between two looks at the processes of the program
GROUP_PATIENCE_S = 30.0
"""Seconds after the first question of a process for which all others of its group are
awaited."""
# of a recording without operations: the program may load its data for minutes
ATTEMPTS = 12
OWN_PROFILER_S = 600.0  # that the program's own profiler is waited for


def run_run(args: Namespace) -> int:
    """Returns the program's exit code, 128 and the number of the signal that ended it,
    or 1 if that is 0 and a process was not recorded. Raises CommandError,
    CannotListenError and CannotRecordError before the program is started."""
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise CommandError("Name the program: fusetui run -- python train.py")
    if not os.path.isdir("/proc/self"):
        raise CommandError("run needs Linux: elsewhere torch has no door for it.")
    if args.on_enter and not _has_input():
        raise CommandError(
            "--on-enter reads Enter from its standard input, which is closed."
        )
    wish = wish_of(args)
    with (
        trace_folder(args.out) as folder,
        sockets() as sock,
        closing(Door(sock)) as door,
    ):
        watched = _Watched(door, sock, folder, wish, args)
        environment = {QUIET: "99"} | os.environ | {OPEN: "1", FOLDER: sock}
        with _awaitable_child() as set_up:
            try:
                child = subprocess.Popen(
                    program,
                    env=environment,
                    stdin=subprocess.DEVNULL if args.on_enter else None,
                    preexec_fn=set_up,
                )
            except OSError as error:
                raise CommandError(
                    f"{program[0]} cannot be started: {error.strerror}."
                ) from None
            with passed_on(child):
                try:
                    watched.record_until_end(child)
                finally:
                    # whatever became of the recording, the program goes on
                    child.wait()
        is_recorded = watched.report()
        if args.open and watched.jobs:
            opened(watched.jobs, folder)
    code = child.returncode if child.returncode >= 0 else ENDED - child.returncode
    return code if code or is_recorded else NO


def _has_input() -> bool:
    """Whether standard input is open. Where it was closed, Python has none, or what was
    opened since has its number: unlike what this process was given, that is not passed
    on."""
    try:
        return os.get_inheritable(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False


class _Watched:
    """The processes of a program that runs, and what was recorded of them. All that it
    starts have the folder of its sockets in their environment, which no other has."""

    def __init__(
        self, door: Door, sock: str, folder: Path, wish: Wish, args: Namespace
    ) -> None:
        self._door, self._sock, self._folder, self._wish = door, sock, folder, wish
        self._after_s, self._on_enter = args.after, args.on_enter
        self._asked: dict[int, Process] = {}
        self._asked_since = 0.0
        self._looked_at = 0.0
        self._begun = now()
        self._took_s = 0.0
        self._is_time = False
        self._input_ended = False
        self._missing: list[str] = []
        self._forks: list[str] = []
        self.jobs: list[AttachedProcess] = []

    def record_until_end(self, child: subprocess.Popen[bytes]) -> None:
        """Records once, or whenever Enter is pressed, until the program ends."""
        while child.poll() is None:
            if select.select([self._door], [], [], TURN_S)[0]:
                self._listen()
            self._is_time = self._is_time or self._is_wanted_now()
            if self._is_time and self._asked and now() - self._looked_at > LOOK_S:
                self._looked_at = now()
                group = self._group()
                if self._is_complete(group):
                    self._record(group)
        self._took_s = now() - self._begun

    def _listen(self) -> None:
        """Notes who asks; nobody is answered before it is time."""
        for heard in self._door.heard():
            one = self._asked.get(heard.pid) or process(heard.pid)
            if one is not None and not one.only_helps:
                self._asked_since = self._asked_since or now()
                self._asked[heard.pid] = one

    def _group(self) -> list[Process]:
        """Its processes that run and have torch: who asks has it, whatever else it
        looks like."""
        found = {pid: one for pid, one in self._asked.items() if is_alive(one)}
        found |= {one.pid: one for one in with_torch(self._sock)}
        return list(found.values())

    def _is_wanted_now(self) -> bool:
        if not self._on_enter:
            return not self.jobs and now() - self._begun >= self._after_s
        if self._input_ended:
            return False
        try:
            if not select.select([sys.stdin], [], [], 0)[0]:
                return False
            line = sys.stdin.readline()
        except (OSError, ValueError):  # it is gone, as a terminal may be
            line = ""
        self._input_ended = not line
        return bool(line)

    def _is_complete(self, group: list[Process]) -> bool:
        """Whether all that have torch have asked, and all ranks are there; after some
        time the others are not waited for."""
        if not group:
            return False
        if now() - self._asked_since > GROUP_PATIENCE_S:
            return True
        return all(one.pid in self._asked for one in group) and not _missing_ranks(
            group
        )

    def _record(self, group: list[Process]) -> None:
        self._is_time = False
        self._missing = _missing_ranks(group)
        recording = Recording(
            [self._door],
            self._folder,
            self._wish,
            group,
            attempts=ATTEMPTS,
            own_profiler_s=OWN_PROFILER_S,
        )
        follow(recording)
        self.jobs += recording.jobs.values()
        self._forks = forks_left_out(recording.forks.values()) or self._forks

    def report(self) -> bool:
        """Says what was not recorded, and why; returns whether all was that was
        wanted."""
        if self._missing:
            ranks = ", ".join(self._missing)
            say(
                f"Not recorded: rank {ranks}. No such process with torch asked to be recorded."
            )
        say(*self._forks)
        if self.jobs:
            return are_recorded(self.jobs) and not self._missing
        if self._on_enter and not self._is_time:
            say("Nothing was recorded: Enter was not pressed.")
            return True
        say(f"Nothing was recorded: {self._why_nothing()}")
        return False

    def _why_nothing(self) -> str:
        ended = f"the program ended after {self._took_s:.1f} s"
        if not self._asked:
            return (
                f"{ended}, and no process of it asked to be recorded. It uses no torch, or "
                f"something that it runs in (sudo, docker, env -i) does not pass {OPEN} on."
            )
        if self._took_s < self._after_s:
            return f"{ended}, and --after says {self._after_s:g} s."
        return f"{ended}, before it was time: torch asks every 5 s, the first time when it is loaded."


def _missing_ranks(group: list[Process]) -> list[str]:
    """The ranks of the jobs on this machine that no process of a group has."""
    expected = {rank for one in group for rank in one.ranks_here}
    found = {int(one.rank) for one in group if one.ranks_here}
    return [str(rank) for rank in sorted(expected - found)]


@contextmanager
def sockets() -> Iterator[str]:
    """A private folder for sockets, whose path is short enough for libkineto."""
    where = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    is_usable = os.path.isdir(where) and os.access(where, os.W_OK)
    if not is_usable or len(os.fsencode(where)) > LONGEST_FOLDER - 20:
        where = "/tmp"
    with tempfile.TemporaryDirectory(
        None, "fusetui-", where, ignore_cleanup_errors=True
    ) as made:
        yield made


@contextmanager
def _awaitable_child() -> Iterator[Callable[[], object] | None]:
    """Within the block the exit code of a child can be had, also if SIGCHLD is ignored:
    the system keeps no code then. Yields what the child has to do to ignore it as
    before."""
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        yield None
        return
    with handled([signal.SIGCHLD], signal.SIG_DFL):
        yield _ignore_children


def _ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within the block the program gets our signals. Those of keys it has, being in our
    group."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            if number in OF_TERMINALS and os.tcgetpgrp(0) == os.getpgrp():
                return
        child.send_signal(number)

    numbers = numbers_of(PASSED_ON)
    with handled(
        [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN], pass_on
    ):
        yield
