"""A gap before the first run of a kernel that torch.compile generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ask

Make = Callable[..., Any]
RULE = "first-compiled-kernels"
GENERATED = "triton_poi_fused_add_0"


def two_kernels(launched: Make, name: str, idle_us: int) -> list[Any]:
    """A kernel at 5 us, and one so much later; nothing is recorded in between."""
    events = launched(1, 0, 5)
    later = launched(2, idle_us, idle_us + 5)
    return [
        *events,
        *({**one, "name": name} if one["cat"] == "kernel" else one for one in later),
    ]


def test_first_compiled_kernels_reports_the_gap_before_a_generated_kernel(
    found: Ask, launched: Make
) -> None:
    """The first kernel ends at 15 us; the launch call of the second one begins at 200
    ms."""
    (finding,) = found(RULE, two_kernels(launched, GENERATED, 200_000))
    assert finding.at_stake_ns == 200_000_000 - 15_000
    assert finding.certainty == "likely"
    said = f"before the first run of {GENERATED}. The CPU was probably compiling: torch.compile "
    assert said in finding.text


@pytest.mark.parametrize(
    ("name", "fires"), [("ProfilerStep#1", True), ("log metrics", False)]
)
def test_a_step_around_the_gap_does_not_say_what_the_cpu_did(
    found: Ask, event: Make, launched: Make, name: str, fires: bool
) -> None:
    around = event(name, 0, 200_050, cat="user_annotation")
    assert (
        bool(found(RULE, [around, *two_kernels(launched, GENERATED, 200_000)])) == fires
    )


def test_gap_before_a_first_compiled_kernel_is_not_cpu_work(
    found: Ask, launched: Make
) -> None:
    events = two_kernels(launched, GENERATED, 200_000)
    assert found("cpu-work", events) == []
    assert len(found("cpu-work", two_kernels(launched, "other", 200_000))) == 1


@pytest.mark.parametrize(
    ("name", "idle_us"), [("ampere_sgemm_128x64_tn", 200_000), (GENERATED, 90_000)]
)
def test_first_compiled_kernels_ignores_other_kernels_and_short_gaps(
    found: Ask, launched: Make, name: str, idle_us: int
) -> None:
    assert found(RULE, two_kernels(launched, name, idle_us)) == []


def test_first_compiled_kernels_ignores_gaps_that_an_op_explains(
    found: Ask, launched: Make, event: Make
) -> None:
    events = two_kernels(launched, GENERATED, 200_000)
    assert found(RULE, [*events, event("aten::randn", 20, 150_000)]) == []


def test_a_kernel_with_such_a_gap_before_each_run_is_silent(
    found: Ask, launched: Make
) -> None:
    """It was compiled once at most: the CPU does something else there."""
    events = two_kernels(launched, GENERATED, 200_000)
    again = launched(3, 400_000, 400_005)
    again = [
        {**one, "name": GENERATED} if one["cat"] == "kernel" else one for one in again
    ]
    assert found(RULE, [*events, *again]) == []
    quick = launched(3, 200_050, 200_055)
    quick = [
        {**one, "name": GENERATED} if one["cat"] == "kernel" else one for one in quick
    ]
    assert len(found(RULE, [*events, *quick])) == 1
