"""What is drawn, and the door that all of it goes through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from tests.hostile import PAYLOADS, WORST, obeyed, write_trace
from tests.tui.driving import opened, screen
from tests.tui.prepared import strip
from textual.color import Color

from fusetui.trace import open_trace
from fusetui.tui.app import PromptInput
from fusetui.tui.drawing.segments import DOOR, write_sequences
from fusetui.tui.layout.lanes import build_lanes

BLACK = Color(0, 0, 0)
BOLD = Style(bold=True)


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_a_line_is_printable(text: str) -> None:
    shown = strip([(f"a{text}b", "plain")], 400).text.rstrip()
    assert obeyed(shown, "") == set()
    assert (shown[0], shown[-1]) == ("a", "b")


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_the_door_keeps_the_width(text: str) -> None:
    (shown,) = DOOR.apply([Segment(text, BOLD)], BLACK)
    assert obeyed(shown.text, "") == set()
    assert shown.cell_length == cell_len(text)
    assert shown.style is BOLD


def test_the_door_lets_through_what_is_printable() -> None:
    segments = [Segment("aten::mm ▁▂▃ 日本", BOLD)]
    assert DOOR.apply(segments, BLACK) is segments


@pytest.mark.parametrize("width", [0, 2, 8])
def test_every_segment_of_a_line_has_a_style(width: int) -> None:
    """Textual fails without, where NO_COLOR is set."""
    for parts in ([("four", "faint")], [("日本", "faint")], []):
        line = strip(parts, width)
        assert line.cell_length == cell_len(line.text) == width
        assert None not in [part.style for part in line]


def test_the_labels_of_lanes_are_one_cell_a_character(tmp_path: Path) -> None:
    for lane in build_lanes(open_trace(str(write_trace(tmp_path / "a.json")))):
        for text in (lane.group, lane.label, lane.title):
            assert obeyed(text, "") == set()
            assert cell_len(text) == len(text)


async def test_typed_or_pasted_control_characters_are_not_sent_to_the_terminal(
    path: str,
) -> None:
    """The line to type in is a widget of Textual's."""
    async with opened([path]) as (app, pilot):
        await pilot.press("slash")
        app.query_one(PromptInput).value = WORST
        await pilot.pause()
        assert "PWN" in screen(app)
        assert obeyed(screen(app)) == set()


def test_only_the_changes_of_style_are_sent() -> None:
    """A blank needs no color, and what is the same as before is not said again."""
    on_blue, red = Style(color="#ff0000", bgcolor="#0000ff"), Style(color="#ff0000")
    segments = [
        Segment("a", on_blue),
        Segment("  ", Style(bgcolor="#0000ff")),
        Segment("b", red),
    ]
    found = write_sequences(
        [*segments, Segment("c", Style(bold=True))], ColorSystem.EIGHT_BIT
    )
    assert found == "\x1b[48;5;21;38;5;196ma  \x1b[49mb\x1b[0;1mc\x1b[0m"


@pytest.mark.parametrize("system", [ColorSystem.EIGHT_BIT, ColorSystem.STANDARD])
def test_a_terminal_shows_what_rich_would_send(system: ColorSystem) -> None:
    styles = [
        Style(color="#ff0000", bgcolor="#0000ff", bold=True),
        Style(color="#00ff00"),
        Style(),
        Style(bgcolor="#888888", underline=True),
        Style(color="#00ff00", bgcolor="#888888"),
    ]
    segments = [
        Segment(f"{n} ", style) for n, style in enumerate([*styles, *styles[::-1]])
    ]
    whole = "".join(
        style.render(text, color_system=system)
        for text, style, _ in segments
        if style is not None
    )
    assert shown(write_sequences(segments, system)) == shown(whole)


KINDS = {"3": "38", "9": "38", "4": "48", "10": "48"}


def shown(written: str) -> list[tuple[str, frozenset[str]]]:
    """Each character with the parameters that are on."""
    found: list[tuple[str, frozenset[str]]] = []
    on: dict[str, str] = {}
    for codes, text in re.findall(r"(?:\x1b\[([0-9;]*)m)|([^\x1b])", written):
        if text:
            found.append((text, frozenset(on.values())))
            continue
        for code in re.findall(r"[34]8;5;\d+|\d+", codes):
            kind = KINDS.get(code[:-1], code) if ";" not in code else code[:2]
            if code == "0":
                on.clear()
            elif code in ("39", "49"):
                on.pop(kind, None)
            else:
                on[kind] = code
    return found
