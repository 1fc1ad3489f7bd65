"""Pages of the app as pictures: its states are made here without a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment

from fusetui import Error
from fusetui.analysis.diff.compare import diff
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import never
from fusetui.tui import registry, screen_layout
from fusetui.tui.background_results import pieces
from fusetui.tui.drawing.schemes import DARK, LIGHT, UNICODE, Scheme, styles_of
from fusetui.tui.drawing.segments import painted
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.view import make_sides
from fusetui.tui.state import moving
from fusetui.tui.state.reading import compared, learned
from fusetui.tui.state.screen import tabs_height
from fusetui.tui.state.state import Compare, Outcome, Size, State

Window = tuple[int, int]  # begin and end in ns of the file


def shown(
    traces: Sequence[Trace],
    names: Sequence[str],
    page: str,
    size: Size,
    window: Window | None = None,
) -> State:
    """A page of the app with these traces read and explained, in so many cells and
    lines; `window`: what the timeline of the first shows. Raises Error where the app
    would not show it."""
    screen = Size(size.width, size.height + 2)  # with the bar of pages and the keys
    screen = replace(screen, height=screen.height - 1 + tabs_height(screen))
    # nobody presses any
    state = State(size=screen, keymap=dict.fromkeys(registry.BY_ACTION, ()))
    state = _settled(state, registry.arrived(state, make_sides(traces, names)))
    for side in state.sides:
        for piece in pieces(side.trace, never):
            state = _settled(state, learned(state, side.trace, piece))
    state = _settled(state, registry.turned_to(registry.BY_NAME[page], state))
    if state.page != page:
        raise Error(f"{state.hint[:1].upper()}{state.hint[1:]}.")
    if window:
        begin, end = (time - state.side.origin for time in window)
        state = _settled(
            state, moving.viewed(state, over(state.side, state.view, begin, end))
        )
    return state


def drawn(
    state: State, light: bool, title: str, *, whole: bool = False, pixels: int = 0
) -> str:
    """The page as an SVG, as wide as its texts need, or as so many pixels; without the
    bar of pages and the keys, unless the `whole` screen. Whatever a name holds is
    text."""
    found = screen_layout.panes(state)
    found = found if whole else found[1:-1]
    width, height = state.size.width, sum(pane.height for pane in found)
    picture, scheme = screen_layout.stack(found), LIGHT if light else DARK
    across, down = width * CELL + 2 * MARGIN, height * LINE + 2 * MARGIN
    scale = pixels / across if pixels else 1
    styles = styles_of(scheme, scheme.background)
    body: list[str] = []
    for y in range(height):
        strip = painted(picture.line(y, width, height), width, styles)
        body += _line(list(strip), MARGIN + y * LINE, scheme)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{across * scale:g}" height="{down * scale:g}"'
        f' viewBox="0 0 {across:g} {down:g}" font-size="{FONT}" font-family="{FAMILY}">\n'
        f"<title>{escape(printable(title))}</title>\n"
        f'<rect width="100%" height="100%" fill="{scheme.background}"/>\n'
        + "\n".join(body)
        + "\n"
        "</svg>\n"
    )


def _settled(before: State, outcome: Outcome) -> State:
    state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
    if isinstance(effect, Compare):
        a, b = (side.trace for side in state.sides)
        state = compared(state, a, b, diff(a, b))
    return registry.settled(before, state)


CELL, LINE, FONT, BASE, MARGIN = 8.4, 18, 14, 13, 10
"""In pixels: a cell and a line, the size of the font, its base line in a line, the
space around."""
FAMILY = (
    "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
)

# left, top, width, height, as shares of a cell
Shape = tuple[float, float, float, float]
_LOW, _HIGH = ((0.45, top, 0.1, 0.5) for top in (0.5, 0.0))
_LEFT, _RIGHT = ((left, 0.47, 0.5, 0.06) for left in (0.0, 0.5))
SHAPES: dict[str, tuple[Shape, ...]] = {  # what glyphs of the schemes look like
    **{bar: ((0, 1 - n / 8, 1, n / 8),) for n, bar in enumerate(UNICODE.levels) if n},
    **{part: ((0, 0, n / 8, 1),) for n, part in enumerate(UNICODE.parts) if n},
    **{"─": ((0, 0.47, 1, 0.06),), "│": ((0.45, 0, 0.1, 1),), "┃": ((0.3, 0, 0.4, 1),)},
    **{"├": (_HIGH, _LOW, _RIGHT), "┤": (_HIGH, _LOW, _LEFT)},
    **{"└": (_HIGH, _RIGHT), "┘": (_HIGH, _LEFT), "╵": (_HIGH,)},
    "■": ((0.05, 0.3, 0.8, 0.42),),
}


def _line(segments: list[Segment], top: float, scheme: Scheme) -> Iterator[str]:
    """The shapes of a line, those of each color as one path, then its texts."""
    shapes: dict[str, list[str]] = defaultdict(list)
    texts: list[str] = []
    x = 0
    for text, style, _ in segments:
        color, behind = (
            one.get_truecolor().hex if one else scheme.foreground
            for one in (style and style.color, style and style.bgcolor)
        )
        wide = cell_len(text)
        if behind != scheme.background:
            shapes[behind].append(_path(x, top, wide, (0, 0, 1, 1)))
        weight = ' font-weight="bold"' if style and style.bold else ""
        for begin, end, run in _runs(text):
            if run[0] in SHAPES:
                shapes[color] += (
                    _path(x + begin, top, end - begin, s) for s in SHAPES[run[0]]
                )
            elif run := run.rstrip():
                at, long = MARGIN + (x + begin) * CELL, cell_len(run) * CELL
                texts.append(
                    f'<tspan x="{at:g}" textLength="{long:g}" fill="{color}"{weight}>'
                    f"{escape(run)}</tspan>"
                )
        x += wide
    for color, drawn in shapes.items():
        yield f'<path fill="{color}" shape-rendering="crispEdges" d="{"".join(drawn)}"/>'
    if texts:
        yield f'<text y="{top + BASE:g}" xml:space="preserve">{"".join(texts)}</text>'


def _runs(text: str) -> Iterator[tuple[int, int, str]]:
    """The runs of one shape and of other text: the cells where they begin and end."""
    x = 0
    for _, run in groupby(text, lambda char: char if char in SHAPES else ""):
        part = "".join(run)
        end = x + cell_len(part)
        yield x, end, part
        x = end


def _path(x: int, top: float, cells: int, shape: Shape) -> str:
    """The path of a shape over some cells; only those as wide as a cell are drawn as
    one."""
    left, above, wide, high = shape
    whole = cells if wide == 1 else 1
    return "".join(
        f"M{MARGIN + (x + n + left) * CELL:.7g} {top + above * LINE:.7g}"
        f"h{wide * whole * CELL:.7g}v{high * LINE:.7g}h{-wide * whole * CELL:.7g}z"
        for n in range(1 if wide == 1 else cells)
    )
