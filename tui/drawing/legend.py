"""The legend: what the colors of the GPU lanes mean, and how much of the time each takes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip

from fusetui.trace.text.figures import percent
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.segments import segment
from fusetui.tui.drawing.strips import labeled
from fusetui.tui.layout.kinds import LETTERS
from fusetui.tui.layout.shares import Share

TITLE = "GPU time"


def legend_line(found: Sequence[Share], glyphs: Glyphs, gutter: int, width: int) -> Strip:
    """`■ gemm 45 %  ■ reduction 46 %`: the largest shares, as many as fit."""
    segments: list[Segment] = []
    used = gutter
    for share in found:
        text = f" {share.kind.removeprefix('gpu-')} {percent(share.ns, share.whole_ns)}  "
        used += len(text) + 1
        if used > width:
            break
        mark = LETTERS[share.kind] if glyphs.letters else glyphs.swatch
        segments += [segment(mark, palette.bar(share.kind)), segment(text, palette.DIM)]
    return labeled(TITLE if found else "", segments, gutter, width)
