"""Attention: layouts, causal masks, backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.inputs import Inputs, inputs_of
from fusetui.gpu.roofline.products import attention
from fusetui.gpu.roofline.row import compute_amount, work_of

Make = Callable[..., Any]
FLASH = "aten::_flash_attention_forward"
SDPA = "aten::_scaled_dot_product_flash_attention"


def inputs(op: str, shapes: list[list[int]], values: list[str]) -> Inputs:
    rest = len(values) - len(shapes)
    strides = [[1] * len(shape) for shape in shapes]
    args = {
        "Input Dims": [*shapes, *([[]] * rest)],
        "Input type": ["c10::BFloat16"] * len(shapes) + ["Scalar"] * rest,
        "Concrete Inputs": values,
        "Input Strides": [*strides, *([[]] * rest)],
    }
    found = inputs_of(op, args)
    assert found is not None
    return found


def flash(causal: str, q: list[int], k: list[int], window: str = "") -> Inputs:
    values = [
        "",
        "",
        "",
        "",
        "",
        "9",
        "9",
        "0.",
        causal,
        "False",
        "0.1",
        window,
        "",
        "",
    ]
    return inputs(FLASH, [q, k, k], values)


def test_attention_forward_counts_equally_in_both_layouts() -> None:
    full = 2 * 2 * 8 * 100 * 100 * (64 + 64)
    found = attention(flash("False", [2, 100, 8, 64], [2, 100, 8, 64]), None)
    assert found is not None
    assert (found.flop, found.bytes) == (full, 2 * 4 * 2 * 100 * 8 * 64)
    shape = [2, 8, 100, 64]
    found = attention(inputs(SDPA, [shape] * 3, ["", "", "", "0.", "True"]), None)
    assert found is not None
    assert found.flop == full // 2


def test_causal_must_be_known() -> None:
    q = [2, 100, 8, 64]
    recorded = flash("", q, q)
    assert [
        getattr(attention(recorded, c), "flop", 0) is None for c in (None, True, False)
    ] == [
        True,
        False,
        False,
    ]


def test_a_window_in_the_name_leaves_causal_open() -> None:
    """A causal window is launched with the flag of a full mask off."""
    q = [2, 100, 8, 64]
    kernel = decode(
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 64, 32, 4, false, false, "
        "cutlass::half_t, Flash_kernel_traits<64, 64, 32, 4, cutlass::half_t> >, "
        "false, false, true, false, true, true, false>(flash::Flash_fwd_params)"
    )
    assert kernel is not None
    assert kernel.local
    found = compute_amount(flash("", q, q), kernel)
    assert found is not None
    assert found.flop is None


def test_causal_attention_of_one_row_or_a_window_has_no_flop_count() -> None:
    for recorded in (
        flash("True", [2, 1, 8, 64], [2, 100, 8, 64]),
        flash("True", [2, 100, 8, 64], [2, 100, 8, 64], window="16"),
    ):
        found = attention(recorded, None)
        assert found is not None
        assert found.flop is None
        assert found.bytes is not None


def test_several_heads_may_share_keys() -> None:
    found = attention(flash("False", [1, 10, 8, 64], [1, 20, 2, 64]), None)
    assert found is not None
    assert found.flop == 2 * 8 * 10 * 20 * 128
    assert attention(flash("False", [1, 10, 8, 64], [1, 20, 3, 64]), None) is None


def test_lengths_that_are_not_recorded() -> None:
    shapes = [[30, 8, 64]] * 3
    assert attention(inputs(FLASH, shapes, ["", "", ""]), False) is None


def test_backward_is_one_kernel_of_three(
    op_trace: Make, tensor: Make, scalar: Make
) -> None:
    traits = "Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t>"
    scope = "void pytorch_flash::flash_bwd"
    kernels = [
        f"{scope}_dot_do_o_kernel<true, {traits} >(pytorch_flash::Flash_bwd_params)",
        f"{scope}_dq_dk_dv_loop_seqk_parallel_kernel<{traits}, false, false, false, false, true,"
        " true, false>(pytorch_flash::Flash_bwd_params)",
        f"{scope}_convert_dq_kernel<{traits} >(pytorch_flash::Flash_bwd_params, int)",
    ]
    four, lse, none = (
        tensor(2, 100, 8, 64),
        tensor(2, 8, 100, kind="float"),
        (None, "", ""),
    )
    values = [scalar(value) for value in ("100", "100", "0.", "True")]
    given_ = [four, four, four, four, four, lse, none, none, *values, none, none]
    trace = op_trace("aten::_flash_attention_backward", given_, *kernels)
    found = [work_of(trace, int(row)) for row in trace.gpu_rows]
    assert found[0] is None
    assert found[2] is None
    assert found[1] is not None
    assert found[1].amount.flop == 5 * 2 * 2 * 8 * 100 * 100 * 64 // 2
    assert found[1].amount.bytes == 2 * 8 * (2 * 100 * 8 * 64)


sizes = st.integers(1, 40)


@pytest.mark.torch
@settings(deadline=None)  # the first example imports torch
@given(sizes, st.integers(1, 4), st.integers(1, 4), sizes, sizes, sizes, sizes)
def test_attention_flop_is_that_of_torch_flop_counter(
    batch: int, kv: int, repeat: int, rows: int, keys: int, d: int, dv: int
) -> None:
    counter = pytest.importorskip("torch.utils.flop_counter")
    q, k, v = [batch, kv * repeat, rows, d], [batch, kv, keys, d], [batch, kv, keys, dv]
    found = attention(inputs(SDPA, [q, k, v], ["", "", "", "0.", "False"]), None)
    assert found is not None
    whole = [*k[:1], q[1], *k[2:]], [*v[:1], q[1], *v[2:]]
    assert found.flop == counter.sdpa_flop_count(q, *whole)
    grad = [*q[:3], dv]
    op = f"{SDPA}_backward"
    values = [""] * 11 + ["False"]
    back = attention(inputs(op, [grad, q, k, v, grad], values), None)
    assert back is not None
    if hasattr(counter, "sdpa_backward_flop_count"):
        assert back.flop == counter.sdpa_backward_flop_count(grad, q, *whole)
