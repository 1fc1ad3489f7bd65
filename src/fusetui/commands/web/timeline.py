"""The timeline of a trace as an SVG, with a script that shows a part of it.

A line of the SVG is a line of the app's first screen. Its x axis counts `width` parts
of equal length, called cells as on a screen; y counts pixels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.idle_time import IdleTime, prepare_idle_times
from fusetui.analysis.why.model import IDLE
from fusetui.commands.web.html import scrolling
from fusetui.report.html_document import text
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, tick
from fusetui.timeline.cells import DepthRow, cells, edges
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.tui.drawing.schemes import DARK, LIGHT
from fusetui.tui.layout.kinds import KINDS, label_of
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place, make_first_view, make_sides

LINE_HEIGHT = 18
BAR_HEIGHT = 16
"""In pixels, as LINE_HEIGHT."""

BAR_LEVELS = 4
"""A bar is this high in steps: one that fills its cell has them all."""

SLICES_PER_CELL = 0.3
"""So many of the longest slices are drawn by themselves for each cell, on all lines
together."""

MIN_SLICES_OF_A_LINE = 12
MAX_LINES = 60
MAX_NAME_CELLS = 80
TICKS = 5
"""Times below the timeline."""

TOKENS = {
    **{kind.replace("-", "_"): kind.token for kind in KINDS},
    **{f"idle_{name}": f"idle.{name}" for name in IDLE},
}
"""By the class of a shape in the style: the token of its color."""


class Button(NamedTuple):
    """What the script does for it, the sign on it, and what it is called."""

    value: str
    sign: str
    title: str


BUTTONS = (
    Button(value="in", sign="+", title="Zoom in (w)"),
    Button(value="out", sign="−", title="Zoom out (s)"),
    Button(value="left", sign="‹", title="Back (a)"),
    Button(value="right", sign="›", title="Forward (d)"),
    Button(value="all", sign="0", title="Show everything (0)"),
)


class _Axis(NamedTuple):
    """The time that the timeline shows, and in how many cells."""

    begin_ns: int  # as in the file
    span_ns: int
    width: int

    @property
    def edges(self) -> Int64s:
        """Where cells begin and end, in ns of the file; shape [width + 1]."""
        return edges(self.begin_ns, self.begin_ns + self.span_ns, self.width)

    @property
    def cells_per_ns(self) -> float:
        return self.width / max(1, self.span_ns)


def colors() -> str:
    """Return the CSS of the colors of all shapes, each for a light and a dark page."""
    rules = []
    for name, token in TOKENS.items():
        fill, text_on_it = LIGHT.colors[token]
        fill_on_black, text_on_it_on_black = DARK.colors[token]
        fills = f"light-dark({fill},{fill_on_black})"
        color = f"light-dark({text_on_it},{text_on_it_on_black})"
        rules.append(f".{name}{{fill:{fills};background:{fills};color:{color}}}")
    return "".join(rules)


def timeline(trace: Trace, width: int) -> str:
    """Return HTML of a figure with the lanes that the app shows first, `width` cells
    wide. At most MAX_LINES lines are drawn. It has all that its script needs."""
    (side,) = make_sides([trace], [""])
    idle_by_device = {
        idle.device: idle
        for devices in Accounts(trace).devices_by_axis
        for idle in prepare_idle_times(devices)
    }
    shown = [
        place
        for place in places(side, make_first_view(side))
        if _is_drawn(place, idle_by_device)
    ]
    shown = shown[:MAX_LINES]
    axis = _Axis(begin_ns=trace.begin_ns, span_ns=side.end - side.begin, width=width)
    lines_with_slices = sum(place.line is not None for place in shown)
    slices_of_a_line = int(SLICES_PER_CELL * width) // max(1, lines_with_slices)
    slices_of_a_line = max(MIN_SLICES_OF_A_LINE, slices_of_a_line)
    shapes: list[str] = []
    for number, place in enumerate(shown):
        y = number * LINE_HEIGHT
        if place.line is not None:
            shapes += _draw_slices(trace, place.line, axis, y, slices_of_a_line)
        elif place.idle_of is not None:
            device = place.idle_of.pid
            shapes += _draw_idle(idle_by_device[device], axis, y)
    caption = (
        f"Each line shows its {count(slices_of_a_line)} longest slices; for the "
        f"others, it shows what takes most of each of {count(width)} equal intervals. "
        "(+3) stands for 3 omitted lines. Drag over a part to zoom in; double-click to show everything."
    )
    drawing = _make_drawing(
        _make_labels(shown), shapes, axis, height=LINE_HEIGHT * len(shown)
    )
    label = f"Timeline of {Path(trace.report.file).name}"
    return (
        f'<figure data-ns="{axis.span_ns}"><figcaption>{caption}</figcaption>\n'
        f"<p hidden>{_make_buttons()}</p>{_make_legend(shapes)}\n"
        f"{scrolling(drawing, label=label)}\n"
        "<output></output></figure>"
    )


def _is_drawn(place: Place, idle_by_device: Collection[Id]) -> bool:
    """Return whether a line of the app's screen is part of the figure. Counters and
    hidden lines are not; the names of groups are."""
    if place.idle_of is not None:
        return place.idle_of.pid in idle_by_device
    return place.curve is None and not place.where and place.lane >= 0


def _make_labels(shown: Sequence[Place]) -> str:
    """Return HTML list items: the label of each line, then an empty one beside the
    ruler. `(+3)` counts lines that are left out."""
    items = []
    for screen_line in shown:
        label = clip(screen_line.label.strip(), MAX_NAME_CELLS)
        if screen_line.more:
            label += f" (+{screen_line.more})"
        items.append(f"<li>{text(label)}</li>")
    return "".join([*items, "<li></li>"])


def _make_buttons() -> str:
    """Return HTML of the buttons that zoom and move the timeline."""
    return "".join(
        f'<button type="button" value="{button.value}" aria-label="{button.title}" '
        f'title="{button.title}">{button.sign}</button> '
        for button in BUTTONS
    )


def _make_drawing(labels: str, shapes: Sequence[str], axis: _Axis, height: int) -> str:
    """Return HTML of the labels, beside them the SVG of the shapes, and below it a
    ruler. `height` is in pixels."""
    described = (
        f"Timeline of {duration(axis.span_ns)}; the tables below have its figures"
    )
    view_box = f"0 0 {axis.width} {height}"
    lines = "\n".join(shapes)
    return (
        f'<div class="lanes"><ul>{labels}</ul><div class="view">'
        f'<svg role="img" aria-label="{described}" viewBox="{view_box}" height="{height}" '
        f'preserveAspectRatio="none">\n{lines}</svg>\n'
        f'<div class="ruler">{_make_ruler(axis.span_ns)}</div></div></div>'
    )


def _make_ruler(span_ns: int) -> str:
    """Return HTML of TICKS times at equal distances, from the begin of the timeline to
    its end."""
    resolution_ns = max(1, span_ns // 100)
    times = [span_ns * number // (TICKS - 1) for number in range(TICKS)]
    return "".join(f"<span>{tick(ns, resolution_ns)}</span>" for ns in times)


def _draw_slices(
    trace: Trace, line: DepthRow, axis: _Axis, y: int, max_slices: int
) -> Iterator[str]:
    """Yield the shapes of one line. If it has over `max_slices` slices, cells show
    first what takes most of them, as a path for each kind. Then the longest slices are
    drawn one by one."""
    if len(line) > max_slices:
        borders = axis.edges
        drawn = cells(line, borders)
        yield from _draw_paths(
            drawn.kind,
            levels=_bar_levels(drawn.covered, borders),
            y=y,
            names=[kind.replace("-", "_") for kind in KINDS],
        )
    for index in sorted(line.by_rank[-max_slices:].tolist()):
        yield _draw_slice(trace, line, index, axis, y)


def _draw_slice(trace: Trace, line: DepthRow, index: int, axis: _Axis, y: int) -> str:
    """Return the rectangle of one slice of a line, with its name and times as its
    title. `index` counts the slices of the line, and `y` is in pixels."""
    row = int(line.rows[index])
    begin_ns = int(line.start[index]) - trace.begin_ns
    shown_ns = int(line.end[index]) - int(line.start[index])
    name = label_of(int(trace.role[row]), trace.name_of(row))
    title = (
        f"{text(clip(name, MAX_NAME_CELLS))}\n"
        f"{duration(int(trace.dur[row]))} from {duration(begin_ns)}"
    )
    kind = KINDS[int(line.kind[index])].replace("-", "_")
    scale = axis.cells_per_ns
    return (
        f'<rect class="{kind}" x="{begin_ns * scale:.7g}" y="{y}" '
        f'width="{shown_ns * scale:.6g}" height="{BAR_HEIGHT}"><title>{title}</title></rect>'
    )


def _draw_idle(idle: IdleTime, axis: _Axis, y: int) -> Iterator[str]:
    """Yield the shapes of the idle time of a device. Each cell shows the reason with
    the most time in it. None if there is no reason."""
    borders = axis.edges
    ns_by_reason = idle.measure_between_edges(borders)
    if not len(ns_by_reason):
        return
    idle_ns = ns_by_reason.sum(axis=0)
    yield from _draw_paths(
        np.where(idle_ns > 0, ns_by_reason.argmax(axis=0), -1),
        levels=_bar_levels(idle_ns, borders),
        y=y,
        names=[f"idle_{reason.name}" for reason in idle.reasons],
    )


def _bar_levels(covered_ns: Int64s, borders: Int64s) -> Int64s:
    """Return how high the bar of each cell is, from 1 to BAR_LEVELS: its covered share,
    rounded up. Shape [cells]."""
    cell_ns = np.maximum(np.diff(borders), 1)
    rounded_up = -(-BAR_LEVELS * covered_ns // cell_ns)
    return np.clip(rounded_up, 1, BAR_LEVELS)


def _draw_paths(
    kinds: NDArray[np.integer], levels: Int64s, y: int, names: Sequence[str]
) -> Iterator[str]:
    """Yield an SVG path for each kind, made of runs of cells with equal kind and
    height. `kinds` of shape [cells] are indices into `names`; cells below 0 are empty.
    """
    differs = (np.diff(kinds) != 0) | (np.diff(levels) != 0)
    run_begins = np.flatnonzero(differs) + 1
    runs: dict[int, list[str]] = {}
    for begin, end in pairwise([0, *run_begins.tolist(), len(kinds)]):
        kind = int(kinds[begin])
        if kind < 0:
            continue
        height = BAR_HEIGHT * int(levels[begin]) // BAR_LEVELS
        top = y + BAR_HEIGHT - height
        rectangle = f"M{begin} {top}h{end - begin}v{height}h{begin - end}z"
        runs.setdefault(kind, []).append(rectangle)
    for kind, rectangles in runs.items():
        yield f'<path class="{names[kind]}" d="{"".join(rectangles)}"/>'


def _make_legend(shapes: Sequence[str]) -> str:
    """Return HTML that says what the colors of the drawn shapes mean."""
    classes_drawn = {shape.split('"', 2)[1] for shape in shapes}
    meanings = _class_meanings()
    swatches = [
        f'<span><span class="swatch {name}"></span>{text(meanings[name])}</span>'
        for name in TOKENS
        if name in classes_drawn
    ]
    return f'<p class="legend">{" ".join(swatches)}</p>'


def _class_meanings() -> Mapping[str, str]:
    """Return what each class of shapes means: a kind of slices, or a reason of idle
    time."""
    meanings = {name: name.removeprefix("gpu_") for name in TOKENS}
    for name, reason in IDLE.items():
        meanings[f"idle_{name}"] = f"idle: {reason.short}"
    return meanings
