"""`record`: traces of programs that run, started with their door open, and on to the app."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from stat import S_ISDIR

from fusetui.attach.door import CannotListen, Door
from fusetui.attach.processes import OPEN, Process, has_torch, process, with_open_doors
from fusetui.attach.protocol import Wish
from fusetui.attach.recording import Job, Phase, Recording
from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.commands.terminal import has_terminal
from fusetui.report.output import emit
from fusetui.text.figures import plural, size

TURN_S = 0.2
TOLD_AGAIN_S = 5.0  # until the size of a file that grows is told again
MOST_S = 600.0


def run_record(args: Namespace) -> int:
    """Returns 1 if a process was not recorded. Raises CommandError, CannotListen, CannotRecord."""
    wish, wanted = wish_of(args), _wanted(args)
    if wish.steps and len(wanted) > 1:
        raise CommandError(
            f"--steps records one process, and these are {len(wanted)}: each would begin at a step "
            "of its own. With --seconds all begin together."
        )
    folder = folder_for(args.out)
    with ExitStack() as stack:
        doors, wanted = _doors(stack, wanted)
        recording = Recording(doors, folder, wish, wanted)
        with told(recording) as tell:
            while not recording.is_done:
                recording.turn(TURN_S)
                tell()
        if ignored := sum(door.ignored for door in doors):
            say(f"{plural(ignored, 'message')} of other users or of wrong sizes ignored.")
    jobs = list(recording.jobs.values())
    files = opened(jobs, folder) if args.open else whole(jobs)
    if files and not (args.open and has_terminal()):
        emit("\n".join(files))
    return DONE if len(files) == len(jobs) else NO


def _doors(stack: ExitStack, wanted: list[Process]) -> tuple[list[Door], list[Process]]:
    """The doors of these processes, without those where another daemon listens while there are
    others. Raises CannotListen."""
    doors: dict[str, Door] = {}
    failed: dict[str, CannotListen] = {}
    for folder in sorted({one.folder or "" for one in wanted}):
        try:
            doors[folder] = stack.enter_context(closing(Door(folder)))
        except CannotListen as error:
            failed[folder] = error
    if failed and not doors:
        raise next(iter(failed.values()))
    for why in failed.values():
        say(str(why))
    return list(doors.values()), [one for one in wanted if one.folder in doors]


def wish_of(args: Namespace) -> Wish:
    """What to record, as `--seconds`, `--steps` and `--with` say. Raises CommandError."""
    if args.steps is not None and args.seconds is not None:
        raise CommandError("Use either --seconds or --steps, not both.")
    if args.seconds is not None and not 0.001 <= args.seconds <= MOST_S:
        raise CommandError(f"--seconds takes a number from 0.001 to {MOST_S:.0f}.")
    if args.steps is not None and not 1 <= args.steps <= 1_000_000:
        raise CommandError("--steps takes a number from 1 to 1000000.")
    seconds = 0.5 if args.seconds is None else args.seconds
    return Wish(round(seconds * 1000), args.steps or 0, frozenset(args.extras))


def _wanted(args: Namespace) -> list[Process]:
    """The processes to record, at least one. Raises CommandError."""
    if not os.path.isdir("/proc/self"):
        raise CommandError("record needs Linux: elsewhere torch has no door for it.")
    if (bool(args.pid) + (args.job is not None) + args.all) != 1:
        raise CommandError("Name what to record: --pid PID, --job NAME or --all.")
    if args.pid:
        return [_with_door(pid) for pid in dict.fromkeys(args.pid)]
    found = [one for one in with_open_doors() if args.all or args.job in one.names]
    if not found:
        of = "" if args.all else f" of job {args.job}"
        raise CommandError(f"No process{of} of yours has torch loaded and its door open. {HOW}")
    return found


HOW = f"Start it with fusetui run -- COMMAND, or with {OPEN}=1 (docs/attach.md)."


def _with_door(pid: int) -> Process:
    found = process(pid)
    if found is None:
        raise CommandError(f"There is no process {pid} of yours.")
    if found.folder is None:
        raise CommandError(f"The door of process {pid} ({found.program}) is closed. {HOW}")
    if not has_torch(pid):
        raise CommandError(f"Process {pid} ({found.program}) has not loaded torch.")
    return found


def folder_for(out: Path | None) -> Path:
    """The folder for the traces, by default a new one here. Raises CommandError unless it is this
    user's, or not there yet."""
    folder = out or Path(f"recorded-{datetime.now():%Y%m%d-%H%M%S}")
    try:
        found = folder.stat()
    except FileNotFoundError:
        return folder
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}.") from None
    if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o002:
        raise CommandError(
            f"{folder} is not yours, or everybody can write to it: give another --out."
        )
    return folder


@contextmanager
def told(recording: Recording) -> Iterator[Callable[[], None]]:
    """A function that says what is new, to be called again and again; and, where the block ends
    early, that traces may still be written."""
    known: dict[int, tuple[Phase, float]] = {}

    def tell() -> None:
        for pid, job in recording.jobs.items():
            phase, at = known.get(pid, (None, 0.0))
            grows = phase is job.phase is Phase.WRITING and time.monotonic() - at > TOLD_AGAIN_S
            if phase is not job.phase or grows:
                known[pid] = job.phase, time.monotonic()
                say(line_of(job))

    tell()
    try:
        yield tell
    except KeyboardInterrupt:
        if any(job.phase in (Phase.TOLD, Phase.WRITING) for job in recording.jobs.values()):
            say("The programs go on, and write what they were told to.")
        raise


def line_of(job: Job) -> str:
    """`train.py 1234 (rank 0): recorded, 2.3 MB, in train-rank0_1234.json.`"""
    rank = f" (rank {job.process.rank})" if job.process.rank else ""
    line = f"{job.process.program} {job.process.pid}{rank}: {job.phase.value}"
    if job.phase is Phase.FAILED:
        return f"{line}: {job.why}."
    if job.phase is Phase.WHOLE:
        line += f", {size(job.size)}, in {os.path.relpath(job.file)}"
    elif job.phase is Phase.WRITING:
        line += f", {size(job.size)}"
    return f"{line}. {job.why}".strip()


def whole(jobs: Iterable[Job]) -> list[str]:
    """The traces of those that were recorded."""
    return [os.path.relpath(job.file) for job in jobs if job.phase is Phase.WHOLE]


def opened(jobs: Sequence[Job], folder: Path) -> list[str]:
    """The traces; in a terminal, once the app that opens them was left."""
    files = whole(jobs)
    if files and has_terminal():
        from fusetui.commands.open import browse

        browse([str(folder)] if len(files) > 1 else files)
    if len(files) > 1 and any(job.process.rank for job in jobs):
        say(f"Who waits for whom: fusetui ranks {os.path.relpath(folder)}")
    return files
