"""The figures of a trace agree with torch.profiler's own table of the same run, number
by number."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest

from fusetui.analysis.questions.totals import (
    mark_nested_in_same_name,
    sum_kernels_by_name,
    sum_ops_by_name,
)
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role

torch = pytest.importorskip("torch", reason="the table is torch's")
pytestmark = pytest.mark.torch
DEVICES = ["cpu", "cuda"]


class Run(NamedTuple):
    trace: Trace
    table: list[Any]  # torch.profiler's averages by name; times in us


@pytest.fixture(scope="module", params=DEVICES)
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Five steps of training of a small model."""
    device = request.param
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    layers = [torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)]
    model = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(16, 32, device=device)
    model(x).sum().backward()
    with torch.profiler.profile() as profiler:
        for _ in range(5):
            model(x).sum().backward()
    path = tmp_path_factory.mktemp("run") / f"{device}.json"
    profiler.export_chrome_trace(str(path))
    return Run(open_trace(str(path)), list(profiler.key_averages()))


def nanoseconds(micros: float) -> int:
    return round(micros * 1000)


def on_cpu(run: Run) -> dict[str, Any]:
    return {e.key: e for e in run.table if "CPU" in str(e.device_type)}


def test_cpu_times_of_every_op_are_those_of_torch(run: Run) -> None:
    table = on_cpu(run)
    totals = sum_ops_by_name(run.trace)
    assert len(totals) > 20
    for op in totals:
        row = table[op.name]
        assert op.self_ns == nanoseconds(row.self_cpu_time_total), op.name
        assert op.total_ns == nanoseconds(row.cpu_time_total), op.name


def test_counts_of_ops_are_those_of_torch(run: Run) -> None:
    """Torch counts an op whose only child has its own name once; the trace holds
    both."""
    table, trace = on_cpu(run), run.trace
    rows = trace.rows_of(Role.OP)
    outer = Counter(
        map(trace.name_of, rows[~mark_nested_in_same_name(trace, rows)].tolist())
    )
    for op in sum_ops_by_name(trace):
        assert outer[op.name] <= table[op.name].count <= op.count, op.name


def test_kernel_times_are_those_of_torch(run: Run) -> None:
    table = {e.key: e for e in run.table if "CUDA" in str(e.device_type)}
    totals = sum_kernels_by_name(run.trace)
    assert bool(totals) == bool(table)
    for kernel in totals:
        row = table[kernel.name]
        found = (kernel.count, kernel.total_ns)
        assert found == (row.count, nanoseconds(row.self_device_time_total)), (
            kernel.name
        )
