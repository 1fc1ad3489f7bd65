"""`record`: records traces of running programs that accept on-demand profiling, and
opens them in the app; `run` shares this code. `capture`: a run folder."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from stat import S_ISDIR, S_ISLNK
from time import monotonic as now
from typing import Any, NamedTuple

from fusetui.attach import processes
from fusetui.attach.daemon_socket import (
    CannotListenError,
    DaemonSocket,
    RecordingRequest,
)
from fusetui.attach.processes import OPEN, Process, has_torch, is_fork, process
from fusetui.attach.recording import (
    FORKED,
    AttachedProcess,
    Recording,
    RecordingPhase,
    check_name,
)
from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.commands.sources import RECORDED_PREFIX
from fusetui.commands.terminal import has_terminal
from fusetui.report.output import emit
from fusetui.text.figures import plural, several, size

TURN_SECONDS = 0.2
"""Between two looks at what is recorded."""

GROWTH_SECONDS = 5.0
"""Until the size of a file that grows is told again."""

MAX_SECONDS = 600.0
MAX_STEPS = 1_000_000
HOW = f"Start it with fusetui run -- COMMAND, or with {OPEN}=1 (docs/attach.md)."
MAX_NAMED_PIDS = 5
"""Of forks, in a message."""

MAX_NAMED_VARIANTS = 5


def run_record(args: Namespace) -> int:
    """Record running processes with torch.profiler, or take their flight-recorder dumps
    with --dumps. Prints or opens the traces, and returns NO if a process was not
    recorded.

    Raises CommandError, CannotListenError, CannotRecordError and NoDebugServerError.
    """
    if args.dumps:
        from fusetui.commands.dumps import record_dumps, reject_trace_options

        reject_trace_options(args)
        with trace_folder(args.out) as folder:
            return record_dumps(args, folder)
    request = make_request(args)
    processes_to_record = _find_processes(args)
    if request.steps and len(processes_to_record) > 1:
        raise CommandError(
            f"--steps records one process, not {len(processes_to_record)}, because several would "
            "start at different steps. To start all together, use --seconds."
        )
    with ExitStack() as stack:
        sockets = _open_sockets(stack, processes_to_record)
        reached_processes = [
            one for one in processes_to_record if one.folder in sockets
        ]
        folder = stack.enter_context(trace_folder(args.out))
        recording = Recording(
            list(sockets.values()), folder, request, reached_processes
        )
        follow(recording)
        ignored = sum(socket.ignored for socket in sockets.values())
        if ignored:
            say(
                f"Ignored {plural(ignored, 'message')} from other users or of the "
                "wrong size."
            )
        jobs = list(recording.jobs.values())
        say(*describe_left_out_forks(recording.forks.values()))
        remember(jobs, folder, "record")
        files = opened(jobs, folder) if args.open else whole(jobs)
    if files and not (args.open and has_terminal()):
        emit("\n".join(files))
    return DONE if files and are_recorded(jobs) else NO


def are_recorded(jobs: Iterable[AttachedProcess]) -> bool:
    """Return whether no recording failed. A process that only starts others needs no
    trace of its own."""
    return all(job.phase is not RecordingPhase.FAILED for job in jobs)


def describe_left_out_forks(forks: Collection[Process]) -> list[str]:
    """Return a sentence that these forks cannot be recorded and how to start workers
    instead. Empty if there are no forks."""
    if not forks:
        return []
    program = next(iter(forks)).program
    pids = several([str(fork.pid) for fork in forks], MAX_NAMED_PIDS)
    return [
        f"{plural(len(forks), 'fork')} of {program} cannot be recorded ({pids}): a fork "
        "has no libkineto thread. To record workers, start them with spawn: "
        'multiprocessing.set_start_method("spawn"), DataLoader(multiprocessing_context="spawn").'
    ]


def _open_sockets(
    stack: ExitStack, asked: Sequence[Process]
) -> dict[str, DaemonSocket]:
    """Return the daemon's sockets for these processes, by folder; `stack` closes them.
    A socket that another daemon holds is reported and left out. Raises
    CannotListenError if none is left."""
    sockets: dict[str, DaemonSocket] = {}
    errors: list[CannotListenError] = []
    for folder in sorted({one.folder or "" for one in asked}):
        try:
            sockets[folder] = stack.enter_context(closing(DaemonSocket(folder)))
        except CannotListenError as error:
            errors.append(error)
    if errors and not sockets:
        raise errors[0]
    say(*map(str, errors))
    return sockets


def make_request(args: Namespace) -> RecordingRequest:
    """Return what to record, as --seconds, --steps and --with say. Raises CommandError
    if they contradict each other or are out of range."""
    if args.steps is not None and args.seconds is not None:
        raise CommandError("Use either --seconds or --steps, not both.")
    if args.seconds is not None and not 0.001 <= args.seconds <= MAX_SECONDS:
        raise CommandError(f"--seconds takes a number from 0.001 to {MAX_SECONDS:.0f}.")
    if args.steps is not None and not 1 <= args.steps <= MAX_STEPS:
        raise CommandError(f"--steps takes a number from 1 to {MAX_STEPS}.")
    seconds = 0.5 if args.seconds is None else args.seconds
    return RecordingRequest(
        milliseconds=round(seconds * 1000),
        steps=args.steps or 0,
        extras=frozenset(args.extras),
    )


def _find_processes(args: Namespace) -> list[Process]:
    """Return the processes that --pid, --job or --all name, at least one. Raises
    CommandError if none accepts on-demand profiling, or on systems other than Linux."""
    if not os.path.isdir("/proc/self"):
        raise CommandError(
            "record needs Linux: torch supports on-demand profiling only there."
        )
    given_options = [bool(args.pid), args.job is not None, args.all]
    if sum(given_options) != 1:
        raise CommandError("Specify what to record: --pid PID, --job NAME or --all.")
    if args.pid:
        return [_check_process(pid) for pid in dict.fromkeys(args.pid)]
    processes_of_job = []
    for one in processes.with_torch():
        if one.folder is not None and (args.all or args.job in one.names):
            processes_of_job.append(one)
    if not processes_of_job:
        of_job = "" if args.all else f" of job {args.job}"
        raise CommandError(
            f"None of your processes{of_job} accepts on-demand profiling. {HOW}"
        )
    return processes_of_job


def _check_process(pid: int) -> Process:
    """Return the process with this PID, if it can be recorded. Raises CommandError with
    the reason if it cannot, for example as it has not loaded torch."""
    found_process = process(pid)
    if found_process is None:
        raise CommandError(f"You have no process {pid}.")
    if found_process.folder is None:
        raise CommandError(
            f"Process {pid} ({found_process.program}) does not accept on-demand profiling. {HOW}"
        )
    if not has_torch(pid):
        raise CommandError(
            f"Process {pid} ({found_process.program}) has not loaded torch."
        )
    if found_process.only_helps:
        raise CommandError(
            f"Process {pid} ({found_process.program}) only starts other processes or compiles "
            "for them: record those with --job NAME."
        )
    if is_fork(found_process):
        raise CommandError(
            f"Process {pid} ({found_process.program}) cannot be recorded: {FORKED}."
        )
    return found_process


@contextmanager
def trace_folder(out: Path | None) -> Iterator[Path]:
    """Within the block, give a folder for traces that only this user can write to. It
    is `out`, or a new folder named by the time. A new folder that stays empty is
    removed.

    Raises CommandError if the folder cannot be used, and CannotRecordError if its name
    cannot be sent to libkineto.
    """
    folder = out or Path(f"{RECORDED_PREFIX}{datetime.now():%Y%m%d-%H%M%S}")
    check_name(folder)
    is_made = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        is_made = True
    except FileExistsError:
        pass
    except OSError as error:
        raise CommandError(f"{folder} cannot be created: {error.strerror}.") from None
    try:
        _check_owner(folder)
        yield folder
    finally:
        if is_made:
            with suppress(OSError):  # it holds traces
                folder.rmdir()


def _check_owner(folder: Path) -> None:
    """Raise CommandError unless `folder` belongs to this user and no other user can
    write to it. A link that another user owns is refused, because it may lead elsewhere
    later."""
    try:
        link_status = folder.lstat()
        folder_status = folder.stat()
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}.") from None
    if S_ISLNK(link_status.st_mode) and link_status.st_uid != os.geteuid():
        raise CommandError(f"{folder} is another user's link: choose another --out.")
    if not S_ISDIR(folder_status.st_mode):
        raise CommandError(f"{folder} is not a folder: choose another --out.")
    if folder_status.st_uid != os.geteuid():
        raise CommandError(f"{folder} belongs to another user: choose another --out.")
    others_write = folder_status.st_mode & 0o002
    group_writes = folder_status.st_mode & 0o020 and not _is_private_group(
        folder_status.st_gid
    )
    if others_write or group_writes:
        raise CommandError(f"Other users can write to {folder}: chmod go-w {folder}")


def _is_private_group(group: int) -> bool:
    """Return whether a group is this user's own: it has the user's name and no other
    member. Write permission of such a group is harmless. False if either is unknown."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    is_own = user.pw_gid == group and entry.gr_name == user.pw_name
    return is_own and set(entry.gr_mem) <= {user.pw_name}


