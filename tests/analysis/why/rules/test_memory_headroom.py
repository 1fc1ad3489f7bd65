"""A full device with much memory that is reserved and never used."""

from __future__ import annotations

from typing import Any

from .conftest import Ask, Lack
from .work import ADD, Event, work

GB = 10**9
DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "numSms": 108,
    "totalGlobalMem": 80 * GB,
}


def used(*totals: tuple[int, int]) -> list[Event]:
    """A kernel, and what was allocated and reserved (GB) at one time after the
    other."""
    events = [
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "ts": 10 * n, "args": {
            "Device Type": 1, "Device Id": 0, "Bytes": 1,
            "Total Allocated": allocated * GB, "Total Reserved": reserved * GB,
        }}
        for n, (allocated, reserved) in enumerate(totals)
    ]  # fmt: skip
    return [*work(("aten::add", ADD, 20)), *events]


def test_memory_headroom_reports_reserved_memory_that_is_never_used(found: Ask) -> None:
    """70 of 80 GB are reserved, and 49 of them at most allocated."""
    events = used((20, 40), (49, 60), (10, 70))
    (finding,) = found("memory-headroom", events, deviceProperties=[DEVICE])
    assert finding.at_stake_ns is None
    assert "reserves 70 GB of the 80 GB of GPU 0" in finding.text
    assert "30 % of the" in finding.text


def test_memory_headroom_is_silent_where_memory_is_used(found: Ask) -> None:
    assert found("memory-headroom", used((60, 70)), deviceProperties=[DEVICE]) == []


def test_a_device_with_memory_to_spare_is_silent(found: Ask) -> None:
    assert found("memory-headroom", used((10, 60)), deviceProperties=[DEVICE]) == []


def test_without_memory_events_it_cannot_tell(lacking: Lack) -> None:
    (lack,) = lacking("memory-headroom", work(("aten::add", ADD, 20)))
    assert lack.record_with == "profile_memory=True"


def test_memory_events_without_totals_do_not_tell(lacking: Lack) -> None:
    """As torch wrote them in 2021."""
    events = used((60, 70))
    del events[-1]["args"]["Total Allocated"], events[-1]["args"]["Total Reserved"]
    (lack,) = lacking("memory-headroom", events, deviceProperties=[DEVICE])
    assert lack.missing == "memory events of the GPU with totals"


def on_rocm(*pids: int) -> tuple[list[Event], dict[str, Any]]:
    """Kernels on these agents; the memory events name device 0."""
    memory = used((20, 40), (49, 60), (10, 70))
    events = memory[-3:]
    for pid in pids:
        events += [
            {**one, "pid": pid} if one["cat"] == "kernel" else one
            for one in memory[:-3]
        ]
    return events, {"deviceProperties": [DEVICE], "roctracer_version": 400}


def test_memory_headroom_on_rocm_takes_the_only_gpu_whatever_its_number(
    found: Ask,
) -> None:
    events, keys = on_rocm(2)
    (finding,) = found("memory-headroom", events, **keys)
    assert "reserves 70 GB of the 80 GB of GPU 2" in finding.text


def test_of_several_gpus_of_rocm_it_cannot_tell_which(
    found: Ask, lacking: Lack
) -> None:
    events, keys = on_rocm(2, 3)
    assert found("memory-headroom", events, **keys) == []
    (lack,) = lacking("memory-headroom", events, **keys)
    assert lack.missing == "the GPU of each memory event"


def test_without_the_size_of_the_memory_it_cannot_tell(lacking: Lack) -> None:
    (lack,) = lacking("memory-headroom", used((49, 70)))
    assert lack.missing == "the size of the GPU's memory"
