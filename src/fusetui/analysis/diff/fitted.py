"""What a line of a diff is about, in little room: the kernel before the op, and both before the
place."""

from __future__ import annotations

import msgspec

from fusetui.analysis.diff.lines import APART, ARROW, Line
from fusetui.text.cutting import clip, width

LEAST = 10  # cells: a shorter part of a place says nothing


class Fitted(msgspec.Struct, frozen=True):
    """The text, and the parts that it has no room for."""

    text: str
    left_out: tuple[str, ...] = ()


def fitted(line: Line, most: int) -> Fitted:
    """In at most `most` cells. Where `what` is wider, the place is shortened or left out, then the
    op, and only then the kernel is cut.

    >>> parts = ("Attention_*", "aten::bmm", "gemm bf16 128x128x64")
    >>> what = "Attention_*  aten::bmm  gemm bf16 128x128x64  x24"
    >>> line = Line("-", "removed", 9, None, -9, what, parts=parts, times="  x24")
    >>> fitted(line, 36).text
    'aten::bmm  gemm bf16 128x128x64  x24'
    >>> fitted(line, 22).text
    'gemm bf16 128x12…  x24'
    """
    if width(line.what) <= most or not line.parts:
        return Fitted(clip(line.what, most))
    indent = line.what[: len(line.what) - len(line.what.lstrip())]
    room = most - width(indent) - width(line.times)
    for left_out in range(1, len(line.parts)):
        text = APART.join(line.parts[left_out:])
        if width(text) <= room:
            break
    else:
        left_out, text = len(line.parts) - 1, _cut(line.parts[-1], room)
    spare = room - width(text) - width(APART)
    if left_out == 1 and spare >= LEAST:
        text = f"{clip(line.parts[0], spare)}{APART}{text}"
    return Fitted(clip(f"{indent}{text}{line.times}", most), line.parts[:left_out])


def _cut(text: str, most: int) -> str:
    """Of `A -> B` both sides are cut, so that both can be seen."""
    before, arrow, after = text.partition(ARROW)
    if not arrow:
        return clip(text, most)
    room = most - width(ARROW)
    first = clip(before, max(room // 2, room - width(after)))
    return f"{first}{ARROW}{clip(after, room - width(first))}"
