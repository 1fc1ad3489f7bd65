"""Every color that is drawn can be read, on dark and light screens, with any number of
colors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from colorsys import rgb_to_hsv
from itertools import combinations

import pytest
from rich.color import Color, ColorSystem
from rich.palette import Palette
from rich.style import Style
from tests.cases import Cases
from tests.tui.prepared import strip

from fusetui.analysis.why.model import IDLE
from fusetui.tui.drawing.schemes import (
    BAR,
    CURSOR,
    DARK,
    DARK_16,
    LIGHT,
    LIGHT_16,
    SCHEMES,
    Scheme,
    build_styles,
)
from fusetui.tui.drawing.schemes import TEXT as TEXTS
from fusetui.tui.layout.kinds import SliceKind

XTERM = [
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205),
    (0, 205, 205), (229, 229, 229), (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0),
    (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
    *((r, g, b) for r in (0, 95, 135, 175, 215, 255) for g in (0, 95, 135, 175, 215, 255)
      for b in (0, 95, 135, 175, 215, 255)),
    *((n, n, n) for n in range(8, 248, 10)),
]  # fmt: skip
"""The palette of xterm (its XTerm-col.ad and 256colres.h)."""
PALETTE = Palette(XTERM)
TEXT, BLOCK = 4.5, 3.0
DEPTHS = [
    (DARK, ColorSystem.TRUECOLOR),
    (DARK, ColorSystem.EIGHT_BIT),
    (LIGHT, ColorSystem.TRUECOLOR),
    (LIGHT, ColorSystem.EIGHT_BIT),
    (DARK_16, ColorSystem.STANDARD),
    (LIGHT_16, ColorSystem.STANDARD),
]
Need = tuple[str, str, str, float]
"""What it is, its color, that behind it, and the least contrast."""


def luminance(color: str, depth: ColorSystem) -> float:
    """Relative luminance (WCAG 2.1) of what a terminal shows for a color."""
    shown = Color.parse(color).downgrade(depth)
    triplet = shown.triplet or PALETTE[shown.number or 0]
    channels = [value / 255 for value in triplet]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str, depth: ColorSystem) -> float:
    """WCAG 2.1: from 1 to 21."""
    low, high = sorted((luminance(one, depth), luminance(other, depth)))
    return (high + 0.05) / (low + 0.05)


def needs(scheme: Scheme) -> Iterator[Need]:
    """Every pair of colors that is drawn."""
    colors = scheme.colors
    back = {scheme.background, scheme.surface}
    behind = back if colors["cursor"][1] else {*back, colors["cursor"][0]}
    for token, (block, text) in colors.items():
        front = text or scheme.foreground
        if block:
            yield f"text on {token}", front, block, TEXT
            if token != "cursor":
                yield token, block, scheme.background, BLOCK
        elif token in ("busy", "window"):
            yield token, front, scheme.background, BLOCK
        elif token not in ("background", "surface"):
            yield from ((f"{token} on {one}", front, one, TEXT) for one in behind)


@pytest.mark.parametrize(("scheme", "depth"), DEPTHS, ids=lambda one: one.name)
def test_everything_can_be_read(scheme: Scheme, depth: ColorSystem) -> None:
    low = {
        what: round(contrast(front, back, depth), 2)
        for what, front, back, least in needs(scheme)
        if contrast(front, back, depth) < least
    }
    assert low == {}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda one: one.name)
def test_text_of_a_block_can_be_read_under_the_cursor(scheme: Scheme) -> None:
    styles = build_styles(scheme, scheme.background)
    low = {}
    for token, (block, text) in scheme.colors.items():
        style = styles[token + CURSOR]
        if block and text and contrast_of(style) < TEXT:
            low[token] = style
    assert low == {}


def contrast_of(style: Style) -> float:
    assert style.color
    assert style.bgcolor
    front = style.color.get_truecolor().hex
    back = style.bgcolor.get_truecolor().hex
    return contrast(front, back, ColorSystem.TRUECOLOR)


def test_contrast_is_that_of_the_standard() -> None:
    """Black on white is 21; #767676 on white is the first gray that is enough for
    text."""
    assert contrast("#000000", "#ffffff", ColorSystem.TRUECOLOR) == pytest.approx(21)
    assert round(contrast("#767676", "#ffffff", ColorSystem.TRUECOLOR), 2) == 4.54


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_every_kind_and_reason_has_its_colors(scheme: Scheme) -> None:
    """Also under the cursor."""
    known = build_styles(scheme, scheme.background)
    tokens = [kind.token + part for kind in SliceKind for part in ("", BAR, TEXTS)]
    tokens += [f"idle.{reason}{part}" for reason in IDLE for part in ("", BAR)]
    assert {*tokens, *(token + CURSOR for token in tokens)} <= known.keys()


def test_a_token_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        strip([("text", "of no meaning")], 8)


def test_title_and_op_under_the_cursor_differ_in_the_light_scheme() -> None:
    """A title under the cursor of a dark screen looks like an op under it."""
    (first, *_) = strip([("title", "title" + CURSOR)], 5, LIGHT)
    assert first.style == Style(color="#000000", bgcolor="#d7d7d7", bold=True)


def test_line_in_the_light_scheme_has_its_colors() -> None:
    shown = strip([("gemm", SliceKind.GEMM.token), ("x", "plain")], 8, LIGHT)
    first, second = (one.style for one in shown)
    assert first == Style(color="#000000", bgcolor="#5f87d7")
    assert second == Style(color=LIGHT.foreground, bgcolor=LIGHT.background)


def test_blanks_belong_to_what_stands_before_them() -> None:
    """Each change of color is sent to the terminal."""
    shown = strip([("a", "faint"), ("  ", "plain"), ("b", "title"), (" ", "plain")], 8)
    assert [one.text for one in shown] == ["a  ", "b    "]


@pytest.mark.parametrize(
    ("scheme", "color"), [(LIGHT, "#0000af"), (LIGHT_16, "#ffffff")]
)
def test_row_under_the_cursor_has_the_cursor_color(scheme: Scheme, color: str) -> None:
    """With 16 colors it loses its own."""
    (first, *_) = strip([("gemm", SliceKind.GEMM.token + TEXTS + CURSOR)], 4, scheme)
    block = scheme.colors["cursor"][0]
    assert first.style == Style(color=color, bgcolor=block, bold=True)


YELLOW = range(40, 75)
"""Hues in degrees."""


def is_yellow(color: str) -> bool:
    if not color:
        return False
    red, green, blue = (int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
    hue, saturation, _ = rgb_to_hsv(red, green, blue)
    return saturation > 0.15 and round(hue * 360) in YELLOW


def distance(one: str, other: str) -> float:
    """How different two colors look: the weighted RGB distance of Riemersma's "Color
    metric"."""
    a, b = ([int(color[n : n + 2], 16) for n in (1, 3, 5)] for color in (one, other))
    mean = (a[0] + b[0]) / 2
    red, green, blue = ((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return math.sqrt(
        (2 + mean / 256) * red + 4 * green + (2 + (255 - mean) / 256) * blue
    )


def test_yellow_is_the_selection() -> None:
    yellow = [
        token for token, colors in DARK.colors.items() if any(map(is_yellow, colors))
    ]
    assert yellow == ["selection"]


ON_GPU = [kind for kind in SliceKind if kind.token.startswith("kernel.")]


def block_of(scheme: Scheme, kind: SliceKind) -> str:
    return scheme.colors[kind.token][0]


@pytest.mark.parametrize("scheme", [DARK, LIGHT], ids=lambda scheme: scheme.name)
def test_two_kinds_of_gpu_work_look_different(scheme: Scheme) -> None:
    with Cases() as cases:
        for one, other in combinations(ON_GPU, 2):
            with cases.case(one, other):
                assert distance(block_of(scheme, one), block_of(scheme, other)) > 75


@pytest.mark.parametrize("reason", sorted(IDLE))
@pytest.mark.parametrize("scheme", [DARK, LIGHT], ids=lambda scheme: scheme.name)
def test_idle_time_never_looks_like_work(reason: str, scheme: Scheme) -> None:
    """The line of idle time stands right below the streams."""
    block = scheme.colors[f"idle.{reason}"][0]
    near = [kind for kind in ON_GPU if distance(block, block_of(scheme, kind)) <= 75]
    assert near == []
