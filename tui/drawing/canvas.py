"""The widget that draws a picture, and sends to the terminal only the lines that
changed."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

from rich.color import ColorSystem
from textual import events
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.schemes import DARK, Scheme, styles_of
from fusetui.tui.drawing.segments import filtered, painted, shorten


def writer_is_behind(app: App[object]) -> bool:
    """Whether output still waits to be written: a frame drawn now would be stale by
    then."""
    thread = getattr(getattr(app, "_driver", None), "_writer_thread", None)
    if (queue := getattr(thread, "_queue", None)) is None:
        return False
    waiting = getattr(queue.not_empty, "_waiters", True)  # for something to write
    return queue.qsize() > 0 or not waiting


LATER = 0.01  # seconds until a frame that was left out is tried again
NO_LINE = Region(0, 0, 0, 0)
WHEEL = 3  # lines
DRAG = 2  # cells: a shorter way is a click


class Click(NamedTuple):
    x: int


class Turn(NamedTuple):
    """The wheel was turned at a cell, by lines; negative is up."""

    x: int
    lines: int
    shifted: bool = False


class Drag(NamedTuple):
    """The mouse was moved from cell to cell with the button down; `ended`: it was let
    go."""

    x: int
    to: int
    ended: bool


class Moused(Message):
    """What a person did with the mouse on a line of a canvas."""

    def __init__(self, y: int, done: Click | Turn | Drag) -> None:
        super().__init__()
        self.y, self.done = y, done


class Canvas(Widget, inherit_bindings=False):
    """Holds only the picture and the lines that were drawn last."""

    ALLOW_SELECT = False

    def __init__(self, scheme: Scheme = DARK, background: str = "") -> None:
        """`background`: another one than that of the scheme."""
        super().__init__()
        self._styles = styles_of(scheme, background or scheme.background)
        self._behind = Color.parse(background or scheme.background)
        self._picture: Picture | None = None
        self._drawn: dict[int, tuple[Hashable, Strip]] = {}
        # lines as drawn, and as they were sent
        self._sent: dict[int, tuple[Strip, Strip]] = {}
        self._through: tuple[ColorSystem | None, list[LineFilter]] = None, []
        self._late = False
        self._pressed: tuple[int, int] | None = None  # where the button went down
        self._is_dragged = False
        # the picture, or the size, is another one than that of the lines drawn
        self._stale = True

    def show(self, picture: Picture) -> None:
        """Draws another picture in the next frame; of several until then, only the
        last."""
        self._picture = picture
        self._stale = True
        self.refresh(NO_LINE)

    def render_line(self, y: int) -> Strip:
        if self._stale or y not in self._drawn:
            self._renew(y)
        return self._drawn[y][1]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Called by Textual for all lines in every frame: most are those of the frame
        before."""
        if self._stale:
            self._renew()
        if any(self.gutter):
            strips = super().render_lines(crop)
            if (system := self.app.console._color_system) is not None:
                for strip in strips:
                    shorten(strip, system)
            return strips
        strips = self._passed(crop.line_range)
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _passed(self, lines: range) -> list[Strip]:
        """Lines as they go to the terminal."""
        system, filters = self.app.console._color_system, list(self.get_line_filters())
        if self._through != (system, filters):
            self._through = system, filters
            self._sent.clear()
        found: list[Strip] = []
        for y in lines:
            drawn = self.render_line(y)
            if (before := self._sent.get(y)) is None or before[0] is not drawn:
                strip = filtered(drawn, filters, self._behind)
                if system is not None:
                    shorten(strip, system)
                before = self._sent[y] = drawn, strip
            found.append(before[1])
        return found

    def on_resize(self) -> None:
        self._stale = True

    def on_click(self, event: events.Click) -> None:
        if not self._is_dragged:
            self.post_message(Moused(event.y, Click(event.x)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pressed, self._is_dragged = (event.x, event.y), False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed is None or not event.button:
            return
        x, y = self._pressed
        if self._is_dragged or abs(event.x - x) >= DRAG:
            self._is_dragged = True
            self.post_message(Moused(y, Drag(x, event.x, ended=False)))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._pressed is not None and self._is_dragged:
            x, y = self._pressed
            self.post_message(Moused(y, Drag(x, event.x, ended=True)))
        self._pressed = None

    def on_mouse_scroll_down(self, event: events.MouseEvent) -> None:
        """Down, or with Shift to the right; some terminals send the event of that
        then."""
        is_back = isinstance(event, events.MouseScrollUp | events.MouseScrollLeft)
        shifted = event.shift or isinstance(
            event, events.MouseScrollRight | events.MouseScrollLeft
        )
        self.post_message(
            Moused(event.y, Turn(event.x, -WHEEL if is_back else WHEEL, shifted))
        )

    on_mouse_scroll_up = on_mouse_scroll_right = on_mouse_scroll_left = (
        on_mouse_scroll_down
    )

    def _exchange_repaint_regions(self) -> Collection[Region]:
        """Called by Textual once per frame; it repaints whatever is returned, changed
        or not."""
        super()._exchange_repaint_regions()
        if not writer_is_behind(self.app):
            width = self.outer_size.width
            return [Region(0, y, width, 1) for y in self._renew()]
        if not self._late:
            self._late = True
            self.set_timer(LATER, self._try_again)
        return ()

    def _renew(self, line: int | None = None) -> list[int]:
        """Remakes the line, or all lines, whose key changed; returns those that look
        different."""
        width, height = self.size
        changed: list[int] = []
        for y in range(height) if line is None else (line,):
            key = self._picture.key(y, width, height) if self._picture else None
            before = self._drawn.get(y)
            if before is not None and before[0] == key:
                continue
            parts = self._picture.line(y, width, height) if self._picture else ()
            strip = painted(parts, width, self._styles)
            if before is not None and before[1] == strip:
                self._drawn[y] = key, before[1]
                continue
            self._drawn[y] = key, strip
            changed.append(y)
        self._stale = self._stale and line is not None
        if changed:
            self._styles_cache.set_dirty(*(Region(0, y, width, 1) for y in changed))
        return changed

    def _try_again(self) -> None:
        self._late = False
        self.refresh(NO_LINE)
