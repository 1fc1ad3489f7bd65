"""Recorded inputs become arguments, or a reason why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.recorded_ops import NOTHING, Input, args, number, numbers, tensor, tensors

from fusetui.analysis.reproduce.arguments import (
    RefusedError,
    count_storage_elements,
    parse_recorded_inputs,
    storage_bytes,
)
from fusetui.analysis.reproduce.model import (
    Argument,
    NothingArgument,
    NumberArgument,
    NumbersArgument,
    Refusal,
    RemarkKind,
    ScalarTensorArgument,
    TensorArgument,
    TensorsArgument,
    UnrecordedListArgument,
)
from fusetui.gpu.roofline.many import INPUTS


def texts(recorded: dict[str, Any]) -> list[bytes]:
    return [
        json.dumps(recorded[name]).encode() if name in recorded else b""
        for name in INPUTS
    ]


def arguments(op: str, *inputs: Input) -> tuple[Argument, ...]:
    return parse_recorded_inputs(op, texts(args(*inputs))).arguments


LONG = Input([], "TensorList", [])
"""A list of more than 30 tensors."""


def refusal(*inputs: Input, **changed: Any) -> Refusal:
    with pytest.raises(RefusedError) as raised:
        parse_recorded_inputs("aten::a", texts({**args(*inputs), **changed}))
    return raised.value.refusal


def test_each_kind_of_argument() -> None:
    given = arguments(
        "aten::a",
        tensor(2, 3, type="c10::BFloat16", strides=[1, 2]),
        number("0.5"),
        numbers("[1, -1]"),
        tensors((4,), (2, 2)),
        NOTHING,
    )
    assert given == (
        TensorArgument(shape=(2, 3), dtype="bfloat16", strides=(1, 2)),
        NumberArgument("0.5"),
        NumbersArgument(("1", "-1")),
        TensorsArgument(
            (
                TensorArgument(shape=(4,), dtype="float32", strides=(1,)),
                TensorArgument(shape=(2, 2), dtype="float32", strides=(2, 1)),
            )
        ),
        NothingArgument(),
    )


def test_a_tensor_without_dimensions_is_no_number() -> None:
    assert arguments("aten::a", tensor(type="float")) == (
        TensorArgument(shape=(), dtype="float32", strides=()),
    )


def test_a_python_number_that_became_a_tensor() -> None:
    """`x * 2` is recorded as a tensor of int64 without dimensions."""
    _, second = arguments("aten::mul", tensor(2), tensor(type="long int"))
    assert second == ScalarTensorArgument("int64")
    _, second = arguments("aten::gather", tensor(2), tensor(type="long int"))
    assert isinstance(second, TensorArgument)


@pytest.mark.parametrize(
    "text", ["x", "__import__('os')", "1_0", "0x1", "1;2", "9" * 50]
)
def test_what_is_no_number_is_nothing(text: str) -> None:
    assert arguments("aten::a", number(text)) == (NothingArgument(),)
    assert arguments("aten::a", numbers(f"[1, {text}]")) == (NothingArgument(),)


def test_storage_is_as_large_as_the_strides_reach() -> None:
    expanded, spread = arguments(
        "aten::a", tensor(8, 4, strides=[0, 1]), tensor(8, 4, strides=[100, 1])
    )
    assert isinstance(expanded, TensorArgument)
    assert isinstance(spread, TensorArgument)
    assert count_storage_elements(expanded) == 4
    assert count_storage_elements(spread) == 704
    assert storage_bytes(spread) == 4 * 704


def test_remarks() -> None:
    parsed = parse_recorded_inputs(
        "aten::a", texts(args(tensor(8, 4, strides=[0, 1]), tensors((2,)), NOTHING))
    )
    kinds = [(remark.kind, remark.position) for remark in parsed.remarks]
    assert kinds == [
        (RemarkKind.EXPANDED, 0),
        (RemarkKind.LIST_DTYPE, 1),
        (RemarkKind.NOTHING, 2),
    ]


def test_an_older_trace_has_neither_strides_nor_values() -> None:
    recorded = args(tensor(2, 3))
    del recorded["Input Strides"], recorded["Concrete Inputs"]
    parsed = parse_recorded_inputs("aten::a", texts(recorded))
    assert parsed.arguments == (TensorArgument(shape=(2, 3), dtype="float32"),)
    assert parsed.recorded.strides is None
    assert {remark.kind for remark in parsed.remarks} == {
        RemarkKind.VALUES_UNKNOWN,
        RemarkKind.STRIDES,
    }


def test_why_not() -> None:
    assert refusal(tensor(2), **{"Input Dims": None}) is Refusal.NO_INPUTS
    assert refusal(tensor(2), **{"Input type": []}) is Refusal.DAMAGED
    assert refusal(tensor(2), **{"Input Dims": [[-1]]}) is Refusal.DAMAGED
    assert refusal(Input([2, 2], "float", [])) is Refusal.LAYOUT
    assert refusal(Input([2, 2], "c10::quint4x2", [2, 1])) is Refusal.DTYPE
    assert refusal(tensor(1 << 30, 1 << 30)) is Refusal.TOO_LARGE
    assert refusal(tensor(2, 2, strides=[1 << 60, 1])) is Refusal.TOO_LARGE


def test_a_refused_argument_is_named() -> None:
    with pytest.raises(RefusedError) as raised:
        parse_recorded_inputs(
            "aten::a", texts(args(tensor(2), Input([2], "c10::odd", [1])))
        )
    assert (raised.value.position, raised.value.type_name) == (1, "c10::odd")


def test_a_quantized_tensor_has_a_remark() -> None:
    parsed = parse_recorded_inputs(
        "aten::a", texts(args(tensor(2, 3, type="c10::qint8")))
    )
    (given,) = parsed.arguments
    assert given == TensorArgument(shape=(2, 3), dtype="qint8", strides=(3, 1))
    assert [remark.kind for remark in parsed.remarks] == [RemarkKind.QUANTIZED]


def test_nothing_is_recorded_of_a_long_list() -> None:
    assert arguments("aten::a", LONG) == (UnrecordedListArgument(),)
