"""What the app has done beside the keys by other commands: tables and parts of traces
are written to files, programs that run are listed and recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import IO

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
    SaveTable,
    State,
    overlaid,
    told,
)

NICE = (
    "import os; getattr(os, 'nice', int)(5); from fusetui.cli import script; script()"
)
"""The app comes first where there are few cores."""
OFTEN = 0.1  # seconds between two looks whether an answer is still wanted
NONE = "no program of yours has torch loaded: start one with fusetui run -- COMMAND"


def save(asked: SaveTable, post: Post, *_: object) -> None:
    """Posts how many rows of the table of the page were written, or why none."""
    path = asked.path
    try:
        table = registry.page_of(asked.state).table(asked.state)
        if table is None:
            names = (page.title for page in registry.PAGES if page.is_table)
            raise Error(f"there is no table here: {', '.join(names)} have one")
        write(table, path)
        sentence = f"{path}: {plural(len(table), 'row')}, {size(os.path.getsize(path))}"
    except Error as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def cut(asked: Cut, post: Post, cancelled: Stop, *_: object) -> None:
    """Has `fusetui cut` run, and posts what that says, with the size."""
    path = asked.path
    times = f"--from={asked.begin}", f"--to={asked.end}"
    try:
        _code, out, err = _said(("cut", *times, "--", asked.trace, path), cancelled)
        sentence = "   ".join([*out.splitlines(), *err.splitlines()])
        if sentence.startswith(head := f"{printable(path)}: "):
            sentence = (
                f"{head}{size(os.path.getsize(path))}, {sentence.removeprefix(head)}"
            )
    except OSError as error:
        sentence = f"{path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def reproduce(asked: Reproduce, post: Post, cancelled: Stop, *_: object) -> None:
    """Has `fusetui reproduce` run, and posts what that says."""
    words = f"--row={asked.row}", f"--out={asked.path}"
    try:
        _code, out, err = _said(("reproduce", *words, "--", asked.trace), cancelled)
        sentence = "   ".join([*out.splitlines(), *err.splitlines()])
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
        found = sorted(with_torch(), key=lambda one: (one.folder is None, one.pid))
        offers = (
            Offer(f"{one.program} {one.pid}", (), _about(one), pid=one.pid)
            for one in found
        )
        post(partial(_listed, offers=tuple(offers)))
        return

    def tell(line: str) -> None:
        if not cancelled():
            post(partial(told, sentence=printable(line)))

    words = "record", "--no-open", "--pid", str(asked.pid)
    code, out, last = _said(words, cancelled, tell)
    now = partial(reading.read, paths=(*asked.beside, out.strip()))
    if not cancelled():
        sentence = printable(last.strip().rpartition("\n")[2])
        post(partial(told, sentence=sentence) if code else now)


def _about(one: Process) -> str:
    door = (
        "closed: it was started without KINETO_USE_DAEMON=1"
        if one.folder is None
        else "open"
    )
    rank = f"rank {one.rank}   " if one.rank else ""
    return f"{rank}door {door}   {' '.join(one.command)}"


def _listed(state: State, offers: tuple[Offer, ...]) -> Outcome:
    if not offers:
        return told(state, NONE)
    before = None
    if isinstance(state.overlay, Chooser) and not state.is_open:
        before = state.overlay.before or state.overlay
    about = tuple(offer.about for offer in offers)
    listed = Chooser(summaries=about, programs=offers, before=before)
    return overlaid(replace(state, hint=""), listed)


def _said(
    words: Sequence[str], cancelled: Stop, tell: Callable[[str], object] | None = None
) -> tuple[int, str, str]:
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
                process.wait(OFTEN)
            if cancelled():
                process.terminate()
        listener.join()
        return process.returncode, process.stdout.read(), "".join(lines)


def _listen(
    stream: IO[str], lines: list[str], tell: Callable[[str], object] | None
) -> None:
    for line in stream:
        lines.append(line)
        if tell is not None:
            tell(line.strip())
