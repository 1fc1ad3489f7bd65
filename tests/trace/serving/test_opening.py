"""Captures that are named, or found beside the trace of their replays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.trace.serving.servers import Server, opened, save

from fusetui.trace import open_trace
from fusetui.trace.read.peek import beginning
from fusetui.trace.serving import find
from fusetui.trace.serving.find import candidates
from fusetui.trace.serving.opening import said, with_captures

SERVER = Server()


def test_found_by_content(tmp_path: Path) -> None:
    trace = opened(tmp_path / "one.json", SERVER.step(4, 0, 1))
    save(tmp_path / "two.json", SERVER.step(4, 0, 1))
    save(tmp_path / "three.json", SERVER.capture(4))
    trace, joins = with_captures(trace, (), open_trace)
    assert [(os.path.basename(one.path), one.kernels) for one in joins] == [("three.json", 13)]
    assert said(joins) == []


def test_within_one_file(tmp_path: Path) -> None:
    trace = opened(tmp_path / "one.json", SERVER.capture(4, 0), SERVER.step(4, 3000, 1))
    trace, joins = with_captures(trace, (), open_trace)
    assert [one.kernels for one in joins] == [13]


def test_of_many_sizes_the_right_one_is_read(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(3, 0, 1))
    for size in (1, 2, 4, 8, 16, 32):
        save(tmp_path / f"{size}.json", SERVER.capture(size))
    assert candidates(trace.report.path, {1}, [3]) == [str(tmp_path / "4.json")]


def test_a_capture_of_another_model_is_not_worth_a_word(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", Server(layers=5).capture(4))
    after, joins = with_captures(trace, (), open_trace)
    assert after is trace
    assert said(joins) == []


def test_a_named_capture_that_does_not_fit_says_why(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    named = save(tmp_path / "capture.json", Server(layers=5).capture(4))
    after, joins = with_captures(trace, [str(named)], open_trace)
    assert after is trace
    assert len(said(joins)) == 1


def test_nothing_is_looked_for_without_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(path: str, most: int) -> bytes:
        raise AssertionError(path)

    trace = opened(tmp_path / "capture.json", SERVER.capture(4))
    save(tmp_path / "other.json", SERVER.capture(8))
    monkeypatch.setattr(find, "beginning", looked)
    assert with_captures(trace, (), open_trace) == (trace, ())


def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is read of which file from now on."""
    asked: list[tuple[str, int]] = []

    def read(path: str, most: int) -> bytes:
        asked.append((os.path.basename(path), most))
        return beginning(path, most)

    monkeypatch.setattr(find, "beginning", read)
    return asked


def test_of_another_process_only_the_head_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    asked = searched(monkeypatch)
    assert candidates(trace.report.path, {2}, [4]) == []
    assert asked == [("capture.json", find.HEAD)]


def test_beyond_the_budget_only_the_head_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    asked = searched(monkeypatch)
    monkeypatch.setattr(find, "BUDGET", 100)
    assert candidates(trace.report.path, {1}, [4]) == []
    assert asked == [("capture.json", find.HEAD)]


def test_other_kernels_are_not_of_this_graph(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    capture = [str(tmp_path / "capture.json")]
    assert candidates(trace.report.path, {1}, [4], ["my_attention"]) == capture
    assert candidates(trace.report.path, {1}, [4], ["my_attention", "yours"]) == []
