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
from fusetui.tui.drawing.schemes import DARK, Scheme, build_styles
from fusetui.tui.drawing.segments import ShortStrip, apply_filters, painted


def terminal_is_behind(app: App[object]) -> bool:
    """Tell whether the terminal has not yet taken the earlier output. A frame drawn now
    would be outdated when it is shown.

    A terminal also takes nothing while another thread writes to it. The answer is False
    if that cannot be known: on Windows, and without a terminal.
    """
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
        """Make a message about a mouse action on line `y` of a canvas."""
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
        """Make an empty canvas.

        `scheme` has the colors of each style. `background` replaces the background of
        the scheme, if it is not "".
        """
        super().__init__()
        self._styles = build_styles(scheme, background or scheme.background)
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
        """Draw another picture with the next frame. If several pictures are set until
        then, only the last one is drawn."""
        self._picture = picture
        self._stale = True
        self._schedule_frame()

    def render_line(self, y: int) -> ShortStrip:
        """Return line `y` of the picture. It is drawn again only if the picture or the
        size of the canvas has changed."""
        if self._stale or y not in self._drawn:
            self._update_lines(y)
        return self._drawn[y].strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines in a region, which Textual requests for every frame. Most
        lines are the same objects as in the frame before."""
        if self._stale:
            self._update_lines()
            if not self._is_frame_ahead:
                self._changed.clear()  # Textual paints the whole canvas by itself
        # a border or padding, which only Textual can draw
        if any(self.gutter):
            return self._render_with_gutter(crop)
        strips = self._filter_lines(crop.line_range)
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _filter_lines(self, lines: range) -> list[Strip]:
        """Return some lines as they are sent to the terminal, after the filters of
        Textual.

        Lines that have not changed are taken from a cache, which is emptied when the
        filters change.
        """
        filters = list(self.get_line_filters())
        if self._filters != filters:
            self._filters = filters
            self._sent.clear()
        strips: list[Strip] = []
        for y in lines:
            drawn = self.render_line(y)
            cached = self._sent.get(y)
            if cached is None or cached.drawn is not drawn:
                cached = _SentLine(drawn, apply_filters(drawn, filters, self._behind))
                self._sent[y] = cached
            strips.append(cached.strip)
        return strips

    def _render_with_gutter(self, crop: Region) -> list[Strip]:
        """Return the lines in a region including the border and padding that Textual
        draws. Textual has applied its filters to them already."""
        strips: list[Strip] = []
        for y, drawn in enumerate(super().render_lines(crop), start=crop.y):
            cached = self._sent.get(y)
            if cached is None or cached.drawn is not drawn:
                cached = _SentLine(drawn, ShortStrip(drawn, drawn.cell_length))
                self._sent[y] = cached
            strips.append(cached.strip)
        return strips

    def on_resize(self) -> None:
        """Draw all lines again after a change of size."""
        self._stale = True
        self._schedule_frame()

    def on_click(self, event: events.Click) -> None:
        """Report a click, unless it is the end of a drag."""
        if not self._is_dragged:
            self.post_message(Moused(event.y, Click(event.x)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where the button was pressed, because a drag may begin there."""
        self._pressed = (event.x, event.y)
        self._is_dragged = False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Report a drag while the button is down. A movement counts as a drag once it
        is at least MIN_DRAG_CELLS long; until then it may be a click."""
        if self._pressed is None or not event.button:
            return
        pressed_x, pressed_y = self._pressed
        is_far = abs(event.x - pressed_x) >= MIN_DRAG_CELLS
        if self._is_dragged or is_far:
            self._is_dragged = True
            self.post_message(Moused(pressed_y, Drag(pressed_x, event.x, ended=False)))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Report the end of a drag, if there was one."""
        if self._pressed is not None and self._is_dragged:
            pressed_x, pressed_y = self._pressed
            self.post_message(Moused(pressed_y, Drag(pressed_x, event.x, ended=True)))
        self._pressed = None

    def on_mouse_scroll_down(self, event: events.MouseEvent) -> None:
        """Report a turn of the wheel in any direction.

        This handles the events for all four directions. Shift turns a vertical movement
        into a horizontal one; some terminals send horizontal events themselves.
        """
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

    def _schedule_frame(self) -> None:
        """Schedule the next frame, unless one is scheduled already.

        It is drawn after the messages that have arrived, but no earlier than
        FRAME_SECONDS after the frame before.
        """
        if self._is_frame_ahead or not self.is_mounted:
            return
        self._is_frame_ahead = True
        wait_seconds = self._last_frame + FRAME_SECONDS - time.monotonic()
        if wait_seconds > 0:
            self.set_timer(wait_seconds, self._draw_frame)
        else:
            # Textual calls it after the messages that have already arrived
            self.call_later(self._draw_frame)

    def _draw_frame(self) -> None:
        """Ask Textual to paint the lines that look different from the frame before. If
        the terminal has not yet taken that frame, try again after RETRY_SECONDS."""
        if terminal_is_behind(self.app):
            self.set_timer(RETRY_SECONDS, self._draw_frame)
            return
        self._is_frame_ahead = False
        self._last_frame = time.monotonic()
        self._update_lines()
        if self._changed:
            width = self.size.width
            regions = [Region(0, y, width, 1) for y in sorted(self._changed)]
            self.refresh(*regions)
            self._changed.clear()

    def _update_lines(self, line: int | None = None) -> None:
        """Draw the lines whose content may have changed, and remember those that look
        different.

        `line` is the only line to update; None updates all. A line is drawn only if its
        key has changed, which is cheaper to compute than the line itself.
        """
        width, height = self.size
        lines = range(height) if line is None else range(line, line + 1)
        for y in lines:
            key = self._picture.key(y, width, height) if self._picture else None
            previous = self._drawn.get(y)
            if previous is not None and previous.key == key:
                continue
            parts = self._picture.line(y, width, height) if self._picture else ()
            strip = painted(parts, width, self._styles)
            if previous is not None and previous.strip == strip:
                # the same object: it has the sequences that were sent
                self._drawn[y] = _DrawnLine(key, previous.strip)
            else:
                self._drawn[y] = _DrawnLine(key, strip)
                self._changed.add(y)
        self._stale = self._stale and line is not None
