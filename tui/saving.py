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
    overlaid,
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
    """Posts how many rows of the table of the page were written, or why none."""
    path = asked.path
    try:
        page = registry.with_table(asked.state)
        table = page.table(asked.state)
        if table is None:
            raise Error(page.why_no_table(asked.state))
        write(table, path)
        file_size = size(os.path.getsize(path))
        sentence = f"{path}: {plural(len(table), 'row')}, {file_size}"
    except Error as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def draw(asked: SavePicture, post: Post, *_: object) -> None:
    """Posts that the page was drawn into a file, or why not."""
    from fusetui.tui.pictures import save_picture  # rarely needed

    path = asked.path
    page = registry.page_of(asked.state).title
    try:
        save_picture(asked.state, path, asked.state.light)
        sentence = f"{path}: the page {page}, {size(os.path.getsize(path))}"
    except (Error, OSError) as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def show_command(asked: ShowCommand, post: Post, *_: object) -> None:
    """Posts the command line of what is on the screen."""
    from fusetui.tui.shell_lines import shown_command  # rarely needed

    post(partial(overlaid, overlay=shown_command(asked.state)))


def cut(asked: Cut, post: Post, cancelled: Stop, *_: object) -> None:
    """Has `fusetui cut` run, and posts what that says, with the size."""
    path = asked.path
    words = (
        "cut",
        f"--from={asked.begin}",
        f"--to={asked.end}",
        "--",
        asked.trace,
        path,
    )
    try:
        answer = _answer_of(words, cancelled)
        sentence = "   ".join([*answer.out.splitlines(), *answer.err.splitlines()])
        start = f"{printable(path)}: "
        if sentence.startswith(start):
            rest = sentence.removeprefix(start)
            sentence = f"{start}{size(os.path.getsize(path))}, {rest}"
    except OSError as error:
        sentence = f"{path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def reproduce(asked: Reproduce, post: Post, cancelled: Stop, *_: object) -> None:
    """Has `fusetui reproduce` run, and posts what that says."""
    words = (
        "reproduce",
        f"--row={asked.row}",
        f"--out={asked.path}",
        "--",
        asked.trace,
    )
    try:
        answer = _answer_of(words, cancelled)
        sentence = "   ".join([*answer.out.splitlines(), *answer.err.splitlines()])
    except OSError as error:
        sentence = f"{asked.path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def record(asked: Record, post: Post, cancelled: Stop, *_: object) -> None:
    """Has `fusetui record` run, and posts its trace, or why there is none; without a
    program, posts a choice of those of this user that have torch loaded. What it says
    meanwhile is posted line by line: a program without operations is recorded again,
    which takes minutes."""
    if not asked.pid:
        post(partial(_listed, offers=_programs()))
        return

    def tell(line: str) -> None:
        if not cancelled():
            post(partial(told, sentence=printable(line)))

    words = "record", "--no-open", "--pid", str(asked.pid)
    answer = _answer_of(words, cancelled, tell)
    if cancelled():
        return
    if answer.code:
        last_line = answer.err.strip().rpartition("\n")[2]
        post(partial(told, sentence=printable(last_line)))
    else:
        post(partial(reading.read, paths=(*asked.beside, answer.out.strip())))


def _programs() -> tuple[Offer, ...]:
    """The programs of this user that have torch loaded; first those that accept
    on-demand profiling, then by PID."""
    programs = sorted(with_torch(), key=lambda of: (of.folder is None, of.pid))
    offers = []
    for program in programs:
        label = f"{program.program} {program.pid}"
        offers.append(Offer(label, (), _about(program), pid=program.pid))
    return tuple(offers)


def _about(program: Process) -> str:
    """The rank of a program, whether its door is open, and its command."""
    door = "open"
    if program.folder is None:
        door = "off: started without KINETO_USE_DAEMON=1"
    rank = f"rank {program.rank}   " if program.rank else ""
    return f"{rank}door {door}   {' '.join(program.command)}"


def _listed(state: State, offers: tuple[Offer, ...]) -> Outcome:
    """A list of programs over the page. While nothing is open, it leads back to the
    list that it covers."""
    if not offers:
        return told(state, NO_PROGRAM)
    before = None
    if isinstance(state.overlay, Chooser) and not state.is_open:
        before = state.overlay.before or state.overlay
    about = tuple(offer.about for offer in offers)
    listed = Chooser(summaries=about, programs=offers, before=before)
    return overlaid(replace(state, hint=""), listed)


class _CommandAnswer(NamedTuple):
    """What a command of fusetui answers."""

    code: int
    out: str
    err: str


def _answer_of(
    words: Sequence[str], cancelled: Stop, tell: Callable[[str], object] | None = None
) -> _CommandAnswer:
    """What a command of fusetui in another process answers: its exit code and two
    streams. It is ended once nobody waits for it. `tell`: called with each line of the
    second while it runs."""
    command = [sys.executable, "-P", "-c", NICE, *words]
    lines: list[str] = []
    with Popen(
        command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, errors="replace"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        listener = Thread(
            target=_listen, args=(process.stderr, lines, tell), daemon=True
        )
        listener.start()
        while process.poll() is None:
            with suppress(TimeoutExpired):
                process.wait(POLL_SECONDS)
            if cancelled():
                process.terminate()
        listener.join()
        out = process.stdout.read()
    return _CommandAnswer(process.returncode, out, "".join(lines))


def _listen(
    stream: IO[str], lines: list[str], tell: Callable[[str], object] | None
) -> None:
    """Adds the lines of a stream to `lines` as they come."""
    for line in stream:
        lines.append(line)
        if tell is not None:
            tell(line.strip())
