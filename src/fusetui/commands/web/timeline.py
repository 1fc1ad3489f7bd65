"""The timeline of a trace as an SVG, of which a script shows a part."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.idle_time import IdleTime, idle_times
from fusetui.analysis.why.model import IDLE
from fusetui.commands.web.html import text
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, tick
from fusetui.trace.cells.raster import Line, cells, edges
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.tui.drawing.schemes import DARK, LIGHT
from fusetui.tui.layout.kinds import KINDS, label_of
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place, Side, first_view, make_sides

LINE, BAR = 18, 16
NAMED, FEWEST = 0.3, 12
"""The longest slices, so many for each cell on all lines together, and of each line at least."""
MOST, LONGEST = 60, 80  # lines, characters of a name
LEVELS = 4  # heights of a bar
TICKS = 5
TOKENS = {
    **{kind.replace("-", "_"): kind.token for kind in KINDS},
    **{f"idle_{name}": f"idle.{name}" for name in IDLE},
}
"""By the class of a shape: the token of its color."""
BUTTONS = {
    **{"in": ("+", "Zoom in (w)"), "out": ("−", "Zoom out (s)"), "left": ("‹", "Back (a)")},
    **{"right": ("›", "Forward (d)"), "all": ("0", "All of the time (0)")},
}


def colors() -> str:
    """The style of what is drawn, on white and on black."""
    found = []
    for name, token in TOKENS.items():
        (block, on), (dark, on_dark) = LIGHT.colors[token], DARK.colors[token]
        both = f"light-dark({block},{dark})"
        found.append(f".{name}{{fill:{both};background:{both};color:light-dark({on},{on_dark})}}")
    return "".join(found)


def timeline(trace: Trace, width: int) -> str:
    """A figure of the first screen's lanes, so many cells wide, and what the script needs."""
    (side,) = make_sides([trace], [""])
    idle = {one.device: one for line in Accounts(trace).lines for one in idle_times(line)}
    shown = [place for place in places(side, first_view(side)) if _is_drawn(place, idle)][:MOST]
    lines = sum(place.line is not None for place in shown)
    named = max(FEWEST, int(NAMED * width) // max(1, lines))
    drawn: list[str] = []
    for y, place in enumerate(shown):
        if place.line is not None:
            drawn += _slices(side, place.line, y * LINE, named, width)
        elif place.idle_of is not None:
            drawn += _idle(side, idle[place.idle_of.key[1]], y * LINE, width)
    labels = ""
    for place in shown:
        more = f" (+{place.more})" if place.more else ""
        labels += f"<li>{text(clip(place.label.strip(), LONGEST) + more)}</li>"
    span = side.end - side.begin
    times = (span * n // (TICKS - 1) for n in range(TICKS))
    ruler = "".join(f"<span>{tick(ns, max(1, span // 100))}</span>" for ns in times)
    buttons = "".join(
        f'<button type="button" value="{name}" aria-label="{what}" title="{what}">{sign}</button> '
        for name, (sign, what) in BUTTONS.items()
    )
    high = LINE * len(shown)
    return (
        f'<figure data-ns="{span}"><figcaption>Of each line the {count(named)} longest slices as '
        f"they are, of the others what takes most of each of {count(width)} parts of the time. "
        "Lines that are left out are counted as in (+3). Drag over a part to zoom in, "
        "double-click for all of it.</figcaption>\n"
        f"<p hidden>{buttons}</p>{_legend(drawn)}\n"
        f'<div class="lanes"><ul>{labels}<li></li></ul><div class="view">'
        f'<svg role="img" aria-label="Timeline of {duration(span)}; the tables below have its '
        f'figures" viewBox="0 0 {width} {high}" height="{high}" preserveAspectRatio="none">\n'
        + "\n".join(drawn)
        + f'</svg>\n<div class="ruler">{ruler}</div></div></div>\n<output></output></figure>'
    )


def _is_drawn(place: Place, idle: dict[Id, IdleTime]) -> bool:
    """Not the counters, nor what is hidden; the names of groups stay."""
    if place.idle_of is not None:
        return place.idle_of.key[1] in idle
    return place.curve is None and not place.where and place.lane >= 0


def _slices(side: Side, line: Line, y: int, named: int, width: int) -> Iterator[str]:
    """What most cells show as one path for each kind, and the longest slices by themselves."""
    trace, scale = side.trace, width / max(1, side.end - side.begin)
    if len(line) > named:
        borders = edges(trace.begin_ns, trace.begin_ns + side.end - side.begin, width)
        found = cells(line, borders)
        share = -(-LEVELS * found.covered // np.maximum(np.diff(borders), 1))
        yield from _paths(found.kind, share, y, [kind.replace("-", "_") for kind in KINDS])
    for at in sorted(line.by_rank[-named:].tolist()):
        row, start, end = int(line.rows[at]), int(line.start[at]), int(line.end[at])
        name = text(clip(label_of(int(trace.role[row]), trace.name_of(row)), LONGEST))
        begin = start - trace.begin_ns
        told = f"{name}\n{duration(int(trace.dur[row]))} from {duration(begin)}"
        kind = KINDS[int(line.kind[at])].replace("-", "_")
        yield (
            f'<rect class="{kind}" x="{begin * scale:.7g}" y="{y}" '
            f'width="{(end - start) * scale:.6g}" height="{BAR}"><title>{told}</title></rect>'
        )


def _idle(side: Side, found: IdleTime, y: int, width: int) -> Iterator[str]:
    """The reason with the most time in each cell."""
    begin = side.trace.begin_ns
    borders = edges(begin, begin + side.end - side.begin, width)
    amounts = found.within(borders)
    if not len(amounts):
        return
    whole = amounts.sum(axis=0)
    reason = np.where(whole > 0, amounts.argmax(axis=0), -1)
    share = -(-LEVELS * whole // np.maximum(np.diff(borders), 1))
    yield from _paths(reason, share, y, [f"idle_{one.name}" for one in found.reasons])


def _paths(kinds: NDArray[np.integer], share: Int64s, y: int, names: list[str]) -> Iterator[str]:
    """A path for each kind: its runs of cells of one height, shape [cells]; below 0 is nothing."""
    high = np.clip(share, 1, LEVELS)
    changes = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(high) != 0)) + 1
    runs: dict[int, list[str]] = {}
    for begin, end in pairwise([0, *changes.tolist(), len(kinds)]):
        if (kind := int(kinds[begin])) >= 0:
            tall = BAR * int(high[begin]) // LEVELS
            path = f"M{begin} {y + BAR - tall}h{end - begin}v{tall}h{begin - end}z"
            runs.setdefault(kind, []).append(path)
    for kind, parts in runs.items():
        yield f'<path class="{names[kind]}" d="{"".join(parts)}"/>'


def _legend(drawn: list[str]) -> str:
    there = {shape.split('"', 2)[1] for shape in drawn}
    said = {name: name.removeprefix("gpu_") for name in TOKENS}
    said |= {f"idle_{name}": f"idle: {reason.short}" for name, reason in IDLE.items()}
    parts = (
        f'<span><span class="swatch {name}"></span>{text(said[name])}</span>'
        for name in TOKENS
        if name in there
    )
    return f'<p class="legend">{" ".join(parts)}</p>'
