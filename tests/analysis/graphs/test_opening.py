"""Captures that are named, or found beside the trace of their replays."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.analysis.servers import Server, cpu, opened, save

from fusetui.analysis.graphs import opening
from fusetui.analysis.graphs.opening import (
    choose_candidates,
    join_sentences,
    same_process,
    with_captures,
)
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.ids import Id
from fusetui.trace.read.source import beginning, glimpse

SERVER = Server()


def found_for(
    trace: Trace,
    pids: set[int] | None = None,
    batches: Sequence[int] = (4,),
    kernels: Sequence[str] = (),
) -> list[str]:
    """The captures beside a trace."""
    return choose_candidates(
        same_process(trace.report.path, pids or {1}), batches, kernels
    )


def test_found_by_content(tmp_path: Path) -> None:
    trace = opened(tmp_path / "one.json", SERVER.step(4, 0, 1))
    save(tmp_path / "two.json", SERVER.step(4, 0, 1))
    save(tmp_path / "three.json", SERVER.capture(4))
    trace, joins = with_captures(trace, (), open_trace)
    assert [(os.path.basename(one.path), one.kernels) for one in joins] == [
        ("three.json", 13)
    ]
    assert join_sentences(joins) == []


def test_of_files_beside_a_trace_the_nearest_in_time_comes_first(
    tmp_path: Path,
) -> None:
    for name, seconds in (("own", 1000), ("long_before", 900), ("soon_after", 1010)):
        path = save(tmp_path / f"{name}.json", SERVER.step(4, 0, 1))
        os.utime(path, (seconds, seconds))
    files = opening.list_files_beside(str(tmp_path / "own.json"))
    assert [file.name for file in files] == ["soon_after.json", "long_before.json"]


def test_capture_and_replay_in_one_file_are_joined(tmp_path: Path) -> None:
    trace = opened(tmp_path / "one.json", SERVER.capture(4, 0), SERVER.step(4, 3000, 1))
    trace, joins = with_captures(trace, (), open_trace)
    assert [one.kernels for one in joins] == [13]


def test_of_many_sizes_the_right_one_is_read(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(3, 0, 1))
    for size in (1, 2, 4, 8, 16, 32):
        save(tmp_path / f"{size}.json", SERVER.capture(size))
    assert found_for(trace, batches=[3]) == [str(tmp_path / "4.json")]


def test_a_capture_of_another_model_is_not_worth_a_word(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", Server(layers=5).capture(4))
    after, joins = with_captures(trace, (), open_trace)
    assert after is trace
    assert join_sentences(joins) == []


def test_a_named_capture_that_does_not_fit_says_why(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    named = save(tmp_path / "capture.json", Server(layers=5).capture(4))
    after, joins = with_captures(trace, [str(named)], open_trace)
    assert after is trace
    assert len(join_sentences(joins)) == 1


def test_captures_are_not_searched_without_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(path: str, pids: set[Id]) -> list[str]:
        raise AssertionError(path)

    trace = opened(tmp_path / "capture.json", SERVER.capture(4))
    save(tmp_path / "other.json", SERVER.capture(8))
    monkeypatch.setattr(opening, "same_process", looked)
    assert with_captures(trace, (), open_trace) == (trace, ())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which files are looked at from now on, and which are searched."""
    asked: list[tuple[str, str]] = []

    def noting(
        what: str, function: Callable[[str, int], bytes]
    ) -> Callable[[str, int], bytes]:
        def noted(path: str, most: int) -> bytes:
            asked.append((what, os.path.basename(path)))
            return function(path, most)

        return noted

    monkeypatch.setattr(opening, "glimpse", noting("looked at", glimpse))
    monkeypatch.setattr(opening, "beginning", noting("searched", beginning))
    return asked


Read = list[tuple[str, str]]


def test_of_another_process_only_the_head_is_read(tmp_path: Path, read: Read) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    assert found_for(trace, {2}) == []
    assert read == [("looked at", "capture.json")]


def test_only_processes_that_launch_graphs_count(tmp_path: Path, read: Read) -> None:
    """Every trace has the process Spans."""
    span = {**cpu("PyTorch Profiler (0)", 0, 900, "user_annotation"), "pid": "Spans"}
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1), [span])
    others = [{**event, "pid": 2} for event in SERVER.capture(4)]
    save(tmp_path / "other.json", [span], others)
    _, joins = with_captures(trace, (), open_trace)
    assert joins == ()
    assert read == [("looked at", "other.json")]


