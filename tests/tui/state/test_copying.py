"""What is copied: exact, printable, never more than a terminal takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.trace import Trace
from fusetui.tui.layout.view import Side, make_sides
from fusetui.tui.pages.page import MAX_COPIED_CHARS, describe_copy, format_slice


def test_a_slice_is_its_name_with_exact_times(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    trace = trace_of([event("first", 1000), event("aten::mm", 1012.345, 0.5)])
    side = make_sides([trace], ["one"])[0]
    assert format_slice(side, 1) == "aten::mm   start 12345 ns   duration 500 ns"


def test_the_start_counts_as_the_ruler_does(mlp: Trace) -> None:
    assert "start -200 ns" in format_slice(Side(mlp, (), mlp.begin_ns + 200, "late"), 0)


def test_a_name_that_a_terminal_would_obey_is_copied_escaped(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    side = make_sides([trace_of([event("\x1b]0;x\x07\n", 1000)])], ["one"])[0]
    assert format_slice(side, 0).startswith(r"\x1b]0;x\x07\n   start 0 ns")


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copied_text_of_any_name_can_be_encoded_and_printed(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]], name: str
) -> None:
    text = format_slice(make_sides([trace_of([event(name, 1000)])], ["one"])[0], 0)
    assert text.encode().decode() == text
    assert text.isprintable()


def test_a_name_beyond_measure_is_cut_and_that_is_said(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    text = format_slice(
        make_sides([trace_of([event("k" * MAX_COPIED_CHARS * 2, 1000)])], ["one"])[0], 0
    )
    assert len(text) == MAX_COPIED_CHARS
    assert "the first 50,000 characters" in describe_copy(text)


def test_the_hint_is_one_line() -> None:
    assert describe_copy("a") == "copied: a"
    assert describe_copy("a\nb\nc") == "copied 3 names: a"
    assert describe_copy("# Why\n\nbusy", "line") == "copied 3 lines: # Why"
    assert describe_copy("") == "nothing is selected, so nothing was copied"
