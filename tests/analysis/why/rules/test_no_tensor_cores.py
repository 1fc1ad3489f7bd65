"""float32 products on the plain cores."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Ask, Lack
from .work import A100, ADD, SGEMM, search, tried, work

V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB", "numSms": 80}]}
T4 = {"deviceProperties": [{"id": 0, "name": "Tesla T4", "numSms": 40}]}
RTX = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA GeForce RTX 2080 Ti", "numSms": 68}]
}
GP100 = {"deviceProperties": [{"id": 0, "name": "Quadro GP100", "numSms": 56}]}


def test_no_tensor_cores_reports_float32_products_with_tf32_as_the_remedy(
    found: Ask,
) -> None:
    """19.5 TFLOP/s on the plain cores, 156 in TF32: an eighth of the time."""
    (finding,) = found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **A100)
    assert finding.at_stake_ns == 70_000
    assert "TF32 is 8 times as fast" in finding.text


def test_no_core_is_faster_than_the_memory(found: Ask) -> None:
    """67.63 MB at 2,039 GB/s take 33.170 us."""
    shapes = {
        "Input Dims": [[16, 4096], [4096, 4096]],
        "Input type": ["float", "float"],
    }
    (finding,) = found(
        "no-tensor-cores", work(("aten::mm", SGEMM, 80), args=shapes), **A100
    )
    assert finding.at_stake_ns == 80_000 - 33_170


@pytest.mark.parametrize(
    ("device", "saved"), [(V100, 69_952), (T4, 70_030), (RTX, 60_035)]
)
def test_devices_of_compute_capability_7_have_float16(
    found: Ask, device: dict[str, Any], saved: int
) -> None:
    """V100: 15.7 of 125 TFLOP/s; T4: 8.1 of 65; RTX 2080 Ti: 14.2 of 56.9."""
    products = ("aten::mm", SGEMM, 80), ("AddmmBackward0", ADD, 1)
    (finding,) = found("no-tensor-cores", work(*products), **device)
    assert finding.at_stake_ns == saved
    assert "multiplication in float16 is" in finding.text
    assert finding.try_ is not None
    assert "GradScaler" in finding.try_


def test_no_gradient_is_scaled_in_inference(found: Ask) -> None:
    (finding,) = found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **V100)
    assert finding.try_ is not None
    assert (
        "dtype=torch.float16). float16 rounds inputs to a 10-bit mantissa"
        in finding.try_
    )
    assert "GradScaler" not in finding.try_
    assert "gradients" not in finding.try_


def test_where_tf32_is_no_faster_it_is_no_advice(found: Ask) -> None:
    """An A10G multiplies bfloat16 twice as fast as float32 and TF32."""
    a10g = {"deviceProperties": [{"id": 0, "name": "NVIDIA A10G", "numSms": 80}]}
    (finding,) = found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **a10g)
    assert "multiplication in bfloat16 is twice as fast" in finding.text
    assert finding.try_ is not None
    assert "autocast with bfloat16" in finding.try_
    assert "TF32" not in finding.try_


def test_float16_without_tensor_cores_is_no_advice(found: Ask) -> None:
    """A Quadro GP100 multiplies float16 twice as fast, on its plain cores."""
    assert found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **GP100) == []


def test_engines_of_cudnn_are_products(found: Ask) -> None:
    """cuDNN 7 and 8 name no generation of theirs."""
    engines = [
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
    ]
    half = "void cudnn::detail::dgrad_engine<__half, 512, 6, 5, 3, 3, 3, false>(int)"
    events = work(
        *(("aten::convolution_backward", name, 80) for name in [*engines, half])
    )
    (finding,) = found("no-tensor-cores", events, **V100)
    assert finding.at_stake_ns == 2 * 69_952
    assert finding.text.startswith("2 float32 matrix products take 160 us")


def test_a_convolution_beside_others_in_tf32_is_a_choice_of_cudnn(found: Ask) -> None:
    plain = "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1"
    tf32 = (
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
        "_stage4_warpsize2x2x1_g1_tensor16x8x8_simple_t1r3s3_kernel"
    )
    kernels = [("aten::conv2d", plain, 80), ("aten::mm", SGEMM, 80)]
    (finding,) = found("no-tensor-cores", work(*kernels), **A100)
    assert finding.text.startswith("2 float32 matrix products take 160 us")
    (finding,) = found(
        "no-tensor-cores", work(*kernels, ("aten::conv2d", tf32, 80)), **A100
    )
    assert finding.text.startswith("1 float32 matrix product takes 80 us")


def unlisted(major: int, minor: int, name: str = "NVIDIA Foo") -> dict[str, Any]:
    properties = {
        "id": 0,
        "name": name,
        "numSms": 10,
        "computeMajor": major,
        "computeMinor": minor,
    }
    return {"deviceProperties": [properties]}


@pytest.mark.parametrize(
    ("capability", "multiplied", "remedy"),
    [
        ((7, 0), "float16", "torch.float16"),
        ((7, 5), "float16", "torch.float16"),
        ((8, 0), "TF32 and bfloat16", "set_float32_matmul_precision"),
        ((8, 6), "TF32 and bfloat16", "set_float32_matmul_precision"),
        ((12, 0), "TF32 and bfloat16", "set_float32_matmul_precision"),
    ],
)
def test_a_device_without_a_known_peak_gets_advice_without_a_figure(
    found: Ask, lacking: Lack, capability: tuple[int, int], multiplied: str, remedy: str
) -> None:
    events, device = work(("aten::mm", SGEMM, 80)), unlisted(*capability)
    (finding,) = found("no-tensor-cores", events, **device)
    assert finding.at_stake_ns is None
    assert f"multiply {multiplied}." in finding.text
    assert finding.try_ is not None
    assert remedy in finding.try_
    assert len(lacking("no-tensor-cores", events, **device)) == 1


@pytest.mark.parametrize(
    ("major", "minor", "name"),
    [
        (6, 1, "NVIDIA Foo"),
        (7, 5, "NVIDIA GeForce GTX 1660 SUPER"),
        (7, 5, "NVIDIA T1000"),
        (7, 5, "Quadro T2000"),
    ],
)
def test_a_device_without_tensor_cores_is_silent(
    found: Ask, lacking: Lack, major: int, minor: int, name: str
) -> None:
    events, device = work(("aten::mm", SGEMM, 80)), unlisted(major, minor, name)
    assert found("no-tensor-cores", events, **device) == []
    assert lacking("no-tensor-cores", events, **device) == []


def test_few_products_of_an_unlisted_device_are_silent(found: Ask) -> None:
    """1 of 100 us."""
    events = work(("aten::mm", SGEMM, 1), ("aten::add", ADD, 99))
    assert found("no-tensor-cores", events, **unlisted(8, 6)) == []


def test_the_compute_capability_of_another_maker_is_not_that_of_cuda(
    found: Ask, lacking: Lack
) -> None:
    events, device = work(("aten::mm", SGEMM, 80)), unlisted(9, 4, "AMD Foo")
    assert found("no-tensor-cores", events, **device) == []
    assert len(lacking("no-tensor-cores", events, **device)) == 1


def test_an_unknown_device_cannot_be_told(lacking: Lack) -> None:
    (lack,) = lacking("no-tensor-cores", work(("aten::mm", SGEMM, 80)))
    assert "device" in lack.missing


CONVOLUTIONS = tuple(
    f"ampere_scudnn_128x{n}_relu_interior_nn_v1" for n in (32, 64, 128)
)


def test_no_tensor_cores_ignores_kernels_of_an_algorithm_search(
    found: Ask,
) -> None:
    """Three kernels of 80 us are measured, and the fastest one then runs: it alone
    counts."""
    tries = tried(CONVOLUTIONS, 80)
    run = tried(CONVOLUTIONS[:1], 80)
    (finding,) = found("no-tensor-cores", search(0, tries, run), **A100)
    assert finding.at_stake_ns == 70_000
    assert found("no-tensor-cores", search(0, tries, []), **A100) == []
    # two of them are no search, and without the waits nothing was measured
    several = search(0, tries[:2], run)
    (finding,) = found("no-tensor-cores", several, **A100)
    assert finding.at_stake_ns == 3 * 70_000
    unmeasured = [
        one for one in search(0, tries, run) if one["name"] != "cudaEventSynchronize"
    ]
    (finding,) = found("no-tensor-cores", unmeasured, **A100)
    assert finding.at_stake_ns == 4 * 70_000


def attention(arch: int) -> str:
    """The name of PyTorch's memory-efficient attention in float32."""
    kernel = f"fmha_cutlassF_f32_aligned_64x64_rf_sm{arch}"
    return f"{kernel}(PyTorchMemEffAttention::AttentionKernel<float>::Params)"


