"""Kernels and ops in groups, compared with groups made with dicts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.corpus.files import WITH_MODULES
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions.groups import (
    GROUPINGS,
    IDENTITY,
    KernelGroup,
    OpGroup,
    group_kernels,
    group_ops,
)
from fusetui.analysis.questions.totals import sum_kernels_by_name, sum_ops_by_name
from fusetui.command_line.arguments import KERNELS_BY, OPS_BY
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import dtype_of_profiler_type
from fusetui.gpu.roofline.many import jobs
from fusetui.gpu.roofline.row import work_of
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.steps import launched_in_steps, steps_of
from fusetui.trace.model.categories import Role

Make = Callable[..., Any]
Slow = Callable[[Trace, int], Any]


def op_name(trace: Trace, row: int) -> str | None:
    return trace.name_of(int(trace.op[row])) if trace.op[row] >= 0 else None


def inputs(trace: Trace, op: int) -> tuple[Any, Any]:
    args = trace.args_of(op) if op >= 0 else {}
    types = args.get("Input type")
    return args.get("Input Dims"), types and [
        dtype_of_profiler_type(word) or word for word in types
    ]


def step_name(trace: Trace, row: int) -> str | None:
    each = zip(steps_of(trace).names, launched_in_steps(trace), strict=True)
    return next((name for name, launched in each if row in launched), None)


SLOW: dict[str, Slow] = {
    "name": lambda trace, row: trace.name_of(row),
    "op": op_name,
    "shape": lambda trace, row: (
        trace.name_of(row),
        op_name(trace, row),
        *inputs(trace, int(trace.op[row])),
    ),
    "family": lambda trace, row: getattr(decode(trace.name_of(row)), "family", None),
    "stream": lambda trace, row: (trace.track_of(row).pid, trace.track_of(row).tid),
    "step": step_name,
}


def key_of(group: KernelGroup | OpGroup) -> str:
    found = [one for name in IDENTITY if (one := getattr(group, name)) is not UNSET]
    return json.dumps(found[0] if len(found) == 1 else found)


any_trace = any_of(*WITH_MODULES, "graphs")


@pytest.fixture(scope="module")
def trace(any_trace: Path) -> Trace:
    return open_trace(str(any_trace))


@pytest.mark.parametrize("by", SLOW)
def test_kernel_groups_equal_groups_made_with_a_dict(trace: Trace, by: str) -> None:
    slow: dict[str, list[int]] = defaultdict(list)
    for row in trace.rows_of(Role.KERNEL).tolist():
        slow[json.dumps(SLOW[by](trace, row))].append(row)
    found = {key_of(group): group for group in group_kernels(trace, jobs(trace), by)}
    assert found.keys() == slow.keys()
    for key, rows in slow.items():
        group = found[key]
        assert group.count == len(rows)
        assert group.total_ns == sum(int(trace.dur[row]) for row in rows)
        works = [
            (work, int(trace.dur[row])) for row in rows if (work := work_of(trace, row))
        ]
        flop = [work.amount.flop for work, _ in works if work.amount.flop is not None]
        assert group.flop == (sum(flop) if flop else None)
        known = ((work.limits.share(ns), ns) for work, ns in works)
        shares = [(share * ns, ns) for share, ns in known if share is not None]
        if not shares:
            assert group.share_of_peak is None
            continue
        least, ns = map(sum, zip(*shares, strict=True))
        assert group.share_ns == ns
        assert group.share_of_peak == pytest.approx(least / ns)


def test_op_groups_equal_groups_made_with_a_dict(trace: Trace) -> None:
    slow: dict[str, list[int]] = defaultdict(list)
    for row in trace.rows_of(Role.OP).tolist():
        slow[json.dumps([trace.name_of(row), *inputs(trace, row)])].append(
            int(trace.dur[row])
        )
    found = {
        key_of(group): sorted([group.count]) for group in group_ops(trace, "shape")
    }
    assert found == {key: [len(durations)] for key, durations in slow.items()}


def test_by_name_as_the_totals_have_it(trace: Trace) -> None:
    kernels = [(g.name, g.total_ns) for g in group_kernels(trace, jobs(trace))]
    assert kernels == [
        (total.name, total.total_ns) for total in sum_kernels_by_name(trace)
    ]
    assert [
        (g.name, g.count, g.total_ns, g.self_ns, g.gpu_ns, g.kernels)
        for g in group_ops(trace)
    ] == [
        (t.name, t.count, t.total_ns, t.self_ns, t.gpu_ns, t.kernels)
        for t in sum_ops_by_name(trace)
    ]


def test_the_command_line_has_all_groupings() -> None:
    assert set(KERNELS_BY) == set(GROUPINGS)
    assert set(OPS_BY) == {"name", "shape"}


@pytest.mark.parametrize("by", GROUPINGS)
def test_trace_without_kernels_has_no_groups(trace_of: Make, by: str) -> None:
    trace = trace_of([])
    assert group_kernels(trace, jobs(trace), by) == ()
    assert group_ops(trace) == group_ops(trace, "shape") == ()


def test_groups_by_step_are_in_order_of_time(
    trace_of: Make, event: Make, launched: Make
) -> None:
    notes = [
        event(f"ProfilerStep#{n}", 100 * n, 90, cat="user_annotation", tid=1)
        for n in (9, 10)
    ]
    work = [
        *launched(1, 910, 915, 5),
        *launched(2, 1010, 1015, 500),
        *launched(3, 2000, 2005, 99),
    ]
    trace = trace_of([*notes, *work])
    found = group_kernels(trace, jobs(trace), "step")
    assert [group.step for group in found] == [
        "ProfilerStep#9",
        "ProfilerStep#10",
        None,
    ]


def test_sub_rows_are_their_stream(trace_of: Make, event: Make) -> None:
    """Kernels that overlap on one stream: half of the second one waits."""
    place = {"cat": "kernel", "pid": 0, "tid": 7}
    trace = trace_of([event("a", 0, 10, **place), event("b", 5, 10, **place)])
    (group,) = group_kernels(trace, jobs(trace), "stream")
    assert (group.device, group.stream) == (0, 7)
    assert (group.total_ns, group.effective_ns) == (20_000, 15_000)


def test_an_op_in_one_of_its_name_adds_to_count_and_self(
    trace_of: Make, event: Make
) -> None:
    dims = [{"args": {"Input Dims": [[n]], "Input type": ["float"]}} for n in (2, 3)]
    trace = trace_of(
        [event("aten::to", 0, 100, **dims[0]), event("aten::to", 20, 60, **dims[1])]
    )
    two, three = group_ops(trace, "shape")
    assert (two.shapes, two.total_ns, two.self_ns) == ([[2]], 100_000, 40_000)
    assert (three.shapes, three.total_ns, three.self_ns) == ([[3]], 0, 60_000)
    assert three.mean_ns == 60_000
