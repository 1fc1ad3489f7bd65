"""What ops and copies inside a call show about its arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.recorded_ops import (
    NOTHING,
    Event,
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
