"""Softmax and normalization: the bytes of each kernel's own pass."""

from __future__ import annotations

import pytest

from fusetui.gpu.roofline.row import work_of

from .conftest import Launched

AT = "void at::native::"
X, CHANNEL = 64 * 64 * 112 * 112, 64
IMAGE, WEIGHT = ([64, 64, 112, 112], "float", ""), ([CHANNEL], "float", "")


@pytest.mark.parametrize(
    ("op", "kernel", "tensors", "moved"),
    [
        (
            "aten::_softmax",
            f"{AT}(anonymous namespace)::cunn_SoftMaxForward<4, float>(int)",
            1,
            2,
        ),
        (
            "aten::_log_softmax_backward_data",
            "void softmax_warp_backward<float>(int)",
            2,
            3,
        ),
        (
            "aten::native_layer_norm",
            f"{AT}vectorized_layer_norm_kernel<float, float>(int)",
            1,
            2,
        ),
        (
            "aten::native_layer_norm_backward",
            f"{AT}layer_norm_grad_input_kernel<float>(int)",
            2,
            3,
        ),
        (
            "aten::native_layer_norm_backward",
            f"{AT}GammaBetaBackwardCUDAKernel<float>(int)",
            2,
            2,
        ),
        (
            "aten::native_batch_norm",
            f"{AT}batch_norm_collect_statistics_kernel<float>(int)",
            1,
            1,
        ),
        (
            "aten::native_batch_norm",
            f"{AT}batch_norm_transform_input_kernel<float>(int)",
            1,
            2,
        ),
        (
            "aten::native_batch_norm_backward",
            f"{AT}batch_norm_backward_kernel<float>(int)",
            2,
            5,
        ),
        (
            "aten::cudnn_batch_norm",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(int)",
            1,
            3,
        ),
        (
            "aten::cudnn_batch_norm",
            "void cudnn::bn_fw_tr_1C11_singleread<float>(int)",
            1,
            2,
        ),
        (
            "aten::cudnn_batch_norm_backward",
            "void cudnn::bn_bw_1C11_kernel_new<float>(int)",
            2,
            5,
        ),
        ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatialNorm", 1, 2),
        ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatialMeanVariance", 1, 1),
    ],
)
def test_rowwise_passes_count_their_bytes(
    op_trace: Launched, op: str, kernel: str, tensors: int, moved: int
) -> None:
    """As many tensors of 205.5 MB as it reads and writes."""
    found = work_of(
        trace := op_trace(op, [IMAGE] * tensors, kernel), int(trace.gpu_rows[0])
    )
    assert found is not None
    assert (found.amount.bytes, found.limits.bound) == (4 * X * moved, "memory")


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        (
            "aten::native_group_norm_backward",
            f"{AT}GammaBetaBackwardCUDAKernel1<float>(int)",
        ),
        ("aten::native_group_norm", f"{AT}ComputeFusedParamsCUDAKernel<float>(int)"),
        ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatialFinalMeanVariance"),
        (
            "aten::native_layer_norm_backward",
            f"{AT}cuComputeGradGammaBeta<float, float>(int)",
        ),
        ("aten::add", f"{AT}vectorized_layer_norm_kernel<float, float>(int)"),
    ],
)
def test_helpers_have_no_bound(op_trace: Launched, op: str, kernel: str) -> None:
    """They read sums, not the tensors."""
    trace = op_trace(op, [IMAGE, IMAGE], kernel)
    found = work_of(trace, int(trace.gpu_rows[0]))
    assert found is None or found.amount.kind not in ("norm", "softmax")


def test_each_kernel_of_an_op_counts_for_itself(op_trace: Launched) -> None:
    names = [
        f"{AT}batch_norm_{part}_kernel<float>(int)" for part in ("collect_statistics",)
    ]
    names += [f"{AT}batch_norm_transform_input_kernel<float>(int)"]
    trace = op_trace("aten::native_batch_norm", [IMAGE, WEIGHT], *names, us=1_000)
    works = [work_of(trace, int(row)) for row in trace.gpu_rows]
    assert [work and work.amount.bytes for work in works] == [4 * X, 8 * X]
