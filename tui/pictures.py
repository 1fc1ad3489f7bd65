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
from fusetui.tables.files import import_optional
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import never
from fusetui.trace.new_file import CannotWriteError, check_new, new_file
from fusetui.tui import registry, screen_layout
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.schemes import DARK, LIGHT, UNICODE, Scheme, build_styles
from fusetui.tui.drawing.segments import painted
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.view import make_sides
from fusetui.tui.state import moving
from fusetui.tui.state.reading import accept_answer, accept_diff
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
    """Return a state of the app that shows the page `page` of these traces, made
    without a terminal.

    `names` label the traces. `size` is in cells and lines. `window` is what the
    timeline of the first trace shows, in ns of the file. Raise Error where the app
    could not show that page.
    """
    no_keys: dict[str, tuple[str, ...]] = dict.fromkeys(registry.BY_ACTION, ())
    state = State(size=_add_bars(size), keymap=no_keys)
    state = _settle_state(state, registry.arrived(state, make_sides(traces, names)))
    for side in state.sides:
        for piece in compute_pieces(side.trace, never):
            state = _settle_state(state, accept_answer(state, side.trace, piece))
    state = _settle_state(state, registry.open_page(registry.BY_NAME[page], state))
    if state.page != page:
        raise Error(f"{state.hint[:1].upper()}{state.hint[1:]}.")
    if window:
        side = state.side
        begin = window[0] - side.origin
        end = window[1] - side.origin
        view = over(side, state.view, begin, end)
        state = _settle_state(state, moving.set_view(state, view))
    return state


def _add_bars(page_size: Size) -> Size:
    """Return the size of a screen on which the page itself has `page_size`: with the
    bar of pages above it, and the line of keys below it."""
    with_two_lines = replace(page_size, height=page_size.height + 2)
    # a low screen has no bar of pages
    bars_height = tabs_height(with_two_lines) + 1
    return replace(page_size, height=page_size.height + bars_height)


def drawn(
    state: State, light: bool, title: str, *, whole: bool = False, pixels: int = 0
) -> str:
    """Return the page as an SVG document with the given title.

    It is as wide as its text needs, or `pixels` wide unless that is 0. The bar of pages
    and the line of keys are left out unless `whole`. Markup in names is escaped.
    """
    panes = screen_layout.panes(state)
    if not whole:
        panes = panes[1:-1]
    width = state.size.width
    line_count = sum(pane.height for pane in panes)
    scheme = LIGHT if light else DARK
    elements = _draw_elements(screen_layout.stack(panes), width, line_count, scheme)
    return _assemble_svg(elements, width, line_count, scheme.background, title, pixels)


