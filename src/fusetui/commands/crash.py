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


def crash_sentence(error: BaseException) -> str:
    """What the user is told: the error, and where the traceback is."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of its own __str__
        lines = []
    what = type(error).__name__
    if lines:
        what = f"{what}: {lines[0].rstrip('.')}"
    what = clip(what, MAX_ERROR_CELLS)
    return f"fusetui failed with an internal error: {what}; {_where(error)}."


def _where(error: BaseException) -> str:
    """A clause about the file with the traceback; where none can be written, about the
    innermost frame."""
    try:
        versions = (
            f"fusetui {__version__}, Python {platform.python_version()}, {sys.platform}"
        )
        # without the values of variables
        trace = "".join(traceback.format_exception(error))
        path = written(f"{versions}\n{sys.argv}\n\n{trace}")
    except Exception:
        frames = traceback.extract_tb(error.__traceback__)
        place = "?"
        if frames:
            innermost = frames[-1]
            place = f"{Path(innermost.filename).name}, line {innermost.lineno}"
        return f"the traceback could not be written to a file; it ends at {place}"
    return f"the traceback is in {path}"


def written(text: str) -> str:
    """The path of a new file with it, among the user's logs or a temporary one. Raises
    OSError."""
    content = printable_lines(text).encode()
    try:
        from platformdirs import user_log_path

        folder = user_log_path("fusetui", appauthor=False)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = str(folder / f"crash-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.txt")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return _filled(handle, name, content)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        handle, name = tempfile.mkstemp(".txt", "fusetui-crash-")
        return _filled(handle, name, content)


def _filled(handle: int, name: str, content: bytes) -> str:
    """Writes the whole content to an open file, or removes the file; returns its path.
    Raises OSError."""
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        os.unlink(name)
        raise
    return name
