"""Slow kernels that were built for an earlier generation of GPUs."""

from __future__ import annotations

from .conftest import Ask
from .test_alignment import ALIGN1, ALIGN8
from .test_far_from_peak import LARGE
from .work import Event, work

NEW = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
    "segment_k_off_kernel__5x_cublas"
)
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9}


def products(*kernels: tuple[str, int]) -> list[Event]:
    return work(*(("aten::mm", name, dur) for name, dur in kernels), args=LARGE)


def test_old_architecture_reports_an_ampere_kernel_on_hopper(found: Ask) -> None:
    """2 x 4096 ** 3 FLOP at the measured 794.5 TFLOP/s take 172.988 us."""
    events = products((ALIGN8, 400), (NEW, 180))
    (finding,) = found("old-architecture", events, deviceProperties=[H100])
    assert finding.at_stake_ns == 400_000 - 172_988
    assert "1 kernel built for an earlier generation" in finding.text


def test_without_a_newer_kernel_it_is_silent(found: Ask) -> None:
    assert (
        found("old-architecture", products((ALIGN8, 400)), deviceProperties=[H100])
        == []
    )


def test_a_fast_one_is_silent(found: Ask) -> None:
    events = products((ALIGN8, 300), (NEW, 180))
    assert found("old-architecture", events, deviceProperties=[H100]) == []


def test_where_the_alignment_is_the_reason_it_is_silent(found: Ask) -> None:
    events = products((ALIGN1, 400), (NEW, 180))
    assert found("old-architecture", events, deviceProperties=[H100]) == []


def test_an_ada_gpu_has_the_instructions_of_ampere(found: Ask) -> None:
    ada = {
        "id": 0,
        "name": "NVIDIA L40S",
        "numSms": 142,
        "computeMajor": 8,
        "computeMinor": 9,
    }
    events = products((ALIGN8, 2_000), (NEW, 500))
    assert found("old-architecture", events, deviceProperties=[ada]) == []
