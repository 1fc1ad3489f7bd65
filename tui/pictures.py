"""Draws pages of the app as pictures, without a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment

from fusetui import Error
from fusetui.analysis.diff.compare import diff
from fusetui.report.html_document import document
from fusetui.tables.files import needed
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import never
from fusetui.trace.new_file import CannotWriteError, check_new, new_file
from fusetui.tui import registry, screen_layout
from fusetui.tui.background_results import pieces
from fusetui.tui.drawing.picture import Picture
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
    no_keys: dict[str, tuple[str, ...]] = dict.fromkeys(registry.BY_ACTION, ())
    state = State(size=screen, keymap=no_keys)
    state = _settled(state, registry.arrived(state, make_sides(traces, names)))
    for side in state.sides:
        for piece in pieces(side.trace, never):
            state = _settled(state, learned(state, side.trace, piece))
    state = _settled(state, registry.turned_to(registry.BY_NAME[page], state))
    if state.page != page:
        raise Error(f"{state.hint[:1].upper()}{state.hint[1:]}.")
    if window:
        side = state.side
        begin = window[0] - side.origin
        end = window[1] - side.origin
        view = over(side, state.view, begin, end)
        state = _settled(state, moving.viewed(state, view))
    return state


def drawn(
    state: State, light: bool, title: str, *, whole: bool = False, pixels: int = 0
) -> str:
    """The page as an SVG, as wide as its texts need, or as so many pixels; without the
    bar of pages and the keys, unless the `whole` screen. Whatever a name holds is
    text."""
    panes = screen_layout.panes(state)
    if not whole:
        panes = panes[1:-1]
    width = state.size.width
    height = sum(pane.height for pane in panes)
    scheme = LIGHT if light else DARK
    elements = _elements(screen_layout.stack(panes), width, height, scheme)
    return _document(elements, width, height, scheme.background, title, pixels)


def check_picture(path: str) -> None:
    """Raises Error where a picture cannot be written there: for the ending, what is
    there already, a package that is missing, or the fonts of a PNG."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise CannotWriteError(f"{path} must end in .svg, .png or .html.")
    check_new(path)
    if suffix == ".png":
        _rasterizer()


def save_picture(state: State, path: str, light: bool, pixels: int = 0) -> None:
    """Writes the page as a new SVG, PNG or HTML document. `pixels`: as for `drawn`.
    Raises Error, leaving nothing behind."""
    check_picture(path)
    suffix = Path(path).suffix.lower()
    title = f"{' and '.join(_labels(state))}: {state.page}"
    svg = drawn(state, light, title, pixels=pixels)
    if suffix == ".png":
        content = _rasterizer()(svg)
    elif suffix == ".html":
        style = "body{margin:0}svg{max-width:100%;height:auto}"
        content = document(f"fusetui: {title}", svg, style, light=light).encode()
    else:
        content = svg.encode()
    with new_file(path) as file:
        file.write(content)


def _labels(state: State) -> list[str]:
    """What is open, by the names of files."""
    if state.sides:
        return [state.sides[index].label for index in state.told_sides]
    if state.memory is not None:
        return [side.label for side in state.memory.sides]
    return ["flight-recorder dumps"]


def _rasterizer() -> Callable[[str], bytes]:
    """Makes a PNG of an SVG. Raises MissingPackageError; CannotWriteError without a font
    for its texts."""
    svg_to_bytes = needed("resvg_py", "A PNG", "picture").svg_to_bytes

    def png(svg: str) -> bytes:
        return bytes(svg_to_bytes(svg_string=svg))

    letter = f'<text y="15" font-family="{FAMILY}">M</text>'
    with_letter = SVG_OF_A_LETTER.format(letter)
    without_letter = SVG_OF_A_LETTER.format("")
    if png(with_letter) == png(without_letter):
        raise CannotWriteError(
            "No font is installed, so a PNG would have no text: write an SVG."
        )
    return png


def _elements(picture: Picture, width: int, height: int, scheme: Scheme) -> list[str]:
    """The elements of an SVG that draw a picture of so many cells and lines."""
    styles = styles_of(scheme, scheme.background)
    elements: list[str] = []
    for y in range(height):
        strip = painted(picture.line(y, width, height), width, styles)
        elements += _line(list(strip), MARGIN + y * LINE_HEIGHT, scheme)
    return elements


def _document(
    elements: Sequence[str],
    width: int,
    height: int,
    background: str,
    title: str,
    pixels: int,
) -> str:
    """An SVG of so many cells and lines, which is `pixels` wide unless that is 0."""
    across = width * CELL_WIDTH + 2 * MARGIN
    down = height * LINE_HEIGHT + 2 * MARGIN
    scale = pixels / across if pixels else 1
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{across * scale:g}" height="{down * scale:g}"'
        f' viewBox="0 0 {across:g} {down:g}" '
        f'font-size="{FONT_SIZE}" font-family="{FAMILY}">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect width="100%" height="100%" fill="{background}"/>',
        *(elements or [""]),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _settled(before: State, outcome: Outcome) -> State:
    """The state after a change, with its effect: two sides are compared at once."""
    state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
    if isinstance(effect, Compare):
        a = state.sides[0].trace
        b = state.sides[1].trace
        state = compared(state, a, b, diff(a, b))
    return registry.settled(before, state)


SUFFIXES = (".svg", ".png", ".html")
SVG_OF_A_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
)
# in pixels
CELL_WIDTH = 8.4
LINE_HEIGHT = 18
FONT_SIZE = 14
BASE_LINE = 13  # from the top of a line
MARGIN = 10  # around everything
FAMILY = (
    "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
)


class Shape(NamedTuple):
    """A rectangle, in shares of a cell."""

    left: float
    top: float
    width: float
    height: float


