"""Times, counts and names as text for people. Exact figures are in every --json."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


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


def several(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"


def printable(text: str) -> str:
    """Names are data: everything that a terminal would obey is shown escaped instead."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
