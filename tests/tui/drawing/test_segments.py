"""What is drawn, and the door that all of it goes through."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.segment import Segment
from tests.hostile import PAYLOADS, WORST, obeyed, write_trace
from tests.tui.driving import opened, screen
from textual.color import Color

from fusetui.trace import open_trace
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.segments import DOOR, blank, line, segment
from fusetui.tui.layout.lanes import lanes_of
from fusetui.tui.prompts import PromptInput

BLACK = Color(0, 0, 0)


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_a_segment_is_printable(text: str) -> None:
    shown = segment(f"a{text}b", palette.PLAIN).text
    assert obeyed(shown, "") == set()
    assert (shown[0], shown[-1]) == ("a", "b")


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_the_door_keeps_the_width(text: str) -> None:
    (shown,) = DOOR.apply([Segment(text, palette.BOLD)], BLACK)
    assert obeyed(shown.text, "") == set()
    assert shown.cell_length == cell_len(text)
    assert shown.style is palette.BOLD


def test_the_door_lets_through_what_is_printable() -> None:
    segments = [Segment("aten::mm ▁▂▃ 日本", palette.BOLD)]
    assert DOOR.apply(segments, BLACK) is segments


@pytest.mark.parametrize("width", [0, 2, 8])
def test_every_segment_of_a_line_has_a_style(width: int) -> None:
    """Textual fails without, where NO_COLOR is set."""
    for strip in (line([segment("four", palette.DIM)], width), blank(width)):
        assert strip.cell_length == width
        assert None not in [part.style for part in strip]


def test_the_labels_of_lanes_are_one_cell_a_character(tmp_path: Path) -> None:
    for lane in lanes_of(open_trace(str(write_trace(tmp_path / "a.json")))):
        for text in (lane.group, lane.label, lane.title):
            assert obeyed(text, "") == set()
            assert cell_len(text) == len(text)


async def test_what_is_typed_or_pasted_goes_through_the_door(path: str) -> None:
    """The line to type in is a widget of Textual's."""
    async with opened([path]) as (app, pilot):
        await pilot.press("slash")
        app.query_one(PromptInput).value = WORST
        await pilot.pause()
        assert "PWN" in screen(app)
        assert obeyed(screen(app)) == set()
