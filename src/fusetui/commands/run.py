"""`run`: starts a program with on-demand profiling enabled, and records all of its
processes that use torch."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic as now
from types import FrameType

from fusetui.attach.daemon_socket import (
    MAX_FOLDER_BYTES,
    DaemonSocket,
    RecordingRequest,
)
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
from fusetui.commands.enter_key import EnterKey
from fusetui.commands.errors import NO, CommandError, say
from fusetui.commands.record import (
    TURN_SECONDS,
    are_recorded,
    describe_left_out_forks,
    follow,
    make_request,
    opened,
    remember,
    trace_folder,
)
from fusetui.signals import ENDED, handled, numbers_of

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that the program gets too."""

OF_KEYS = (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT))
"""Signals that keys of a terminal send to all that runs in its foreground."""

GROUP_POLL_SECONDS = 1.0
"""Between two looks at the processes of the program."""

GROUP_SECONDS = 30.0
"""After the first question of a process, for which all others of its group are
awaited."""

MAX_ATTEMPTS = 12
"""Of a recording without operations: the program may load its data for minutes."""

OWN_PROFILER_SECONDS = 600.0
"""That the program's own profiler is waited for."""

LOG = "TORCH_TRACE"
PROVENANCE = "INDUCTOR_PROVENANCE"
"""The variables of torch that have it log what it compiles, with lines of Python."""

FOLDER_NAME_BYTES = 20
"""At most, of a folder of sockets within the one that it is made in."""


def run_run(args: Namespace) -> int:
    """Start a program and record its processes with torch.profiler, or take dumps of
    them with --dumps.

    Returns the exit code of the program, or 128 and the number of the signal that ended
    it. If that is 0 but a process was not recorded, it is NO. Raises CommandError,
    CannotListenError and CannotRecordError before the program is started.
    """
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise CommandError("Specify the program: fusetui run -- python train.py")
    if not os.path.isdir("/proc/self"):
        raise CommandError(
            "run needs Linux: torch supports on-demand profiling only there."
        )
    if args.on_enter and not _has_input():
        raise CommandError(
            "--on-enter reads Enter from its standard input, which is closed."
        )
    if args.dumps:
        return _run_with_dumps(args, program)
    request = make_request(args)
    with (
        trace_folder(args.out) as folder,
        sockets() as socket_folder,
        closing(DaemonSocket(socket_folder)) as socket,
    ):
        watched = _Watched(
            socket=socket,
            socket_folder=socket_folder,
            trace_folder=folder,
            request=request,
            after_s=args.after,
            on_enter=args.on_enter,
        )
        # what the user set for the logging of libkineto has precedence
        environment = {QUIET: "99"} | os.environ | {OPEN: "1", FOLDER: socket_folder}
        if args.compile_log:
            environment = {
                PROVENANCE: "1",
                LOG: str(compile_log_folder(folder)),
            } | environment
        with _awaitable_child() as set_up:
            child = _start_program(
                program, environment, set_up, has_input=not args.on_enter
            )
            with pass_on_signals(child):
                try:
                    watched.record_until_end(child)
                finally:
                    # whatever became of the recording, the program goes on
                    child.wait()
        is_recorded = watched.report()
        remember(watched.jobs, folder, "run")
        if args.open and watched.jobs:
            opened(watched.jobs, folder)
    return _choose_exit_code(child, is_recorded)


def _run_with_dumps(args: Namespace, program: Sequence[str]) -> int:
    """Start a program whose ranks keep their last collectives, and take dumps of them.
    Returns the exit code as `run_run` does. Raises CommandError."""
    from fusetui.commands.dumps import JobWithDumps, reject_trace_options

    reject_trace_options(args)
    with trace_folder(args.out) as folder, sockets() as pipe_folder:
        job = JobWithDumps(args, folder=folder, pipe_folder=pipe_folder)
        environment = os.environ | job.environment(os.environ)
        with _awaitable_child() as set_up:
            child = _start_program(
                program, environment, set_up, has_input=not args.on_enter
            )
            with pass_on_signals(child):
                try:
                    job.watch(child, turn_s=TURN_SECONDS)
                finally:
                    child.wait()
        return _choose_exit_code(child, job.report())


