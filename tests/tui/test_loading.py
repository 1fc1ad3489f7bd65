from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tui.conftest import mlp_events

from fusetui.timeline import cells
from fusetui.timeline.cells import _depth_row as depth_row_of
from fusetui.trace.model.memo import kept_result
from fusetui.tui.drawing.chrome import parts
from fusetui.tui.layout.frame import find_busy_times
from fusetui.tui.layout.kinds import compute_kind_shares
from fusetui.tui.layout.lanes import FIRST_LINES
from fusetui.tui.layout.op_tree import (
    FRAMES,
    build_call_tree,
    build_callers_tree,
    build_op_tree,
)
from fusetui.tui.loading import TracesLoaded, load
from fusetui.tui.state import reading


def test_loading_reports_and_ends_with_the_sides(tmp_path: Path) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    posted: list[Any] = []
    load([str(path)], posted.append, lambda: False)
    assert posted[0].func is reading.progressed
    (loaded,) = [message for message in posted if isinstance(message, TracesLoaded)]
    assert loaded.sides[0].label == "mlp"


def test_results_for_the_first_frame_are_there_when_traces_are_posted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    posted: list[Any] = []
    load([str(path)], posted.append, lambda: False)
    (loaded,) = [message for message in posted if isinstance(message, TracesLoaded)]
    for make in (find_busy_times, compute_kind_shares, parts):
        assert kept_result(loaded.sides[0].trace, make) is not None


def test_launch_queue_idle_reasons_and_trees_are_posted_after_the_lanes(
    tmp_path: Path,
) -> None:
    """First the launch queue, then why the GPU was idle, then everything, then the
    trees."""
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    posted: list[Any] = []
    load([str(path)], posted.append, lambda: False)
    loaded, counted, first, last, *trees = posted[-8:]
    assert isinstance(loaded, TracesLoaded)
    assert {one.func for one in (counted, first, last, *trees)} == {
        reading.accept_answer
    }
    assert isinstance(counted.keywords["piece"], tuple)
    begun, whole = first.keywords["piece"], last.keywords["piece"]
    assert begun.answer is None
    assert whole.idle is begun.idle
    assert whole.answer is not None
    made = [make for tree in trees for make in tree.keywords["piece"]]
    assert made == [FRAMES, build_call_tree, build_callers_tree, build_op_tree]


def test_deep_lines_are_made_after_the_first_picture_and_before_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep.json"
    deep = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "f",
            "pid": 1,
            "tid": 1,
            "ts": n,
            "dur": 100 - 2 * n,
        }
        for n in range(20)
    ]
    path.write_text(json.dumps({"traceEvents": deep}))
    made: list[Any] = []
    before: list[int] = []

    def counted(*given: Any) -> cells.DepthRow:
        made.append(given)
        return depth_row_of(*given)

    def post(message: object) -> None:
        if isinstance(message, TracesLoaded):
            before.append(len(made))

    monkeypatch.setattr(cells, "_depth_row", counted)
    load([str(path)], post, lambda: False)
    assert (before, len(made)) == ([FIRST_LINES], 20)


def test_a_cancelled_load_says_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    posted: list[Any] = []
    load([str(path)], posted.append, lambda: True)
    assert posted == []


def test_a_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    posted: list[Any] = []
    load([str(tmp_path / "nowhere.json")], posted.append, lambda: False)
    assert posted[0].func is reading.failed
    assert "no such file" in posted[0].keywords["sentence"]


def test_no_key_waits_for_the_tables_of_widths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "wcwidth", raising=False)
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    load([str(path)], lambda _: None, lambda: False)
    assert "wcwidth" in sys.modules
