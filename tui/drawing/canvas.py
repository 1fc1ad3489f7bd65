"""The widget that draws a picture, and sends to the terminal only the lines that changed."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.segments import blank
from fusetui.tui.drawing.writer import writer_is_behind

LATER = 0.05  # seconds until a frame that was left out is tried again
NO_LINE = Region(0, 0, 0, 0)
WHEEL = 3  # lines


class Pointed(Message):
    """A person clicked on a cell of a canvas."""

    def __init__(self, x: int, y: int) -> None:
        super().__init__()
        self.x, self.y = x, y


class Wheeled(Message):
    """A person turned the wheel over a line of a canvas; negative lines are up."""

    def __init__(self, y: int, lines: int) -> None:
        super().__init__()
        self.y, self.lines = y, lines


class Canvas(Widget, inherit_bindings=False):
    """Holds no state but the picture and the lines that were drawn last."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._picture: Picture | None = None
        self._drawn: dict[int, tuple[Hashable, Strip]] = {}
        self._late = False

    def show(self, picture: Picture) -> None:
        """Draw another picture in the next frame; many in between are one."""
        self._picture = picture
        self.refresh(NO_LINE)

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._picture is None:
            return blank(width)
        key = self._picture.key(y, width, height)
        known = self._drawn.get(y)
        if known is None or known[0] != key:
            known = self._drawn[y] = key, self._picture.line(y, width, height)
        return known[1]

    def on_click(self, event: events.Click) -> None:
        self.post_message(Pointed(event.x, event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(Wheeled(event.y, WHEEL))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(Wheeled(event.y, -WHEEL))

    def _exchange_repaint_regions(self) -> Collection[Region]:
        """Asked by Textual once per frame, which repaints what it is given, changed or not."""
        super()._exchange_repaint_regions()
        if writer_is_behind(self.app):
            if not self._late:
                self._late = True
                self.set_timer(LATER, self._try_again)
            return ()
        regions = [Region(0, y, self.size.width, 1) for y in self._changed()]
        if regions:
            self._styles_cache.set_dirty(*regions)
        return regions

    def _changed(self) -> list[int]:
        """The lines that are not what the terminal shows."""
        lines: list[int] = []
        for y in range(self.size.height):
            before = self._drawn.get(y)
            now = self.render_line(y)
            if before is None or (now is not before[1] and now != before[1]):
                lines.append(y)
        return lines

    def _try_again(self) -> None:
        self._late = False
        self.refresh(NO_LINE)
