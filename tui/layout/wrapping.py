"""Breaks texts into lines: a text with keys between backticks, and sentences with figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap

FIGURE = re.compile(r"(?<=\d) (?=(?:%|ns|us|ms|s|B|kB|MB|GB|TB)(?!\w))")
KEPT = "\u00a0"  # a blank at which wrap breaks no line


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, not counting backticks; words of ASCII are not broken."""
    return list(_lines(text, width))


def _lines(text: str, width: int) -> Iterator[str]:
    current = ""
    for word in text.split():
        longer = f"{current} {word}" if current else word
        if current and len(longer.replace("`", "")) > width:
            yield current
            current = word
        else:
            current = longer
    yield current


def sentence_lines(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a figure and its unit stay together."""
    return [line.replace(KEPT, " ") for line in wrap(FIGURE.sub(KEPT, text), max(1, width))]
