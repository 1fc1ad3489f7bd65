"""The widget that draws a picture, and sends to the terminal only the lines that changed."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.schemes import DARK, Scheme
from fusetui.tui.drawing.segments import blank, in_scheme
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

    def __init__(self, scheme: Scheme = DARK, background: str = "") -> None:
        """`background`: another one than that of the scheme."""
        super().__init__()
        self._scheme, self._background = scheme, background or scheme.background
        self._picture: Picture | None = None
        self._drawn: dict[int, tuple[Hashable, Strip]] = {}
        self._late = False
        self._stale = True  # the picture, or the size, is another one than that of the lines drawn

    def show(self, picture: Picture) -> None:
        """Draw another picture in the next frame; many in between are one."""
        self._picture = picture
        self._stale = True
        self.refresh(NO_LINE)

    def render_line(self, y: int) -> Strip:
        if self._stale or y not in self._drawn:
            self._renew(range(y, y + 1))
        return self._drawn[y][1]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Called by Textual, also where it paints for reasons of its own."""
        if self._stale:
            self._renew_all()
        return super().render_lines(crop)

    def on_resize(self) -> None:
        self._stale = True

    def on_click(self, event: events.Click) -> None:
        self.post_message(Pointed(event.x, event.y))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(Wheeled(event.y, WHEEL))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(Wheeled(event.y, -WHEEL))

    def _exchange_repaint_regions(self) -> Collection[Region]:
        """Asked by Textual once per frame, which repaints what it is given, changed or not."""
        super()._exchange_repaint_regions()
        if not writer_is_behind(self.app):
            width = self.outer_size.width
            return [Region(0, y, width, 1) for y in self._renew_all()]
        if not self._late:
            self._late = True
            self.set_timer(LATER, self._try_again)
        return ()

    def _renew_all(self) -> list[int]:
        """Make all lines anew of which the key changed; returns those that look different now."""
        changed = self._renew(range(self.size.height))
        self._stale = False
        return changed

    def _renew(self, lines: range) -> list[int]:
        """Make the lines of which the key changed; returns those that look different now."""
        width, height = self.size
        changed: list[int] = []
        for y in lines:
            key = self._picture.key(y, width, height) if self._picture else None
            before = self._drawn.get(y)
            if before is not None and before[0] == key:
                continue
            strip = self._picture.line(y, width, height) if self._picture else blank(width)
            strip = in_scheme(strip, self._scheme, self._background)
            self._drawn[y] = key, strip
            if before is None or before[1] != strip:
                changed.append(y)
        if changed:
            self._styles_cache.set_dirty(*(Region(0, y, width, 1) for y in changed))
        return changed

    def _try_again(self) -> None:
        self._late = False
        self.refresh(NO_LINE)
