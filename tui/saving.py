"""What the app writes to files, beside the keys: tables, and parts of traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

from fusetui import Error
from fusetui.tables.files import save as write
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop
from fusetui.trace.read.source import reason
from fusetui.tui import registry
from fusetui.tui.loading import Post
from fusetui.tui.state.state import State, told

START = "import os; getattr(os, 'nice', int)(5); from fusetui.cli import script; script()"
"""The app comes first where there are few cores."""
OFTEN = 0.1  # seconds between two looks whether a part is still wanted


def save(state: State, path: str, post: Post) -> None:
    """Posts how many rows of the table of the page were written, or why none."""
    try:
        table = registry.page_of(state).table(state)
        if table is None:
            names = (page.title for page in registry.PAGES if page.is_table)
            raise Error(f"there is no table here: {', '.join(names)} have one")
        write(table, path)
        sentence = f"{path}: {plural(len(table), 'row')}, {size(os.path.getsize(path))}"
    except Error as error:
        sentence = str(error)
    post(partial(told, sentence=printable(sentence)))


def cut(trace: str, path: str, options: Sequence[str], post: Post, cancelled: Stop) -> None:
    """Has another process run `fusetui cut`, and posts what that says, with the size."""
    command = [sys.executable, "-P", "-c", START, "cut", *options, "--", trace, path]
    try:
        with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, errors="replace") as process:
            texts = said(process, cancelled)
        sentence = "   ".join(line for text in texts for line in text.splitlines())
        if sentence.startswith(head := f"{printable(path)}: "):
            sentence = f"{head}{size(os.path.getsize(path))}, {sentence.removeprefix(head)}"
    except OSError as error:
        sentence = f"{path} was not written: {reason(error)}."
    if not cancelled():
        post(partial(told, sentence=printable(sentence)))


def said(process: Popen[str], cancelled: Stop) -> tuple[str, str]:
    """What a process prints to its two streams; it is ended once nobody waits for it."""
    while True:
        with suppress(TimeoutExpired):
            return process.communicate(timeout=OFTEN)
        if cancelled():
            process.terminate()
