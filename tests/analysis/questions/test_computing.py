"""Which CPU ops compute, in small hand-written traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.analysis.questions.computing import find_computing_ops, mark_inside
from fusetui.analysis.questions.totals import measure_self_ns
from fusetui.trace import Trace
from fusetui.trace.model.intervals import union_length

Event = dict[str, Any]
Names = Callable[..., list[str]]


def op(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "pid": 1,
        "tid": tid,
        "name": name,
        "ts": ts,
        "dur": dur,
    }


@pytest.fixture
def computing(trace_of: Callable[..., Trace]) -> Names:
    """The names of the ops that compute, in the order of the rows."""

    def found(*events: Event) -> list[str]:
        trace = trace_of(events)
        return [trace.name_of(row) for row in find_computing_ops(trace).tolist()]

    return found


def test_an_op_that_calls_another_counts_once(computing: Names) -> None:
    assert computing(op("aten::linear", 0, 10), op("aten::mm", 2, 8)) == ["aten::mm"]


def test_ops_side_by_side_count_each(computing: Names) -> None:
    assert len(computing(op("aten::gelu", 0, 4), op("aten::mul", 4, 4))) == 2


def test_views_and_allocations_do_not_count(computing: Names) -> None:
    views = op("aten::t", 0, 1), op("aten::empty", 2, 1), op("aten::mT", 3, 1)
    assert computing(*views, op("aten::mm", 4, 1)) == ["aten::mm"]


def test_an_op_with_only_views_inside_computes(computing: Names) -> None:
    assert computing(op("aten::mm", 0, 10), op("aten::resolve_conj", 1, 1)) == [
        "aten::mm"
    ]


def test_the_frames_of_torch_compile_do_not_count(computing: Names) -> None:
    kernel = op("graph_0_cpp_fused_mul_0", 2, 1)
    assert computing(op("TorchDynamo Cache Lookup", 0, 1), kernel) == [kernel["name"]]


@pytest.mark.parametrize(
    "name",
    [
        "MmBackward0",
        "detach",
        "torch::autograd::AccumulateGrad",
        "enumerate(DataLoader)#x.next",
    ],
)
def test_frames_do_not_count(computing: Names, name: str) -> None:
    assert computing(op(name, 0, 10), op("aten::mm", 20, 1)) == ["aten::mm"]


def test_threads_are_nested_each_for_itself(computing: Names) -> None:
    assert (
        len(computing(op("aten::mm", 0, 10, tid=1), op("aten::mm", 2, 3, tid=2))) == 2
    )


def test_neighbors_one_nanosecond_apart_stay_neighbors(computing: Names) -> None:
    first, second = (
        op("aten::mul", 4365912618404.96, 0.001),
        op("aten::add", 4365912618404.961, 1),
    )
    assert len(computing(first, second)) == 2


def test_the_copy_of_a_bias_is_a_part_of_the_product(computing: Names) -> None:
    ops = op("aten::linear", 0, 10), op("aten::addmm", 1, 8), op("aten::copy_", 2, 3)
    assert computing(*ops, op("aten::copy_", 11, 1)) == ["aten::addmm", "aten::copy_"]


def test_zeros_that_an_op_makes_first_are_part_of_the_op(computing: Names) -> None:
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    zeros = op("aten::zeros", 1, 3), op("aten::zero_", 2, 2), op("aten::fill_", 2, 1)
    assert computing(op(name, 0, 10), *zeros) == [name]


def test_the_innermost_of_copies_and_fills_counts(computing: Names) -> None:
    ops = op("aten::contiguous", 0, 9), op("aten::clone", 1, 8), op("aten::copy_", 2, 3)
    assert computing(*ops, op("aten::zeros", 10, 5), op("aten::zero_", 11, 2)) == [
        "aten::copy_",
        "aten::zero_",
    ]


def test_a_twin_is_a_part_of_the_op_around_it(computing: Names) -> None:
    ops = op("aten::mul_", 0, 9), op("aten::mul", 1, 7), op("aten::_to_copy", 2, 3)
    assert computing(*ops) == ["aten::mul_"]


def test_an_op_that_computes_is_whole_whatever_it_calls(computing: Names) -> None:
    ops = op("aten::mean", 0, 9), op("aten::sum", 1, 4), op("aten::div_", 6, 2)
    assert computing(*ops) == ["aten::mean"]


def test_a_batched_product_is_whole_where_it_is_done_matrix_by_matrix(
    computing: Names,
) -> None:
    products = [op("aten::addmm_", 10 * n, 9) for n in range(4)]
    assert computing(op("aten::bmm", 0, 40), *products) == ["aten::bmm"]


NAMES = (
    "linear",
    "mm",
    "mul",
    "mul_",
    "copy_",
    "clone",
    "zeros",
    "view",
    "mean",
    "MulBackward0",
)


def nested(draw: st.DrawFn, begin: int, end: int, depth: int) -> Iterator[Event]:
    """Ops side by side in [begin, end), each with others inside it."""
    while begin < end:
        until = draw(st.integers(begin + 1, end))
        name = draw(st.sampled_from(NAMES))
        yield op(name if name.endswith("0") else f"aten::{name}", begin, until - begin)
        if depth and until - begin > 2:
            yield from nested(draw, begin + 1, until - 1, depth - 1)
        begin = until + 1


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_ops_that_compute_lie_side_by_side(
    trace_of: Callable[..., Trace], data: st.DataObject
) -> None:
    """So their times and those of the ops around them add up to the time in ops."""
    events = data.draw(st.composite(lambda draw: list(nested(draw, 0, 40, 3)))())
    trace = trace_of(events)
    rows = find_computing_ops(trace)
    inside = mark_inside(trace, rows)
    assert not inside[rows].any()
    around = np.setdiff1d(np.flatnonzero(~inside), rows)
    total = int(trace.dur[rows].sum() + measure_self_ns(trace)[around].sum())
    assert total == union_length(trace.start, trace.end)


def test_a_function_of_the_user_is_no_op(computing: Names) -> None:
    assert computing(op("MyFunction", 0, 9), op("aten::copy_", 1, 4)) == ["aten::copy_"]
