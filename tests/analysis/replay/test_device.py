"""What another device would be worth: each kernel by its least time there, which is
worked out here from data sheets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.replay.events import call, host, kernel

from fusetui.analysis.replay.changes import WrongChangeError
from fusetui.analysis.replay.whatif import WhatIf, whatif
from fusetui.report.whatif import format_whatif
from fusetui.trace import Trace

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
FLOP = 2 * 4096**3
A100, H100 = 312e12, 989.4e12  # FLOP/s of bf16


A100_DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "numSms": 108,
    "totalGlobalMem": 85_000_000_000,
}


@pytest.fixture
def moved(trace_of: Callable[..., Trace]) -> Callable[..., WhatIf]:
    """Of a product of two matrices that takes 1000 us on an A100, 5 after its launch;
    `shapes`: whether they were recorded."""

    def ask(device: str, *, shapes: bool = True) -> WhatIf:
        types = ["c10::BFloat16"] * 2
        args: dict[str, Any] = {"External id": 1}
        if shapes:
            args |= {"Input Dims": [[4096, 4096]] * 2, "Input type": types}
            args |= {"Input Strides": [[4096, 1]] * 2}
        launch = call("cudaLaunchKernel", 0, 2, 1)
        events = [
            host("aten::mm", 0, 3, args=args),
            launch | {"args": launch["args"] | {"External id": 1}},
            kernel(5, 1000, 1, GEMM, args={"correlation": 1, "device": 0, "stream": 7}),
        ]
        trace = trace_of(events, deviceProperties=[A100_DEVICE])
        return whatif(trace, [f"device={device}"])

    return ask


def test_device_change_gives_a_range_from_same_share_to_same_distance(
    moved: Callable[..., WhatIf],
) -> None:
    """Arithmetic bounds it on both devices: bandwidth has no part in it."""
    found = moved("H100 80GB HBM3")
    same_share = 1000 * A100 / H100
    same_distance = 1000 - FLOP / A100 * 1e6 + FLOP / H100 * 1e6
    assert found.between_ns == tuple(
        round((5 + us) * 1000) for us in (same_share, same_distance)
    )
    assert found.after_ns is None
    assert "unscaled" not in found.notes


@pytest.mark.parametrize(
    ("device", "shapes"), [("V100-SXM2-32GB", True), ("H100 80GB HBM3", False)]
)
def test_without_a_least_time_on_both_there_is_no_answer(
    moved: Callable[..., WhatIf], device: str, shapes: bool
) -> None:
    """A V100 multiplies no bf16 on its tensor cores."""
    with pytest.raises(
        WrongChangeError,
        match=("No kernel has a known roofline bound on both this device and"),
    ):
        moved(device, shapes=shapes)


def test_little_that_is_scaled_decides_nothing(trace_of: Callable[..., Trace]) -> None:
    """The product takes 10 us of each 200: the CPU decides, of which nothing is
    known."""
    args = {
        "External id": 1,
        "Input Dims": [[512, 512]] * 2,
        "Input type": ["c10::BFloat16"] * 2,
    }
    args["Input Strides"] = [[512, 1]] * 2
    events = []
    for number in range(1, 4):
        at = 200 * number
        launch = call("cudaLaunchKernel", at + 180, 2, number)
        own = {"External id": number}
        events += [
            host("aten::mm", at, 190, args=args | own),
            launch | {"args": launch["args"] | own},
            kernel(at + 185, 10, number, GEMM),
        ]
    trace = trace_of(events, deviceProperties=[A100_DEVICE])
    found = whatif(trace, ["device=H100 80GB HBM3"])
    assert found.scaled_share == pytest.approx(10 / 595, rel=0.05)
    assert found.scales_little
    assert found.abstains
    assert (found.after_ns, found.between_ns) == (None, None)
    assert format_whatif(found, 200).startswith(
        "Inconclusive: device=H100 80GB HBM3 scales only"
    )


def test_the_share_that_is_scaled_is_told(moved: Callable[..., WhatIf]) -> None:
    found = moved("H100 80GB HBM3")
    assert found.scaled_share == pytest.approx(1000 / 1005)
    assert "take 99.5 % of the critical path" in " ".join(
        format_whatif(found, 200).split()
    )


def test_equal_ends_are_said_to_be_that(moved: Callable[..., WhatIf]) -> None:
    found = moved("A100-SXM4-80GB")
    assert found.between_ns == (1_005_000, 1_005_000)
    assert "would be an estimated 1.005 ms at both ends of the range" in format_whatif(
        found, 200
    )
