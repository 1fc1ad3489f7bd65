"""Times, counts and names as text for people. Exact figures are in every --json."""

from __future__ import annotations

import re
from collections.abc import Sequence

UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks without a picture: Default_Ignorable_Code_Point (Unicode, section 5.21) as far
as `str.isprintable` lets them pass."""


def duration(ns: int) -> str:
    """Nanoseconds with four significant digits at most: `0 ns`, `512 ns`, `41.2 us`, `1.204 s`."""
    for size, unit in UNITS:
        if abs(ns) >= size:
            return f"{significant(ns / size)} {unit}" if size > 1 else f"{ns} ns"
    return "0 ns"


def significant(value: float) -> str:
    """Four significant digits, without a trailing zero of the fraction: 1.2, 41.25, 812.3, 1204."""
    whole = len(str(int(abs(value))))
    text = f"{value:.{max(0, 4 - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float, unit: str = "") -> str:
    """A finite value in decimal units, four significant digits: `12.5`, `1.204 M`, `934.2 MB`."""
    size = abs(value)
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if scale <= size < 1e15 and (unit or scale > 1e3):
            return f"{significant(value / scale)} {letter}{unit}"
    plain = f"{value:.3g}" if size >= 1e15 or 0 < size < 1e-2 else significant(value)
    return f"{plain} {unit}".rstrip()


def percent(part: int, whole: int) -> str:
    """A share as `71 %`, `0.4 %`, `<0.1 %`; blank when the whole is nothing."""
    if whole <= 0:
        return ""
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "<0.1 %"
    return f"{share:.1f} %" if share < 10 else f"{share:.0f} %"


def count(number: int) -> str:
    """1234567 -> `1,234,567`."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


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


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """At most `width` characters, the last one an ellipsis when something was cut."""
    if len(text) <= width:
        return text
    return text[: max(0, width - len(ellipsis))] + ellipsis[:width]


def joined(parts: Sequence[str], width: int, between: str = "   ") -> str:
    """As many of the parts as fit; the first one always."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if text and len(longer) > width:
            break
        text = longer
    return text
