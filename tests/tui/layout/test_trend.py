"""How durations change from step to step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.finding import find
from tests.tui.conftest import GEMM, mlp_events
from tests.tui.prepared import after, do, line, opened

from fusetui.trace import Trace
from fusetui.trace.layout.steps import steps_of
from fusetui.tui import screen_layout
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.layout.search_hits import Trend, compute_trend
from fusetui.tui.pages.overlays import draw_spark_line
from fusetui.tui.state.state import Size

US = 1000


def test_a_kernel_counts_in_the_step_that_launched_it(
    trace_of: Callable[..., Trace],
) -> None:
    """The kernels of step 2 are made longer; some of them run when step 3 has begun."""
    events = mlp_events(3)
    slow = [
        e for e in events if e["name"] == GEMM and e["args"]["correlation"] // 100 == 1
    ]
    for event in slow:
        event["dur"], event["ts"] = 400, event["ts"] + 600
    trace = trace_of(events)
    rows = find(trace, GEMM)
    found = compute_trend(trace, rows, trace.dur[rows], steps_of(trace), cells=10)
    assert found == Trend(
        (181 * US, 400 * US, 181 * US), 3, 180 * US, 182 * US, 400 * US
    )


def test_without_steps_it_is_in_order_of_time(mlp: Trace) -> None:
    rows = find(mlp, GEMM)
    found = compute_trend(mlp, rows, mlp.dur[rows], steps_of(mlp, "none"), cells=2)
    assert found is not None
    assert (found.steps, found.medians) == (0, (181 * US, 181 * US))


def test_trend_of_one_instance_is_not_shown(mlp: Trace) -> None:
    assert (
        compute_trend(mlp, np.array([3]), mlp.dur[[3]], steps_of(mlp), cells=10) is None
    )


def test_instances_show_a_trend_above_their_list(mlp: Trace) -> None:
    shown = drawn_over(mlp, "kernels", "instances")
    assert "4 hits   median 181 us, 180 us to 182 us   over 2 steps ▄▄" in shown


def test_the_line_goes_from_the_least_to_the_most() -> None:
    assert draw_spark_line((100, -1, 130, 200), UNICODE.levels) == "▁ ▃█"
    assert (
        draw_spark_line((0, 0), UNICODE.levels)
        == draw_spark_line((1000, 1001), UNICODE.levels)
        == "▄▄"
    )


def test_steps_are_a_list(mlp: Trace) -> None:
    shown = drawn_over(mlp, "steps")
    assert shown.count("ProfilerStep#") == 2
    assert "690" in shown


def drawn_over(trace: Trace, *names: str) -> str:
    """The lines of the overlay."""
    state = after(opened(trace), *do(*names))
    picture = screen_layout.stack(screen_layout.overlay_panes(state))
    return "\n".join(line(picture, y, Size(90, 20)) for y in range(20))
