"""The args of a slice as text, and the event as the file has it: of any depth and length, only as
far as a screen shows it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.picture import Said
from fusetui.tui.layout.kinds import narrow

DEEPEST = 16  # levels of nested lists and objects
LONGEST = 2000  # characters; no screen shows more
INDENT = "  "
MOST_LINES = 1000  # of args, and of slices around it, in the overlay


def value_text(value: object, ellipsis: str) -> str:
    """A string as it is, all else as JSON; an ellipsis for what is too deep or too long."""
    pieces = iter([value]) if isinstance(value, str) else _pieces(value, DEEPEST, ellipsis)
    return _bounded(pieces, ellipsis)


def json_text(value: object, ellipsis: str) -> str:
    """A value as JSON, a string too, as far as a screen can show it."""
    return _bounded(_pieces(value, DEEPEST, ellipsis), ellipsis)


def _bounded(pieces: Iterator[str], ellipsis: str) -> str:
    text = ""
    for piece in pieces:
        text += piece[: LONGEST + 1]
        if len(text) > LONGEST:
            break
    return clip(narrow(printable(text)), LONGEST, ellipsis)


def _pieces(value: object, deep: int, ellipsis: str) -> Iterator[str]:
    """The text of a value piece by piece, only as far as it is needed."""
    if isinstance(value, dict | list):
        if value and not deep:
            yield ellipsis
            return
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        yield opening
        yield from _inner(value, deep - 1, ellipsis)
        yield closing
    elif isinstance(value, str):
        yield json.dumps(value[: LONGEST + 1], ensure_ascii=False)
    else:
        yield json.dumps(value, default=str)


def _inner(value: dict[str, object] | list[object], deep: int, ellipsis: str) -> Iterator[str]:
    for number, item in enumerate(value):
        yield ", " if number else ""
        if isinstance(value, dict):
            yield f"{json.dumps(str(item)[: LONGEST + 1], ensure_ascii=False)}: "
            item = value[str(item)]
        yield from _pieces(item, deep, ellipsis)


def raw_lines(trace: Trace, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """The event as the file has it, as JSON, an arg on a line or more."""
    if missing := why_missing(trace):
        return [Said(missing)]
    event = trace.elements.element(int(trace.order[row]))
    lines = chain(["{"], _members(event, INDENT, width, glyphs.ellipsis), ["}"])
    return [Said(line) for line in islice(lines, MOST_LINES)]


def _members(event: dict[str, Any], indent: str, width: int, ellipsis: str) -> Iterator[str]:
    """Each on a line or more; the objects in an event on lines of their own."""
    last = len(event) - 1
    for number, (key, value) in enumerate(event.items()):
        comma, text = "," * (number < last), f"{indent}{json_text(key, ellipsis)}: "
        if isinstance(value, dict) and indent == INDENT:
            yield text + "{"
            yield from _members(value, indent + INDENT, width, ellipsis)
            yield f"{indent}}}{comma}"
            continue
        yield from textwrap.wrap(
            f"{text}{json_text(value, ellipsis)}{comma}",
            max(20, width),
            subsequent_indent=f"{indent}    ",
            replace_whitespace=False,
            drop_whitespace=False,
        )


def why_missing(trace: Trace) -> str:
    """Why no args can be shown now; "" if they can."""
    if problem := trace.elements.text.problem():
        return printable(f"no args are shown: {problem}")
    return "" if trace.elements.text.at_hand else "its args follow: the file is being unpacked"
