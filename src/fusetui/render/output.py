"""Standard output: data only, text or one JSON document."""

from __future__ import annotations

import os
import shutil
import sys

import orjson

from fusetui.commands.errors import PIPE_CLOSED

NARROWEST = 40
UNKNOWN_WIDTH = 100


def emit(text: str) -> None:
    """Write lines; ends quietly when nobody reads them any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _forget_stdout()
        raise SystemExit(PIPE_CLOSED) from None


def emit_json(document: object) -> None:
    """One JSON document, indented."""
    emit(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def width() -> int:
    """Columns of the terminal, or of COLUMNS; a fixed width when there is neither."""
    return max(NARROWEST, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def speaks_unicode() -> bool:
    """Can box-drawing characters be written to standard output."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def _forget_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
