"""The hits of a search while it is typed: how many, and which names they have."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
from textual.strip import Strip

from fusetui.analysis.questions.query import FIELDS
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural, unit_of
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.rows import Styled
from fusetui.tui.drawing.segments import blank, line, segment
from fusetui.tui.layout.found import Found
from fusetui.tui.layout.kinds import kind_of, label_of, narrow

BAR = 10  # cells
IN_ARGS = "in args of "
BEFORE = 27 + BAR  # cells before a name
HELP = (
    "A word is looked for in names, families and what a kernel's name says, then in args.",
    'All of several must hold: gemm bf16 -splitK   "two words"   /regular.*expression/',
    "family:gemm dur>50us stream:7   step:2 kind:kernel   op:softmax   at>2ms",
    "shape:8192x768 and args:TEXT look into args alone, which are counted as they are read.",
    "Fields: " + " ".join(FIELDS),
)


class FoundPicture(msgspec.Struct, frozen=True, eq=False):
    """A rule with the count, then a row for each name; the language where nothing is typed."""

    found: Found | None
    glyphs: Glyphs

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self.found, y, width, height

    def line(self, y: int, width: int, height: int) -> Strip:
        parts = self._rule(width) if y == 0 else self._row(y - 1, width)
        return line([segment(*part) for part in parts], width) if parts else blank(width)

    def _rule(self, width: int) -> list[Styled]:
        rule = self.glyphs.rule
        text = f"{rule * 3} {said(self.found)} "
        return [(text.ljust(width, rule), palette.TITLE)]

    def _row(self, index: int, width: int) -> list[Styled]:
        found = self.found
        if found is None:
            return [(f" {HELP[index]}", palette.DIM)] if index < len(HELP) else []
        if not found.names or index > len(found.names):
            return []
        unit = unit_of(one.ns for one in found.names)
        if index == 0:
            return [(f"{unit.name:>9} {'share':>7} {'':{BAR}} {'count':>7} name", palette.TITLE)]
        one = found.names[index - 1]
        bar = share_bar(one.ns, found.ns, BAR, self.glyphs)
        where = IN_ARGS if one.in_args else ""
        left = width - BEFORE - len(where)
        name = clip(label_of(one.role, one.name), max(1, left), self.glyphs.ellipsis)
        return [
            (f"{unit.text(one.ns):>9} ", palette.PLAIN),
            (f"{'' if one.in_args else percent(one.ns, found.ns):>7} ", palette.DIM),
            (f"{'' if one.in_args else bar:{BAR}} ", palette.BUSY),
            (f"{count(one.count):>7} ", palette.PLAIN),
            (where, palette.DIM),
            (name, palette.swatch(kind_of(one.role, one.name))),
        ]


def nothing_found(found: Found) -> str:
    """One sentence about a search that finds nothing."""
    return f"nothing found{': ' * bool(found.missing)}{found.missing}"


def said(found: Found | None) -> str:
    """How many hits there are, in one line."""
    if found is None:
        return "search"
    if found.wrong:
        return narrow(found.wrong)
    hits = f"{plural(len(found.rows), 'slice')} of {plural(found.names_count, 'name')}"
    texts = [f"{hits}, {duration(found.ns)}"] if len(found.rows) else []
    if len(found.extra):
        by_args = count(len(found.extra)) + " more" if texts else plural(len(found.extra), "slice")
        texts.append(f"{by_args} by args")
    texts = texts or [narrow(nothing_found(found))]
    return "   ".join(texts if found.is_done else [*texts, f"args read: {percent(found.share, 1)}"])