class _Told(NamedTuple):
    """What was said last of a process, and when (time.monotonic)."""

    phase: RecordingPhase
    why: str
    at: float


def follow(recording: Recording) -> None:
    """Record until all processes are done, and say each change on stderr. On Ctrl+C,
    say that programs which were asked still write their traces. Raises
    KeyboardInterrupt."""
    last_report_of_pid: dict[int, _Told] = {}  # by PID
    try:
        while True:
            for pid, job in recording.jobs.items():
                if _has_changed(job, last_report_of_pid.get(pid)):
                    last_report_of_pid[pid] = _Told(job.phase, job.why, now())
                    say(describe_process(job))
            if recording.is_done:
                return
            recording.turn(TURN_SECONDS)
    except KeyboardInterrupt:
        phases = {job.phase for job in recording.jobs.values()}
        if phases & {RecordingPhase.TOLD, RecordingPhase.WRITING}:
            say("The programs continue and write the requested traces.")
        raise


def _has_changed(job: AttachedProcess, told: _Told | None) -> bool:
    """Return whether there is something new to say about a process. Its phase or reason
    has changed since `told`, or its file has been growing for GROWTH_SECONDS since."""
    if told is None or (job.phase, job.why) != (told.phase, told.why):
        return True
    return job.phase is RecordingPhase.WRITING and now() - told.at > GROWTH_SECONDS


