"""The context manager for a training loop."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.laptops import needs_fork
from tests.room import room_for

import fusetui.capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import DEFAULT_STEPS

pytestmark = pytest.mark.torch


def loop(folder: Path, length: int, **options: Any) -> None:
    torch = pytest.importorskip("torch", reason="capture runs torch")
    x = torch.ones(3, 3)
    with fusetui.capture.profile(folder, device="cpu", **options) as session:
        for _ in range(length):
            _ = x @ x
            session.step()


def test_a_loop_becomes_a_run_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop(tmp_path / "a", 16)
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    (variant,) = record["variants"]
    assert (record["profiled_steps"], variant["kernels_per_step"]) == (DEFAULT_STEPS, 1)
    assert (variant["step_ns"]["n"], variant["files"]) == (6, ["train.json.gz"])
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        f"Open it with: fusetui open {tmp_path / 'a'}\n",
    )


def test_a_cpu_has_no_memory_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop(tmp_path / "a", 10, memory=True)
    assert not [*tmp_path.rglob("*.pickle")]
    assert capsys.readouterr().err.startswith(
        "No memory snapshot: torch records snapshots only for GPUs.\n"
    )


def test_only_the_wanted_steps_are_in_the_trace(tmp_path: Path) -> None:
    loop(tmp_path / "a", 9, steps=2, skip=4)
    trace = json.loads(gzip.decompress((tmp_path / "a" / "train.json.gz").read_bytes()))
    names = [event["name"] for event in trace["traceEvents"]]
    assert [name for name in names if "ProfilerStep" in name] == [
        "ProfilerStep#5",
        "ProfilerStep#6",
    ]


def test_a_short_loop_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop(tmp_path / "a", 4, steps=3)
    assert "after 4 steps: 2 of 3 were recorded" in capsys.readouterr().err
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["variants"][0]["step_ns"] is None


def test_work_after_the_last_step_belongs_to_none(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="capture runs torch")
    x = torch.ones(3, 3)
    with fusetui.capture.profile(tmp_path / "a", device="cpu") as session:
        for _ in range(4):
            _ = x @ x
            session.step()
        _ = x @ x @ x
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["variants"][0]["kernels_per_step"] == 1


def test_a_loop_without_a_recorded_step_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="after 1 steps, before one was recorded"):
        loop(tmp_path / "a", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_finds_no_room_is_an_error(tmp_path: Path) -> None:
    with room_for(3000), pytest.raises(CaptureError, match="could not write its trace"):
        loop(tmp_path / "a", 6)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_of_which_a_part_was_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions of torch do that do not look whether their writes succeed."""
    profiler = pytest.importorskip("torch.profiler", reason="capture runs torch")
    export = profiler.profile.export_chrome_trace

    def cut(self: Any, path: str) -> None:
        export(self, path)
        os.truncate(path, os.path.getsize(path) // 2)

    monkeypatch.setattr(profiler.profile, "export_chrome_trace", cut)
    with pytest.raises(CaptureError, match="the whole trace"):
        loop(tmp_path / "a", 6)
    assert list(tmp_path.iterdir()) == []


def test_an_exception_passes_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="capture runs torch")
    with (
        pytest.raises(ValueError, match="stop"),
        fusetui.capture.profile(tmp_path / "a", device="cpu"),
    ):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_makes_no_sense_for_a_loop_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="there is no option 'backward', only device, steps"
    ):
        loop(tmp_path / "a", 1, backward=True)


def test_guesses_go_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop(tmp_path / "a", 6, expect=["gemm=2"])
    assert "! train gemm: expected 2, found 1\n" in capsys.readouterr().err


@needs_fork
def test_a_child_that_leaves_the_loop_writes_no_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="capture runs torch")
    x, child, code = torch.ones(3, 3), -1, 1
    try:
        with fusetui.capture.profile(tmp_path / "a", device="cpu") as session:
            child = os.fork()
            for _ in range(8 if child else 0):
                _ = x @ x
                session.step()
        code = 0
    finally:
        if child == 0:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "run.json",
        "train.json.gz",
    ]


def test_importing_capture_loads_no_torch() -> None:
    modules = "fusetui.capture, fusetui.capture.command, fusetui.capture.session"
    script = f"import {modules}, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
