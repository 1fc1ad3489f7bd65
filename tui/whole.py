"""The whole screen as panes: the head, the page in front, the hints; and what a click meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from msgspec.structs import replace

from fusetui.trace.text.cutting import joined
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.head import head, reading_line
from fusetui.tui.drawing.picture import TextPicture, text
from fusetui.tui.drawing.said import Said
from fusetui.tui.drawing.stack import Stack
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.pages.page import Pane
from fusetui.tui.registry import page_of
from fusetui.tui.state.prompts import Prompt
from fusetui.tui.state.screen import body, head_height, too_small
from fusetui.tui.state.state import Outcome, State

STOP_HINT = "Esc stop and keep what was read"
AGAIN = ("A ", "B ")


def panes(state: State) -> list[Pane]:
    """From the first line of the screen to the last."""
    if said := too_small(state.size):
        lines = wrap(said, max(1, state.size.width - 1))
        return list(exactly([Pane(len(lines), text([*map(Said, lines)]))], state.size.height))
    size = body(state)
    shown = page_of(state).show(state, size) if state.sides else ()
    page = exactly(shown, size.height)
    return [Pane(head_height(state), _head(state)), *page, Pane(1, _hints(state))]


def exactly(found: Iterable[Pane], lines: int) -> Iterator[Pane]:
    """Panes on so many lines: cut where there are fewer, blank below where there are more."""
    for pane in found:
        height = max(0, min(pane.height, lines))
        lines -= height
        yield replace(pane, height=height)
    yield Pane(lines, text([]))


def overlay_panes(state: State) -> list[Pane]:
    return [OVERLAYS.pane(state)] if state.overlay else []


def stack(found: Sequence[Pane]) -> Stack:
    return Stack([(pane.height, pane.picture) for pane in found])


def pointed(state: State, x: int, y: int) -> Outcome:
    """A click on a cell of the screen, or of what lies over it; what was asked for is dropped."""
    state = replace(state, prompt=None) if state.prompt else state
    pane, inner = _pane_at(state, y)
    return pane.pointed(state, x, inner) if pane and pane.pointed else state


def wheeled(state: State, y: int, lines: int) -> Outcome:
    """The wheel turned over a line."""
    pane, _ = _pane_at(state, y)
    return pane.wheeled(state, lines) if pane and pane.wheeled else state


def _pane_at(state: State, y: int) -> tuple[Pane | None, int]:
    for pane in overlay_panes(state) or panes(state):
        if y < pane.height:
            return pane, y
        y -= pane.height
    return None, 0


def _head(state: State) -> TextPicture:
    """What is open, one line for each side; while something is read: how far it is."""
    reading = state.reading
    if reading is not None:
        glyphs = glyphs_for(state.ascii_only)

        def bar(width: int, height: int) -> list[Said]:
            if reading.stopping:
                return [Said(" stopping; what was read is kept")]
            line = reading_line(
                reading.path, reading.done, reading.total, width - 2, glyphs, reading.shown
            )
            return [Said(f" {line}")]

        return TextPicture(reading, bar)
    sides = state.sides
    marks = AGAIN if len(sides) == 2 else ("",) * len(sides)

    def lines(width: int, height: int) -> list[Said]:
        return [
            Said(f" {mark}{head(side, width - 4)}", "title")
            for mark, side in zip(marks, sides, strict=True)
        ]

    return TextPicture(sides, lines)


def _hints(state: State) -> TextPicture:
    """What was answered last, else the keys of the page."""
    if state.prompt is not None and state.prompt.is_letter:
        letters = " ".join(sorted(state.session.bookmarks))
        asked = state.prompt.value
        return text(
            [Said(f" {asked}: {letters}" if state.prompt is Prompt.GO_TO_MARK else f" {asked}")]
        )
    if state.hint:
        return text([Said(f" {state.hint}")])
    keys = page_of(state).hints if state.sides else ("q quit",)
    shown = (STOP_HINT, *keys) if state.reading else keys
    return TextPicture(shown, lambda width, height: [Said(" " + joined(shown, width - 2, "  "))])