def test_beyond_the_budget_only_the_head_is_read(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    monkeypatch.setattr(opening, "MAX_SEARCHED_BYTES", 100)
    assert found_for(trace) == []
    assert read == [("looked at", "capture.json")]


def test_each_file_is_read_once(tmp_path: Path, read: Read) -> None:
    """What was found out is remembered, also that there is nothing to find."""
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    capture = str(save(tmp_path / "capture.json", SERVER.capture(4)))
    save(tmp_path / "other.json", Server(layers=5).step(4, 0, 1))
    assert found_for(trace) == [capture]
    assert sorted(read) == [
        ("looked at", "capture.json"),
        ("looked at", "other.json"),
        ("searched", "capture.json"),
        ("searched", "other.json"),
    ]
    read.clear()
    assert found_for(trace) == [capture]
    assert read == []


def test_a_file_that_changed_is_read_again(tmp_path: Path, read: Read) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    capture = save(tmp_path / "capture.json", Server(layers=5).step(4, 0, 1))
    assert found_for(trace) == []
    save(capture, SERVER.capture(4))
    read.clear()
    assert found_for(trace) == [str(capture)]
    assert read == [("looked at", "capture.json"), ("searched", "capture.json")]


def test_without_the_cache_nothing_is_remembered(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE", "off")
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    capture = str(save(tmp_path / "capture.json", SERVER.capture(4)))
    assert [found_for(trace), found_for(trace)] == [[capture], [capture]]
    assert len(read) == 4


@pytest.mark.parametrize("folder", ["capture_traces", "graph_capture_profile"])
def test_in_the_folder_that_the_server_writes_captures_to(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir()
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    capture = save(tmp_path / folder / "bs_4_rank0.json", SERVER.capture(4))
    assert found_for(trace) == [str(capture)]


def test_capture_with_long_metadata_is_still_found(tmp_path: Path) -> None:
    """Of a job with many process groups, the first event comes late."""
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    capture = tmp_path / "capture.json"
    groups = [{"pg_name": str(n), "ranks": [n]} for n in range(2000)]
    capture.write_text(
        json.dumps({"distributedInfo": groups, "traceEvents": SERVER.capture(4)}),
        encoding="utf-8",
    )
    assert found_for(trace) == [str(capture)]


def test_packed_captures_are_found(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    plain = save(tmp_path / "capture.json", SERVER.capture(4)).read_bytes()
    (tmp_path / "capture.json").unlink()
    (tmp_path / "capture.json.gz").write_bytes(gzip.compress(plain))
    assert found_for(trace) == [str(tmp_path / "capture.json.gz")]


def test_a_capture_without_one_of_the_kernels_is_not_of_this_graph(
    tmp_path: Path,
) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    save(tmp_path / "capture.json", SERVER.capture(4))
    capture = [str(tmp_path / "capture.json")]
    assert found_for(trace, kernels=["my_attention"]) == capture
    assert found_for(trace, kernels=["my_attention", "yours"]) == []


def test_a_named_folder_of_many_sizes(tmp_path: Path) -> None:
    """The one that fits is read first, and no other."""
    trace = opened(tmp_path / "replay.json", SERVER.step(3, 0, 1))
    names = [str(save(tmp_path / f"{n}.json", SERVER.capture(n))) for n in (1, 2, 4, 8)]
    trace, joins = with_captures(trace, names, open_trace)
    assert [os.path.basename(one.path) for one in joins] == ["4.json"]
    assert join_sentences(joins) == []


def test_named_from_within_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(3, 0, 1))
    for size in (1, 2, 4):
        save(tmp_path / f"{size}.json", SERVER.capture(size))
    monkeypatch.chdir(tmp_path)
    _, joins = with_captures(trace, ["1.json", "./2.json", "4.json"], open_trace)
    assert [one.path for one in joins] == ["4.json"]


def test_capture_named_once_is_found_later(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(3, 0, 1))
    names = [
        str(save(tmp_path / f"{size}.json", SERVER.capture(size))) for size in (2, 4)
    ]
    with_captures(trace, names, open_trace)
    assert found_for(trace, batches=[3]) == names[1:]


def test_of_several_named_captures_one_fits(tmp_path: Path) -> None:
    """That the others do not is not worth a word."""
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    other = save(tmp_path / "a.json", Server(layers=5).capture(4))
    trace, joins = with_captures(
        trace,
        [str(other), str(save(tmp_path / "b.json", SERVER.capture(4)))],
        open_trace,
    )
    assert [one.replays for one in joins] == [0, 1]
    assert join_sentences(joins) == []


def test_many_named_captures_that_do_not_fit(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    names = [
        str(save(tmp_path / f"{n}.json", Server(layers=n).capture(4)))
        for n in range(4, 11)
    ]
    _, joins = with_captures(trace, names, open_trace)
    assert len(join_sentences(joins)) == 5
    assert join_sentences(joins)[-1] == "... and 3 more reasons"
