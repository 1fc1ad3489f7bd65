"""Every color that is drawn can be read, on dark and light screens, with any number of colors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.color import Color, ColorSystem
from rich.palette import Palette
from rich.style import Style

from fusetui.tui.drawing import palette
from fusetui.tui.drawing.schemes import (
    DARK,
    DARK_16,
    LIGHT,
    LIGHT_16,
    SCHEMES,
    Scheme,
    styles,
    translation,
)
from fusetui.tui.drawing.segments import in_scheme, line, segment
from fusetui.tui.layout.kinds import Kind

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
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str, depth: ColorSystem) -> float:
    """WCAG 2.1: from 1 to 21."""
    low, high = sorted((luminance(one, depth), luminance(other, depth)))
    return (high + 0.05) / (low + 0.05)


def needs(scheme: Scheme) -> Iterator[Need]:
    """Every pair of colors that is drawn."""
    cursor = scheme.marks["CURSOR"][0]
    behind = {scheme.background, scheme.surface, *(() if scheme.cursor else (cursor,))}
    for (use, name), style in styles(scheme).items():
        front = style.color.get_truecolor().hex if style.color else scheme.foreground
        if style.bgcolor is not None:
            block = style.bgcolor.get_truecolor().hex
            yield f"text on {name}", front, block, TEXT
            if name != "CURSOR":
                yield f"{use} {name}", block, scheme.background, BLOCK
        elif use in ("bar", "idle bar") or name in ("BUSY", "WINDOW"):
            yield f"{use} {name}", front, scheme.background, BLOCK
        else:
            yield from ((f"{use} {name} on {back}", front, back, TEXT) for back in behind)
    yield from (("foreground", scheme.foreground, back, TEXT) for back in behind)


@pytest.mark.parametrize(("scheme", "depth"), DEPTHS, ids=lambda one: one.name)
def test_everything_can_be_read(scheme: Scheme, depth: ColorSystem) -> None:
    low = {
        what: round(contrast(front, back, depth), 2)
        for what, front, back, least in needs(scheme)
        if contrast(front, back, depth) < least
    }
    assert low == {}


def test_contrast_is_that_of_the_standard() -> None:
    """Black on white is 21; #767676 on white is the first gray that is enough for text."""
    assert contrast("#000000", "#ffffff", ColorSystem.TRUECOLOR) == pytest.approx(21)
    assert round(contrast("#767676", "#ffffff", ColorSystem.TRUECOLOR), 2) == 4.54


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_every_style_of_the_palette_has_one_in_each_scheme(scheme: Scheme) -> None:
    """And one only: two uses that look alike in the palette would look alike everywhere."""
    drawn, shown = styles(DARK), styles(scheme)
    known = translation(scheme, scheme.background)
    behind = Style(color=scheme.foreground, bgcolor=scheme.background)
    assert drawn.keys() == shown.keys()
    assert [use for use, style in drawn.items() if known[style] != behind + shown[use]] == []
    assert {value for value in vars(palette).values() if isinstance(value, Style)} <= known.keys()


def test_a_line_in_another_scheme() -> None:
    drawn = line([segment("gemm", palette.fill(Kind.GEMM)), segment("x", palette.PLAIN)], 8)
    shown = in_scheme(drawn, LIGHT, LIGHT.background)
    assert shown.text == drawn.text
    first, second = (one.style for one in shown)
    assert first == styles(LIGHT)["fill", Kind.GEMM]
    assert second == Style(color=LIGHT.foreground, bgcolor=LIGHT.background)


def test_blanks_belong_to_what_stands_before_them() -> None:
    """Each change of color is sent to the terminal."""
    parts = [("a", palette.DIM), ("  ", palette.PLAIN), ("b", palette.TITLE), (" ", palette.PLAIN)]
    shown = in_scheme(line([segment(*part) for part in parts], 8), DARK, DARK.background)
    assert [one.text for one in shown] == ["a  ", "b    "]


def test_a_row_under_the_cursor_in_another_scheme() -> None:
    drawn = line([segment("gemm", palette.swatch(Kind.GEMM))], 8).apply_style(palette.CURSOR)
    (first, *_) = in_scheme(drawn, LIGHT, LIGHT.background)
    assert first.style == styles(LIGHT)["swatch", Kind.GEMM] + styles(LIGHT)["mark", "CURSOR"]
