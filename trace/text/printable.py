"""Text from outside is data: what a terminal would obey or hide is written escaped."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks without a picture: Default_Ignorable_Code_Point (Unicode, section 5.21) as far
as `str.isprintable` lets them pass."""


def is_printable(text: str) -> bool:
    """Does a terminal show every character of the text, and obey none.

    `str.isprintable` is false for controls (C0, DEL, C1), lone surrogates, line separators, and
    the format characters that turn the direction of writing or have no width.
    """
    return text.isprintable() and (text.isascii() or HIDDEN.search(text) is None)


def printable(text: str) -> str:
    """Text from outside is data: what a terminal would obey or hide is shown escaped, `\\x1b`."""
    return text if is_printable(text) else "".join(map(_escaped, text))


def printable_lines(text: str) -> str:
    """Like `printable` for text of several lines, whose ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def json_lines(text: str) -> str:
    """A JSON document in which the same characters are escaped as JSON does: `\\u001b`.

    It decodes to the same document: outside of strings JSON has none of them but line ends. Those
    below 32 are escaped in any JSON.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(
        line if is_printable(line) else "".join(map(_json_escaped, line)) for line in lines
    )


def _escaped(char: str) -> str:
    return char if is_printable(char) else char.encode("unicode_escape").decode()


def _json_escaped(char: str) -> str:
    """JSON writes what is beyond 16 bits as a pair of surrogates."""
    if is_printable(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
