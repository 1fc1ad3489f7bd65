"""What the app writes to files, beside the keys: tables, and parts of traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

from fusetui import Error
from fusetui.tables.files import save as write
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop
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
        said = f"{path}: {plural(len(table), 'row')}, {size(os.path.getsize(path))}"
    except Error as error:
        said = str(error)
    post(partial(told, sentence=printable(said)))


def cut(arguments: Sequence[str], post: Post, cancelled: Stop) -> None:
    """Has another process run `fusetui cut`, and posts what that says."""
    command = [sys.executable, "-P", "-c", START, "cut", *arguments]
    process = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, text=True, errors="replace")
    said: tuple[str, str] | None = None
    while said is None:
        try:
            said = process.communicate(timeout=OFTEN)
        except TimeoutExpired:
            if cancelled():
                process.terminate()
    lines = [line for text in said for line in text.splitlines()]
    if not cancelled():
        sentence = "   ".join(lines) or f"cut ended with {process.returncode}"
        post(partial(told, sentence=printable(sentence)))
