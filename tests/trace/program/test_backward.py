"""Which forward op backward work belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.corpus.fixtures import any_of

from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role
from fusetui.trace.program.backward import Backward, backward_ops, linked_by
from fusetui.trace.read.autograd import Autograd, read_autograd, read_flows

Make = Callable[..., Any]


def numbered(
    make: Make, name: str, ts: int, dur: int, number: int, **more: Any
) -> dict[str, Any]:
    """An op with a sequence number; on thread 2 it ran backward for torch's thread
    1."""
    args = {"Sequence number": number, "Fwd thread id": int(more.get("tid") == 2)}
    found: dict[str, Any] = make(name, ts, dur, args=args, **more)
    return found


def pairs(trace: Trace, found: Backward) -> dict[str, str]:
    """The names of backward ops and of what they belong to, "" for nothing."""
    rows = zip(found.rows.tolist(), found.forward.tolist(), strict=True)
    return {trace.name_of(n): trace.name_of(to) if to >= 0 else "" for n, to in rows}


def test_backward_op_belongs_to_the_last_forward_op_with_its_number(
    trace_of: Make, event: Make
) -> None:
    events = [
        numbered(event, "aten::linear", 0, 10, 7),
        numbered(event, "aten::addmm", 5, 3, 7),
        numbered(event, "aten::detach", 20, 3, 8),
        numbered(event, "aten::relu", 30, 3, 8),
        numbered(event, "ReluBackward0", 50, 3, 8, tid=2),
        numbered(event, "AddmmBackward0", 60, 3, 7, tid=2),
        numbered(event, "SumBackward0", 65, 3, 99, tid=2),
        numbered(event, "aten::relu_again", 70, 3, 8),  # another step
    ]
    trace = trace_of(events)
    assert pairs(trace, backward_ops(trace)) == {
        "ReluBackward0": "aten::relu",
        "AddmmBackward0": "aten::addmm",
        "SumBackward0": "",
    }


def test_the_thread_that_explains_most(trace_of: Make, event: Make) -> None:
    events = [
        numbered(event, "elsewhere", 6, 2, 7, tid=3),
        numbered(event, "a", 0, 2, 6),
        numbered(event, "b", 5, 2, 7),
        numbered(event, "ABackward", 20, 3, 6, tid=2),
        numbered(event, "BBackward", 30, 3, 7, tid=2),
    ]
    trace = trace_of(events)
    assert pairs(trace, backward_ops(trace)) == {"ABackward": "a", "BBackward": "b"}


def flow(phase: str, ts: int, tid: int, number: int = 1) -> dict[str, Any]:
    place = {"ts": ts, "pid": 1, "tid": tid, "id": number}
    return {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", **place}


def test_flows_where_ops_have_no_numbers(trace_of: Make, event: Make) -> None:
    engine = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [
        event("aten::addmm", 5, 3),
        flow("s", 5, 1),
        event("aten::expand", 5, 1),
        event(engine, 50, 10, tid=2),
        event("AddmmBackward0", 51, 8, tid=2),
        flow("f", 51, 2),
        event("aten::mm", 52, 3, tid=2),
        event(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            70,
            3,
            tid=2,
        ),
        flow("f", 70, 2, number=2),  # without a beginning
    ]
    trace = trace_of(events)
    found = backward_ops(trace)
    assert pairs(trace, found) == {
        engine: "aten::addmm",
        "AddmmBackward0": "aten::addmm",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad": "",
    }
    inner = [
        n for n in range(len(trace)) if trace.name_of(n) in ("aten::mm", "aten::expand")
    ]
    named = [
        trace.name_of(n) if n >= 0 else "" for n in found.forward_of(np.array(inner))
    ]
    assert named == ["", "aten::addmm"]


def test_nothing_is_read_of_a_trace_that_only_goes_forward(
    trace_of: Make, event: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of([numbered(event, "aten::addmm", 5, 3, 7)])
    monkeypatch.delattr("fusetui.trace.program.backward.read_autograd")
    assert not len(backward_ops(trace).rows)


ODD = [
    '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, '
    '"args": {"Sequence number": "7", "Fwd thread id": 0}}',
    '{"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 1, "tid": 1, "ts": 4, "dur": 2, '
    '"args": {"Sequence number": NaN, "Fwd thread id": [1], }}',
    '{"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 1, "tid": 1, "ts": 4, "dur": 2, "args": 3}',
    '{"ph": "X", "cat": "cpu_op", "name": "aBackward", "pid": 1, "tid": 2, "ts": 9, "dur": 2, '
    '"args": {"Sequence number": 7, "Fwd thread id": 1}}',
]


def test_odd_events_do_not_hide_the_others(trace_of: Make) -> None:
    trace = trace_of('{"traceEvents": [' + ",\n".join(ODD) + "]}")
    assert pairs(trace, backward_ops(trace)) == {"aBackward": "a"}


any_trace = any_of("training", "workers")


def test_numbers_and_flows_agree(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    told, flows = read_autograd(trace.elements), read_flows(trace.elements)
    nothing = told.order[:0]
    by_flow = linked_by(trace, Autograd(nothing, nothing, nothing, flows))
    by_number = linked_by(trace, told)
    linked = by_flow.forward >= 0
    # per flow the op of the node and the engine's around it
    assert linked.sum() == len(flows) > 0
    assert by_number.rows.tolist() == by_flow.rows.tolist()
    assert by_number.forward.tolist() == by_flow.forward.tolist()
    assert (trace.role[by_flow.forward[linked]] == Role.OP).all()
