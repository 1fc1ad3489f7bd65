"""Breaks a text with keys between backticks into lines."""

from __future__ import annotations

from collections.abc import Iterator


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
