"""Products whose last wave of tiles is mostly empty."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .test_alignment import ALIGN8
from .work import Event, work

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "numSms": 108,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}


def product(across: int, down: int, dur: int) -> list[Event]:
    """So many tiles of 128 x 128 with k = 4096; an SM holds one block."""
    dims = [[128 * down, 4096], [4096, 128 * across]]
    args = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 2}
    events = work(("aten::mm", ALIGN8, dur), args=args)
    needs = {"registers per thread": 230, "shared memory": 98304}
    events[-1]["args"] |= {"grid": [across, down, 1], "block": [256, 1, 1], **needs}
    return events


def test_tail_wave_reports_the_empty_part_of_the_last_wave(found: Ask) -> None:
    """130 tiles on 108 SMs are two waves for the time of 130 / 216 of them."""
    (finding,) = found("tail-wave", product(13, 10, 150), deviceProperties=[A100])
    assert finding.at_stake_ns == 150_000 * 86 // 216
    assert "1.2 waves" in finding.text


def test_no_more_is_at_stake_than_what_exceeds_the_bound(found: Ask) -> None:
    """2 x 1280 x 1664 x 4096 FLOP take 64.337 us at 271.2 TFLOP/s."""
    (finding,) = found("tail-wave", product(13, 10, 80), deviceProperties=[A100])
    assert finding.at_stake_ns == 80_000 - 64_337


@pytest.mark.parametrize(
    ("across", "down", "dur"),
    [
        (13, 10, 64),  # as fast as can be
        (20, 10, 150),  # 1.85 waves: the last one is nearly full
        (9, 9, 150),  # less than a wave
        (50, 10, 500),  # 4.63 waves
    ],
)
def test_tail_wave_is_silent_for_short_kernels_and_full_or_many_waves(
    found: Ask, across: int, down: int, dur: int
) -> None:
    assert found("tail-wave", product(across, down, dur), deviceProperties=[A100]) == []


def test_without_the_limits_of_an_sm_it_is_silent(found: Ask) -> None:
    """How many blocks an SM holds is not known."""
    device = {key: A100[key] for key in ("id", "name", "numSms")}
    assert found("tail-wave", product(13, 10, 150), deviceProperties=[device]) == []
