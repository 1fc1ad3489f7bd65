"""Findings about compilations and graph breaks take their evidence from the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui.analysis.why.answer import why
from fusetui.trace import open_trace

BREAK = Line(23, "print(x)", "f")
KERNEL = [Kernel("cpp_fused_sin_0", (Line(22, "y = x.sin()", "f"),))]
OP = "graph_0_cpp_fused_sin_0"


def findings(folder: Path, recording: Recording, log: Log | None) -> list[str]:
    """The text and the advice of each finding."""
    path = recording.write(folder)
    if log is not None:
        log.write(folder)
    answer = why(open_trace(str(path), cached=False))
    return [f"{one.text} {one.try_}" for one in answer.findings]


def broken() -> Recording:
    recording = Recording()
    for _ in range(4):
        recording.call("one", [OP], nested_us=100)
        recording.call("two", [OP], region="1/0").call("three", [OP], region="2/0")
    return recording


def log_of(*, has_break: bool) -> Log:
    log = Log()
    if has_break:
        log.broke(BREAK, "print is not supported")
    log.graph("one", KERNEL).metrics(function="f", line=21)
    name = "torch_dynamo_resume_in_f_at_23" if has_break else "g"
    log.graph("two", KERNEL, region="1/0")
    log.metrics(region="1/0", function=name, line=23)
    return log.graph("three", KERNEL, region="2/0").metrics(region="2/0", function="h")


def test_a_break_is_reported_in_the_words_of_the_log(tmp_path: Path) -> None:
    texts = findings(tmp_path, broken(), log_of(has_break=True))
    (text,) = [text for text in texts if "Graph break" in text]
    assert text.startswith("Graph break at model.py:23 in f: print is not supported.")
    assert "reaches this break 4 times" in text
    assert text.endswith("Do without.")


def test_a_log_without_breaks_is_silent_about_several_regions(tmp_path: Path) -> None:
    without = findings(tmp_path / "a", broken(), None)
    assert any("compiled regions" in text for text in without)
    texts = findings(tmp_path / "b", broken(), log_of(has_break=False))
    assert not [text for text in texts if "regions" in text or "break" in text]


def test_a_break_that_was_not_passed_is_not_reported(tmp_path: Path) -> None:
    recording = Recording().call("one", [OP])
    texts = findings(tmp_path, recording, log_of(has_break=True))
    assert not [text for text in texts if "break" in text]


@pytest.mark.parametrize("programs", range(20))
def test_programs_without_breaks_are_silent(tmp_path: Path, programs: int) -> None:
    log, recording = Log(), Recording()
    for number in range(1 + programs % 7):
        region, key = f"{number}/0", f"key{number}"
        log.graph(key, KERNEL, region=region, aot_id=f"{number}_forward")
        log.metrics(region=region, function=f"f{number}", line=10 * number + 1)
        if programs % 3 == 0:  # compiled again for another size
            log.recompiled("0/0: tensor 'x' size mismatch", region=f"{number}/1")
            log.metrics(region=f"{number}/1", function=f"f{number}")
        for _ in range(1 + programs % 4):
            recording.call(key, [OP], region=region, is_backward=programs % 5 == 4)
    texts = findings(tmp_path, recording, log)
    assert not [text for text in texts if "break" in text.lower()]


def test_a_compilation_names_the_guard_that_failed(tmp_path: Path) -> None:
    recording = Recording().call("one", [OP])
    name = "_compile.compile_inner (dynamo_timed)"
    recording.slice(name, "cpu_op", 10_000, 9_000_000)
    log = Log().metrics(start_s=0.1, seconds=1)
    for number in (1, 2):
        reason = f"tensor 'x' size mismatch at index 0. expected 4, actual {number}"
        log.recompiled(f"0/{number - 1}: {reason}", region=f"0/{number}")
        log.metrics(region=f"0/{number}", start_s=number, seconds=1)
    texts = findings(tmp_path, recording, log)
    (text,) = [
        text for text in texts if "Compilation (torch.compile or Triton)" in text
    ]
    assert "2 of 3 compilations follow a failed guard" in text
    assert "expected *, actual *" in text
    assert "mark_dynamic(x, 0)" in text
