"""Tensors are filled with values of the right kind, and indices within their bounds."""

from __future__ import annotations

import pytest
from tests.analysis.reproduce.test_arguments import arguments
from tests.recorded_ops import NOTHING, Input, number, tensor

from fusetui.analysis.reproduce.model import Filling, RemarkKind, TensorArgument
from fusetui.analysis.reproduce.values import choose_fillings

INDICES = tensor(7, type="long int")


def tensor_at(position: int, op: str, *inputs: Input) -> TensorArgument:
    argument = choose_fillings(op, arguments(op, *inputs)).arguments[position]
    assert isinstance(argument, TensorArgument)
    return argument


@pytest.mark.parametrize(
    ("op", "position", "inputs", "below"),
    [
        ("aten::embedding", 1, (tensor(5000, 64), INDICES), 5000),
        ("aten::index_select", 2, (tensor(3, 40), number("1"), INDICES), 40),
        ("aten::gather", 2, (tensor(3, 40), number("-1"), INDICES), 40),
        ("aten::scatter_add_", 2, (tensor(30), number("0"), INDICES, tensor(7)), 30),
        ("aten::nll_loss_forward", 1, (tensor(7, 10), INDICES), 10),
        ("aten::cross_entropy_loss", 1, (tensor(7, 10, 4), INDICES), 10),
        ("aten::embedding_dense_backward", 1, (tensor(7, 4), INDICES, number("9")), 9),
        ("aten::take", 1, (tensor(3, 4), INDICES), 12),
    ],
)
def test_another_argument_bounds_indices(
    op: str, position: int, inputs: tuple[Input, ...], below: int
) -> None:
    found = tensor_at(position, op, *inputs)
    assert (found.filling, found.below) == (Filling.INTEGERS, below)


def test_integers_without_a_known_bound_are_remarked() -> None:
    result = choose_fillings("aten::eq", arguments("aten::eq", INDICES, number("1")))
    assert [remark.kind for remark in result.remarks] == [RemarkKind.BOUND]


@pytest.mark.parametrize(
    ("op", "inputs", "filling"),
    [
        ("aten::add", (tensor(2),), Filling.NORMAL),
        ("aten::rsqrt", (tensor(2),), Filling.POSITIVE),
        ("aten::eq", (tensor(2, type="bool"),), Filling.FLAGS),
    ],
)
def test_kinds_of_values(op: str, inputs: tuple[Input, ...], filling: Filling) -> None:
    assert tensor_at(0, op, *inputs).filling is filling


def test_integer_divisors_are_not_0() -> None:
    divided = (tensor(2, type="int"), tensor(2, type="int"))
    assert tensor_at(1, "aten::floor_divide", *divided).filling is Filling.POSITIVE


def test_sequences_of_a_batch_begin_in_ascending_order() -> None:
    query = tensor(100, 8, 64)
    starts = tensor(5, type="int")
    found = tensor_at(
        3,
        "aten::_flash_attention_forward",
        query,
        query,
        query,
        starts,
        starts,
        NOTHING,
    )
    assert (found.filling, found.below) == (Filling.OFFSETS, 100)
