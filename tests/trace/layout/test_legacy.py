"""The export of torch's older profiler: a list of events without a category."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.why.answer import why
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role

Open = Callable[..., Trace]


@pytest.fixture
def legacy(write: Callable[[str], Path]) -> Open:
    """(name, pid, ts, dur) of each slice, as EventList.export_chrome_trace writes
    them."""

    def opened(*slices: tuple[str, str, int, int], **keys: Any) -> Trace:
        events = [
            {
                "name": name,
                "ph": "X",
                "ts": ts,
                "dur": dur,
                "tid": 0,
                "pid": pid,
                "args": {},
                **keys,
            }
            for name, pid, ts, dur in slices
        ]
        return open_trace(str(write(json.dumps(events))))

    return opened


def roles(trace: Trace) -> dict[str, Role]:
    return {
        f"{trace.track_of(row).pid} {trace.name_of(row)}": Role(trace.role[row])
        for row in range(len(trace))
    }


def test_cpu_functions_are_ops(legacy: Open) -> None:
    trace = legacy(
        ("aten::conv2d", "CPU functions", 0, 100),
        ("aten::empty", "CPU functions", 10, 5),
    )
    assert roles(trace) == {
        "CPU functions aten::conv2d": Role.OP,
        "CPU functions aten::empty": Role.OP,
    }
    assert [trace.parent[row] for row in range(2)] == [-1, 0]
    (thread,) = why(trace).cpu
    assert thread.op_ns == 100_000


def test_steps_and_optimizers_are_annotations(legacy: Open) -> None:
    trace = legacy(("Optimizer.step#SGD.step", "CPU functions", 0, 100))
    assert set(roles(trace).values()) == {Role.ANNOTATION}


def test_cuda_functions_are_ranges_of_ops_or_kernels(legacy: Open) -> None:
    """Under the name of an op they are the time between two events around it, not a
    kernel."""
    trace = legacy(
        ("aten::add", "CPU functions", 0, 10),
        ("aten::add", "CUDA functions", 20, 5),
        ("ampere_sgemm_128x64_tn", "CUDA functions", 30, 5),
    )
    assert roles(trace) == {
        "CPU functions aten::add": Role.OP,
        "CUDA functions aten::add": Role.GPU_ANNOTATION,
        "CUDA functions ampere_sgemm_128x64_tn": Role.KERNEL,
    }


@pytest.mark.parametrize(
    ("pid", "keys"),
    [("Other functions", {}), ("CPU functions", {"cat": "python_function"})],
)
def test_other_slices_keep_what_their_category_tells(
    legacy: Open, pid: str, keys: dict[str, str]
) -> None:
    (found,) = roles(legacy(("aten::add", pid, 0, 10), **keys)).values()
    assert found == (Role.PYTHON if keys else Role.OTHER)
