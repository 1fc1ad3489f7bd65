"""float32 products on the plain cores."""

from __future__ import annotations

from .conftest import Ask, Lack
from .work import A100, SGEMM, work

V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB", "numSms": 80}]}
TF32 = "ampere_sgemm_tf32_128x64_tn"


def test_it_speaks(found: Ask) -> None:
    """19.5 TFLOP/s on the plain cores, 156 in TF32: an eighth of the time."""
    (finding,) = found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **A100)
    assert finding.at_stake_ns == 70_000
    assert "TF32 8 times as fast" in finding.text


def test_no_core_is_faster_than_the_memory(found: Ask) -> None:
    """67.63 MB at 2,039 GB/s take 33.170 us."""
    shapes = {"Input Dims": [[16, 4096], [4096, 4096]], "Input type": ["float", "float"]}
    (finding,) = found("no-tensor-cores", work(("aten::mm", SGEMM, 80), args=shapes), **A100)
    assert finding.at_stake_ns == 80_000 - 33_170


def test_a_device_without_tf32_is_silent(found: Ask) -> None:
    assert found("no-tensor-cores", work(("aten::mm", SGEMM, 80)), **V100) == []


def test_an_unknown_device_cannot_be_told(lacking: Lack) -> None:
    (lack,) = lacking("no-tensor-cores", work(("aten::mm", SGEMM, 80)))
    assert "device" in lack.missing
