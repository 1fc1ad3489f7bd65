"""The list of hits: a row for each, and how long they took from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fusetui.text.cutting import joined
from fusetui.text.figures import count, duration, plural
from fusetui.text.units import Unit
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.columns import Trace
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.found_lines import IN_ARGS
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.layout.columns import Column, fit, shown, start_unit, titles
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.trend import trend
from fusetui.tui.state.overlays import HitList

Times = NDArray[np.int64]
BAR = 10  # cells
NOTICED = 50
"""Durations that differ by less than 1 / NOTICED are drawn alike."""
MOST_CELLS = 60  # of the durations from step to step
HIT_COLUMNS = (
    Column("at", 12),
    Column("duration", 10),
    Column("", BAR, left=True, from_width=70),
    Column("where", 18, left=True, from_width=60),
    Column("hit", 0, left=True),
)


def hit_rows(overlay: HitList, ascii_only: bool, keys: Sequence[str]) -> Rows:
    """The hits in order of time."""
    side, rows, trace = overlay.side, overlay.hits.rows, overlay.side.trace
    start, unit = side.once(_units)
    begins, dur = _times(overlay)
    longest, glyphs = int(dur.max(initial=0)), glyphs_for(ascii_only)

    def row(index: int, width: int) -> list[Styled]:
        at = int(rows[index])
        where = IN_ARGS if overlay.hits.is_by_args(at) else ""
        name = overlay.steps.names[index] if overlay.steps else trace.name_of(at)
        name = where + label_of(int(trace.role[at]), name)
        texts = (
            start.text(int(begins[index]) - side.origin),
            unit.text(int(dur[index])),
            share_bar(int(dur[index]), longest, BAR, glyphs),
            narrow(trace.track_of(at).label),
            name,
        )
        kind = kind_of(int(trace.role[at]), trace.name_of(at))
        *others, last = fit(HIT_COLUMNS, texts, width)
        styled = [
            (text, palette.PLAIN if HIT_COLUMNS[n].title else palette.BUSY)
            for n, text in zip(shown(HIT_COLUMNS, width), others, strict=False)
        ]
        return [*styled, (last, palette.swatch(kind))]

    columns = [Column(f"at {start.name}", 12), Column(unit.name, 10), *HIT_COLUMNS[2:-1]]

    def heading(width: int) -> str:
        left = width - 1 - sum(columns[n].width + 1 for n in shown(columns, width - 1))
        last = Column(joined(["hit", *keys], left), 0, left=True)
        return titles([*columns, last], width)

    return Rows(overlay, len(rows), heading, row)


@lru_cache(maxsize=1)
def durations(overlay: HitList, width: int, ascii_only: bool) -> str:
    """`120 of gemm ...   median 24.1 us, 24.0 us to 39.2 us   over 5 steps ▂▂▃▂█`; made again only
    when an argument changes."""
    side, rows = overlay.side, overlay.hits.rows
    found = trend(
        side.trace, rows, _times(overlay)[1], steps_of(side.trace), min(MOST_CELLS, width // 3)
    )
    if found is None:
        return f" {plural(len(rows), 'hit')}"
    bars = spark(found.medians, glyphs_for(ascii_only).levels)
    span = f"over {plural(found.steps, 'step')}" if found.steps else "in order of time"
    extent = f"{duration(found.least_ns)} to {duration(found.most_ns)}"
    figures = f"median {duration(found.median_ns)}, {extent}"
    return f" {count(len(rows))} hits   {figures}   {span} {bars}"


def _times(overlay: HitList) -> tuple[Times, Times]:
    """The starts and durations (ns) of the hits: of steps theirs, which their annotations may only
    end."""
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
    if (most - least) * NOTICED <= most:
        return "".join(levels[top // 2] if value >= 0 else levels[0] for value in values)
    return "".join(
        levels[1 + (value - least) * (top - 1) // (most - least)] if value >= 0 else levels[0]
        for value in values
    )


def _units(trace: Trace) -> tuple[Unit, Unit]:
    """Of starts and of durations."""
    return start_unit(trace), Unit(1000, "us", 1)
