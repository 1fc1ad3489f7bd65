"""Every change that benchmarks/diff_planted.py plants, into a small trace: found, and
alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.diff.planting import PLACES, Subject, judge
from tests.analysis.diff.plants import PLANTS

from fusetui.trace import Trace

GEMM = "ampere_bf16_s16816gemm_bf16_{}_ldg8_f2f_stages_64x3_tn"
STEP = [
    ("aten::linear / aten::addmm", GEMM.format("128x128"), 192.0),
    ("aten::gelu", "void gelu_kernel<float>(int)", 64.0),
    ("aten::mul", "void mul_kernel<float>(int)", 32.0),
    (
        "aten::layer_norm / aten::native_layer_norm",
        "void layer_norm_kernel<float>(int)",
        48.0,
    ),
    ("aten::linear / aten::addmm", GEMM.format("64x256"), 160.0),
    ("aten::sum", "void sum_kernel<float>(int)", 16.0),
]
FACTORS = (1.0, 1.0625, 1.125, 1.0, 1.1875, 1.0625)  # so that all times are exact


@pytest.fixture(scope="module")
def subject(build: Callable[..., Trace]) -> Subject:
    found = Subject.read(Path(build(STEP, FACTORS).report.path))
    assert found is not None
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_change_is_found_alone_with_its_figure(
    subject: Subject, plant: str, place: str, tmp_path: Path
) -> None:
    planted = PLANTS[plant](subject, place, 0)
    if planted is None:
        assert place != "in all steps"
        return
    answer = judge(subject, planted, tmp_path / "planted.json")
    assert answer.right, answer.said


@pytest.mark.parametrize("nth", range(5))
def test_a_gap_is_no_idle_time_whatever_is_slower_in_the_same_step(
    subject: Subject, nth: int, tmp_path: Path
) -> None:
    planted = PLANTS["a kernel dropped, another x 1.3"](subject, PLACES[0], nth)
    assert planted is not None
    answer = judge(subject, planted, tmp_path / "planted.json")
    assert answer.right, answer.said


def test_judge_of_planted_changes_names_what_is_wrong(
    subject: Subject, tmp_path: Path
) -> None:
    planted = PLANTS["a kernel dropped"](subject, "in all steps", 0)
    assert planted is not None
    planted.change_ns *= 2
    answer = judge(subject, planted, tmp_path / "planted.json")
    assert not answer.right
    assert "figure" in answer.said
