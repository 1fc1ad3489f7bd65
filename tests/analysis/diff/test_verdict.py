"""When a diff has a verdict, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Verdict
from fusetui.trace import Trace

Build = Callable[..., Trace]
ADD = [("aten::add", "add_kernel", 100.0)]
ON_CPU = [("aten::add", None, 100.0)]


def on(name: str) -> dict[str, Any]:
    return {"deviceProperties": [{"id": 0, "name": name}]}


@pytest.mark.parametrize(
    ("factor", "answer"),
    [(0.5, Answer.FASTER), (1.0, Answer.NO_DIFFERENCE), (2.0, Answer.SLOWER)],
)
def test_five_steps_have_a_verdict(build: Build, factor: float, answer: Answer) -> None:
    assert diff(build(ADD), build(ADD, (factor,) * 5)).verdict == Verdict(answer)


@pytest.mark.parametrize("steps", [(4, 5), (5, 4), (1, 1)])
def test_fewer_have_none(build: Build, steps: tuple[int, int]) -> None:
    a, b = build(ADD, (1.0,) * steps[0]), build(ADD, (2.0,) * steps[1])
    found = diff(a, b).verdict
    assert found.answer is Answer.CANNOT_TELL
    assert f"(A {steps[0]}, B {steps[1]})" in str(found.reason)


def test_a_cold_first_step_does_not_count(build: Build) -> None:
    found = diff(build(ADD), build(ADD, (9.0, 1.0, 1.0, 1.0, 1.0))).verdict
    assert "(A 4, B 4)" in str(found.reason)


def test_across_devices_there_is_none(build: Build) -> None:
    a, b = build(ADD, **on("A100")), build(ADD, (2.0,) * 5, **on("H100"))
    assert diff(a, b).verdict == Verdict(
        Answer.CANNOT_TELL, "the devices differ (A100 -> H100)"
    )


def test_a_gpu_and_a_cpu_differ(build: Build) -> None:
    found = diff(build(ON_CPU), build(ADD, **on("H100"))).verdict
    assert found.reason == "the devices differ (CPU only -> H100)"


def test_a_device_without_a_name_may_be_the_same(build: Build) -> None:
    found = diff(build(ADD), build(ADD, (2.0,) * 5, **on("H100")))
    assert found.verdict == Verdict(Answer.SLOWER)
    assert not any("devices differ" in note for note in found.notes)


def test_without_work_there_is_none(build: Build) -> None:
    found = diff(build([]), build(ADD)).verdict
    assert found == Verdict(Answer.CANNOT_TELL, "the steps of A contain no work")
