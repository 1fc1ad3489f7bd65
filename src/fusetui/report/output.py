"""Standard output: results only, text or one JSON document, escaped for terminals."""

from __future__ import annotations

import json
import shutil
import sys

import msgspec
import orjson

from fusetui.report.streams import write
from fusetui.text.printable import json_lines, printable_lines
from fusetui.text.tables import Unseen

NARROWEST, WIDEST = 40, 10_000
UNKNOWN_WIDTH = 100


def emit(text: str) -> None:
    """Writes lines, each made printable. Raises as `streams.write` does."""
    write(f"{printable_lines(text)}\n")


def emit_json(document: object) -> None:
    """Writes one indented JSON document of dicts, lists and records. Raises as `emit` does."""
    write(f"{json_lines(_json(document))}\n")


def width() -> int:
    """The width of the terminal, or of COLUMNS within reason; a fixed width if there is neither,
    for which no name is cut."""
    known = shutil.get_terminal_size((0, 24)).columns
    return min(WIDEST, max(NARROWEST, known)) if known else Unseen(UNKNOWN_WIDTH)


def speaks_unicode() -> bool:
    """Whether standard output can represent box-drawing characters."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def _json(document: object) -> str:
    try:
        return orjson.dumps(document, msgspec.to_builtins, orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, from a file name that is not UTF-8
        return json.dumps(document, indent=2, ensure_ascii=False, default=msgspec.to_builtins)
