"""What ops and copies inside a call show about its arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.recorded_ops import (
    NOTHING,
    Event,
    Input,
    kernel,
    number,
    numbers,
    op,
    tensor,
    tensors,
)

from fusetui.analysis.reproduce.model import (
    Call,
    DeviceArgument,
    NothingArgument,
    Refusal,
    RemarkKind,
    TensorArgument,
    TensorsArgument,
)
from fusetui.analysis.reproduce.select import calls_of_op
from fusetui.trace import Trace

TraceOf = Callable[..., Trace]


def call_of(trace_of: TraceOf, name: str, *events: Event) -> Call:
    (call,) = calls_of_op(trace_of(events), name)
    assert call.refusal is None
    return call


def reshape(size: int, target: str, ts: float) -> Event:
    index = tensor(size, type="long int")
    return op("aten::reshape", index, numbers(target), ts=ts, dur=1)


@pytest.mark.parametrize(
    ("target", "before", "below"), [("[7, 1]", 0, 3), ("[1, 7]", 1, 5)]
)
def test_indices_that_were_not_recorded(
    trace_of: TraceOf, target: str, before: int, below: int
) -> None:
    """x[i], and x[:, i]."""
    call = call_of(
        trace_of,
        "index",
        op("aten::index", tensor(3, 5), NOTHING),
        reshape(7, target, ts=2),
    )
    indices = call.arguments[1]
    assert isinstance(indices, TensorsArgument)
    assert indices.tensors[:before] == (None,) * before
    (index,) = indices.tensors[before:]
    assert index is not None
    assert (index.shape, index.dtype, index.below) == ((7,), "int64", below)


def test_a_mask(trace_of: TraceOf) -> None:
    call = call_of(
        trace_of,
        "index",
        op("aten::index", tensor(3, 5), NOTHING),
        op("aten::nonzero", tensor(3, type="bool"), ts=1, dur=1),
        reshape(2, "[2, 1]", ts=3),
    )
    indices = call.arguments[1]
    assert isinstance(indices, TensorsArgument)
    (mask,) = indices.tensors
    assert mask is not None
    assert (mask.shape, mask.dtype) == ((3,), "bool")


def test_indices_that_nothing_shows_stay_unknown(trace_of: TraceOf) -> None:
    call = call_of(trace_of, "index", op("aten::index", tensor(3, 5), NOTHING))
    assert isinstance(call.arguments[1], NothingArgument)


def test_the_types_of_a_list_are_those_of_these_shapes_elsewhere(
    trace_of: TraceOf,
) -> None:
    half = tensor(4, 4, type="c10::Half")
    call = call_of(
        trace_of,
        "cat",
        op("aten::relu", half),
        op("aten::cat", tensors((4, 4), (2, 2)), number("0"), ts=20),
    )
    members = call.arguments[0]
    assert isinstance(members, TensorsArgument)
    dtypes = [tensor.dtype for tensor in members.tensors if tensor is not None]
    assert dtypes == ["float16", "float32"]


@pytest.mark.parametrize(
    ("copied", "memories"),
    [
        ("Memcpy HtoD (Pinned -> Device)", ("", "pinned")),
        ("Memcpy DtoH (Device -> Pageable)", ("cpu", "")),
        ("Memcpy DtoD (Device -> Device)", ("", "")),
    ],
)
def test_a_copy_shows_the_memory_of_both_sides(
    trace_of: TraceOf, copied: str, memories: tuple[str, str]
) -> None:
    call = call_of(
        trace_of,
        "copy_",
        op("aten::copy_", tensor(4), tensor(4), number("False")),
        *kernel(copied, 2, 1, cat="gpu_memcpy"),
    )
    sides = call.arguments[:2]
    assert all(isinstance(side, TensorArgument) for side in sides)
    assert tuple(side.device for side in sides) == memories  # type: ignore[union-attr]


def test_a_copy_shows_the_device_of_to(trace_of: TraceOf) -> None:
    flags = [number("False")] * 2
    inputs = (tensor(4), NOTHING, number("6"), *flags, NOTHING)
    call = call_of(
        trace_of,
        "to",
        op("aten::to", *inputs),
        *kernel("Memcpy DtoH (Device -> Pageable)", 2, 1, cat="gpu_memcpy"),
    )
    assert call.arguments[1] == DeviceArgument("cpu")


def test_the_storage_of_as_strided_holds_its_result(trace_of: TraceOf) -> None:
    call = call_of(
        trace_of,
        "as_strided",
        op(
            "aten::as_strided",
            tensor(4),
            numbers("[2, 3]"),
            numbers("[10, 1]"),
            number("5"),
        ),
    )
    viewed = call.arguments[0]
    assert isinstance(viewed, TensorArgument)
    assert viewed.storage == 18


LONG = Input([], "TensorList", [])
"""A list of more than 30 tensors, of which nothing is recorded."""


def test_a_long_list_is_what_the_ops_of_a_foreach_take(trace_of: TraceOf) -> None:
    half = {"type": "c10::Half"}
    parts = []
    for place in range(31):
        ts = 1 + 3 * place
        parts.append(
            op("aten::add_", tensor(place + 1, **half), number("1."), ts=ts, dur=2)
        )
        # one that another op makes is none of the list
        parts.append(
            op("aten::add_", tensor(2), tensor(type="double"), ts=ts + 0.5, dur=1)
        )
    given = (LONG, number("1."))
    call = call_of(
        trace_of, "_foreach_add_", op("aten::_foreach_add_", *given, dur=200), *parts
    )
    tensors_of_list = call.arguments[0]
    assert isinstance(tensors_of_list, TensorsArgument)
    assert [given.shape for given in tensors_of_list.tensors if given] == [
        (size,) for size in range(1, 32)
    ]
    assert {given.dtype for given in tensors_of_list.tensors if given} == {"float16"}
    assert RemarkKind.LONG_LIST in {remark.kind for remark in call.remarks}


@pytest.mark.parametrize(
    ("dimension", "sizes"), [("0", "[40, 3, 4]"), ("-2", "[3, 40, 4]")]
)
def test_a_stack_and_its_cat_show_a_long_list(
    trace_of: TraceOf, dimension: str, sizes: str
) -> None:
    events = [
        op("aten::stack", LONG, number(dimension), dur=50),
        op("aten::cat", LONG, number(dimension), ts=5, dur=20),
        op("aten::view", tensor(120, 4), numbers(sizes), ts=30, dur=5),
    ]
    for name in ("stack", "cat"):
        call = call_of(trace_of, name, *events)
        tensors_of_list = call.arguments[0]
        assert isinstance(tensors_of_list, TensorsArgument)
        assert (
            tensors_of_list.tensors
            == (TensorArgument(shape=(3, 4), dtype="float32"),) * 40
        )


@pytest.mark.parametrize(
    "sizes", ["[]", "[1000000000000, 3, 4]", "[-40, -3, 4]", "[40, 3, 5]", "[x]"]
)
def test_sizes_of_no_stack_show_nothing(trace_of: TraceOf, sizes: str) -> None:
    events = [
        op("aten::stack", LONG, number("0"), dur=50),
        op("aten::view", tensor(120, 4), numbers(sizes), ts=30, dur=5),
    ]
    (call,) = calls_of_op(trace_of(events), "stack")
    assert call.refusal is Refusal.LONG_LIST
    assert call.refused_position == 0


def test_a_long_list_that_nothing_shows_is_refused(trace_of: TraceOf) -> None:
    for name in ("aten::_fused_adamw_", "aten::cat", "aten::_foreach_mul"):
        (call,) = calls_of_op(trace_of([op(name, LONG, LONG)]), name)
        assert call.refusal is Refusal.LONG_LIST


def test_parts_of_which_one_takes_no_tensor_are_no_list(trace_of: TraceOf) -> None:
    parts = [
        op("aten::mul", tensor(2), tensor(2), ts=1, dur=1),
        op("aten::mul", tensor(2), number("2"), ts=3, dur=1),
    ]
    events = [op("aten::_foreach_mul", LONG, LONG, dur=50), *parts]
    (call,) = calls_of_op(trace_of(events), "_foreach_mul")
    assert (call.refusal, call.refused_position) == (Refusal.LONG_LIST, 1)
