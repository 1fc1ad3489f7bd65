"""A kernel name with its parts underlined and numbered, as if annotated by hand."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, digits

import msgspec

from fusetui.text.printable import printable

Ends = tuple[str, str, str, str]
UNDERLINE: Ends = ("└", "─", "┘", "╵")
SIGNS = digits[1:] + ascii_lowercase  # one character each, so that the shortest part can be marked


class Annotated(msgspec.Struct, frozen=True):
    """Lines of the name, at least one, each with the line of marks below it, and the legend."""

    lines: tuple[tuple[str, str], ...]
    legend: tuple[str, ...]


def annotate(
    name: str, parts: Sequence[tuple[int, int, str]], width: int, ends: Ends = UNDERLINE
) -> Annotated:
    """Wraps a name at `width` and underlines its parts, given as (start, end, meaning)."""
    marks = [" "] * len(name)
    signs = SIGNS if len(parts) <= len(SIGNS) else [str(n + 1) for n in range(len(parts))]
    for sign, (start, end, _) in zip(signs, parts, strict=False):
        marks[start:end] = _mark(sign, end - start, ends)
    text, under = _escaped(name, marks)
    starts = range(0, max(1, len(text)), width)  # a name may be empty
    lines = [(text[at : at + width], under[at : at + width]) for at in starts]
    legend = [f"{sign} {text}" for sign, (_, _, text) in zip(signs, parts, strict=False)]
    return Annotated(tuple((a, b.rstrip()) for a, b in lines), tuple(legend))


def _mark(sign: str, width: int, ends: Ends) -> list[str]:
    """`└─3─┘`, or as much of it as fits; the sign has priority."""
    left, middle, right, _ = ends
    if width <= len(sign) + 1:
        return list(sign[:width].ljust(width, middle))
    return list(left + sign.center(width - 2, middle) + right)


def _escaped(name: str, marks: Sequence[str]) -> tuple[str, str]:
    """The printable name, and its marks at the same positions."""
    if name.isprintable():
        return name, "".join(marks)
    shown = [printable(character) for character in name]
    under = [mark.ljust(len(text), mark) for text, mark in zip(shown, marks, strict=True)]
    return "".join(shown), "".join(under)
