"""The legend names what is there, with its share of the GPU time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.mixed import mixed

from fusetui.trace import Trace
from fusetui.tui.drawing.schemes import ASCII, UNICODE, Glyphs
from fusetui.tui.drawing.timeline import draw_legend_line
from fusetui.tui.layout.kinds import SliceKind, compute_kind_shares

Make = Callable[..., Trace]


def test_shares_are_those_of_all_gpu_time(trace_of: Make) -> None:
    """Of each step: 450 us of communication, 250 of additions, 100 of a GEMM, 60 of
    attention."""
    found = compute_kind_shares(trace_of(mixed()))
    assert [(share.kind, share.ns // 1000) for share in found] == [
        (SliceKind.COMM, 900),
        (SliceKind.POINTWISE, 500),
        (SliceKind.GEMM, 200),
        (SliceKind.ATTENTION, 120),
    ]
    assert {share.whole_ns // 1000 for share in found} == {1720}


@pytest.mark.parametrize(
    ("glyphs", "width", "text"),
    [
        (
            UNICODE,
            80,
            "GPU time  ■ comm 52.3 %  ■ pointwise 29.1 %  ■ gemm 11.6 %  ■ attention 7.0 %",
        ),
        (
            ASCII,
            80,
            "GPU time  m comm 52.3 %  p pointwise 29.1 %  g gemm 11.6 %  a attention 7.0 %",
        ),
        (UNICODE, 60, "GPU time  ■ comm 52.3 %  ■ pointwise 29.1 %  2 more 18.6 %"),
        (UNICODE, 30, "GPU time  4 more 100 %"),
    ],
)
def test_a_legend_shows_the_largest_shares_that_fit_and_the_rest_as_one(
    trace_of: Make, glyphs: Glyphs, width: int, text: str
) -> None:
    line = draw_legend_line(compute_kind_shares(trace_of(mixed())), glyphs, 10, width)
    assert "".join(part for part, _ in line) == text
