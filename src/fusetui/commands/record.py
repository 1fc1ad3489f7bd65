"""`record`: traces of programs that run, started with their door open, and on to the
app; and what `run` does the same way. `capture`: a run folder."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from stat import S_ISDIR, S_ISLNK
from time import monotonic as now

from fusetui.attach import processes
from fusetui.attach.door import CannotListenError, Door, Wish
from fusetui.attach.processes import OPEN, Process, has_torch, is_fork, process
from fusetui.attach.recording import (
    FORKED,
    AttachedProcess,
    Recording,
    RecordingPhase,
    check_name,
)
from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.commands.terminal import has_terminal
from fusetui.report.output import emit
from fusetui.text.figures import plural, several, size

TURN_S = 0.2
TOLD_AGAIN_S = 5.0  # until the size of a file that grows is told again
MOST_S = 600.0
HOW = f"Start it with fusetui run -- COMMAND, or with {OPEN}=1 (docs/attach.md)."
NAMED_PIDS = 5  # of forks, in a message


def run_record(args: Namespace) -> int:
    """Returns 1 if a process was not recorded. Raises CommandError, CannotListenError,
    CannotRecordError."""
    wish, wanted = wish_of(args), _wanted(args)
    if wish.steps and len(wanted) > 1:
        raise CommandError(
            f"--steps records one process, and these are {len(wanted)}: each would begin at a step "
            "of its own. With --seconds all begin together."
        )
    with ExitStack() as stack:
        doors, wanted = _doors(stack, wanted)
        folder = stack.enter_context(trace_folder(args.out))
        recording = Recording(doors, folder, wish, wanted)
        follow(recording)
        if ignored := sum(door.ignored for door in doors):
            say(
                f"{plural(ignored, 'message')} of other users or of wrong sizes ignored."
            )
        jobs = list(recording.jobs.values())
        say(*forks_left_out(recording.forks.values()))
        files = opened(jobs, folder) if args.open else whole(jobs)
    if files and not (args.open and has_terminal()):
        emit("\n".join(files))
    return DONE if files and are_recorded(jobs) else NO


def are_recorded(jobs: Iterable[AttachedProcess]) -> bool:
    """Whether each has a trace, or only starts those that have one."""
    return all(job.phase is not RecordingPhase.FAILED for job in jobs)


def forks_left_out(forks: Collection[Process]) -> list[str]:
    """A sentence about these forks, if there are any: they cannot be recorded."""
    if not forks:
        return []
    program = next(iter(forks)).program
    pids = several([str(one.pid) for one in forks], NAMED_PIDS)
    return [
        f"{plural(len(forks), 'fork')} of {program} cannot be recorded ({pids}): a fork "
        "has no thread of libkineto. To record workers, start them with spawn: "
        'multiprocessing.set_start_method("spawn"), DataLoader(multiprocessing_context="spawn").'
    ]


def _doors(stack: ExitStack, wanted: list[Process]) -> tuple[list[Door], list[Process]]:
    """The doors of these processes, without those that others hold. Raises
    CannotListenError if all."""
    doors: dict[str, Door] = {}
    failed: dict[str, CannotListenError] = {}
    for folder in sorted({one.folder or "" for one in wanted}):
        try:
            doors[folder] = stack.enter_context(closing(Door(folder)))
        except CannotListenError as error:
            failed[folder] = error
    if failed and not doors:
        raise next(iter(failed.values()))
    say(*map(str, failed.values()))
    return list(doors.values()), [one for one in wanted if one.folder in doors]


def wish_of(args: Namespace) -> Wish:
    """What to record, as `--seconds`, `--steps` and `--with` say. Raises
    CommandError."""
    if args.steps is not None and args.seconds is not None:
        raise CommandError("Use either --seconds or --steps, not both.")
    if args.seconds is not None and not 0.001 <= args.seconds <= MOST_S:
        raise CommandError(f"--seconds takes a number from 0.001 to {MOST_S:.0f}.")
    if args.steps is not None and not 1 <= args.steps <= 1_000_000:
        raise CommandError("--steps takes a number from 1 to 1000000.")
    seconds = 0.5 if args.seconds is None else args.seconds
    return Wish(round(seconds * 1000), args.steps or 0, frozenset(args.extras))


def _wanted(args: Namespace) -> list[Process]:
    if not os.path.isdir("/proc/self"):
        raise CommandError("record needs Linux: elsewhere torch has no door for it.")
    if (bool(args.pid) + (args.job is not None) + args.all) != 1:
        raise CommandError("Name what to record: --pid PID, --job NAME or --all.")
    if args.pid:
        return [_with_door(pid) for pid in dict.fromkeys(args.pid)]
    with_doors = (one for one in processes.with_torch() if one.folder is not None)
    found = [one for one in with_doors if args.all or args.job in one.names]
    if not found:
        of = "" if args.all else f" of job {args.job}"
        raise CommandError(
            f"No process{of} of yours has torch loaded and its door open. {HOW}"
        )
    return found


def _with_door(pid: int) -> Process:
    found = process(pid)
    if found is None:
        raise CommandError(f"There is no process {pid} of yours.")
    if found.folder is None:
        raise CommandError(
            f"The door of process {pid} ({found.program}) is closed. {HOW}"
        )
    if not has_torch(pid):
        raise CommandError(f"Process {pid} ({found.program}) has not loaded torch.")
    if found.only_helps:
        raise CommandError(
            f"Process {pid} ({found.program}) only starts or compiles for others: "
            "record these, by --job NAME."
        )
    if is_fork(found):
        raise CommandError(
            f"Process {pid} ({found.program}) cannot be recorded: {FORKED}."
        )
    return found


@contextmanager
def trace_folder(out: Path | None) -> Iterator[Path]:
    """A folder for traces, made at once with mode 0700, or one that is there and is
    this user's alone to write. One that was made and stays empty is removed. Raises
    CommandError for any other, CannotRecordError for a name that libkineto cannot be
    told."""
    folder = out or Path(f"recorded-{datetime.now():%Y%m%d-%H%M%S}")
    check_name(folder)
    is_made = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        is_made = True
    except FileExistsError:
        pass
    except OSError as error:
        raise CommandError(f"{folder} cannot be made: {error.strerror}.") from None
    try:
        _check_owner(folder)
        yield folder
    finally:
        if is_made:
            with suppress(OSError):  # it holds traces
                folder.rmdir()


def _check_owner(folder: Path) -> None:
    """Raises CommandError unless it is a folder of this user that no other one can
    write to, and no link of another user leads there."""
    try:
        link = folder.lstat()
        found = folder.stat()
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}.") from None
    if S_ISLNK(link.st_mode) and link.st_uid != os.geteuid():
        raise CommandError(f"{folder} is a link of another user: give another --out.")
    if not S_ISDIR(found.st_mode):
        raise CommandError(f"{folder} is no folder: give another --out.")
    if found.st_uid != os.geteuid():
        raise CommandError(f"{folder} belongs to another user: give another --out.")
    others_write = found.st_mode & 0o002
    group_writes = found.st_mode & 0o020 and not _is_private_group(found.st_gid)
    if others_write or group_writes:
        raise CommandError(f"Other users can write to {folder}: chmod go-w {folder}")


def _is_private_group(group: int) -> bool:
    """Whether a group is this user's own: it is named as the user is, and has no other
    member."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    is_own = user.pw_gid == group and entry.gr_name == user.pw_name
    return is_own and set(entry.gr_mem) <= {user.pw_name}


