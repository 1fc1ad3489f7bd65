"""Standard output: data only, text or one JSON document. Nothing in it is obeyed by a terminal."""

from __future__ import annotations

import json
import shutil
import sys

import msgspec
import orjson

from fusetui.commands.streams import write
from fusetui.trace.text.printable import json_lines, printable_lines

NARROWEST = 40
UNKNOWN_WIDTH = 100


def emit(text: str) -> None:
    """Write lines, each made printable. Raises as `streams.write` does."""
    write(f"{printable_lines(text)}\n")


def emit_json(document: object) -> None:
    """One JSON document of dicts, lists and records, indented; raises as `emit` does."""
    write(f"{json_lines(_json(document))}\n")


def width() -> int:
    """Columns of the terminal, or of COLUMNS; a fixed width when there is neither."""
    return max(NARROWEST, shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns)


def speaks_unicode() -> bool:
    """Can box-drawing characters be written to standard output."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def _json(document: object) -> str:
    try:
        return orjson.dumps(document, msgspec.to_builtins, orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, from a file name that is no UTF-8
        return json.dumps(document, indent=2, ensure_ascii=False, default=msgspec.to_builtins)
