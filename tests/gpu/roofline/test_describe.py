"""The line about the work of a kernel, and the remarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.gpu.roofline.row import describe_work, device_generation, remarks

Make = Callable[..., Any]
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
LAUNCH = {
    "grid": [24, 64, 1],
    "block": [256, 1, 1],
    "registers per thread": 230,
    "shared memory": 81920,
}
H100 = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
    "sharedMemPerMultiprocessor": 233472,
}
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl("
    "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}, at::detail::Array<char*, 2> >"
    "(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"
    "::{lambda()#2}, at::detail::Array<char*, 2>)"
)


def line(trace: Any) -> str:
    return describe_work(trace, int(trace.gpu_rows[0]))


def said(trace: Any) -> tuple[str, ...]:
    return remarks(trace, int(trace.gpu_rows[0]))


def test_line_of_a_product_has_shapes_flop_share_and_waves(
    op_trace: Make, tensor: Make
) -> None:
    inputs = [tensor(8192, 768), tensor(768, 3072)]
    trace = op_trace("aten::mm", inputs, (GEMM, LAUNCH), us=190)
    assert line(trace) == (
        "[8192, 768] x [768, 3072]   38.7 GFLOP   203 TFLOP/s   65 % of peak"
        "   1,536 tiles, 14.2 waves, the last 22 % full"
    )
    assert said(trace) == ("the last wave leaves 5.2 % of the SMs' time unused",)


def test_unknown_parts_are_left_out(op_trace: Make, tensor: Make) -> None:
    inputs = [tensor(8192, 768), tensor(768, 3072)]
    unknown = {"id": 0, "name": "a new GPU", "numSms": 7}
    trace = op_trace("aten::mm", inputs, GEMM, us=190, device=unknown)
    assert line(trace) == "[8192, 768] x [768, 3072]   38.7 GFLOP   203 TFLOP/s"
    assert line(op_trace("my::op", inputs, GEMM)) == ""


def test_line_of_an_elementwise_op_has_bytes_and_share_of_bandwidth(
    op_trace: Make, tensor: Make
) -> None:
    trace = op_trace("aten::gelu", [tensor(8192, 3072)], GELU, us=70)
    assert line(trace) == "[8192, 3072]   101 MB   1.44 TB/s   71 % of peak bandwidth"


def test_line_of_a_memory_bound_product_has_bytes_and_bandwidth(
    op_trace: Make, tensor: Make
) -> None:
    inputs = [tensor(8, 8192), tensor(8192, 32768)]
    trace = op_trace("aten::mm", inputs, GEMM, us=400)
    assert line(trace) == (
        "[8, 8192] x [8192, 32768]   4.29 GFLOP   10.7 TFLOP/s"
        "   538 MB   1.34 TB/s   66 % of peak bandwidth"
    )


def test_ampere_kernel_on_hopper_gets_a_remark(op_trace: Make, tensor: Make) -> None:
    inputs = [tensor(64, 32), tensor(32, 16)]
    assert said(op_trace("aten::mm", inputs, GEMM, device=H100)) == (
        "an Ampere kernel on a Hopper GPU",
    )
    assert said(op_trace("aten::mm", inputs, GEMM)) == ()
    assert said(op_trace("aten::mm", inputs, "k", device=H100)) == ()


def test_few_tiles_get_a_remark_about_idle_sms(op_trace: Make, tensor: Make) -> None:
    few = {**LAUNCH, "grid": [4, 5, 1]}
    trace = op_trace("aten::mm", [tensor(640, 768), tensor(768, 512)], (GEMM, few))
    assert said(trace) == ("20 tiles leave 88 of 108 SMs idle",)
    assert line(trace).endswith("20 tiles, one wave, 19 % full")


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        (H100, "Hopper"),
        ({**H100, "computeMajor": 8, "computeMinor": 9}, "Ada"),
        ({**H100, "computeMajor": 99}, None),
        (
            {
                "computeMajor": 9,
                "computeMinor": 4,
                "maxSharedMemoryPerMultiProcessor": 1,
            },
            "CDNA3",
        ),
        (
            {
                "computeMajor": 9,
                "computeMinor": 0,
                "maxSharedMemoryPerMultiProcessor": 1,
            },
            None,
        ),
        ({"computeMajor": 9, "computeMinor": 0}, None),
        ({}, None),
    ],
)
def test_generation_of_a_device_follows_from_its_compute_capability(
    properties: dict[str, Any], name: str | None
) -> None:
    assert device_generation(properties) == name
