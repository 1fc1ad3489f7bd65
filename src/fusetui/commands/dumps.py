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


def check_options(args: Namespace) -> None:
    """Raises CommandError for options of `record` and `run` that say nothing about
    dumps."""
    for name in OPTIONS_OF_TRACES:
        if getattr(args, name, None):
            raise CommandError(f"--dumps records no trace: omit --{name}.")


def server_of(args: Namespace) -> str:
    """The address of the debug server that is asked."""
    return args.server or DEFAULT_SERVER


def record_dumps(args: Namespace, folder: Path) -> int:
    """Takes the dumps of a job from its debug server into `folder`; returns 1 if a rank
    gave none. Raises NoDebugServerError."""
    is_complete = take_from_server(server_of(args), folder)
    is_any = _shown(folder, opens=args.open, command="record")
    return DONE if is_any and is_complete else NO


def take_from_server(address: str, folder: Path) -> bool:
    """Writes a dump for each rank into `folder`, in place of older ones; returns whether
    all ranks gave one. Raises NoDebugServerError."""
    is_complete = True
    answers = dumps_of_server(address)
    for recorder, dumps in answers.items():
        # one rank has one dump in a folder
        place = folder / recorder if len(answers) > 1 else folder
        place.mkdir(exist_ok=True)
        is_complete &= _written(dumps, place)
    return is_complete


def _written(dumps: Sequence[TakenDump], folder: Path) -> bool:
    """Writes what the ranks gave; says how many, and returns whether all gave a dump."""
    missing = [dump for dump in dumps if not dump.text]
    for dump in dumps:
        if dump.text:
            path = folder / f"{FILE_PREFIX}{dump.rank}"
            with new_file(str(path), replace=True) as file:
                file.write(dump.text)
    entries = sum(dump.entries for dump in dumps)
    given = len(dumps) - len(missing)
    say(
        f"{plural(given, 'dump')} with {plural(entries, 'collective')} in {os.path.relpath(folder)}."
    )
    if given and not entries:
        say(
            "The flight recorder of the job is off: set TORCH_FR_BUFFER_SIZE=2000 "
            "and, for NCCL, TORCH_NCCL_TRACE_BUFFER_SIZE=2000."
        )
    if missing:
        ranks = several([str(dump.rank) for dump in missing], MAX_NAMED_RANKS)
        say(f"No dump of rank {ranks}: {missing[0].why_missing}.")
    return not missing


def _shown(folder: Path, opens: bool, command: str) -> bool:
    """Lists the dumps that a command took, or opens them on a terminal; returns whether
    there are any."""
    files = _dumps_in(folder)
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


def _dumps_in(folder: Path) -> list[Path]:
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
        """What is added to the environment of the job."""
        return recorder_environment(self._folder, self._pipe_folder, given)

    def watch(self, child: Popen[bytes], *, turn_s: float) -> None:
        """Takes dumps when it is time, or whenever Enter is pressed, until the job
        ends."""
        while child.poll() is None:
            if self._is_wanted_now():
                self._take()
            sleep(turn_s)

    def _is_wanted_now(self) -> bool:
        """Whether Enter was pressed, or the seconds of `--after` have passed, which is
        true once."""
        if self._enter is not None and self._enter.was_pressed():
            return True
        if self._due_at is None or now() < self._due_at:
            return False
        self._due_at = None
        return True

    def _take(self) -> None:
        """Asks NCCL by its pipes, or the debug server of the job; says what came."""
        self._was_asked = True
        asked = ask_pipes(self._pipe_folder)
        if asked:
            say(f"Requested a dump from {plural(asked, 'rank')} through the NCCL pipe.")
            return
        try:
            take_from_server(self._server, self._folder)
        except NoDebugServerError as error:
            say(str(error))

    def report(self) -> bool:
        """Says what was written; returns whether all was that was wanted."""
        if _shown(self._folder, opens=self._opens, command="run"):
            return True
        if self._was_asked:
            say("No dump was written.")
            return False
        say(
            "No dump was written: no NCCL collective timed out, and no dump was "
            "requested."
        )
        return True