def describe_process(job: AttachedProcess) -> str:
    """Return a line about the recording of one process.

    train.py 1234 (rank 0): recorded, 2.3 MB, in train-rank0_1234.json.
    """
    rank = f" (rank {job.process.rank})" if job.process.rank else ""
    line = f"{job.process.program} {job.process.pid}{rank}: {job.phase.value}"
    if job.phase in (RecordingPhase.FAILED, RecordingPhase.IDLE):
        return f"{line}: {job.why}."
    if job.phase is RecordingPhase.WAITED_FOR and job.why:
        return f"{line}. {job.why}."
    if job.phase in (RecordingPhase.WRITING, RecordingPhase.WHOLE):
        line += f", {size(job.size)}"
    if job.phase is RecordingPhase.WHOLE:
        line += f", in {os.path.relpath(job.file)}"
    return f"{line}. {job.why}".strip()


def whole(jobs: Iterable[AttachedProcess]) -> list[str]:
    """Return the paths of the traces that are completely written."""
    return [
        os.path.relpath(job.file) for job in jobs if job.phase is RecordingPhase.WHOLE
    ]


def remember(jobs: Iterable[AttachedProcess], folder: Path, command: str) -> None:
    """Puts what `command` recorded into the list of recent traces."""
    from fusetui.tui.recent_traces import remember_written

    remember_written(whole(jobs), command, str(folder))


def opened(jobs: Sequence[AttachedProcess], folder: Path) -> list[str]:
    """Return the paths of the complete traces; in a terminal, open them in the app
    first. For several ranks, the command that compares them is suggested."""
    files = whole(jobs)
    if files and has_terminal():
        from fusetui.commands.open import browse

        browse([str(folder)] if len(files) > 1 else files)
    if len(files) > 1 and any(job.process.rank for job in jobs):
        say(f"See which rank waits for which: fusetui ranks {os.path.relpath(folder)}")
    return files


def run_capture(args: Namespace) -> int:
    """Record the variants of a workload in a run folder. Returns NO if a guess was
    wrong or a variant failed. Raises CaptureError or CommandError."""
    from fusetui.capture import command
    from fusetui.capture.options import Options, declared_options

    if args.open and not has_terminal():
        raise CommandError("--open needs a terminal: omit it, and open the run later.")
    given_options: dict[str, Any] = {}
    for name, value in vars(args).items():
        if name in declared_options():
            is_repeated = isinstance(value, list)
            given_options[name] = tuple(value) if is_repeated else value
    options = Options(**given_options, shapes=args.rest)
    outcome = command.capture(
        args.workload, options, out=args.out, prints_json=args.json
    )
    _remember_run(str(outcome.folder))
    code = DONE if outcome.right and not outcome.failed else NO
    if outcome.failed:
        # the table has already said why
        failed_names = several(outcome.failed, MAX_NAMED_VARIANTS)
        say(f"Failed: {failed_names}. The other results are in {outcome.folder}.")
    if not args.open:
        return code
    from fusetui.commands.open import browse

    return max(code, browse([str(outcome.folder)]))


def _remember_run(folder: str) -> None:
    """Put the traces of a run folder into the list of recent traces. Nothing happens if
    all variants failed."""
    from fusetui.commands.sources import traces
    from fusetui.tui.recent_traces import remember_written

    with suppress(CommandError):  # all variants failed
        remember_written(traces(folder), "capture", folder)
