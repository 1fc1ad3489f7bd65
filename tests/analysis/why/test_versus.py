"""Where GPU time changed between two traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.analysis.why.rules.work import ADD, SGEMM, module, work

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.versus import Moved, Versus, versus
from fusetui.trace import Trace

US = 1_000


def compared(trace_of: Callable[..., Trace], a: list[Any], b: list[Any]) -> Versus:
    return versus(*(why(trace_of(events)) for events in (a, b)))


def layers(product: int, add: int, steps: int = 0) -> list[Any]:
    """A product in one module, then an addition in another one; in so many steps."""
    kernels = (("aten::mm", SGEMM, product), ("aten::add", ADD, add))
    modules = [module("Linear_0", 0, 9), module("Norm_0", 10, 9)]
    note = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
    marks = [
        note | {"name": f"ProfilerStep#{n}", "ts": 2_000 * n, "dur": 2_000}
        for n in range(steps)
    ]
    return [*work(*kernels), *modules, *marks]


def test_modules_and_families_that_changed(trace_of: Callable[..., Trace]) -> None:
    """The addition takes 60 us less; the product is as fast as before."""
    found = compared(trace_of, layers(200, 100), layers(200, 40))
    assert found.modules == (Moved("Norm_*", 100 * US, 40 * US),)
    assert found.families == (Moved("aten-elementwise", 100 * US, 40 * US),)


def test_the_largest_change_comes_first(trace_of: Callable[..., Trace]) -> None:
    found = compared(trace_of, layers(200, 100), layers(300, 90))
    assert [one.name for one in found.modules] == ["Linear_*", "Norm_*"]


def test_steps_are_compared_by_their_means(trace_of: Callable[..., Trace]) -> None:
    """The same work in two steps instead of one is half of it for each."""
    found = compared(trace_of, layers(200, 100, steps=1), layers(200, 100, steps=2))
    assert found.change_of == "median step"
    assert found.modules[0] == Moved("Linear_*", 200 * US, 100 * US)


def test_equal_modules_and_families_are_left_out(
    trace_of: Callable[..., Trace],
) -> None:
    found = compared(trace_of, layers(200, 100), layers(200, 100))
    assert (found.modules, found.families) == ((), ())