def test_no_tensor_cores_reports_float32_attention_in_three_tf32_parts(
    found: Ask,
) -> None:
    """156 TFLOP/s in TF32 are 52 in float32; 312 in bfloat16 are six times as many."""
    work_ = work(("aten::_efficient_attention_forward", attention(80), 60))
    (finding,) = found("no-tensor-cores", work_, **A100)
    assert finding.at_stake_ns == 50_000
    assert finding.text == (
        "1 float32 attention kernel takes 60 us (100 % of the span) on tensor cores, "
        "which compute each float32 product as 3 TF32 products. Matrix "
        "multiplication in bfloat16 is 6 times as fast on this device."
    )
    assert finding.try_ is not None
    assert "scaled_dot_product_attention can also use FlashAttention" in finding.try_


def test_no_tensor_cores_reports_float32_attention_on_plain_cores(found: Ask) -> None:
    """15.7 of 125 TFLOP/s."""
    work_ = work(("aten::_efficient_attention_forward", attention(70), 60))
    (finding,) = found("no-tensor-cores", work_, **V100)
    assert finding.at_stake_ns == 52_464
    assert (
        "without using tensor cores. Matrix multiplication in float16 is 8 times"
    ) in finding.text


@pytest.mark.parametrize(
    ("name", "device"),
    [(attention(80).replace("f32", "bf16"), A100), (attention(60), GP100)],
)
def test_no_tensor_cores_leaves_out_attention_of_other_dtypes(
    found: Ask, name: str, device: dict[str, Any]
) -> None:
    """In 16 bits, and on a device without tensor cores."""
    work_ = work(("aten::_efficient_attention_forward", name, 60))
    assert found("no-tensor-cores", work_, **device) == []
