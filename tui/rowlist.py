"""A list of any length of which only the rows in sight are formatted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from fusetui.tui import palette
from fusetui.tui.segments import blank, line, segment

Cell = tuple[str, Style]
Format = Callable[[int, int], Sequence[Cell]]
"""(row, width) -> the texts of the row, left to right."""


class RowList(Widget, can_focus=True, inherit_bindings=False):
    """A heading line, rows, a cursor. What a row says is asked of `format_row` when it is drawn."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "cursor(1)", "Down", show=False, id="list.down"),
        Binding("up,k", "cursor(-1)", "Up", show=False, id="list.up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="list.page-down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="list.page-up"),
        Binding("home,g", "jump(0)", "First", show=False, id="list.first"),
        Binding("end,G", "jump(-1)", "Last", show=False, id="list.last"),
        Binding("enter", "choose", "Show in the timeline", show=False, id="list.choose"),
    ]

    class Highlighted(Message):
        """The cursor is on another row."""

        def __init__(self, rows: RowList, index: int) -> None:
            super().__init__()
            self.rows = rows
            self.index = index

    class Chosen(Highlighted):
        """Enter or a click on the row under the cursor."""

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name)
        self.cursor = 0
        self._top = 0
        self._count = 0
        self._heading: Callable[[int], str] = lambda width: ""
        self._format: Format = lambda row, width: ()

    def fill(self, count: int, heading: Callable[[int], str], format_row: Format) -> None:
        """Show other rows; the cursor stays as near as it can."""
        self._count, self._heading, self._format = count, heading, format_row
        self.cursor = max(0, min(self.cursor, count - 1))
        self._scroll()

    def move_to(self, index: int) -> None:
        """Put the cursor on a row."""
        index = max(0, min(index, self._count - 1))
        if index != self.cursor:
            self.cursor = index
            self.post_message(self.Highlighted(self, index))
        self._scroll()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return line([segment(self._heading(width), palette.HEADING)], width)
        row = y - 1 + self._top
        if row >= self._count:
            return blank(width)
        here = palette.CURSOR if row == self.cursor else palette.PLAIN
        mark = ">" if row == self.cursor else " "
        cells = [(mark, palette.BOLD), *self._format(row, width - 1)]
        strip = line([segment(*cell) for cell in cells], width)
        return strip.apply_style(here) if here else strip

    def action_cursor(self, step: int) -> None:
        self.move_to(self.cursor + step)

    def action_page(self, pages: int) -> None:
        self.move_to(self.cursor + pages * max(1, self._room - 1))

    def action_jump(self, index: int) -> None:
        self.move_to(index if index >= 0 else self._count - 1)

    def action_choose(self) -> None:
        if self._count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        row = event.y - 1 + self._top
        if 0 <= row < self._count:
            self.move_to(row)

    def on_mouse_scroll_down(self) -> None:
        self.action_cursor(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_cursor(-3)

    def on_resize(self) -> None:
        self._scroll()

    @property
    def _room(self) -> int:
        return max(1, self.size.height - 1)

    def _scroll(self) -> None:
        self._top = max(min(self._top, self.cursor), self.cursor - self._room + 1, 0)
        self.refresh()
