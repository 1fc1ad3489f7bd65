"""Graph breaks with the time between regions, compilations with their guards."""

from __future__ import annotations

from pathlib import Path

from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui.analysis.compiled.answer import report_compilation
from fusetui.analysis.compiled.model import CompileAnswer
from fusetui.trace import open_trace
from fusetui.trace.compile_log.log import read_compile_log

BREAK = Line(23, "print(x)", "f")
KERNEL = [Kernel("cpp_fused_sin_0", (Line(22, "y = x.sin()", "f"),))]
OP = "graph_0_cpp_fused_sin_0"


def answer(folder: Path, recording: Recording, log: Log | None) -> CompileAnswer:
    trace = open_trace(str(recording.write(folder)), cached=False)
    found = read_compile_log(str(log.write(folder / "log"))) if log else None
    return report_compilation(trace, found)


def broken() -> tuple[Recording, Log]:
    """Two calls of a function with a break in line 23."""
    log = Log().broke(BREAK, "print is not supported")
    log.graph("one", KERNEL, attempt=1).metrics(function="f", line=21, attempt=1)
    name = "torch_dynamo_resume_in_f_at_23"
    log.graph("two", KERNEL, region="1/0").metrics(region="1/0", function=name, line=23)
    recording = Recording()
    for _ in range(2):
        recording.call("one", [OP], nested_us=100).call("two", [OP], region="1/0")
    return recording, log


def test_a_break_has_its_reason_and_the_time_between_regions(tmp_path: Path) -> None:
    found = answer(tmp_path, *broken())
    (one,) = found.breaks
    assert (one.compile_id, one.line, one.reason) == (
        "0/0",
        23,
        "print is not supported",
    )
    assert (one.passed, one.between_ns, one.median_between_ns) == (2, 10_000, 5_000)
    assert one.code == "print(x)"


def test_without_a_log_only_frames_prove_a_break(tmp_path: Path) -> None:
    recording, _ = broken()
    assert answer(tmp_path / "a", recording, None).breaks == ()
    begin = recording.events[-1]["ts"]
    recording.slice(
        "model.py(23): torch_dynamo_resume_in_f_at_23",
        "python_function",
        begin,
        begin + 9,
    )
    (one,) = answer(tmp_path / "b", recording, None).breaks
    assert (one.file, one.line, one.function, one.reason) == ("model.py", 23, "f", "")


def test_a_compilation_in_the_recording_has_its_place(tmp_path: Path) -> None:
    recording = Recording().call("k", [OP])
    recording.slice("late", "cpu_op", 9_000_000, 9_000_010)
    log = Log().metrics(start_s=1.0, seconds=2.0)
    log.metrics(region="0/1", start_s=-5, seconds=1).metrics(region="0/2", start_s=60)
    found = answer(tmp_path, recording, log)
    assert [(one.compile_id, one.in_recording) for one in found.compilations] == [
        ("0/1", False),
        ("0/0", True),
        ("0/2", False),
    ]
    assert found.compilations[1].start_ns == 1_000_000_000 - 1_000_000


def sizes(*actual: int) -> Log:
    log = Log().metrics()
    for number, size in enumerate(actual, start=1):
        region = f"0/{number}"
        reason = f"tensor 'x' size mismatch at index 0. expected 4, actual {size}"
        log.recompiled(f"0/{number - 1}: {reason}", region=region)
        log.metrics(region=region)
    return log


def test_a_dimension_that_changes_twice_proves_mark_dynamic(tmp_path: Path) -> None:
    found = answer(tmp_path, Recording().call("k", [OP]), sizes(5, 6, 7))
    (remedy,) = found.remedies
    assert (remedy.kind, remedy.subject, remedy.dimension) == ("mark_dynamic", "x", 0)
    assert (remedy.values, remedy.compilations) == (("5", "6", "7"), 3)
    (guard,) = found.guards
    assert guard.compilations == 3
    assert guard.text.endswith("expected *, actual *")


def test_one_change_proves_nothing(tmp_path: Path) -> None:
    found = answer(tmp_path, Recording().call("k", [OP]), sizes(5))
    assert (found.remedies, found.guards) == ((), ())


def test_several_dimensions_prove_dynamic(tmp_path: Path) -> None:
    log = Log().metrics()
    for number in range(1, 5):
        tensor = "xy"[number % 2]
        reason = (
            f"tensor '{tensor}' size mismatch at index 0. expected 4, actual {number}"
        )
        log.recompiled(f"0/0: {reason}", region=f"0/{number}").metrics(
            region=f"0/{number}"
        )
    found = answer(tmp_path, Recording().call("k", [OP]), log)
    assert [remedy.kind for remedy in found.remedies] == ["dynamic"]


def test_a_number_that_changes_proves_a_constant(tmp_path: Path) -> None:
    log = Log().metrics()
    for number, value in enumerate((0.5, 0.25), start=1):
        guard = f"factor == {value}    # return x * factor  # model.py:3 in scaled"
        log.recompiled(f"0/{number - 1}: {guard}", region=f"0/{number}")
        log.metrics(region=f"0/{number}")
    found = answer(tmp_path, Recording().call("k", [OP]), log)
    assert [(one.kind, one.subject) for one in found.remedies] == [
        ("constant", "factor")
    ]
