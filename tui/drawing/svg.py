"""Lines of the screen as an SVG that needs nothing else: texts that can be selected, and bars and
rules as shapes, so that they look alike in every font."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape
from itertools import groupby

from rich.cells import cell_len
from rich.segment import Segment

from fusetui.text.printable import printable
from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.schemes import UNICODE, Scheme, styles_of
from fusetui.tui.drawing.segments import painted

CELL, LINE, FONT, BASE, MARGIN = 8.4, 18, 14, 13, 10
"""In pixels: a cell and a line, the size of the font, its base line in a line, the space around."""
FAMILY = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"

Shape = tuple[float, float, float, float]
"""A part of a cell: left, top, width, height, as shares of it."""
_LOW, _HIGH = ((0.45, top, 0.1, 0.5) for top in (0.5, 0.0))
_LEFT, _RIGHT = ((left, 0.47, 0.5, 0.06) for left in (0.0, 0.5))
SHAPES: dict[str, tuple[Shape, ...]] = {
    **{bar: ((0, 1 - n / 8, 1, n / 8),) for n, bar in enumerate(UNICODE.levels) if n},
    **{part: ((0, 0, n / 8, 1),) for n, part in enumerate(UNICODE.parts) if n},
    **{"─": ((0, 0.47, 1, 0.06),), "│": ((0.45, 0, 0.1, 1),), "┃": ((0.3, 0, 0.4, 1),)},
    **{"├": (_HIGH, _LOW, _RIGHT), "┤": (_HIGH, _LOW, _LEFT)},
    **{"└": (_HIGH, _RIGHT), "┘": (_HIGH, _LEFT), "╵": (_HIGH,)},
    "■": ((0.05, 0.3, 0.8, 0.42),),
}
"""What glyphs of the schemes look like."""


def svg_of(
    picture: Picture, width: int, height: int, scheme: Scheme, title: str, pixels: int = 0
) -> str:
    """A picture of so many cells and lines, as wide as its texts need, or as so many pixels;
    whatever a name holds is text."""
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
        f'<rect width="100%" height="100%" fill="{scheme.background}"/>\n' + "\n".join(body) + "\n"
        "</svg>\n"
    )


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
                shapes[color] += (_path(x + begin, top, end - begin, s) for s in SHAPES[run[0]])
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
    """The path of a shape over some cells; only those as wide as a cell are drawn as one."""
    left, above, wide, high = shape
    whole = cells if wide == 1 else 1
    return "".join(
        f"M{MARGIN + (x + n + left) * CELL:.7g} {top + above * LINE:.7g}"
        f"h{wide * whole * CELL:.7g}v{high * LINE:.7g}h{-wide * whole * CELL:.7g}z"
        for n in range(1 if wide == 1 else cells)
    )
