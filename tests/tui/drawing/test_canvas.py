"""What the canvas paints: the lines that differ, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from fusetui.tui.drawing.canvas import FRAME_SECONDS, Canvas
from fusetui.tui.drawing.picture import Said, TextPicture, text
from fusetui.tui.drawing.segments import ShortStrip, painted

MAX_LATE_FRAMES = 20


class WatchedCanvas(Canvas):
    """Keeps the lines that Textual was asked to paint."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def refresh(self, *regions: Region, **options: Any) -> Any:
        self.asked += [region.y for region in regions]
        return super().refresh(*regions, **options)


class Alone(App[None]):
    """Nothing but a canvas."""

    def compose(self) -> ComposeResult:
        yield WatchedCanvas()


def lines(*texts: str) -> Sequence[Said]:
    return [Said(text) for text in texts]


async def asked_for(pilot: Pilot[None], picture: TextPicture) -> list[int]:
    """The lines that Textual is asked to paint for another picture."""
    canvas = pilot.app.query_one(WatchedCanvas)
    canvas.asked.clear()
    canvas.show(picture)
    await wait_for_painting(pilot, canvas)
    return canvas.asked


async def wait_for_painting(pilot: Pilot[None], canvas: WatchedCanvas) -> None:
    """Wait for two frames, and on a busy machine longer, unless nothing is painted."""
    await pilot.pause(2 * FRAME_SECONDS)
    for _ in range(MAX_LATE_FRAMES):
        if canvas.asked:
            break
        await pilot.pause(FRAME_SECONDS)


async def show_and_wait(pilot: Pilot[None], *texts: str) -> None:
    """Show lines, and wait until the last one is painted, however busy the machine."""
    painted_lines = await asked_for(pilot, text(lines(*texts)))
    while len(texts) - 1 not in painted_lines:
        await pilot.pause(FRAME_SECONDS)


async def test_only_lines_that_differ_are_painted() -> None:
    async with Alone().run_test(size=(20, 4)) as pilot:
        await show_and_wait(pilot, "a", "b", "c")
        assert await asked_for(pilot, text(lines("a", "b", "c"))) == []
        assert await asked_for(pilot, text(lines("a", "B", "c"))) == [1]
        assert await asked_for(pilot, text(lines("a"))) == [1, 2]


async def test_a_line_is_made_once_per_frame() -> None:
    made: list[int] = []

    def picture(number: int) -> TextPicture:
        def make(width: int, height: int) -> Sequence[Said]:
            made.append(number)
            return lines(str(number))

        return TextPicture(number, make)

    async with Alone().run_test(size=(20, 4)) as pilot:
        canvas = pilot.app.query_one(Canvas)
        for number in range(100):
            canvas.show(picture(number))
        await pilot.pause(2 * FRAME_SECONDS)
        assert made[-1] == 99
        assert len(made) < 10


async def test_a_picture_shown_while_textual_paints_is_painted_as_well() -> None:
    """Another widget may have Textual paint a line of the canvas before its frame."""
    async with Alone().run_test(size=(20, 4)) as pilot:
        await show_and_wait(pilot, "a", "b", "c")
        canvas = pilot.app.query_one(WatchedCanvas)
        canvas.asked.clear()
        canvas.show(text(lines("A", "B", "c")))
        canvas.render_lines(Region(0, 1, 20, 1))
        await wait_for_painting(pilot, canvas)
        assert canvas.asked == [0, 1]


STYLES = {"plain": Style(color="#ffffff"), "faint": Style(color="#888888")}


def test_a_line_sends_the_changes_of_style() -> None:
    strip = painted([("a", "plain"), ("b", "plain"), ("c", "faint")], 3, STYLES)
    console = Console(color_system="truecolor", force_terminal=True)
    assert strip.render(console).count("\x1b[") == 3


def test_without_colors_a_line_sends_what_textual_would() -> None:
    strip = painted([("a", "plain"), ("b", "faint")], 2, STYLES)
    console = Console(color_system=None)
    assert isinstance(strip, ShortStrip)
    assert (
        strip.render(console)
        == "\x1b[38;2;255;255;255ma\x1b[0m\x1b[38;2;136;136;136mb\x1b[0m"
    )
