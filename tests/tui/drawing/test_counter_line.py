"""Counters and memory below the lanes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.tui.conftest import mlp_events
from tests.tui.driving import SMALL, opened, screen

from fusetui.trace import Trace
from fusetui.trace.layout.counters import Counter, curve_of
from fusetui.tui.drawing.lane_lines import labeled
from fusetui.tui.drawing.schemes import ASCII, UNICODE
from fusetui.tui.drawing.timeline import draw_counter_line, levels
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.session import ViewSession


def counted_events() -> list[dict[str, Any]]:
    """The MLP with a queue, and with memory that grows within a step."""
    events = mlp_events()
    for step in range(2):
        for n in range(4):
            ts = step * 700 + 20 + n * 160
            totals = {
                "Total Allocated": (n + 1) * 300_000_000,
                "Total Reserved": 1_500_000_000,
            }
            args = {"Device Type": 1, "Device Id": 0, "Bytes": 300_000_000, **totals}
            events.append(
                {
                    "ph": "i",
                    "s": "t",
                    "name": "[memory]",
                    "pid": 1,
                    "ts": ts,
                    "args": args,
                }
            )
            events.append(
                {"ph": "C", "name": "queue", "pid": 1, "ts": ts, "args": {"depth": n}}
            )
    return events


@pytest.fixture
def counted(tmp_path: Path) -> str:
    file = tmp_path / "mlp.json"
    file.write_text(json.dumps(counted_events()))
    return str(file)


@pytest.fixture
def queue() -> Counter:
    time = np.array([100_000, 200_000, 300_000], dtype=np.int64)
    return Counter("counters", "queue", "", 0, time, np.array([1.0, 8.0, 2.5]))


@pytest.mark.parametrize(("glyphs", "text"), [(UNICODE, " ▁▁▄█"), (ASCII, " ..=#")])
def test_counter_levels_are_drawn_by_share_of_the_largest(
    glyphs: Any, text: str
) -> None:
    assert levels(np.array([np.nan, -3.0, 0.0, 4.0, 8.0]), 8.0, glyphs) == text


def test_the_largest_value_stands_where_there_is_room(
    side: Side, queue: Counter
) -> None:
    view = View(0, 400_000)
    narrow = draw_counter_line(side, view, " queue", curve_of(queue), 14, 8, UNICODE)
    assert narrow == (" queue", [("  ▁▁██", "busy"), (" 8", "plain")])
    wide = draw_counter_line(side, view, " queue", curve_of(queue), 24, 8, UNICODE)
    assert wide == (" queue                8", [("  ▁▁██▃▃", "busy")])


def test_the_largest_value_is_that_of_the_window(side: Side, queue: Counter) -> None:
    _, parts = draw_counter_line(
        side, View(300_000, 400_000), " queue", curve_of(queue), 14, 8, UNICODE
    )
    assert parts[-1] == (" 2.5", "plain")


def test_only_the_side_with_the_trace_gets_its_counters(
    side: Side, mlp: Trace, queue: Counter
) -> None:
    curves = (curve_of(queue),)
    session = ViewSession(sides=(side,)).known(mlp, counters=curves)
    assert session.sides[0].counters == curves
    other = ViewSession(sides=(replace(side, trace=replace_of(mlp)),))
    assert other.known(mlp, counters=curves) is other


def replace_of(trace: Trace) -> Trace:
    """The same trace read another time."""
    import msgspec

    return msgspec.structs.replace(trace)


async def test_counters_are_drawn_below_the_lanes(
    counted: str, matches_screen: Callable[[str, str], None]
) -> None:
    async with opened([counted]) as (app, _):
        matches_screen("counters-100x30", screen(app))
    async with opened([counted], (80, 24)) as (app, _):
        matches_screen("counters-80x24", screen(app))


async def test_the_launch_queue_stands_below_the_lanes(path: str) -> None:
    """The CPU launches all four kernels of a step before the first one ends."""
    async with opened([path]) as (app, _):
        shown = [line.split() for line in screen(app).split("\n")]
    queue = shown[shown.index(["launch", "queue"]) + 1]
    assert (queue[:3], queue[-1]) == (["GPU", "0", "queue"], "4")


async def test_without_launches_there_is_no_queue(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 9,
    }
    file.write_text(json.dumps([kernel]))
    async with opened([str(file)]) as (app, _):
        assert "launch queue" not in screen(app)


async def test_keys_move_past_counters(counted: str) -> None:
    async with opened([counted], SMALL) as (app, pilot):
        await pilot.press("j", *["J"] * 5, *["j"] * 9)
        last = app.state.view.selected
        assert app.state.side.trace.track_of(last).label == "GPU 0 stream 7"
        await pilot.press("j")
        assert app.state.view.selected == last
        await pilot.press("k")
        assert app.state.view.selected != last


async def test_names_of_counters_are_data(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    hostile = {"ph": "C", "name": "\x1b[31m\u202e", "pid": 1, "ts": 5, "args": {"v": 1}}
    file.write_text(json.dumps([*mlp_events(), hostile]))
    async with opened([str(file)]) as (app, _):
        assert "·[31m·" in screen(app)


def test_a_label_that_does_not_fit_says_so() -> None:
    assert labeled(" GPU 0 allocated", [], 15) == [(" GPU 0 alloca… ", "faint")]
    assert labeled(" GPU 0 queue", [], 15) == [(" GPU 0 queue   ", "faint")]
