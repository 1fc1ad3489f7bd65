"""docs/one-kernel.md names the functions that a kernel passes, in their order."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

from tests.places import ROOT
from tests.tui.prepared import opened

from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.tui.drawing.picture import Stack
from fusetui.tui.drawing.schemes import DARK, build_styles
from fusetui.tui.drawing.segments import painted
from fusetui.tui.screen_layout import panes, stack
from fusetui.tui.state.state import Size

PAGE = (ROOT / "docs" / "one-kernel.md").read_text(encoding="utf-8")
STATION = re.compile(r"^### `(\S+)`: `(\w+)`$", re.MULTILINE)
KERNEL = 211
SIZE = Size(100, 30)


def open_and_draw() -> tuple[Trace, str]:
    """The trace of the page, and the line of its stream as the terminal shows it."""
    trace = open_trace(str(lessons.path("mlp-eager")), cached=False)
    picture: Stack = stack(panes(opened(trace)))
    for number in range(SIZE.height):
        parts = picture.line(number, SIZE.width, SIZE.height)
        if parts and parts[0][0].startswith(" stream 7"):
            strip = painted(parts, SIZE.width, build_styles(DARK, "#000000"))
            return trace, strip.text
    raise AssertionError("no line of the stream")


def functions_called(run: Any) -> list[tuple[str, str]]:
    """(file, function) of each call of a function of the project, in their order."""
    calls = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_functions_of_the_page_are_called_in_its_order() -> None:
    calls = iter(functions_called(open_and_draw))
    stations = STATION.findall(PAGE)
    assert len(stations) >= 15
    for file, function in stations:
        path = file.removeprefix("src/fusetui/")
        assert any(
            called.endswith(f"/{path}") and name == function for called, name in calls
        ), f"{file}: {function} is not called here"


def test_figures_of_the_page_are_those_of_the_trace() -> None:
    trace, line = open_and_draw()
    launch = int(trace.launch[KERNEL])
    op = int(trace.op[KERNEL])
    prose = PAGE.replace("\n", " ")
    assert f"For row {KERNEL}, this is row {launch}" in prose
    assert f"row {op}, `{trace.name_of(op)}`" in prose
    assert f"the start {int(trace.start[KERNEL]):,} ns" in prose
    assert f"the position {int(trace.order[KERNEL])} in the list" in prose
    assert f"\n{line.rstrip()}\n```" in PAGE
