"""All answers about a part of a trace are about that part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.trace.insights.rules.work import ADD, ALL_REDUCE, work

from fusetui.trace import Trace
from fusetui.trace.insights.why import Selection, why

US = 1_000


def test_what_runs_across_the_edge_of_a_window_counts_with_its_part(
    trace_of: Callable[..., Trace],
) -> None:
    """An all-reduce of 100 us, then kernels up to 1,200 us; the window is 950 to 1,150 us."""
    reduce: dict[str, Any] = {"ph": "X", "cat": "kernel", "name": ALL_REDUCE, "pid": 0, "tid": 20}
    events = [*work(("aten::add", ADD, 200)), reduce | {"ts": 900, "dur": 100}]
    found = why(trace_of(events), Selection(from_ns=950 * US, to_ns=1_150 * US))
    (device,) = found.devices
    assert (device.exposed_comm_ns, device.compute_ns) == (50 * US, 150 * US)
    (finding,) = (one for one in found.findings if one.rule == "exposed-communication")
    assert finding.at_stake_ns == device.exposed_comm_ns
    assert found.ceiling
    assert found.ceiling.unknown_ns == device.exposed_comm_ns + device.compute_ns
