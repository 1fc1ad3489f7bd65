"""The value of an arg on one line. The work is bounded, whatever a file contains."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.tui.layout.kinds import narrow

DEEPEST = 16  # levels of nested lists and objects
LONGEST = 2000  # characters; no screen shows more


def value_text(value: object, ellipsis: str) -> str:
    """A string as it is, everything else as JSON; an ellipsis stands for what is too deep or too
    long."""
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
