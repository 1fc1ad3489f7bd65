"""Attention as separate kernels."""

from __future__ import annotations

from .conftest import Ask
from .work import ADD, SGEMM, SOFTMAX, module, work

ATTENTION = (
    ("aten::bmm", SGEMM, 20),
    ("aten::add", ADD, 10),
    ("aten::softmax", SOFTMAX, 40),
    ("aten::bmm", SGEMM, 20),
)


def test_unfused_attention_reports_separate_kernels_of_attention(found: Ask) -> None:
    (finding,) = found(
        "unfused-attention", [*work(*ATTENTION), module("Attention_0", 0, 50)]
    )
    assert finding.at_stake_ns == 50_000
    assert "once in Attention" in finding.text


def test_a_kernel_whose_name_tells_nothing_is_what_its_op_does(found: Ask) -> None:
    product = ("aten::bmm", "mystery_kernel", 20)
    (finding,) = found("unfused-attention", work(product, ATTENTION[2], product))
    assert finding.at_stake_ns == 40_000


def test_a_softmax_behind_a_linear_layer_is_silent(found: Ask) -> None:
    kernels = (("aten::addmm", SGEMM, 20), ("aten::softmax", SOFTMAX, 40), ATTENTION[3])
    assert found("unfused-attention", [*work(*kernels), module("Head_0", 0, 50)]) == []


def test_products_of_two_modules_are_silent(found: Ask) -> None:
    events = [*work(*ATTENTION), module("A_0", 0, 29), module("B_0", 30, 9)]
    assert found("unfused-attention", events) == []
