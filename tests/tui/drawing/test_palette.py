"""Colors: each has one meaning."""

from __future__ import annotations

import math
from colorsys import rgb_to_hsv
from itertools import combinations

import pytest
from rich.style import Style

from fusetui.tui.drawing import palette
from fusetui.tui.drawing.schemes import DARK, LIGHT, Scheme
from fusetui.tui.layout.kinds import Kind

YELLOW = range(40, 75)
"""Hues in degrees."""
STYLES = {name: style for name, style in vars(palette).items() if isinstance(style, Style)}


def colors(style: Style) -> list[str]:
    found = (style.color, style.bgcolor)
    return [color.get_truecolor().hex for color in found if color is not None]


def is_yellow(color: str) -> bool:
    red, green, blue = (int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
    hue, saturation, _ = rgb_to_hsv(red, green, blue)
    return saturation > 0.15 and round(hue * 360) in YELLOW


def distance(one: str, other: str) -> float:
    """How different two colors look: the weighted RGB distance of Riemersma's "Color metric"."""
    a, b = ([int(color[n : n + 2], 16) for n in (1, 3, 5)] for color in (one, other))
    mean = (a[0] + b[0]) / 2
    red, green, blue = ((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return math.sqrt((2 + mean / 256) * red + 4 * green + (2 + (255 - mean) / 256) * blue)


def test_yellow_is_the_selection() -> None:
    named = [*STYLES.items(), *((kind.value, palette.fill(kind)) for kind in Kind)]
    named += [(name, palette.idle_fill(name)) for name in DARK.idle]
    yellow = [name for name, style in named if any(map(is_yellow, colors(style)))]
    assert yellow == ["SELECTED"]


ON_GPU = (Kind.GEMM, Kind.ATTENTION, Kind.POINTWISE, Kind.FUSED, Kind.REDUCTION, Kind.COPY,
          Kind.COMM, Kind.GPU_OTHER)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [*combinations(ON_GPU, 2)])
@pytest.mark.parametrize("scheme", [DARK, LIGHT], ids=lambda scheme: scheme.name)
def test_two_kinds_of_gpu_work_look_different(one: Kind, other: Kind, scheme: Scheme) -> None:
    assert distance(scheme.kinds[one][0], scheme.kinds[other][0]) > 75


@pytest.mark.parametrize("reason", sorted(DARK.idle))
@pytest.mark.parametrize("scheme", [DARK, LIGHT], ids=lambda scheme: scheme.name)
def test_idle_time_never_looks_like_work(reason: str, scheme: Scheme) -> None:
    """The line of idle time stands right below the streams."""
    block = scheme.idle[reason][0]
    near = [kind for kind in ON_GPU if distance(block, scheme.kinds[kind][0]) <= 75]
    assert near == []
