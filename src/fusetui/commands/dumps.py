"""`record --dumps` and `run --dumps`: take flight-recorder dumps of a running job."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from time import monotonic as now
from time import sleep

from fusetui.attach.nccl_pipes import FILE_PREFIX, ask_pipes, recorder_environment
from fusetui.commands.enter_key import EnterKey
from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.commands.terminal import has_terminal
from fusetui.report.output import emit
from fusetui.text.figures import plural, several
from fusetui.trace.flight.debug_server import (
    DEFAULT_SERVER,
    NoDebugServerError,
    TakenDump,
    dumps_of_server,
)
from fusetui.trace.new_file import new_file

MAX_NAMED_RANKS = 5
OPTIONS_OF_TRACES = ("pid", "job", "all", "seconds", "steps")
"""That say what to record, and of which processes, where no dumps are taken."""


def reject_trace_options(args: Namespace) -> None:
    """Raise CommandError for an option of `record` or `run` that has no effect with
    --dumps, such as --seconds."""
    for name in OPTIONS_OF_TRACES:
        if getattr(args, name, None):
            raise CommandError(f"--dumps records no trace: omit --{name}.")


def server_of(args: Namespace) -> str:
    """The address of the debug server that is asked."""
    return args.server or DEFAULT_SERVER


def record_dumps(args: Namespace, folder: Path) -> int:
    """Take the flight-recorder dumps of a job from its debug server into `folder`, and
    list or open them. Returns NO if any rank gave none. Raises NoDebugServerError."""
    is_complete = take_from_server(server_of(args), folder)
    has_dumps = _show_dumps(folder, opens=args.open, command="record")
    return DONE if has_dumps and is_complete else NO


def take_from_server(address: str, folder: Path) -> bool:
    """Write a dump for each rank into `folder`, in place of older ones, and return
    whether all ranks gave one. If the server has several flight recorders, each gets
    its own folder inside. Raises NoDebugServerError."""
    is_complete = True
    answers = dumps_of_server(address)
    for recorder, dumps in answers.items():
        # one rank has one dump in a folder
        dump_folder = folder / recorder if len(answers) > 1 else folder
        dump_folder.mkdir(exist_ok=True)
        is_complete &= _write_dumps(dumps, dump_folder)
    return is_complete


def _write_dumps(dumps: Sequence[TakenDump], folder: Path) -> bool:
    """Write the dumps that ranks gave into `folder`, and say how many there are.
    Returns whether all ranks gave one. Ranks without a dump are named with the reason.
    """
    missing = [dump for dump in dumps if not dump.text]
    for dump in dumps:
        if dump.text:
            path = folder / f"{FILE_PREFIX}{dump.rank}"
            with new_file(str(path), replace=True) as file:
                file.write(dump.text)
    entries = sum(dump.entries for dump in dumps)
    dump_count = len(dumps) - len(missing)
    say(
        f"{plural(dump_count, 'dump')} with {plural(entries, 'collective')} in {os.path.relpath(folder)}."
    )
    if dump_count and not entries:
        say(
            "The flight recorder of the job is off: set TORCH_FR_BUFFER_SIZE=2000 "
            "and, for NCCL, TORCH_NCCL_TRACE_BUFFER_SIZE=2000."
        )
    if missing:
        ranks = several([str(dump.rank) for dump in missing], MAX_NAMED_RANKS)
        say(f"No dump of rank {ranks}: {missing[0].why_missing}.")
    return not missing


def _show_dumps(folder: Path, opens: bool, command: str) -> bool:
    """List the dumps in `folder`, or open them in the app if `opens` and there is a
    terminal. Returns whether there are any. They are put into the list of recent traces
    as written by `command`."""
    files = _find_dumps(folder)
    if not files:
        return False
    from fusetui.tui.recent_traces import remember_written

    remember_written(list(map(str, files)), command, str(folder), are_dumps=True)
    if opens and has_terminal():
        from fusetui.commands.open import browse

        browse([str(folder)])
    else:
        emit("\n".join(os.path.relpath(path) for path in files))
    for folder_of_job in sorted({path.parent for path in files}):
        say(f"See why the job hangs: fusetui hang {os.path.relpath(folder_of_job)}")
    return True


def _find_dumps(folder: Path) -> list[Path]:
    """Return the paths of all dumps in a folder and the folders in it, sorted."""
    return sorted(path for path in folder.rglob(f"{FILE_PREFIX}*") if path.is_file())


class JobWithDumps:
    """A job that `run --dumps` starts, and the dumps that are taken of it."""

    def __init__(self, args: Namespace, *, folder: Path, pipe_folder: str) -> None:
        self._server = server_of(args)
        self._opens: bool = args.open
        self._folder = folder
        self._pipe_folder = pipe_folder
        self._enter = EnterKey() if args.on_enter else None
        self._due_at = now() + args.after if args.after else None
        self._was_asked = False

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to add to the environment of the job, which make its
        ranks record their last collectives. `given` is the environment without them."""
        return recorder_environment(self._folder, self._pipe_folder, given)

    def watch(self, child: Popen[bytes], *, turn_s: float) -> None:
        """Take dumps when the time of --after comes, or whenever Enter is pressed,
        until the job ends. It looks every `turn_s` seconds."""
        while child.poll() is None:
            if self._is_wanted_now():
                self._take()
            sleep(turn_s)

    def _is_wanted_now(self) -> bool:
        """Return whether to take dumps now: Enter was pressed, or the seconds of
        --after have passed. The latter is True only once."""
        if self._enter is not None and self._enter.was_pressed():
            return True
        if self._due_at is None or now() < self._due_at:
            return False
        self._due_at = None
        return True

    def _take(self) -> None:
        """Request dumps from the job, by NCCL's pipes if there are any, or else from
        its debug server. What came, or why nothing did, is said on stderr."""
        self._was_asked = True
        requested_ranks = ask_pipes(self._pipe_folder)
        if requested_ranks:
            say(
                f"Requested a dump from {plural(requested_ranks, 'rank')} through the NCCL pipe."
            )
            return
        try:
            take_from_server(self._server, self._folder)
        except NoDebugServerError as error:
            say(str(error))

    def report(self) -> bool:
        """Say what was written, and return False if dumps were requested but none was
        written. Without a request, no dump means that no collective timed out."""
        if _show_dumps(self._folder, opens=self._opens, command="run"):
            return True
        if self._was_asked:
            say("No dump was written.")
            return False
        say(
            "No dump was written: no NCCL collective timed out, and no dump was "
            "requested."
        )
        return True
