"""Internal errors: writes the traceback to a file that only the user can read. Never
raises."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from datetime import datetime
from pathlib import Path

from fusetui import __version__
from fusetui.text.cutting import clip
from fusetui.text.printable import printable_lines

MAX_ERROR_CELLS = 200
"""Of the text of the error that the message repeats."""


def describe_crash(error: BaseException) -> str:
    """Return the sentence that tells the user of an internal error: the error, and
    where its traceback is. Never raises."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of its own __str__
        lines = []
    error_text = type(error).__name__
    if lines:
        error_text = f"{error_text}: {lines[0].rstrip('.')}"
    error_text = clip(error_text, MAX_ERROR_CELLS)
    return f"fusetui failed with an internal error: {error_text}; {_locate_traceback(error)}."


def _locate_traceback(error: BaseException) -> str:
    """Write the traceback to a new file, and return a clause that names it. If it
    cannot be written, the clause names the innermost frame of the traceback instead."""
    try:
        versions = (
            f"fusetui {__version__}, Python {platform.python_version()}, {sys.platform}"
        )
        # without the values of variables
        trace = "".join(traceback.format_exception(error))
        path = written(f"{versions}\n{sys.argv}\n\n{trace}")
    except Exception:
        frames = traceback.extract_tb(error.__traceback__)
        innermost_place = "?"
        if frames:
            innermost = frames[-1]
            innermost_place = (
                f"{Path(innermost.filename).name}, line {innermost.lineno}"
            )
        return f"the traceback could not be written to a file; it ends at {innermost_place}"
    return f"the traceback is in {path}"


def written(text: str) -> str:
    """Write a text to a new file that only the user can read, and return its path. It
    lies among the user's logs, or else in the folder for temporary files. Raises
    OSError."""
    content = printable_lines(text).encode()
    try:
        from platformdirs import user_log_path

        folder = user_log_path("fusetui", appauthor=False)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = str(folder / f"crash-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return _fill_file(handle, name, content)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        handle, name = tempfile.mkstemp(".txt", "fusetui-crash-")
        return _fill_file(handle, name, content)


def _fill_file(handle: int, name: str, content: bytes) -> str:
    """Write `content` to an open file, close it, and return `name`, its path. Raises
    OSError, after the incomplete file is removed."""
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        os.unlink(name)
        raise
    return name
