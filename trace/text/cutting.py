"""The width of text in a terminal, in cells; cutting and padding text to a width.

The text is printable: see `printable`.
"""

from __future__ import annotations

from collections.abc import Sequence

ELLIPSIS = "…"
FIRST_ODD = "\u0300"
"""Every printable character below this takes one cell."""


def width(text: str) -> int:
    """The number of terminal cells that the text takes.

    >>> width("abc"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `most` cells; if it was cut, it ends in an ellipsis.

    >>> clip("日本語の", 7, "...")
    '日本...'
    """
    if len(_beginning(text, most)) == len(text):
        return text
    return _beginning(text, most - width(ellipsis)) + ellipsis[: max(0, most)]


def middle_clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `most` cells; if it was cut, without its middle, as names often differ
    only at their ends. Text that is not of one cell per character is cut at its end.

    >>> middle_clip("Qwen2DecoderLayer_3", 9, "~")
    'Qwen~er_3'
    """
    room = most - width(ellipsis)
    if room < 2 or len(text) != width(text) or len(text) <= most:
        return clip(text, most, ellipsis)
    return text[: room - room // 2] + ellipsis + text[len(text) - room // 2 :]


def pad(text: str, cells: int, left: bool = True) -> str:
    """The text padded to this many cells, aligned left or right; a wider text is kept as it is."""
    blanks = " " * (cells - width(text))
    return text + blanks if left else blanks + text


def joined(parts: Sequence[str], most: int, between: str = "   ") -> str:
    """As many of the parts as fit into this many cells, but always the first."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if text and width(longer) > most:
            break
        text = longer
    return text


def warm() -> None:
    """Loads the tables of widths, which takes longer than drawing a frame."""
    _cells(FIRST_ODD)


def _beginning(text: str, cells: int) -> str:
    """As much of a text as fits, including combining marks on the last character."""
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
    from wcwidth import wcwidth  # its tables take longer to load than most commands take to run

    return max(0, wcwidth(char))
