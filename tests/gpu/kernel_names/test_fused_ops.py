"""Splitting the operator list of a fused kernel."""

import pytest

from fusetui.gpu.kernel_names.fused_ops import split_ops


@pytest.mark.parametrize(
    "ops",
    [
        ["add", "addmm", "mul", "native_layer_norm", "split", "unsqueeze", "view"],
        ["_to_copy", "cat", "mul", "silu", "silu_backward", "split"],
        ["_scaled_dot_product_flash_attention", "cat", "transpose", "view"],
        ["add", "bitwise_and", "bitwise_not", "bitwise_or", "ge", "lt", "mul", "sub"],
        ["_to_copy", "addmm", "gelu", "t", "view"],
        ["arange", "ge", "index_put", "lift_fresh"],
    ],
)
def test_known_operators(ops: list[str]) -> None:
    assert list(split_ops("_".join(ops))) == ops


@pytest.mark.parametrize(
    "ops",
    [
        ["_to_copy", "add", "aiter_sage_attn", "cat", "mul"],
        ["add", "cat", "fmha_v3_fwd", "mul", "neg"],
        ["constant_pad_nd", "moe_forward"],
        ["mul", "vllm_ir_rms_norm"],
    ],
)
def test_the_order_bounds_custom_operators(ops: list[str]) -> None:
    assert list(split_ops("_".join(ops))) == ops


def test_too_long_for_custom_operators() -> None:
    assert split_ops("zzz_" * 1000 + "q") == ()
