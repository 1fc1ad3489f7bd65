"""The legend: what the colors of the GPU lanes mean, and how much of the time each takes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip

from fusetui.text.figures import percent
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.segments import segment
from fusetui.tui.drawing.strips import labeled
from fusetui.tui.layout.kinds import LETTERS
from fusetui.tui.layout.shares import Share

BETWEEN = "  "  # two families


def legend_line(found: Sequence[Share], glyphs: Glyphs, gutter: int, width: int) -> Strip:
    """`■ gemm 45.2 %  ■ reduction 46.1 %  2 more 8.7 %`: the largest shares, and what is left."""
    segments: list[Segment] = []
    room = width - gutter
    for n, share in enumerate(found):
        between = BETWEEN if n else ""
        text = f" {share.kind.removeprefix('gpu-')} {_share(share, share.ns)}"
        cells = len(between) + 1 + len(text)
        if cells + len(_rest(found, n + 1)) > room:
            segments.append(segment(_rest(found, n)[: max(0, room)], palette.DIM))
            break
        mark = LETTERS[share.kind] if glyphs.letters else glyphs.swatch
        parts = (between, palette.DIM), (mark, palette.bar(share.kind)), (text, palette.DIM)
        segments += [segment(*part) for part in parts if part[0]]
        room -= cells
    return labeled(f"{found[0].of} time" if found else "", segments, gutter, width)


def _rest(found: Sequence[Share], n: int) -> str:
    """What the families from one on take together; "" for none."""
    left = sum(one.ns for one in found[n:])
    between = BETWEEN if n else ""
    return f"{between}{len(found) - n} more {_share(found[0], left)}" if n < len(found) else ""


def _share(one: Share, ns: int) -> str:
    """All with one decimal, so that they can be added up."""
    return percent(ns, one.whole_ns, fine=True)
