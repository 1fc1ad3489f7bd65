"""An optimizer that updates one parameter after another."""

from __future__ import annotations

from .conftest import Ask
from .work import ADD, Event, work

FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "at::native::(anonymous namespace)::TensorListMetadata<2>>(int)"
)


def step(kernel: str, count: int, dur: int = 3) -> list[Event]:
    name = "Optimizer.step#Adam.step"
    span = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1}
    kernels = work(*[("aten::add_", kernel, dur)] * count, gap=2)
    return [span | {"ts": 0, "dur": 10 * count}, *kernels]


def test_optimizer_launches_reports_sixty_kernels_per_call(found: Ask) -> None:
    """60 kernels of 3 us, and 59 gaps of 2 us."""
    (finding,) = found("optimizer-launches", step(ADD, 60))
    assert finding.at_stake_ns is None
    assert finding.text == (
        "Each optimizer call launches 60 kernels, one parameter at a time, of 3 us "
        "on average. Including the gaps before them, they take 298 us (100 % of the "
        "span), 40 % of it idle."
    )


def test_a_foreach_optimizer_is_silent(found: Ask) -> None:
    assert found("optimizer-launches", step(FOREACH, 60)) == []


def test_a_few_kernels_are_silent(found: Ask) -> None:
    assert found("optimizer-launches", step(ADD, 20)) == []


def test_large_kernels_are_silent(found: Ask) -> None:
    assert found("optimizer-launches", step(ADD, 60, dur=50)) == []