WHOLE_CELL = Shape(left=0, top=0, width=1, height=1)
_UPPER_HALF = Shape(left=0.45, top=0.0, width=0.1, height=0.5)
_LOWER_HALF = Shape(left=0.45, top=0.5, width=0.1, height=0.5)
_LEFT_HALF = Shape(left=0.0, top=0.47, width=0.5, height=0.06)
_RIGHT_HALF = Shape(left=0.5, top=0.47, width=0.5, height=0.06)


def _bars() -> dict[str, tuple[Shape, ...]]:
    """The bars of the schemes: eighths of a cell from below, and from the left."""
    shapes: dict[str, tuple[Shape, ...]] = {}
    for eighths, bar in enumerate(UNICODE.levels):
        part = eighths / 8
        shapes[bar] = (Shape(left=0, top=1 - part, width=1, height=part),)
    for eighths, bar in enumerate(UNICODE.parts):
        shapes[bar] = (Shape(left=0, top=0, width=eighths / 8, height=1),)
    del shapes[" "]  # of no eighths
    return shapes


SHAPES: dict[str, tuple[Shape, ...]] = {
    **_bars(),
    "─": (Shape(left=0, top=0.47, width=1, height=0.06),),
    "│": (Shape(left=0.45, top=0, width=0.1, height=1),),
    "┃": (Shape(left=0.3, top=0, width=0.4, height=1),),
    "├": (_UPPER_HALF, _LOWER_HALF, _RIGHT_HALF),
    "┤": (_UPPER_HALF, _LOWER_HALF, _LEFT_HALF),
    "└": (_UPPER_HALF, _RIGHT_HALF),
    "┘": (_UPPER_HALF, _LEFT_HALF),
    "╵": (_UPPER_HALF,),
    "■": (Shape(left=0.05, top=0.3, width=0.8, height=0.42),),
}
"""What glyphs of the schemes look like, by their character."""


def _line(segments: list[Segment], top: float, scheme: Scheme) -> Iterator[str]:
    """The shapes of a line, those of each color as one path, then its texts."""
    shapes: dict[str, list[str]] = defaultdict(list)  # by color
    texts: list[str] = []
    x = 0
    for segment in segments:
        drawn_segment = _segment(segment, x, top, scheme)
        for color, path in drawn_segment.shapes:
            shapes[color].append(path)
        texts += drawn_segment.texts
        x += cell_len(segment.text)
    for color, paths in shapes.items():
        path = "".join(paths)
        yield f'<path fill="{color}" shape-rendering="crispEdges" d="{path}"/>'
    if texts:
        base = top + BASE_LINE
        yield f'<text y="{base:g}" xml:space="preserve">{"".join(texts)}</text>'


class _DrawnSegment(NamedTuple):
    """What draws a text of one style."""

    shapes: list[tuple[str, str]]  # a color, and a path in it
    texts: list[str]


def _segment(segment: Segment, x: int, top: float, scheme: Scheme) -> _DrawnSegment:
    """What draws a text that begins at cell `x` of a line: its background, its glyphs
    that are shapes, and the other texts."""
    style = segment.style
    color = _hex(style.color if style else None, scheme)
    behind = _hex(style.bgcolor if style else None, scheme)
    is_bold = bool(style and style.bold)
    drawn_segment = _DrawnSegment([], [])
    if behind != scheme.background:
        background = _path(x, top, cell_len(segment.text), WHOLE_CELL)
        drawn_segment.shapes.append((behind, background))
    for run in _runs(segment.text):
        begin = x + run.begin
        if run.text[0] in SHAPES:
            for shape in SHAPES[run.text[0]]:
                path = _path(begin, top, run.cells, shape)
                drawn_segment.shapes.append((color, path))
        elif not run.text.isspace():
            span = _text_span(run.text.rstrip(), begin, color, is_bold)
            drawn_segment.texts.append(span)
    return drawn_segment


def _hex(color: Color | None, scheme: Scheme) -> str:
    """A color as `#rrggbb`; for None that of plain texts."""
    return color.get_truecolor().hex if color else scheme.foreground


def _text_span(text: str, x: int, color: str, is_bold: bool) -> str:
    """A text that begins at a cell, exactly as wide as its cells."""
    left = MARGIN + x * CELL_WIDTH
    length = cell_len(text) * CELL_WIDTH
    weight = ' font-weight="bold"' if is_bold else ""
    return (
        f'<tspan x="{left:g}" textLength="{length:g}" fill="{color}"{weight}>'
        f"{escape(text)}</tspan>"
    )


class _Run(NamedTuple):
    """A part of a text: characters of one shape, or others."""

    begin: int  # its first cell in the text
    cells: int
    text: str


def _runs(text: str) -> Iterator[_Run]:
    """The runs of one shape and of other characters."""
    begin = 0
    for _, characters in groupby(text, lambda char: char if char in SHAPES else ""):
        run = "".join(characters)
        cells = cell_len(run)
        yield _Run(begin=begin, cells=cells, text=run)
        begin += cells


def _path(x: int, top: float, cells: int, shape: Shape) -> str:
    """The path of a shape over some cells, the first of which is `x`. A shape as wide
    as a cell is drawn once, over all of them; others once in each."""
    is_continuous = shape.width == 1
    width = shape.width * (cells if is_continuous else 1) * CELL_WIDTH
    height = shape.height * LINE_HEIGHT
    parts = []
    for n in range(1 if is_continuous else cells):
        left = MARGIN + (x + n + shape.left) * CELL_WIDTH
        above = top + shape.top * LINE_HEIGHT
        corner = f"M{left:.7g} {above:.7g}"
        parts.append(f"{corner}h{width:.7g}v{height:.7g}h{-width:.7g}z")
    return "".join(parts)
