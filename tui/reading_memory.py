"""Reads memory snapshots for the app: large ones, and those beside a trace, in another process, so
that no key waits for it."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fusetui.trace.model.errors import CannotRead, TraceError
from fusetui.trace.model.report import Stop
from fusetui.tui.helper_client import Beside, NotBeside, Start, beside, ship
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.layout.view import short_label
from fusetui.tui.state import memory
from fusetui.tui.state.state import ReadMemory

if TYPE_CHECKING:
    from fusetui.tui.loading import Post

LARGE = 8 << 20  # bytes of a file; a smaller one is read in a few tenths of a second
START = "import os; os.nice(5); from fusetui.tui.reading_memory import main; main()"


def read_memory(asked: ReadMemory, post: Post, cancelled: Stop, start: Start = None) -> None:
    """Posts the snapshots, or what the memory events of a trace tell, or why there are none."""
    if asked.trace is not None:
        (path,), trace = asked.paths, asked.trace
        with beside(start, trace) as helper:
            for found in helper.answers((path, trace), cancelled, replayed=MEMORY):
                if not cancelled():
                    post(partial(memory.of_trace, asked=asked, found=found))
        return
    alone = asked.alone or start is None  # no key waits, so in this process
    try:
        sides = [_read(path, cancelled, alone) for path in asked.paths]
    except TraceError as error:
        post(partial(memory.failed, sentence=str(error)))
        return
    known = tuple(side for side in sides if side is not None)
    if not cancelled() and len(known) == len(sides):
        post(partial(memory.arrived, sides=known))


def _read(path: str, cancelled: Stop, alone: bool) -> MemorySide | None:
    """None once nobody wants it. Raises TraceError."""
    if cancelled() or (alone and os.path.getsize(path) <= LARGE):
        return None if cancelled() else opened(path)
    try:
        with Beside(start=START) as helper:
            found: MemorySide | str | None = next(helper.records(path, cancelled), None)
    except NotBeside:
        return opened(path)
    if isinstance(found, str):
        raise CannotRead(found)
    return found


def opened(path: str) -> MemorySide:
    """Raises TraceError."""
    from fusetui.analysis.memory.answer import known
    from fusetui.analysis.memory.moments import moments
    from fusetui.trace.snapshot.reading import read_snapshot

    found = tuple(map(moments, known(read_snapshot(path))))
    if not found:
        raise CannotRead(f"{path} holds no memory of any device.")
    return MemorySide(path, short_label(path), found)


def main() -> None:
    """In the other process: reads the snapshot that standard input names, and writes it, or why it
    cannot be read."""
    path = msgspec.json.decode(sys.stdin.buffer.readline(), type=str)
    out = os.fdopen(os.dup(1), "wb")
    try:
        found: MemorySide | str = opened(path)
    except TraceError as error:
        found = str(error)
    ship(found, None, out)
