"""The list of hits: a row for each, and how long they took from step to step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

import msgspec

from fusetui.analysis.questions.query import FIELDS
from fusetui.text.cutting import clip, joined
from fusetui.text.figures import Unit, count, duration, percent, plural, unit_of
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Int64s
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for, share_bar
from fusetui.tui.drawing.picture import Rows, row_parts
from fusetui.tui.drawing.schemes import TEXT, Styled
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.search_hits import SearchHits, trend
from fusetui.tui.layout.text_layout import ListColumn, shown, start_unit, titles
from fusetui.tui.state.state import HitList

IN_ARGS = "in args of "
BAR = 10  # cells
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

    found: SearchHits | None
    glyphs: Glyphs

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self.found, y, width, height

    def line(self, y: int, width: int, height: int) -> list[Styled]:
        found, rule, index = self.found, self.glyphs.rule, y - 1
        if y == 0:
            return [(f"{rule * 3} {said(found)} ".ljust(width, rule), "title")]
        if found is None:
            return [(f" {HELP[index]}", "faint")] if index < len(HELP) else []
        if not found.names or index > len(found.names):
            return []
        unit = unit_of(one.ns for one in found.names)
        if index == 0:
            return [(f"{unit.name:>9} {'share':>7} {'':{BAR}} {'count':>7} name", "title")]
        one = found.names[index - 1]
        bar = share_bar(one.ns, found.ns, BAR, self.glyphs)
        where = IN_ARGS if one.in_args else ""
        left = width - BEFORE - len(where)
        name = clip(label_of(one.role, one.name), max(1, left), self.glyphs.ellipsis)
        return [
            (f"{unit.text(one.ns):>9} ", "plain"),
            (f"{'' if one.in_args else percent(one.ns, found.ns):>7} ", "faint"),
            (f"{'' if one.in_args else bar:{BAR}} ", "busy"),
            (f"{count(one.count):>7} ", "plain"),
            (where, "faint"),
            (name, kind_of(one.role, one.name).token + TEXT),
        ]


def said(found: SearchHits | None) -> str:
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
    texts = texts or [narrow(f"nothing found{': ' * bool(found.missing)}{found.missing}")]
    return "   ".join(texts if found.is_done else [*texts, f"args read: {percent(found.share, 1)}"])


NOTICED = 50
"""Durations that differ by less than 1 / NOTICED are drawn alike."""
MOST_CELLS = 60  # of the durations from step to step
HIT_COLUMNS = (
    ListColumn("at", 12),
    ListColumn("duration", 10),
    ListColumn("", BAR, left=True, from_width=70),
    ListColumn("where", 18, left=True, from_width=60),
    ListColumn("hit", 0, left=True),
)


def hit_rows(overlay: HitList, ascii_only: bool, keys: Sequence[str]) -> Rows:
    """The hits in order of time."""
    side, rows, trace = overlay.side, overlay.hits.rows, overlay.side.trace
    start, unit = start_unit(trace), Unit(1000, "us", 1)
    begins, dur = _times(overlay)
    longest, glyphs = int(dur.max(initial=0)), glyphs_for(ascii_only)

    def row(index: int, width: int) -> list[Styled]:
        at = int(rows[index])
        where = IN_ARGS if overlay.hits.is_by_args(at) else ""
        name = label_of(int(trace.role[at]), trace.name_of(at))
        name = narrow(overlay.steps.names[index]) if overlay.steps else where + name
        texts = (
            start.text(int(begins[index]) - side.origin),
            unit.text(int(dur[index])),
            share_bar(int(dur[index]), longest, BAR, glyphs),
            narrow(trace.track_of(at).label),
            name,
        )
        kind = kind_of(int(trace.role[at]), trace.name_of(at))
        return row_parts(HIT_COLUMNS, texts, width, last=kind.token + TEXT)

    columns = [ListColumn(f"at {start.name}", 12), ListColumn(unit.name, 10), *HIT_COLUMNS[2:-1]]

    def heading(width: int) -> str:
        left = width - 1 - sum(columns[n].width + 1 for n in shown(columns, width - 1))
        last = ListColumn(joined(["hit", *keys], left), 0, left=True)
        return titles([*columns, last], width)

    return Rows(overlay, len(rows), heading, row)


@lru_cache(maxsize=1)
def durations(overlay: HitList, width: int, ascii_only: bool) -> str:
    """`120 of gemm ...   median 24.1 us, 24.0 us to 39.2 us   over 5 steps ▂▂▃▂█`; made again only
    when an argument changes."""
    side, rows = overlay.side, overlay.hits.rows
    cells, (_, dur) = min(MOST_CELLS, width // 3), _times(overlay)
    found = trend(side.trace, rows, dur, steps_of(side.trace), cells)
    if found is None:
        return f" {plural(len(rows), 'hit')}"
    bars = spark(found.medians, glyphs_for(ascii_only).levels)
    span = f"over {plural(found.steps, 'step')}" if found.steps else "in order of time"
    extent = f"{duration(found.least_ns)} to {duration(found.most_ns)}"
    figures = f"median {duration(found.median_ns)}, {extent}"
    return f" {count(len(rows))} hits   {figures}   {span} {bars}"


def _times(overlay: HitList) -> tuple[Int64s, Int64s]:
    """Starts and durations (ns); of steps theirs, which their annotations may only end."""
    if overlay.steps is not None:
        return overlay.steps.start, overlay.steps.dur
    trace, rows = overlay.side.trace, overlay.hits.rows
    return trace.start[rows], trace.dur[rows]


def spark(values: Sequence[int], levels: str) -> str:
    """A level for each value, from the least to the most of them; in the middle where they hardly
    differ, a blank where there is none (-1)."""
    known = [value for value in values if value >= 0]
    least, most = min(known), max(known)
    top = len(levels) - 1
    alike = (most - least) * NOTICED <= most

    def level(value: int) -> int:
        return top // 2 if alike else 1 + (value - least) * (top - 1) // (most - least)

    return "".join(levels[level(value) if value >= 0 else 0] for value in values)
