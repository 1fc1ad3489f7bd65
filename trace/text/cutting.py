"""Text by its width in a terminal, in cells: how wide it is, cut to a width, padded to one.

The text is printable: see `printable`.
"""

from __future__ import annotations

from collections.abc import Sequence

ELLIPSIS = "…"
FIRST_ODD = "\u0300"
"""Every printable character before it takes one cell."""


def width(text: str) -> int:
    """Cells of a terminal that the text takes.

    >>> width("abc"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """At most so many cells, the last ones an ellipsis when something was cut.

    >>> clip("日本語の", 7, "...")
    '日本...'
    """
    if len(text) <= most and (text.isascii() or width(text) <= most):
        return text
    return _beginning(text, most - width(ellipsis)) + ellipsis[: max(0, most)]


def pad(text: str, cells: int, left: bool = True) -> str:
    """The text at the left or the right of so many cells; one that is wider stays as it is."""
    blanks = " " * (cells - width(text))
    return text + blanks if left else blanks + text


def joined(parts: Sequence[str], most: int, between: str = "   ") -> str:
    """As many of the parts as fit into so many cells; the first one always."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if text and width(longer) > most:
            break
        text = longer
    return text


def _beginning(text: str, cells: int) -> str:
    """What of a text fits, with the marks on its last character."""
    if text.isascii():
        return text[: max(0, cells)]
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > cells:
            return text[:at]
    return text


def _cells(char: str) -> int:
    if char < FIRST_ODD or char == ELLIPSIS:
        return 1
    from wcwidth import wcwidth  # its tables take longer to load than most commands run

    return max(0, wcwidth(char))
