"""The rows of the diff page: a line of the diff in the width of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace
from rich.style import Style

from fusetui.analysis.diff.model import Kind
from fusetui.report.diff_lines import APART, REGION, Line, fitted
from fusetui.report.name_diff import differing
from fusetui.text.figures import microseconds
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.rows import Styled
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.columns import Column, fit, room
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.state.comparison import Found

STYLES: dict[str, Style] = {"+": palette.BAD, "-": palette.GOOD, "~": palette.PLAIN}
LEAST = 8  # cells of a column of numbers


@lru_cache(maxsize=4)
def columns_of(found: Found | None) -> tuple[Column, ...]:
    """As wide as the widest number: none is cut."""
    inner = [line for lines in found.inner.values() for line in lines] if found else []
    listed = (*found.lines, *inner, *found.pinned, *found.closing) if found else ()
    texts = [_texts(line) for line in listed]
    widths = [max([LEAST, *(len(text[n]) for text in texts)]) for n in (1, 2, 3)]
    kinds = max([len("step"), *(len(line.kind) for line in listed)])
    numbers = zip(("change us", "A us", "B us"), widths, strict=True)
    return (
        Column("", 1),
        *(Column(title, max(len(title), width)) for title, width in numbers),
        Column("what", kinds, left=True),
        Column("of", 0, left=True),
    )


def _texts(line: Line) -> tuple[str, ...]:
    change = microseconds(line.change_ns, signed=True)
    return (
        line.mark,
        change if line.counts else f"({change})",
        microseconds(line.a_ns) if line.a_ns is not None else "",
        microseconds(line.b_ns) if line.b_ns is not None else "",
        line.kind,
        "",
    )


def fitting(columns: Sequence[Column], line: Line, width: int) -> list[str]:
    """The texts of a line, in the width of their columns."""
    *texts, _ = _texts(line)
    return fit(columns, [*texts, fitted(narrowed(line), room(columns, width)).text], width)


def beside(line: Line, columns: Sequence[Column], width: int) -> str:
    """What the row of a line has no room for; all of it where it has."""
    return APART.join(fitted(line, room(columns, width)).left_out) or line.what


def narrowed(line: Line) -> Line:
    """All that it is about in characters of one cell."""
    return replace(line, what=narrow(line.what), parts=tuple(map(narrow, line.parts)))


def formatted(
    columns: Sequence[Column], lines: Sequence[Line], index: int, width: int
) -> list[Styled]:
    """A line of the list."""
    style = STYLES.get(lines[index].mark, palette.DIM)
    return [(text, style) for text in fitting(columns, lines[index], width)]


def both_names(line: Line) -> list[Said]:
    """The kernels of a line whose kernel was replaced, with the differences marked below."""
    first = line.rows[0] if line.rows else None
    pair = first is not None and first.a and first.b and line.kind != REGION
    if first is None or not pair or first.kind is not Kind.REPLACED:
        return []
    a, b = narrow(first.a[0]), narrow(first.b[0])
    marks_a, marks_b = differing(a, b)
    return [
        Said(f"A {a}", "name"),
        Said(f"  {marks_a}", "marks"),
        Said(f"B {b}", "name"),
        Said(f"  {marks_b}", "marks"),
    ]
