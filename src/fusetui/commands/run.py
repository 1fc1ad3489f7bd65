"""`run`: starts a program with its door open, and records it while it runs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType

from fusetui.attach.door import Door
from fusetui.attach.processes import FOLDER, LAUNCHERS, OPEN, QUIET, Process, process
from fusetui.attach.protocol import LONGEST_FOLDER, Wish
from fusetui.attach.recording import Recording
from fusetui.commands.errors import CommandError, say
from fusetui.commands.record import TURN_S, folder_for, opened, told, wish_of
from fusetui.signals import ENDED

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
OF_TERMINALS = (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT))


def run_run(args: Namespace) -> int:
    """Returns the program's exit code; 128 and the number of the signal that ended it. Raises
    CommandError, CannotListen and CannotRecord before the program is started."""
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise CommandError("Name the program: fusetui run -- python train.py")
    if not os.path.isdir("/proc/self"):
        raise CommandError("run needs Linux: elsewhere torch has no door for it.")
    wish = wish_of(args)
    folder = folder_for(args.out)
    with sockets() as sock, closing(Door(sock)) as door:
        Recording((), folder, wish, ())  # whether it can be, before anything is started
        child = _started(program, sock, own_input=not args.on_enter)
        with passed_on(child):
            recordings = _recorded(child, door, folder, wish, args)
        jobs = [job for one in recordings for job in one.jobs.values()]
        if not jobs:
            say("Nothing was recorded: the program ended before it was time, or uses no torch.")
        elif args.open:
            opened(jobs, folder)
    return child.returncode if child.returncode >= 0 else ENDED - child.returncode


@contextmanager
def sockets() -> Iterator[str]:
    """A private folder for sockets, whose path is short enough for libkineto."""
    where = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if len(os.fsencode(where)) > LONGEST_FOLDER - 20 or not os.access(where, os.W_OK):
        where = "/tmp"
    with tempfile.TemporaryDirectory(
        prefix="fusetui-", dir=where, ignore_cleanup_errors=True
    ) as made:
        yield made


def _started(program: list[str], sock: str, *, own_input: bool) -> subprocess.Popen[bytes]:
    environment = {QUIET: "99"} | os.environ | {OPEN: "1", FOLDER: sock}
    try:
        return subprocess.Popen(
            program, env=environment, stdin=None if own_input else subprocess.DEVNULL
        )
    except OSError as error:
        raise CommandError(f"{program[0]} cannot be started: {error.strerror}.") from None


def _recorded(
    child: subprocess.Popen[bytes], door: Door, folder: Path, wish: Wish, args: Namespace
) -> list[Recording]:
    """What was recorded until the program ended: once, or whenever Enter was pressed."""
    asked: dict[int, Process] = {}
    found: list[Recording] = []
    begun = time.monotonic()
    while child.poll() is None:
        wanted = list(asked.values())
        is_time = _enter() if args.on_enter else time.monotonic() - begun >= args.after
        if wanted and is_time and (args.on_enter or not found):
            found.append(Recording([door], folder, wish, wanted))
            with told(found[-1]) as tell:
                while not found[-1].is_done:
                    found[-1].turn(TURN_S)
                    tell()
        elif select.select([door], [], [], TURN_S)[0]:
            for heard in door.heard():
                one = asked.get(heard.pid) or process(heard.pid)
                if one is not None and one.program not in LAUNCHERS:
                    asked[heard.pid] = one
    return found


def _enter() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0]) and bool(sys.stdin.readline())


@contextmanager
def passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within the block the program gets the signals of this process. Those of keys it has already,
    as it is in the same group."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            if number in OF_TERMINALS and os.tcgetpgrp(0) == os.getpgrp():
                return
        child.send_signal(number)

    before = {}
    for name in PASSED_ON:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)
