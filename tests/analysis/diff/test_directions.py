"""What is said of a direction agrees with the figures beside it; what a file lacks is
named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Diff, RowKind
from fusetui.analysis.diff.story import add_summary
from fusetui.report.diff import format_diff, judgment
from fusetui.report.diff_lines import lines
from fusetui.trace import Trace, open_trace

Build = Callable[..., Trace]
STEP = [("aten::mm", "gemm_kernel", 200.0), ("aten::add", "add_kernel", 40.0)]
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def opposed(build: Build, *, turns: bool) -> Diff:
    """The medians say less time, the ratio more."""
    found = diff(build(STEP), build([(*piece[:2], 0.9 * piece[2]) for piece in STEP]))
    step = replace(found.step, ratio=1.027, low=0.98, high=1.05, turns=turns)
    return add_summary(replace(found, step=step))


@pytest.mark.parametrize("turns", [True, False])
def test_a_ratio_that_contradicts_the_medians_is_named(
    build: Build, turns: bool
) -> None:
    found = opposed(build, turns=turns)
    said = judgment(found)
    assert "2.7 % slower" in said
    assert (
        "by the ratios of neighboring steps" if turns else "without interruptions"
    ) in said
    assert "the median step takes" in said
    assert "less time" in said
    assert " in the median step: " in found.story


def test_a_ratio_that_agrees_needs_no_name(build: Build) -> None:
    found = diff(build(STEP), build([(*piece[:2], 2 * piece[2]) for piece in STEP]))
    assert "median step" not in format_diff(found)


def test_from_ten_times_on_the_diff_says_times_instead_of_a_percentage(
    build: Build,
) -> None:
    many = 2432.05
    found = diff(build(STEP), build([(*piece[:2], many * piece[2]) for piece in STEP]))
    decided = replace(
        found, step=replace(found.step, ratio=many, low=2400.2, high=2450)
    )
    assert judgment(decided).startswith(
        "B takes 2,432 times as long (95 % CI 2,400 to 2,450 times"
    )
    undecided = replace(
        found, verdict=replace(found.verdict, answer=Answer.CANNOT_TELL)
    )
    assert "% slower" not in judgment(undecided)
    assert "times as long" in judgment(undecided)


def test_more_calls_that_take_less_time_are_marked_as_less(build: Build) -> None:
    a = build([*STEP, ("aten::view", None, 50.0)])
    b = build([*STEP, ("aten::view", None, 5.0), ("aten::view", None, 5.0)])
    (line,) = [line for line in lines(diff(a, b)) if "aten::view" in line.what]
    assert line.change_ns < 0
    assert (line.kind, line.mark) == ("added", "-")


def cut(trace: Trace, path: Path) -> Trace:
    """The same file without its GPU events."""
    document = json.loads(Path(trace.report.path).read_text())
    events = [e for e in document["traceEvents"] if e["cat"] not in GPU]
    path.write_text(json.dumps({**document, "traceEvents": events}))
    return open_trace(str(path))


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_file_cut_before_its_gpu_events_is_compared_by_ops(
    build: Build, tmp_path: Path, side: str
) -> None:
    whole = build(STEP)
    less = cut(whole, tmp_path / "cut.json")
    found = diff(less, whole) if side == "A" else diff(whole, less)
    assert found.verdict.answer is Answer.CANNOT_TELL
    assert str(found.verdict.reason).startswith(
        f"{side} launches GPU work, but its file has no"
    )
    assert {row.kind for row in found.rows} == {RowKind.SAME}
    assert "CPU only" not in format_diff(found)


def test_a_program_on_the_cpu_is_still_another_device(build: Build) -> None:
    cpu = [(op, None, us) for op, _, us in STEP]
    found = diff(build(STEP, deviceProperties=[{"id": 0, "name": "A100"}]), build(cpu))
    assert "A100 -> CPU only" in str(found.verdict.reason)
