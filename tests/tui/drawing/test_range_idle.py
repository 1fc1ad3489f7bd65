"""Why the GPU was idle in a range of time."""

from __future__ import annotations

from collections.abc import Callable

from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.analysis.questions.busy import summarize_window
from fusetui.trace import Trace
from fusetui.tui.drawing.range_lines import list_range_figures
from fusetui.tui.state.session import Range

Make = Callable[..., Trace]


def test_idle_reasons_of_a_range_are_shown_once_known(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), *do("range", "range"))
    assert "idle 2.45 ms:   Python" not in drawn(state)
    assert "idle 2.45 ms:   Python" in drawn(after(state, explained))


def test_idle_reasons_of_a_range_add_up_exactly(trace_of: Make) -> None:
    trace = trace_of(training())
    side = after(opened(trace), explained).side
    begin, end = trace.begin_ns + 123_456, trace.begin_ns + 1_234_567
    lines = [
        line.text for line in list_range_figures(side, Range(0, begin, end, True), 100)
    ]
    parts = [line.split(" ns, ")[0] for line in lines if line.startswith("    idle ")]
    amounts = [int(part.removeprefix("    idle ").replace(",", "")) for part in parts]
    assert len(amounts) > 2
    assert sum(amounts) == summarize_window(trace, begin, end).idle_ns


def test_range_beyond_the_trace_has_no_not_launched_reason(trace_of: Make) -> None:
    trace = trace_of(training())
    side = after(opened(trace), explained).side
    found = Range(0, trace.end_ns + 5, trace.end_ns + 10, True)
    assert not any(
        "not launched yet" in line.text for line in list_range_figures(side, found, 100)
    )