def _choose_exit_code(child: subprocess.Popen[bytes], is_recorded: bool) -> int:
    """Return the exit code of a program that ended; for a signal, 128 and its number. A
    code of 0 becomes NO if not all was recorded."""
    code = child.returncode if child.returncode >= 0 else ENDED - child.returncode
    return code if code or is_recorded else NO


def compile_log_folder(folder: Path) -> Path:
    """Return the folder for the log of torch.compile, beside the traces in `folder`,
    where `fusetui compile` finds it. The program makes it once it compiles something.
    """
    return folder.absolute() / "compile_log"


def _start_program(
    program: Sequence[str],
    environment: Mapping[str, str],
    set_up: Callable[[], object] | None,
    has_input: bool,
) -> subprocess.Popen[bytes]:
    """Start the program with the streams of this process, and return it. Without
    `has_input`, its standard input is empty. The child calls `set_up` first. Raises
    CommandError if it cannot be started."""
    try:
        return subprocess.Popen(
            program,
            env=environment,
            stdin=None if has_input else subprocess.DEVNULL,
            preexec_fn=set_up,
        )
    except OSError as error:
        raise CommandError(
            f"{program[0]} cannot be started: {error.strerror}."
        ) from None


def _has_input() -> bool:
    """Return whether standard input is open, so that Enter can be read from it.

    If it was closed, Python has none, or another file got its number later. Unlike the
    streams that this process was given, such a file is not inheritable.
    """
    try:
        return os.get_inheritable(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False


class _Watched:
    """The processes of a program that runs, and what was recorded of them. All that it
    starts have the folder of its sockets in their environment, which no other has."""

    def __init__(
        self,
        *,
        socket: DaemonSocket,
        socket_folder: str,
        trace_folder: Path,
        request: RecordingRequest,
        after_s: float,
        on_enter: bool,
    ) -> None:
        self._socket = socket
        self._socket_folder = socket_folder
        self._trace_folder = trace_folder
        self._request = request
        self._after_s = after_s
        self._on_enter = on_enter
        self._asked: dict[int, Process] = {}
        """By PID, those that asked to be recorded."""
        # time.monotonic of the first of these questions, and of the last look
        self._asked_since = 0.0
        self._looked_at = 0.0
        self._begun = now()
        self._took_s = 0.0
        self._is_time = False
        self._enter = EnterKey()
        self._missing_ranks: list[str] = []
        self._forks: list[str] = []
        self.jobs: list[AttachedProcess] = []

    def record_until_end(self, child: subprocess.Popen[bytes]) -> None:
        """Record once, or whenever Enter is pressed, until the program `child` ends."""
        while child.poll() is None:
            if select.select([self._socket], [], [], TURN_SECONDS)[0]:
                self._listen()
            self._is_time = self._is_time or self._is_wanted_now()
            is_due = now() - self._looked_at > GROUP_POLL_SECONDS
            if self._is_time and self._asked and is_due:
                self._looked_at = now()
                group = self._group()
                if self._is_complete(group):
                    self._record(group)
        self._took_s = now() - self._begun

    def _listen(self) -> None:
        """Note which processes ask for a request to record. None is answered before it
        is time to record."""
        for message in self._socket.messages():
            sender = self._asked.get(message.pid) or process(message.pid)
            if sender is not None and not sender.only_helps:
                self._asked_since = self._asked_since or now()
                self._asked[message.pid] = sender

    def _group(self) -> list[Process]:
        """Return the processes of the program that run and use torch. A process that
        asked for a request counts, whatever else it looks like."""
        process_of_pid = {pid: one for pid, one in self._asked.items() if is_alive(one)}
        for one in with_torch(self._socket_folder):
            process_of_pid[one.pid] = one
        return list(process_of_pid.values())

    def _is_wanted_now(self) -> bool:
        """Return whether it is time to record: once after some seconds, or whenever
        Enter is pressed."""
        if not self._on_enter:
            return not self.jobs and now() - self._begun >= self._after_s
        return self._enter.was_pressed()

    def _is_complete(self, group: list[Process]) -> bool:
        """Return whether all processes with torch have asked, and all ranks are there.
        After GROUP_SECONDS the others are not waited for."""
        if not group:
            return False
        if now() - self._asked_since > GROUP_SECONDS:
            return True
        have_all_asked = all(one.pid in self._asked for one in group)
        return have_all_asked and not _missing_ranks(group)

    def _record(self, group: list[Process]) -> None:
        """Record these processes, and note which ranks and forks were left out."""
        self._is_time = False
        self._missing_ranks = _missing_ranks(group)
        recording = Recording(
            [self._socket],
            self._trace_folder,
            self._request,
            group,
            attempts=MAX_ATTEMPTS,
            own_profiler_s=OWN_PROFILER_SECONDS,
        )
        follow(recording)
        self.jobs += recording.jobs.values()
        self._forks = describe_left_out_forks(recording.forks.values()) or self._forks

    def report(self) -> bool:
        """Say on stderr what was not recorded, and why. Returns whether all that was
        wanted was recorded; without a press of Enter nothing was wanted."""
        if self._missing_ranks:
            ranks = ", ".join(self._missing_ranks)
            say(
                f"Not recorded: rank {ranks}. None of their processes with torch polled for a request."
            )
        say(*self._forks)
        if self.jobs:
            return are_recorded(self.jobs) and not self._missing_ranks
        if self._on_enter and not self._is_time:
            say("Nothing was recorded: Enter was not pressed.")
            return True
        say(f"Nothing was recorded: {self._explain_nothing_recorded()}")
        return False

    def _explain_nothing_recorded(self) -> str:
        """Return why nothing of the program was recorded, as the end of a sentence."""
        ended = f"the program ended after {self._took_s:.1f} s"
        if not self._asked:
            return (
                f"{ended}, and none of its processes polled for a request. Either it "
                "does not use torch, or its environment (sudo, docker, env -i) drops "
                f"{OPEN}."
            )
        if self._took_s < self._after_s:
            return f"{ended}, but --after is {self._after_s:g} s."
        return f"{ended} too early: torch polls every 5 s, first when it is loaded."


def _missing_ranks(group: list[Process]) -> list[str]:
    """Return the ranks of the job on this machine that no process of the group has, as
    texts."""
    expected_ranks = {rank for one in group for rank in one.ranks_here}
    present_ranks = {int(one.rank) for one in group if one.ranks_here}
    return [str(rank) for rank in sorted(expected_ranks - present_ranks)]


@contextmanager
def sockets() -> Iterator[str]:
    """Within the block, give a private folder for sockets, whose path is short enough
    for libkineto. It is removed at the end."""
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    is_usable = os.path.isdir(parent) and os.access(parent, os.W_OK)
    is_short = len(os.fsencode(parent)) <= MAX_FOLDER_BYTES - FOLDER_NAME_BYTES
    if not (is_usable and is_short):
        parent = "/tmp"
    with tempfile.TemporaryDirectory(
        prefix="fusetui-", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield folder


@contextmanager
def _awaitable_child() -> Iterator[Callable[[], object] | None]:
    """Within the block, the exit code of a child can be read, even if SIGCHLD is
    ignored, when the system keeps none. Yields what the child must call to ignore
    SIGCHLD again, or None."""
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        yield None
        return
    with handled([signal.SIGCHLD], signal.SIG_DFL):
        yield _ignore_children


def _ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def pass_on_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within the block, forward signals to the program. Ctrl+C in the terminal reaches
    it anyway, as it is in the same process group, so such signals are not sent twice.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            if number in OF_KEYS and os.tcgetpgrp(0) == os.getpgrp():
                return
        child.send_signal(number)

    numbers = [
        number
        for number in numbers_of(PASSED_ON)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    with handled(numbers, pass_on):
        yield
