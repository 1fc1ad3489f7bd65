"""What the canvas paints: the lines that differ, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App, ComposeResult

from fusetui.tui.drawing.canvas import Canvas
from fusetui.tui.drawing.picture import Said, TextPicture, text


class Alone(App[None]):
    """Nothing but a canvas."""

    def compose(self) -> ComposeResult:
        yield Canvas()


def lines(*texts: str) -> Sequence[Said]:
    return [Said(text) for text in texts]


def painted(canvas: Canvas, picture: TextPicture) -> list[int]:
    """The lines that Textual is asked to paint for another picture."""
    canvas.show(picture)
    return [region.y for region in canvas._exchange_repaint_regions()]


async def test_only_lines_that_differ_are_painted() -> None:
    async with Alone().run_test(size=(20, 4)) as pilot:
        canvas = pilot.app.query_one(Canvas)
        canvas.show(text(lines("a", "b", "c")))
        await pilot.pause()
        assert painted(canvas, text(lines("a", "b", "c"))) == []
        assert painted(canvas, text(lines("a", "B", "c"))) == [1]
        assert painted(canvas, text(lines("a"))) == [1, 2]


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
        await pilot.pause()
        assert made[-1] == 99
        assert len(made) < 10
