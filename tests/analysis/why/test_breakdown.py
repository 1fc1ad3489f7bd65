"""What the time of a GPU goes to, where it is the limit: in text, in Markdown and in
the app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.why.rules.work import ADD, SGEMM, module, work
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.analysis.why.answer import why
from fusetui.report.why import format_why, why_markdown
from fusetui.report.why_answer import breakdown_text
from fusetui.text.tables import UncutWidth
from fusetui.trace import Trace
from fusetui.tui.state.state import Size

Make = Callable[..., Trace]
LONG = "a_module_whose_name_is_longer_than_what_a_sentence_on_a_screen_shows"
TEXT = "GPU time by kernel: gemm fp32 128x64 tn sm80 75 %, add fp32 x4 25 %"


def events(name: str = "Linear", gap: int = 0) -> list[Any]:
    """A product of 300 us in one module, and an addition of 100 us in another one."""
    kernels = (("aten::mm", SGEMM, 300), ("aten::add", ADD, 100))
    return [
        *work(*kernels, gap=gap),
        module(f"{name}_0", 0, 9),
        module("Norm_0", 10, 9),
    ]


def test_kernels_and_modules_with_their_shares(trace_of: Make) -> None:
    found = breakdown_text(why(trace_of(events())))
    assert found == f"{TEXT}; by module or annotation: Linear 75 %, Norm 25 %."


@pytest.mark.parametrize(("gap", "is_told"), [(90, True), (110, False)])
def test_breakdown_is_printed_where_the_gpu_is_busy_for_four_fifths(
    trace_of: Make, gap: int, is_told: bool
) -> None:
    """400 us of 490 are 82 %, of 510 they are 78 %."""
    found = why(trace_of(events(gap=gap)))
    assert bool(breakdown_text(found)) == is_told
    assert ("| kernel |" in why_markdown(found)) == is_told


def test_markdown_has_both_tables(trace_of: Make) -> None:
    lines = why_markdown(why(trace_of(events()))).split("\n")
    assert "| gemm fp32 128x64 tn sm80 | 300 us | 75 % | 1 |" in lines
    assert "| Linear | 300 us | 75 % | 1 |" in lines


def test_the_page_tells_it(trace_of: Make) -> None:
    state = after(opened(trace_of(events()), size=Size(120, 40)), explained, *do("why"))
    assert TEXT in drawn(state)


def test_only_a_screen_cuts_names(trace_of: Make) -> None:
    found = why(trace_of(events(LONG)))
    assert LONG in " ".join(format_why(found, UncutWidth(100)).split())
    assert LONG in format_why(found, UncutWidth(100), everything=True)
    assert LONG not in format_why(found, 100)