def check_picture(path: str) -> None:
    """Check that a picture can be written to `path`, before it is drawn.

    Raise Error for a wrong ending, a file that exists, a missing package, or missing
    fonts for a PNG.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise CannotWriteError(f"{path} must end in .svg, .png or .html.")
    check_new(path)
    if suffix == ".png":
        _find_rasterizer()


def save_picture(state: State, path: str, light: bool, pixels: int = 0) -> None:
    """Draw the page and write it to a new SVG, PNG or HTML file, by the ending of
    `path`. `pixels` is the width, 0 for that of the text. Raise Error, with no file
    left behind."""
    check_picture(path)
    suffix = Path(path).suffix.lower()
    title = f"{' and '.join(_list_open_labels(state))}: {state.page}"
    svg = drawn(state, light, title, pixels=pixels)
    if suffix == ".png":
        content = _find_rasterizer()(svg)
    elif suffix == ".html":
        style = "body{margin:0}svg{max-width:100%;height:auto}"
        content = document(f"fusetui: {title}", svg, style, light=light).encode()
    else:
        content = svg.encode()
    with new_file(path) as file:
        file.write(content)


def _list_open_labels(state: State) -> list[str]:
    """Return the labels of what is open: traces, memory snapshots, or flight-recorder
    dumps."""
    if state.sides:
        return [state.sides[index].label for index in state.told_sides]
    if state.memory is not None:
        return [side.label for side in state.memory.sides]
    return ["flight-recorder dumps"]


def _find_rasterizer() -> Callable[[str], bytes]:
    """Return a function that makes a PNG from an SVG.

    Raise MissingPackageError if the package for it is missing, and CannotWriteError if
    no font is installed.
    """
    svg_to_bytes = import_optional("resvg_py", "A PNG", "picture").svg_to_bytes

    def png(svg: str) -> bytes:
        return bytes(svg_to_bytes(svg_string=svg))

    letter = f'<text y="15" font-family="{FAMILY}">M</text>'
    with_letter = SVG_OF_A_LETTER.format(letter)
    without_letter = SVG_OF_A_LETTER.format("")
    # without a font, letters leave no pixel
    if png(with_letter) == png(without_letter):
        raise CannotWriteError(
            "No font is installed, so a PNG would have no text: write an SVG."
        )
    return png


def _draw_elements(
    picture: Picture, width: int, height: int, scheme: Scheme
) -> list[str]:
    """Return the SVG elements that draw a picture of `width` cells and `height` lines."""
    styles = build_styles(scheme, scheme.background)
    elements: list[str] = []
    for y in range(height):
        strip = painted(picture.line(y, width, height), width, styles)
        elements += _draw_line(list(strip), MARGIN + y * LINE_HEIGHT, scheme)
    return elements


def _assemble_svg(
    elements: Sequence[str],
    width: int,
    height: int,
    background: str,
    title: str,
    pixels: int,
) -> str:
    """Return the SVG document around these elements. It is for `width` by `height`
    cells and `pixels` wide, or unscaled if that is 0."""
    width_px = width * CELL_WIDTH + 2 * MARGIN
    height_px = height * LINE_HEIGHT + 2 * MARGIN
    scale = pixels / width_px if pixels else 1
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{width_px * scale:g}" height="{height_px * scale:g}"'
        f' viewBox="0 0 {width_px:g} {height_px:g}" '
        f'font-size="{FONT_SIZE}" font-family="{FAMILY}">',
        f"<title>{escape(printable(title))}</title>",
        f'<rect width="100%" height="100%" fill="{background}"/>',
        *(elements or [""]),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _settle_state(before: State, outcome: Outcome) -> State:
    """Return the state after a change and its effect. The one effect that matters here
    is the comparison of two traces, which is done at once."""
    state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
    if isinstance(effect, Compare):
        trace_a = state.sides[0].trace
        trace_b = state.sides[1].trace
        state = accept_diff(state, trace_a, trace_b, diff(trace_a, trace_b))
    return registry.settle_state(before, state)


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


def _make_bar_shapes() -> dict[str, tuple[Shape, ...]]:
    """Return the shapes of the bar characters, by character: eighths of a cell from
    below, and from the left."""
    shapes: dict[str, tuple[Shape, ...]] = {}
    for eighths, bar in enumerate(UNICODE.levels):
        part = eighths / 8
        shapes[bar] = (Shape(left=0, top=1 - part, width=1, height=part),)
    for eighths, bar in enumerate(UNICODE.parts):
        shapes[bar] = (Shape(left=0, top=0, width=eighths / 8, height=1),)
    del shapes[" "]  # of no eighths
    return shapes


SHAPES: dict[str, tuple[Shape, ...]] = {
    **_make_bar_shapes(),
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


def _draw_line(segments: list[Segment], top: float, scheme: Scheme) -> Iterator[str]:
    """Yield the SVG elements of one line: a path for all shapes of each color, then its
    text. `top` is in pixels."""
    shapes: dict[str, list[str]] = defaultdict(list)  # by color
    texts: list[str] = []
    first_cell = 0
    for segment in segments:
        drawn_segment = _draw_segment(segment, first_cell, top, scheme)
        for color, path in drawn_segment.shapes:
            shapes[color].append(path)
        texts += drawn_segment.texts
        first_cell += cell_len(segment.text)
    for color, paths in shapes.items():
        path = "".join(paths)
        yield f'<path fill="{color}" shape-rendering="crispEdges" d="{path}"/>'
    if texts:
        baseline = top + BASE_LINE
        yield f'<text y="{baseline:g}" xml:space="preserve">{"".join(texts)}</text>'


class _DrawnSegment(NamedTuple):
    """What draws a text of one style."""

    shapes: list[tuple[str, str]]  # a color, and a path in it
    texts: list[str]


def _draw_segment(
    segment: Segment, x: int, top: float, scheme: Scheme
) -> _DrawnSegment:
    """Return what draws a piece of text in one style that begins at cell `x` of a line.

    The result has its background, the characters that are drawn as shapes, and the
    other text. `top` is that of the line, in pixels.
    """
    style = segment.style
    color = _format_color(style.color if style else None, scheme)
    background_color = _format_color(style.bgcolor if style else None, scheme)
    is_bold = bool(style and style.bold)
    shapes: list[tuple[str, str]] = []
    texts: list[str] = []
    if background_color != scheme.background:
        background = _make_shape_path(x, top, cell_len(segment.text), WHOLE_CELL)
        shapes.append((background_color, background))
    for run in _split_runs(segment.text):
        run_cell = x + run.begin
        # a run of a character that is drawn as shapes has only that character
        first_character = run.text[0]
        if first_character in SHAPES:
            for shape in SHAPES[first_character]:
                path = _make_shape_path(run_cell, top, run.cells, shape)
                shapes.append((color, path))
        elif not run.text.isspace():
            span = _make_text_span(run.text.rstrip(), run_cell, color, is_bold)
            texts.append(span)
    return _DrawnSegment(shapes, texts)


def _format_color(color: Color | None, scheme: Scheme) -> str:
    """Return a color as `#rrggbb`; for None that of plain text."""
    return color.get_truecolor().hex if color else scheme.foreground


def _make_text_span(text: str, x: int, color: str, is_bold: bool) -> str:
    """Return an SVG span of text that begins at cell `x`. Its length is fixed to the
    width of its cells, so that columns line up in any font."""
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


def _split_runs(text: str) -> Iterator[_Run]:
    """Yield the parts of a text: runs of one character that is drawn as a shape, and
    runs of other characters."""
    first_cell = 0
    for _, characters in groupby(text, lambda char: char if char in SHAPES else ""):
        run_text = "".join(characters)
        cells = cell_len(run_text)
        yield _Run(begin=first_cell, cells=cells, text=run_text)
        first_cell += cells


def _make_shape_path(x: int, top: float, cells: int, shape: Shape) -> str:
    """Return the SVG path that draws a shape in `cells` cells, the first of which is
    `x`.

    A shape as wide as a cell is drawn once over all of them, which leaves no seams.
    Others are drawn in each cell.
    """
    is_continuous = shape.width == 1
    width = shape.width * (cells if is_continuous else 1) * CELL_WIDTH
    height = shape.height * LINE_HEIGHT
    parts = []
    for cell in range(1 if is_continuous else cells):
        left = MARGIN + (x + cell + shape.left) * CELL_WIDTH
        above = top + shape.top * LINE_HEIGHT
        corner = f"M{left:.7g} {above:.7g}"
        parts.append(f"{corner}h{width:.7g}v{height:.7g}h{-width:.7g}z")
    return "".join(parts)
