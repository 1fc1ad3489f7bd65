"""Actions of the app that use other commands: writing tables and parts of traces to
files, and listing and recording running programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import IO, NamedTuple

from msgspec.structs import replace

from fusetui import Error
from fusetui.attach.processes import Process, with_torch
from fusetui.tables.files import save as write
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop
from fusetui.trace.read.source import reason
from fusetui.tui import registry
from fusetui.tui.loading import Post
from fusetui.tui.state import reading
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.state import (
    Chooser,
    Cut,
    Outcome,
    Record,
    Reproduce,
    SavePicture,
    SaveTable,
    ShowCommand,
    State,
    open_overlay,
    told,
)

NICE = (
    "import os; getattr(os, 'nice', int)(5); from fusetui.cli import script; script()"
)
"""The app comes first where there are few cores."""
POLL_SECONDS = 0.1  # between two looks whether an answer is still wanted
NO_PROGRAM = (
    "No program of yours has loaded torch. Start one with fusetui run -- COMMAND"
)


def save(asked: SaveTable, post: Post, *_: object) -> None:
    """Write the table of the page to a file, and post how many rows were written, or
    why none."""
    path = asked.path
    try:
        page = registry.page_with_table(asked.state)
        table = page.table(asked.state)
        if table is None:
            raise Error(page.why_no_table(asked.state))
        write(table, path)
        file_size = size(os.path.getsize(path))
        sentence = f"{path}: {plural(len(table), 'row')}, {file_size}"
    except Error as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def save_page_picture(asked: SavePicture, post: Post, *_: object) -> None:
    """Draw the page into a file, and post the size of the file, or why it was not
    written."""
    from fusetui.tui.pictures import save_picture  # rarely needed

    path = asked.path
    page_title = registry.page_of(asked.state).title
    try:
        save_picture(asked.state, path, asked.state.light)
        sentence = f"{path}: the page {page_title}, {size(os.path.getsize(path))}"
    except (Error, OSError) as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def post_shell_command(asked: ShowCommand, post: Post, *_: object) -> None:
    """Post an overlay with the command line that gives the figures on the screen."""
    from fusetui.tui.shell_lines import make_shell_command  # rarely needed

    post(partial(open_overlay, overlay=make_shell_command(asked.state)))


def cut(asked: Cut, post: Post, cancelled: Stop, *_: object) -> None:
    """Run `fusetui cut`, and post what it says with the size of the new trace. Nothing
    is posted once `cancelled` returns true."""
    path = asked.path
    arguments = (
        "cut",
        f"--from={asked.begin}",
        f"--to={asked.end}",
        "--",
        asked.trace,
        path,
    )
    try:
        answer = _run_command(arguments, cancelled)
        sentence = "   ".join([*answer.out.splitlines(), *answer.err.splitlines()])
        path_prefix = f"{printable(path)}: "
        if sentence.startswith(path_prefix):
            rest_of_sentence = sentence.removeprefix(path_prefix)
            sentence = f"{path_prefix}{size(os.path.getsize(path))}, {rest_of_sentence}"
    except OSError as error:
        sentence = f"{path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def reproduce(asked: Reproduce, post: Post, cancelled: Stop, *_: object) -> None:
    """Run `fusetui reproduce` for one slice, and post what it says. Nothing is posted
    once `cancelled` returns true."""
    arguments = (
        "reproduce",
        f"--row={asked.row}",
        f"--out={asked.path}",
        "--",
        asked.trace,
    )
    try:
        answer = _run_command(arguments, cancelled)
        sentence = "   ".join([*answer.out.splitlines(), *answer.err.splitlines()])
    except OSError as error:
        sentence = f"{asked.path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def record(asked: Record, post: Post, cancelled: Stop, *_: object) -> None:
    """Run `fusetui record` on a program, and open the trace that it writes, or post why
    there is none.

    Its messages are posted line by line, because recording may take minutes. Without a
    process id, the running programs that have loaded torch are posted as a choice.
    """
    if not asked.pid:
        post(partial(_show_programs, offers=_list_programs()))
        return

    def tell(line: str) -> None:
        if not cancelled():
            post(partial(told, sentence=printable(line)))

    arguments = "record", "--no-open", "--pid", str(asked.pid)
    answer = _run_command(arguments, cancelled, tell)
    if cancelled():
        return
    if answer.code:
        last_line = answer.err.strip().rpartition("\n")[2]
        post(partial(told, sentence=printable(last_line)))
    else:
        post(partial(reading.read, paths=(*asked.beside, answer.out.strip())))


def _list_programs() -> tuple[Offer, ...]:
    """Return the running programs of this user that have loaded torch. Those that
    accept on-demand profiling come first, then by process id."""
    programs = sorted(with_torch(), key=lambda of: (of.folder is None, of.pid))
    offers = []
    for program in programs:
        label = f"{program.program} {program.pid}"
        offers.append(Offer(label, (), _describe_program(program), pid=program.pid))
    return tuple(offers)


def _describe_program(program: Process) -> str:
    """Return one line about a program: its rank, whether it accepts on-demand profiling
    ("door open"), and its command."""
    door = "open"
    if program.folder is None:
        door = "off: started without KINETO_USE_DAEMON=1"
    rank = f"rank {program.rank}   " if program.rank else ""
    return f"{rank}door {door}   {' '.join(program.command)}"


def _show_programs(state: State, offers: tuple[Offer, ...]) -> Outcome:
    """Return the state with a list of programs over the page, or with a message where
    there are none. While nothing is open, leaving the list leads back to the list below
    it."""
    if not offers:
        return told(state, NO_PROGRAM)
    list_below = None
    if isinstance(state.overlay, Chooser) and not state.is_open:
        list_below = state.overlay.before or state.overlay
    summaries = tuple(offer.about for offer in offers)
    chooser = Chooser(summaries=summaries, programs=offers, before=list_below)
    return open_overlay(replace(state, hint=""), chooser)


class _CommandAnswer(NamedTuple):
    """What a command of fusetui answers."""

    code: int
    out: str
    err: str


def _run_command(
    words: Sequence[str], cancelled: Stop, tell: Callable[[str], object] | None = None
) -> _CommandAnswer:
    """Run a command of fusetui in another process and return its exit code and output.

    `tell` gets each line of its error stream while it runs. The process is ended as
    soon as `cancelled` returns true.
    """
    command = [sys.executable, "-P", "-c", NICE, *words]
    lines: list[str] = []
    with Popen(
        command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, errors="replace"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        listener = Thread(
            target=_collect_lines, args=(process.stderr, lines, tell), daemon=True
        )
        listener.start()
        while process.poll() is None:
            with suppress(TimeoutExpired):
                # short, so that a cancelled command ends soon
                process.wait(POLL_SECONDS)
            if cancelled():
                process.terminate()
        listener.join()
        out = process.stdout.read()
    return _CommandAnswer(process.returncode, out, "".join(lines))


def _collect_lines(
    stream: IO[str], lines: list[str], tell: Callable[[str], object] | None
) -> None:
    """Append the lines of a stream to `lines` as they come, and pass each to `tell`."""
    for line in stream:
        lines.append(line)
        if tell is not None:
            tell(line.strip())
