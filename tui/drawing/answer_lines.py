"""What is below the lanes while nothing is selected: the answer, and its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from fusetui.trace.insights.model import Gap
from fusetui.trace.insights.telling import answer, covered_by
from fusetui.trace.text.cutting import clip, joined
from fusetui.trace.text.figures import duration, percent
from fusetui.trace.text.printable import printable
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.idle import legend
from fusetui.tui.layout.insight import Answer
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.view import Side

Column = tuple[str, Sequence[str]]
"""A title and rows."""
HEAD = 2  # lines above the rows
LEAST = 36  # cells of a column
BETWEEN = 2


def answer_lines(side: Side, found: Answer, width: int, height: int, glyphs: Glyphs) -> list[Said]:
    """At most `height` lines: the verdict, three lists side by side if there is room, and what the
    letters of the idle line mean."""
    letters = _letters(side, width)
    room = max(0, height - HEAD - len(letters))
    lists = columns(side, found, width)
    cells = column_width(width, len(lists))
    rows = [
        (" " * BETWEEN).join(clip(text, cells, glyphs.ellipsis).ljust(cells) for text in row)
        for row in zip_longest(*(texts[:room] for _, texts in lists), fillvalue="")
    ]
    titles = (" " * BETWEEN).join(clip(title, cells).ljust(cells) for title, _ in lists)
    verdict = clip(printable(answer(found.why)), width, glyphs.ellipsis)
    blank = [Said("")] * (room - len(rows))
    lines = [Said(verdict, "title"), Said(titles), *(Said(row, "name") for row in rows), *blank]
    return [*lines, *letters][:height]


def column_width(width: int, count: int) -> int:
    return max(1, (width - BETWEEN * (count - 1)) // max(1, count))


def columns(side: Side, found: Answer, width: int) -> list[Column]:
    """What took the time of the GPU, and why it was idle; as many lists as fit."""
    lists: list[Column] = [
        ("GPU time by module (6)", _modules(found)),
        ("by kernel (3)", _kernels(found)),
        ("longest gaps (e)", [_gap(gap, found.why.base_ns) for gap in found.why.gaps]),
    ]
    kept = [one for one in lists if one[1]]
    fitting = max(1, (width + BETWEEN) // (LEAST + BETWEEN))
    return kept if len(kept) <= fitting else [*kept[: fitting - 1], kept[-1]]


def _letters(side: Side, width: int) -> list[Said]:
    """The reasons that occur, the longest first."""
    sums: dict[str, int] = {}
    for one in side.insight.idle or ():
        for reason in one.reasons:
            sums[reason.name] = sums.get(reason.name, 0) + int(reason.before[-1])
    names = sorted(sums, key=lambda name: -sums[name])
    return [Said(joined(["idle because:", *legend(names)], width))] if names else []


def _modules(found: Answer) -> list[str]:
    return [
        f"{duration(ns):>9} {percent(ns, found.modules.gpu_ns):>7} {narrow(name)}"
        for name, ns in found.self_times
    ]


def _kernels(found: Answer) -> list[str]:
    return [
        f"{duration(ns):>9} {percent(ns, found.modules.gpu_ns):>7} {label}"
        for label, ns in found.kernels
    ]


def _gap(gap: Gap, base_ns: int) -> str:
    start = duration(gap.start_ns - base_ns)
    return narrow(f"{duration(gap.dur_ns):>9} at {start} {covered_by(gap)}")
