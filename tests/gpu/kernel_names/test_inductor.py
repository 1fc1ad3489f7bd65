"""Kernels that Inductor generated."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.triton import split_ops


def test_inductor_pointwise_kernel_lists_its_fused_ops(says: Says) -> None:
    says(
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        family="inductor-triton",
        op="elementwise",
        kernel_category="pointwise",
        fused_ops=("_unsafe_view", "gelu", "mul"),
        short="gelu*mul (fused #0)",
    )


@pytest.mark.parametrize(
    ("name", "category", "ops"),
    [
        ("triton_red_fused_mean_mul_3", "reduction", ("mean", "mul")),
        (
            "triton_per_fused_native_layer_norm_12",
            "persistent_reduction",
            ("native_layer_norm",),
        ),
        ("triton_tem_fused_bmm_7", "template", ("bmm",)),
        ("triton_for_fused_2", "foreach", None),
        ("triton_spl_fused_cumsum_1", "split_scan", ("cumsum",)),
        ("triton_poi_fused_0", "pointwise", None),
        ("triton_poi_fused_add_copy__1", "pointwise", ("add", "copy_")),
        ("triton_poi_fused_add_0_0d1d2de", "pointwise", ("add",)),
    ],
)
def test_inductor_category_and_ops_follow_from_the_name(
    says: Says, name: str, category: str, ops: tuple[str, ...]
) -> None:
    says(name, kernel_category=category, fused_ops=ops)


def test_inductor_cpp_kernels_list_their_fused_ops(says: Says) -> None:
    says(
        "graph_0_cpp_fused_gelu_mul_0",
        family="inductor-cpp",
        kernel_category="cpp",
        fused_ops=("gelu", "mul"),
        op=None,
    )
    says("cpp_fused_gelu_mul_0", short="gelu*mul (cpp 0)")
    says(
        "cpp_fused__unsafe_view_gelu_mul_view_3",
        fused_ops=("_unsafe_view", "gelu", "mul", "view"),
    )


def test_unnamed_inductor_kernels_have_no_category(says: Says) -> None:
    says("triton__0d1d2d3d", family="inductor-triton", kernel_category=None)
    says("triton_", family="inductor-triton")
    found = decode("triton_xyz_fused_add_0")
    assert found is None or found.family == "triton"


def test_parts_point_at_the_operators(says: Says) -> None:
    name = "triton_poi_fused_add_silu_backward_9"
    found = says(name, fused_ops=("add", "silu_backward"))
    assert [name[start:end] for start, end, _ in found.parts] == [
        "poi",
        "add",
        "silu_backward",
        "9",
    ]


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("triton_tem_fused_mm_0", "gemm"),
        ("triton_tem_fused__to_copy_addmm_gelu_t_view_9", "gemm"),
        ("triton_tem_fused_bmm_7", "gemm"),
        ("triton_tem_fused__scaled_mm_2", "gemm"),
        ("triton_tem_fused_convolution_2", "conv"),
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("triton_tem_fused_flex_attention_backward_3", "attention"),
        ("triton_tem_fused_0", None),
        ("triton_mm", "gemm"),
    ],
)
def test_a_template_computes_its_operator(
    says: Says, name: str, op: str | None
) -> None:
    says(name, op=op)


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
def test_fused_names_split_into_known_operators(ops: list[str]) -> None:
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
def test_custom_operators_end_where_the_alphabetic_order_does(ops: list[str]) -> None:
    assert list(split_ops("_".join(ops))) == ops


def test_too_long_a_name_gives_no_operators() -> None:
    assert split_ops("zzz_" * 1000 + "q") == ()
