"""Convolutions: the output's image, operations of each pass, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusetui.gpu.roofline.inputs import Inputs, inputs_of
from fusetui.gpu.roofline.products import conv
from fusetui.gpu.roofline.row import work_of

Make = Callable[..., Any]
DGRAD = "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"  # noqa: E501
WGRAD = DGRAD.replace("dgrad", "wgrad")
FPROP = DGRAD.replace("dgrad", "fprop")


def inputs(op: str, values: list[str], *shapes: list[int]) -> Inputs:
    blank: list[list[int]] = [[] for _ in values[len(shapes) :]]
    dims = [*shapes, *blank]
    types = ["float"] * len(shapes) + ["ScalarList"] * len(blank)
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
    found = inputs_of(op, args)
    assert found is not None
    return found


FORWARD = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def test_convolution_forward_counts_flop_and_bytes() -> None:
    found = conv(
        inputs("aten::convolution", FORWARD, [8, 3, 32, 32], [16, 3, 3, 3]), None
    )
    assert found is not None
    assert found.flop == 2 * 8 * 16 * 16 * 16 * 3 * 3 * 3
    assert found.bytes == 4 * (8 * 3 * 32 * 32 + 16 * 27 + 8 * 16 * 16 * 16)


def test_groups_need_no_care() -> None:
    found = conv(
        inputs("aten::convolution", FORWARD, [1, 16, 8, 8], [16, 1, 3, 3]), None
    )
    assert found is not None
    assert found.flop == 2 * 4 * 4 * 16 * 9


def test_stride_must_be_known() -> None:
    assert (
        conv(inputs("aten::convolution", [], [8, 3, 32, 32], [16, 3, 3, 3]), None)
        is None
    )
    transposed = [*FORWARD[:6], "True", *FORWARD[7:]]
    assert (
        conv(inputs("aten::convolution", transposed, [8, 3, 9, 9], [3, 6, 3, 3]), None)
        is None
    )


BACKWARD = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize("mask", ["[True, True, False]", "[False, True, True]"])
def test_convolution_backward_counts_each_gradient_that_is_asked_for(mask: str) -> None:
    shapes = [8, 16, 16, 16], [8, 3, 32, 32], [16, 3, 3, 3]
    recorded = inputs("aten::convolution_backward", [*BACKWARD, mask], *shapes)
    for pass_ in ("dgrad", "wgrad"):
        found = conv(recorded, pass_)
        assert found is not None
        assert found.flop == 2 * 8 * 16 * 16 * 16 * 3 * 3 * 3
        assert found.bytes == 4 * (8 * 16 * 16 * 16 + 8 * 3 * 32 * 32 + 16 * 27)
    assert (conv(recorded, None) is None) == (mask == "[True, True, False]")


def test_channels_settle_that_it_is_not_transposed() -> None:
    op = "aten::convolution_backward"
    assert (
        conv(inputs(op, [], [8, 16, 5, 5], [8, 3, 7, 7], [16, 3, 3, 3]), "dgrad")
        is not None
    )
    assert (
        conv(inputs(op, [], [8, 16, 5, 5], [8, 16, 7, 7], [16, 16, 3, 3]), "dgrad")
        is None
    )


def test_each_gradient_is_its_own_kernel(op_trace: Make, tensor: Make) -> None:
    values = [
        (None, "Scalar", value) for value in [*BACKWARD[3:], "[True, True, False]"]
    ]
    shapes = [tensor(8, 16, 16, 16), tensor(8, 3, 32, 32), tensor(16, 3, 3, 3)]
    helper = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(p)"
    trace = op_trace(
        "aten::convolution_backward", [*shapes, *values], helper, DGRAD, WGRAD
    )
    found = [work_of(trace, int(row)) for row in trace.gpu_rows]
    assert found[0] is None
    assert all(
        work is not None and work.amount.flop == 2 * 8 * 256 * 16 * 27
        for work in found[1:]
    )


def test_winograd_has_no_share_of_peak(op_trace: Make, tensor: Make) -> None:
    values = [(None, "ScalarList", value) for value in ("[1, 1]", "[1, 1]", "[1, 1]")]
    inputs_ = [
        tensor(8, 64, 32, 32, kind="float"),
        tensor(64, 64, 3, 3, kind="float"),
        *values,
    ]
    name = "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
    for kernel, known in ((name, False), (name.replace("winograd_", ""), True)):
        trace = op_trace("aten::cudnn_convolution", inputs_, kernel)
        work = work_of(trace, int(trace.gpu_rows[0]))
        assert work is not None
        assert work.amount.flop is not None
        assert (work.limits.compute_ns is not None) == known


sizes = st.integers(1, 4)


@pytest.mark.torch
@settings(deadline=None)  # the first example imports torch
@given(
    st.integers(1, 30),
    st.integers(1, 7),
    sizes,
    st.integers(0, 3),
    sizes,
    sizes,
    sizes,
    sizes,
)
def test_convolution_flop_is_that_of_torch_flop_counter(
    side: int,
    kernel: int,
    stride: int,
    pad: int,
    dilation: int,
    n: int,
    c: int,
    out: int,
) -> None:
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter")
    assume(side + 2 * pad >= dilation * (kernel - 1) + 1)
    shape, weight = [n, c, side, side], [out, c, kernel, kernel]
    meta = torch.nn.functional.conv2d(
        torch.empty(shape, device="meta"),
        torch.empty(weight, device="meta"),
        stride=stride,
        padding=pad,
        dilation=dilation,
    )
    values = ["", "", "", f"[{stride}]", f"[{pad}, {pad}]", f"[{dilation}]", "False"]
    found = conv(inputs("aten::convolution", values, shape, weight), None)
    assert found is not None
    assert found.flop == counter.conv_flop_count(shape, weight, list(meta.shape))


def test_the_bound_of_flop_where_the_bytes_are_not_known(op_trace: Make) -> None:
    """As torch recorded the gradient of the input in 2021: without the size of the
    result."""
    engine = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)"
    shapes = [
        (None, "", ""),
        ([32, 64, 56, 56], "float", ""),
        ([64, 64, 3, 3], "float", ""),
    ]
    trace = op_trace("aten::cudnn_convolution_backward_input", shapes, engine)
    found = work_of(trace, int(trace.gpu_rows[0]))
    assert found is not None
    assert (found.amount.bytes, found.limits.bound) == (None, "compute")
    flop = 2 * 32 * 56 * 56 * 64 * 64 * 9
    assert found.limits.share(100_000) == pytest.approx(flop / 19.5e12 / 100e-6)
