"""Plain tables: aligned columns that fit the width, without borders."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fusetui.render.text import cells, fit

GAP = "  "
LEAST = 34  # columns that the last column gets at least, before others give way


class Column(msgspec.Struct, frozen=True):
    """`spare`: shown only where there is room; the highest number goes first."""

    title: str
    left: bool = False
    spare: int = 0


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, least: int = LEAST
) -> str:
    """Lines of at most `width` columns: the last column shown is cut, the others never are.

    Spare columns are left out where the last one would get fewer than `least`.
    """
    lines = [[column.title for column in columns], *rows]
    natural = [max(cells(line[n]) for line in lines) for n in range(len(columns))]
    shown = _shown(columns, natural, width, least)
    rest = width - sum(natural[n] + len(GAP) for n in shown[:-1])
    natural[shown[-1]] = max(1, min(natural[shown[-1]], rest))
    return "\n".join(_line(columns, line, shown, natural) for line in lines)


def _shown(columns: Sequence[Column], natural: Sequence[int], width: int, least: int) -> list[int]:
    shown = list(range(len(columns)))
    for number in sorted(shown, key=lambda n: -columns[n].spare):
        if not columns[number].spare or _needed(shown, natural, least) <= width:
            break
        shown.remove(number)
    return shown


def _needed(shown: Sequence[int], natural: Sequence[int], least: int) -> int:
    fixed = sum(natural[n] + len(GAP) for n in shown[:-1])
    return fixed + min(natural[shown[-1]], least)


def _line(
    columns: Sequence[Column], line: Sequence[str], shown: Sequence[int], widths: Sequence[int]
) -> str:
    padded = [_cell(line[n], widths[n], columns[n].left) for n in shown]
    return GAP.join(padded).rstrip()


def _cell(text: str, width: int, left: bool) -> str:
    text = fit(text, width)
    blanks = " " * (width - cells(text))
    return text + blanks if left else blanks + text
