"""The widget that draws a picture and sends only the changed lines to the terminal."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Hashable
from typing import NamedTuple

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
from fusetui.tui.drawing.segments import ShortStrip, filtered, painted


def terminal_is_behind(app: App[object]) -> bool:
    """Whether the terminal still takes the output before: a frame drawn now would be
    stale by then. A terminal takes nothing while another thread writes to it. What
    Windows calls a terminal cannot be asked."""
    stream = sys.__stderr__  # what Textual writes to
    if app.is_headless or stream is None or sys.platform == "win32":
        return False
    _, writable, _ = select.select([], [stream], [], 0)
    return not writable


FRAME_SECONDS = 1 / 60  # from one frame to the next, as Textual draws them
RETRY_SECONDS = 0.01  # until a frame that was left out is tried again
WHEEL_LINES = 3
MIN_DRAG_CELLS = 2  # a shorter way is a click


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
        self.y = y
        self.done = done


class _DrawnLine(NamedTuple):
    """A line of the picture, and the key that it was drawn for."""

    key: Hashable
    strip: ShortStrip


class _SentLine(NamedTuple):
    """A line as it was drawn, and as it goes to the terminal."""

    drawn: Strip
    strip: ShortStrip


class Canvas(Widget, inherit_bindings=False):
    """Holds only the picture and the lines that were drawn last."""

    ALLOW_SELECT = False

    def __init__(self, scheme: Scheme = DARK, background: str = "") -> None:
        """`background`: another one than that of the scheme."""
        super().__init__()
        self._styles = styles_of(scheme, background or scheme.background)
        self._behind = Color.parse(background or scheme.background)
        self._picture: Picture | None = None
        self._drawn: dict[int, _DrawnLine] = {}
        self._sent: dict[int, _SentLine] = {}
        self._filters: list[LineFilter] = []
        self._changed: set[int] = set()  # lines that Textual was not asked to paint
        self._is_frame_ahead = False
        self._last_frame = 0.0  # by time.monotonic
        self._pressed: tuple[int, int] | None = None  # where the button went down
        self._is_dragged = False
        # the picture, or the size, is another one than that of the lines drawn
        self._stale = True

    def show(self, picture: Picture) -> None:
        """Draws another picture in the next frame; of several until then, only the
        last."""
        self._picture = picture
        self._stale = True
        self._plan_frame()

    def render_line(self, y: int) -> ShortStrip:
        """Line `y`, as it was drawn last if it is still the same."""
        if self._stale or y not in self._drawn:
            self._renew(y)
        return self._drawn[y].strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """Called by Textual for all lines in every frame: most are those of the frame
        before."""
        if self._stale:
            self._renew()
            if not self._is_frame_ahead:
                self._changed.clear()  # Textual paints the whole canvas by itself
        if any(self.gutter):
            return self._with_gutter(crop)
        strips = self._filtered(crop.line_range)
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _filtered(self, lines: range) -> list[Strip]:
        """Lines as they go to the terminal."""
        filters = list(self.get_line_filters())
        if self._filters != filters:
            self._filters = filters
            self._sent.clear()
        strips: list[Strip] = []
        for y in lines:
            drawn = self.render_line(y)
            sent = self._sent.get(y)
            if sent is None or sent.drawn is not drawn:
                sent = _SentLine(drawn, filtered(drawn, filters, self._behind))
                self._sent[y] = sent
            strips.append(sent.strip)
        return strips

    def _with_gutter(self, crop: Region) -> list[Strip]:
        """Lines to which Textual has added border and padding; their filters, too."""
        strips: list[Strip] = []
        for y, drawn in enumerate(super().render_lines(crop), start=crop.y):
            sent = self._sent.get(y)
            if sent is None or sent.drawn is not drawn:
                sent = _SentLine(drawn, ShortStrip(drawn, drawn.cell_length))
                self._sent[y] = sent
            strips.append(sent.strip)
        return strips

    def on_resize(self) -> None:
        """Draws all lines again."""
        self._stale = True
        self._plan_frame()

    def on_click(self, event: events.Click) -> None:
        """A click, unless the mouse was moved with the button down."""
        if not self._is_dragged:
            self.post_message(Moused(event.y, Click(event.x)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A click or a drag begins."""
        self._pressed = (event.x, event.y)
        self._is_dragged = False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """With the button down: a drag, once it is longer than a click."""
        if self._pressed is None or not event.button:
            return
        x, y = self._pressed
        is_far = abs(event.x - x) >= MIN_DRAG_CELLS
        if self._is_dragged or is_far:
            self._is_dragged = True
            self.post_message(Moused(y, Drag(x, event.x, ended=False)))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """A drag ends, if it was one."""
        if self._pressed is not None and self._is_dragged:
            x, y = self._pressed
            self.post_message(Moused(y, Drag(x, event.x, ended=True)))
        self._pressed = None

    def on_mouse_scroll_down(self, event: events.MouseEvent) -> None:
        """Down, or with Shift to the right; some terminals send the event of that
        then."""
        is_back = isinstance(event, events.MouseScrollUp | events.MouseScrollLeft)
        is_sideways = isinstance(
            event, events.MouseScrollRight | events.MouseScrollLeft
        )
        turn = Turn(
            x=event.x,
            lines=-WHEEL_LINES if is_back else WHEEL_LINES,
            shifted=event.shift or is_sideways,
        )
        self.post_message(Moused(event.y, turn))

    on_mouse_scroll_up = on_mouse_scroll_right = on_mouse_scroll_left = (
        on_mouse_scroll_down
    )

    def _plan_frame(self) -> None:
        """Draws a frame as soon as the messages that have arrived are handled, but no
        earlier than FRAME_SECONDS after the one before."""
        if self._is_frame_ahead or not self.is_mounted:
            return
        self._is_frame_ahead = True
        wait = self._last_frame + FRAME_SECONDS - time.monotonic()
        if wait > 0:
            self.set_timer(wait, self._draw_frame)
        else:
            self.call_later(self._draw_frame)

    def _draw_frame(self) -> None:
        """Has Textual paint the lines that look different; later, while the terminal
        still takes the frame before."""
        if terminal_is_behind(self.app):
            self.set_timer(RETRY_SECONDS, self._draw_frame)
            return
        self._is_frame_ahead = False
        self._last_frame = time.monotonic()
        self._renew()
        if self._changed:
            width = self.size.width
            regions = [Region(0, y, width, 1) for y in sorted(self._changed)]
            self.refresh(*regions)
            self._changed.clear()

    def _renew(self, line: int | None = None) -> None:
        """Remakes the line, or all lines, whose key changed; notes those that look
        different."""
        width, height = self.size
        for y in range(height) if line is None else (line,):
            key = self._picture.key(y, width, height) if self._picture else None
            before = self._drawn.get(y)
            if before is not None and before.key == key:
                continue
            parts = self._picture.line(y, width, height) if self._picture else ()
            strip = painted(parts, width, self._styles)
            if before is not None and before.strip == strip:
                # the same object: it has the sequences that were sent
                self._drawn[y] = _DrawnLine(key, before.strip)
            else:
                self._drawn[y] = _DrawnLine(key, strip)
                self._changed.add(y)
        self._stale = self._stale and line is not None
