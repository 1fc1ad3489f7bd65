"""Negligible findings: under their own heading, and only where all findings are asked
for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.analysis.why.rules.work import A100, SGEMM, work
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.analysis.why.answer import why
from fusetui.report.why import format_why, make_why_document, why_markdown
from fusetui.report.why_answer import NEGLIGIBLE_HEADING
from fusetui.trace import Trace
from fusetui.tui.pages.why import Heading, list_entries
from fusetui.tui.state.state import Size

Make = Callable[..., Trace]
RULE = "no-tensor-cores"


def product(idle_us: int, step_us: int = 0) -> list[Any]:
    """Two products of 80 us on the plain cores, which TF32 makes 70 us shorter each,
    with so much idle time between them; a step around the first one where `step_us` is
    given."""
    events = work(("aten::mm", SGEMM, 80), ("aten::mm", SGEMM, 80), gap=idle_us)
    if step_us:
        note = {
            "ph": "X",
            "cat": "user_annotation",
            "pid": 1,
            "tid": 1,
            "ts": 0,
            "dur": step_us,
        }
        events.append({**note, "name": "ProfilerStep#1"})
    return events


def is_negligible(trace: Trace) -> bool:
    (found,) = (one for one in why(trace).findings if one.rule == RULE)
    return found.negligible


@pytest.mark.parametrize(("idle_us", "expected"), [(27_000, False), (29_000, True)])
def test_the_floor_is_half_a_percent_of_the_span(
    trace_of: Make, idle_us: int, expected: bool
) -> None:
    """140 us are 0.515 % of 27.16 ms and 0.480 % of 29.16 ms."""
    assert is_negligible(trace_of(product(idle_us), **A100)) is expected


def test_of_steps_that_are_shorter_together_than_the_span(trace_of: Make) -> None:
    assert not is_negligible(trace_of(product(29_000, step_us=2_000), **A100))


def test_negligible_finding_is_last_and_printed_only_with_all(trace_of: Make) -> None:
    trace = trace_of(product(29_000), **A100)
    found = why(trace)
    assert [one.rule for one in found.findings if one.negligible] == [
        found.findings[-1].rule
    ]
    short, whole = format_why(found, 100), format_why(found, 100, everything=True)
    assert "float32 matrix products" not in short
    assert "(1 negligible finding omitted; --all prints all)" in short
    before, _, below = whole.partition(NEGLIGIBLE_HEADING)
    assert "float32 matrix products" not in before
    assert f"{len(found.findings)}. 2 float32 matrix products" in below


def test_markdown_has_it_with_all(trace_of: Make) -> None:
    found = why(trace_of(product(29_000), **A100))
    assert "float32 matrix products" not in why_markdown(found)
    _, _, below = why_markdown(found, everything=True).partition("Negligible findings")
    assert "float32 matrix products" in below


def test_json_has_it_with_a_mark(trace_of: Make) -> None:
    trace = trace_of(product(29_000), **A100)
    document = msgspec.to_builtins(make_why_document(why(trace), trace))
    marks = [one["negligible"] for one in document["findings"]]
    assert marks == [False] * (len(marks) - 1) + [True]


def test_the_page_has_it_last_under_a_heading(trace_of: Make) -> None:
    trace = trace_of(product(29_000), **A100)
    *_, heading, last = list_entries(why(trace))
    assert isinstance(heading, Heading)
    assert last == why(trace).findings[-1]
    state = after(opened(trace, size=Size(120, 50)), explained, *do("why"))
    text = drawn(state)
    assert text.index(NEGLIGIBLE_HEADING) < text.index("float32 matrix products")
    rows = len(list_entries(why(trace)))
    on_heading = after(state, *do(*["row-down"] * (rows - 2), "show"))
    assert "this row is a heading" in drawn(on_heading)


def test_without_one_there_is_no_heading(trace_of: Make) -> None:
    found = why(trace_of(product(100), **A100))
    assert NEGLIGIBLE_HEADING not in format_why(found, 100, everything=True)
    assert not any(isinstance(entry, Heading) for entry in list_entries(found))
