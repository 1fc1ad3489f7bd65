"""The longest call of each path of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.trace.program.modules import longest_calls
from fusetui.trace.program.origin import origins


def test_longest_call_of_each_module_path_is_found(
    trace_of: Callable[..., Any], event: Callable[..., Any]
) -> None:
    def module(name: str, ts: int, dur: int) -> dict[str, Any]:
        found: dict[str, Any] = event(
            f"nn.Module: {name}", ts, dur, cat="python_function"
        )
        return found

    trace = trace_of(
        [module("Net_0", 0, 100), module("MLP_0", 5, 10), module("MLP_1", 20, 30)]
    )
    found = {
        path: trace.name_of(row) for path, row in longest_calls(origins(trace)).items()
    }
    assert found == {"Net_*": "nn.Module: Net_0", "Net_* > MLP_*": "nn.Module: MLP_1"}
