"""The answers of an open trace, and those of memory snapshots and dumps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.flight_dumps import hanging
from tests.snapshots import trained

import fusetui as ft

LESSON = "lesson:mlp-eager"
MS = 1_000_000


@pytest.fixture
def opened() -> ft.OpenTrace:
    return ft.open(LESSON)


def test_summary_counts_the_slices(opened: ft.OpenTrace) -> None:
    assert opened.summary().kernels == len(opened.slices.where("kind = kernel"))


def test_a_change_that_halves_the_gemms_saves_time(opened: ft.OpenTrace) -> None:
    answer = opened.whatif("family:gemm x0.5")
    assert answer.after_ns is not None
    assert answer.after_ns < answer.before_ns


def test_whatif_of_text_that_is_no_change_raises_the_api_error(
    opened: ft.OpenTrace,
) -> None:
    with pytest.raises(ft.Error):
        opened.whatif("faster, please")


def test_the_critical_path_adds_up_to_the_step(opened: ft.OpenTrace) -> None:
    path = opened.critical_path()
    assert sum(row.ns for row in path.rows) == path.span_ns


def test_a_trace_of_no_server_has_no_server_steps(opened: ft.OpenTrace) -> None:
    assert opened.serving().steps == ()


def test_a_configuration_that_is_not_there_is_one_sentence(
    opened: ft.OpenTrace, tmp_path: Path
) -> None:
    with pytest.raises(ft.Error, match=r"config\.json cannot be read"):
        opened.serving(tmp_path / "config.json")


def test_a_part_is_a_trace_of_its_own(opened: ft.OpenTrace, tmp_path: Path) -> None:
    out = tmp_path / "part.json"
    opened.cut(out, begin_ns=0, end_ns=1 * MS)
    assert 0 < len(ft.open(out).slices) < len(opened.slices)


def test_a_part_does_not_replace_a_file(opened: ft.OpenTrace, tmp_path: Path) -> None:
    out = tmp_path / "part.json"
    out.touch()
    with pytest.raises(ft.CannotWriteError, match="already exists"):
        opened.cut(out)


def test_a_part_without_anything_is_refused(
    opened: ft.OpenTrace, tmp_path: Path
) -> None:
    out = tmp_path / "part.json"
    with pytest.raises(ft.Error, match="has no events in that time"):
        opened.cut(out, begin_ns=10**15, end_ns=10**15 + 1)
    assert not out.exists()


def test_memory_of_a_snapshot(tmp_path: Path) -> None:
    (device,) = ft.memory(trained(tmp_path)).devices
    assert device.peak_allocated_bytes >= device.allocated_end_bytes


def test_memory_at_a_failure_that_did_not_happen_is_one_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(ft.Error):
        ft.memory(trained(tmp_path), at="oom")


def test_why_a_job_hangs(tmp_path: Path) -> None:
    assert ft.hang(hanging(tmp_path / "dumps")).verdict == "mismatch"


def test_a_folder_without_dumps_is_one_sentence(tmp_path: Path) -> None:
    sentence = f"{tmp_path} is a folder without flight-recorder dumps."
    with pytest.raises(ft.Error, match=f"^{re.escape(sentence)}$"):
        ft.hang(tmp_path)
