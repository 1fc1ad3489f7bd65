"""Most kernels are very short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def kernels(launched: Make, dur: int, count: int = 30) -> list[dict[str, Any]]:
    return [
        event
        for n in range(count)
        for event in launched(n, n * 20, n * 20 + 5, dur=dur)
    ]


def test_small_kernels_reports_thirty_kernels_of_4_us(
    found: Ask, launched: Make
) -> None:
    """30 kernels of 4 us, with 29 gaps of 16 us."""
    (finding,) = found("small-kernels", kernels(launched, 4))
    assert finding.at_stake_ns is None
    assert finding.text == (
        "100 % of the 30 kernels are shorter than 5 us. These kernels and the gaps "
        "between them take 584 us (100 % of the span)."
    )


def test_long_kernels_are_silent(found: Ask, launched: Make) -> None:
    assert found("small-kernels", kernels(launched, 6)) == []


def test_a_few_kernels_are_silent(found: Ask, launched: Make) -> None:
    assert found("small-kernels", kernels(launched, 4, count=19)) == []
    (finding,) = found("small-kernels", kernels(launched, 4, count=20))
    assert finding.thresholds["fewest"] == 20


def test_gaps_of_slow_launch_calls_are_not_counted(found: Ask, launched: Make) -> None:
    """30 kernels of 4 us in 6,000 us; all but the gaps around them is slow calls."""
    slow = [
        event for n in range(30) for event in launched(n, n * 200, n * 200 + 180, dur=4)
    ]
    for call in slow[::2]:
        call["dur"] = 150
    assert found("small-kernels", slow) == []


def test_nodes_of_a_graph_are_launched_together_already(
    found: Ask, launched: Make
) -> None:
    call, node = launched(1, 0, 10, dur=4)
    nodes = [{**node, "ts": 10 + 5 * n} for n in range(30)]
    (finding,) = found("small-kernels", [call | {"name": "cudaGraphLaunch"}, *nodes])
    assert finding.try_ is not None
    assert finding.try_.startswith("Fuse pointwise kernels with each other")
