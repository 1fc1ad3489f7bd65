"""A kernel of nobody that is known takes most of the time."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Ask
from .work import ADD, SGEMM, work

OWN = "matmul_k(float*, float*, float*, int, int, int)"
T4 = {
    "deviceProperties": [
        {
            "id": 0,
            "name": "Tesla T4",
            "computeMajor": 7,
            "computeMinor": 5,
            "maxThreadsPerMultiprocessor": 1024,
            "regsPerMultiprocessor": 65536,
            "sharedMemPerMultiprocessor": 65536,
            "warpSize": 32,
            "numSms": 40,
        }
    ]
}


def launched_with(events: list[dict[str, Any]], **args: Any) -> list[dict[str, Any]]:
    """The kernels among some events, with their launch configuration."""
    for event in events:
        if event["cat"] == "kernel":
            event["args"] = {**event["args"], "device": 0, **args}
    return events


def test_unrecognized_kernel_names_it_with_its_launch_configuration(found: Ask) -> None:
    events = work(("aten::add", ADD, 4000), ("own::matmul", OWN, 6000))
    geometry = {"grid": [63, 63, 1], "block": [16, 16, 1], "shared memory": 0}
    events = launched_with(events, **geometry, **{"registers per thread": 52})
    (finding,) = found("unrecognized-kernel", events, **T4)
    assert finding.at_stake_ns is None
    assert finding.certainty == "likely"
    assert finding.text == (
        "matmul_k takes 60 % of kernel time, 6 ms (60.0 % of the span) in 1 launch "
        "(mean 6 ms). The kernel is probably handwritten, because fusetui does not "
        "recognize its name. The longest launch has 3,969 blocks of 256 threads for 40 "
        "multiprocessors; registers and shared memory allow an occupancy of 100 %. "
        "The kernel's roofline bound is unknown, because its name does not show what it computes."
    )
    assert "ncu --set full --kernel-name matmul_k" in (finding.try_ or "")


@pytest.mark.parametrize(
    "kernels",
    [
        (("own::matmul", OWN, 900),),
        (("own::matmul", OWN, 4900), ("aten::add", ADD, 5100)),
        (("aten::mm", SGEMM, 6000), ("own::matmul", OWN, 4000)),
        (("aten::add", "triton_poi_fused_add_0", 9000),),
        (("aten::mm", "void cutlass::Kernel2<own_tile>(own_tile::Params)", 9000),),
        (
            (
                "nccl:all_reduce",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclWork*)",
                9000,
            ),
        ),
    ],
)
def test_unrecognized_kernel_is_silent_where_known_kernels_dominate(
    found: Ask, kernels: Any
) -> None:
    assert found("unrecognized-kernel", work(*kernels)) == []


def test_without_a_launch_configuration_none_is_told(found: Ask) -> None:
    (finding,) = found("unrecognized-kernel", work(("own::matmul", OWN, 6000)))
    assert "longest launch" not in finding.text