def follow(recording: Recording) -> None:
    """Records until all is done, and says what is new; if interrupted, that programs go
    on."""
    # what was said last of each process, and when
    known: dict[int, tuple[object, float]] = {}
    try:
        while True:
            for pid, job in recording.jobs.items():
                news = job.phase, job.why
                before, at = known.get(pid, (None, 0.0))
                grows = (
                    job.phase is RecordingPhase.WRITING and now() - at > TOLD_AGAIN_S
                )
                if before != news or grows:
                    known[pid] = news, now()
                    say(line_of(job))
            if recording.is_done:
                return
            recording.turn(TURN_S)
    except KeyboardInterrupt:
        phases = {job.phase for job in recording.jobs.values()}
        if phases & {RecordingPhase.TOLD, RecordingPhase.WRITING}:
            say("The programs go on, and write what they were told to.")
        raise


def line_of(job: AttachedProcess) -> str:
    """`train.py 1234 (rank 0): recorded, 2.3 MB, in train-rank0_1234.json.`"""
    rank = f" (rank {job.process.rank})" if job.process.rank else ""
    line = f"{job.process.program} {job.process.pid}{rank}: {job.phase.value}"
    if job.phase in (RecordingPhase.FAILED, RecordingPhase.IDLE):
        return f"{line}: {job.why}."
    if job.phase is RecordingPhase.WAITED_FOR and job.why:
        return f"{line}. {job.why}."
    if job.phase in (RecordingPhase.WRITING, RecordingPhase.WHOLE):
        line += f", {size(job.size)}"
    line += (
        f", in {os.path.relpath(job.file)}" if job.phase is RecordingPhase.WHOLE else ""
    )
    return f"{line}. {job.why}".strip()


def whole(jobs: Iterable[AttachedProcess]) -> list[str]:
    """The traces of those that were recorded."""
    return [
        os.path.relpath(job.file) for job in jobs if job.phase is RecordingPhase.WHOLE
    ]


def opened(jobs: Sequence[AttachedProcess], folder: Path) -> list[str]:
    """The traces; in a terminal, once the app that opens them was left."""
    files = whole(jobs)
    if files and has_terminal():
        from fusetui.commands.open import browse

        browse([str(folder)] if len(files) > 1 else files)
    if len(files) > 1 and any(job.process.rank for job in jobs):
        say(f"Who waits for whom: fusetui ranks {os.path.relpath(folder)}")
    return files


def run_capture(args: Namespace) -> int:
    """Returns 1 if a guess was wrong or a variant failed. Raises CaptureError or
    CommandError."""
    from fusetui.capture import command
    from fusetui.capture.options import Options, declared_options

    if args.open and not has_terminal():
        raise CommandError(
            "--open needs a terminal: leave it out, and open the run later."
        )
    given = {
        name: value for name, value in vars(args).items() if name in declared_options()
    }
    repeated = {
        name: tuple(value) for name, value in given.items() if isinstance(value, list)
    }
    options = Options(**(given | repeated), shapes=args.rest)
    outcome = command.capture(
        args.workload, options, out=args.out, prints_json=args.json
    )
    code = DONE if outcome.right and not outcome.failed else NO
    if outcome.failed:
        named = several(outcome.failed, 5)  # the table has already said why
        say(f"Failed: {named}. The other results are in {outcome.folder}.")
    if not args.open:
        return code
    from fusetui.commands.open import browse

    return max(code, browse([str(outcome.folder)]))
