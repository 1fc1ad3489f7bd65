"""What is below the lanes while nothing is selected: the answer, and its evidence."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import msgspec
from textual.strip import Strip

from fusetui.trace.insights.telling import account_parts, answer
from fusetui.trace.text.cutting import clip, joined
from fusetui.trace.text.figures import percent
from fusetui.trace.text.printable import printable
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.rows import Styled, scrolled
from fusetui.tui.drawing.segments import blank, line, segment
from fusetui.tui.layout.answer import (
    BETWEEN,
    AnswerAt,
    AnswerList,
    Entry,
    fitting,
    list_width,
)
from fusetui.tui.layout.idle import legend
from fusetui.tui.layout.insight import Answer
from fusetui.tui.layout.view import Side
from fusetui.tui.layout.wrapping import sentence_lines

ROOMY = 9  # lines; with fewer there is no account
FIGURE, SHARE, BAR = 8, 7, 6  # cells
WITH_BAR = 44  # cells of a list; a narrower one has no bars


class AnswerPicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A rule with a title, the verdict, the account, and lists side by side; `at` is where the
    cursor is."""

    side: Side
    found: Answer
    glyphs: Glyphs
    at: AnswerAt | None
    title: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self.side, self.found, self.at, self.title, y, width, height

    def line(self, y: int, width: int, height: int) -> Strip:
        found = self._parts(width, height)
        parts = found[y] if y < len(found) else ()
        return line([segment(*part) for part in parts], width) if parts else blank(width)

    def head(self, width: int, height: int) -> int:
        """How many lines stand above the rows of the lists, the rule included."""
        return 2 + len(self._said(width, height))

    def place(self, x: int, y: int, width: int, height: int) -> AnswerAt | None:
        """The row at a cell, None beside them."""
        row, shown = y - self.head(width, height), self._shown(width)
        if y == 0 or not shown:
            return None
        if row < 0:
            return AnswerAt()
        column = shown[min(x // (list_width(width, len(shown)) + BETWEEN), len(shown) - 1)]
        row += self._top(column, self._room(width, height))
        end = height - bool(self._legend(width, height))
        is_there = y < end and row < len(self.found.lists[column].entries)
        return AnswerAt(column, row) if is_there else None

    def _shown(self, width: int) -> Sequence[int]:
        return fitting(self.found.lists, width, self.at)

    def _room(self, width: int, height: int) -> int:
        below = bool(self._legend(width, height))
        return max(0, height - self.head(width, height) - below)

    def _top(self, column: int, room: int) -> int:
        """The first row of a list that is seen."""
        at = self.at
        return scrolled(at.row, 0, room) if at and at.column == column else 0

    @cached_property
    def _letters(self) -> Sequence[str]:
        """What the letters of the idle line mean: of the reasons that occur, the longest first."""
        sums: dict[str, int] = {}
        for one in self.side.insight.idle or ():
            for reason in one.reasons:
                sums[reason.name] = sums.get(reason.name, 0) + int(reason.before[-1])
        names = sorted(sums, key=lambda name: -sums[name])
        return legend(names)

    def _legend(self, width: int, height: int) -> Sequence[str]:
        """The letters, unless the verdict takes their line."""
        return self._letters if height > ROOMY or len(self._said(width, height)) == 1 else ()

    def _said(self, width: int, height: int) -> list[Styled]:
        """The verdict on at most two lines, and the account."""
        why, roomy = self.found.why, height > ROOMY
        first, *more = sentence_lines(printable(answer(why)), width - 2)
        whole = [first, clip(" ".join(more), width - 2)] if more else [first]
        look = palette.TITLE + palette.CURSOR if self.at and self.at.row < 0 else palette.TITLE
        lines: list[Styled] = [(f" {text}", look) for text in whole]
        account = joined(account_parts(why), width - 2)
        return [*lines, (f" {account}", palette.PLAIN)] if roomy and account else lines

    def _parts(self, width: int, height: int) -> list[Sequence[Styled]]:
        shown, room = self._shown(width), self._room(width, height)
        cells, rule = list_width(width, len(shown)), self.glyphs.rule
        title = clip(self.title, width - 5, self.glyphs.ellipsis)
        lines: list[Sequence[Styled]] = [[(f"{rule * 3} {title} ".ljust(width, rule), palette.DIM)]]
        lines += [[text] for text in self._said(width, height)]
        lines.append(self._titles(shown, cells))
        lines += [self._row(shown, row, cells, room) for row in range(room)]
        if letters := self._legend(width, height):
            text = joined(["idle because:", *letters], width - 1)
            lines.append([(f" {text}", palette.DIM)])
        return lines

    def _titles(self, shown: Sequence[int], cells: int) -> list[Styled]:
        """Those of the lists; the last one counts the lists that do not fit."""
        lists = self.found.lists
        hidden = len(lists) - len(shown)
        more = f" {self.glyphs.folded}{hidden}" if hidden else ""
        last = len(shown) - 1
        return [
            part
            for n, column in enumerate(shown)
            for part in _title(lists[column], cells, more if n == last else "")
        ]

    def _row(self, shown: Sequence[int], row: int, cells: int, room: int) -> list[Styled]:
        parts: list[Styled] = []
        for column in shown:
            one, index = self.found.lists[column], row + self._top(column, room)
            if index >= len(one.entries):
                parts.append((" " * (cells + BETWEEN), palette.PLAIN))
                continue
            here = self.at == AnswerAt(column, index)
            parts += _entry(one, one.entries[index], cells, self.glyphs, here)
        return parts


def _title(one: AnswerList, cells: int, more: str) -> list[Styled]:
    share = f"{'share':>{SHARE}} " if one.has_shares else ""
    text = f"{one.unit:>{FIGURE}} {share}{' ' * _bar(cells)}{one.title}"
    left = cells - len(more)
    return [
        (clip(text, left).ljust(left), palette.TITLE),
        (more.ljust(len(more) + BETWEEN), palette.DIM),
    ]


def _entry(one: AnswerList, entry: Entry, cells: int, glyphs: Glyphs, here: bool) -> list[Styled]:
    bar, name = _bar(cells), palette.swatch(entry.kind) if entry.kind else palette.PLAIN
    share = f"{percent(entry.ns, entry.whole_ns):>{SHARE}} " if one.has_shares else ""
    texts: list[Styled] = [
        (">" if here else " ", palette.BOLD),
        (f"{entry.figure:>{FIGURE - 1}} ", palette.PLAIN),
        (share, palette.DIM),
        (share_bar(entry.ns, entry.whole_ns, bar - 1, glyphs) + " " if bar else "", palette.BUSY),
    ]
    left = max(1, cells - FIGURE - 1 - len(share) - bar)
    texts.append((clip(entry.text, left, glyphs.ellipsis).ljust(left), name))
    shown = [(text, style + palette.CURSOR) for text, style in texts] if here else texts
    return [*shown, (" " * BETWEEN, palette.PLAIN)]


def _bar(cells: int) -> int:
    """The cells that a bar takes, the blank after it included."""
    return BAR + 1 if cells >= WITH_BAR else 0
