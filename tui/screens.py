"""Pages on top of the app: the keys, and everything about one slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from fusetui.tui import palette
from fusetui.tui.commands import Where, commands_of, key_text
from fusetui.tui.details import Said
from fusetui.tui.pane import LOOKS
from fusetui.tui.rowlist import Cell, RowList

HEADINGS: dict[Where, str] = {"timeline": "In the timeline", "app": "Everywhere"}


class Page(ModalScreen[None]):
    """Lines to read; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,i,question_mark", "dismiss", "Close", show=False)
    ]

    def __init__(self, title: str, lines: Sequence[Said]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        yield RowList(name="page")

    def on_mount(self) -> None:
        rows = self.query_one(RowList)
        rows.fill(len(self._lines), lambda width: f" {self._title}", self._format)
        rows.focus()

    def _format(self, index: int, width: int) -> list[Cell]:
        line = self._lines[index]
        return [(line.text, LOOKS.get(line.look, palette.PLAIN))]


def key_lines() -> list[Said]:
    """All commands with their keys, as the registry has them."""
    lines: list[Said] = []
    for where, title in HEADINGS.items():
        lines += [Said(""), Said(title, "title")]
        for command in commands_of(where):
            keys = "  ".join(key_text(key) for key in command.keys)
            lines.append(Said(f"  {keys:<18}{command.title:<22}{command.help}", "name"))
    return lines
