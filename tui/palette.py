"""The command palette of Textual, modified for keys that arrive faster than it is
drawn: it closes only once, and its list is moved only once it has a size."""

from __future__ import annotations

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.widgets import Input, OptionList

ID = "--command-palette"
"""The id that Textual's own palette has, so that its styles apply."""
MOVES_LIST = "command_list"
"""The action of all keys that page the list or go to one end of it."""


class Palette(CommandPalette):
    """Ignores keys that come before its list has a size, and what arrives between the
    choice of a command and its last frame.

    Textual's palette fails with a KeyError when a list without a size is paged. After a
    choice it handles another Enter: it runs the command once more and closes whatever
    screen is below it, and the app fails if there is none.
    """

    _is_chosen = False
    _is_closing = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action may run now. Textual asks directly before it runs
        the action of a key, so nothing can change in between."""
        if action == MOVES_LIST:
            regions = [
                commands.scrollable_content_region
                for commands in self.query(OptionList)
            ]
            # there may be no list yet; a region is false without width or height
            if not regions or not all(regions):
                return False
        return super().check_action(action, parameters)

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Closes the palette the first time, and does nothing afterwards."""
        if self._is_closing:
            return AwaitComplete()
        self._is_closing = True
        return super().dismiss(result)

    @on(OptionList.OptionSelected)
    def _choose_once(self, message: OptionList.OptionSelected) -> None:
        """Let the first choice of a command pass, and stop every further one."""
        if self._is_chosen or self._is_closing:
            message.stop()
            message.prevent_default()
        self._is_chosen = True

    @on(Input.Submitted)
    def _ignore_while_closing(self, message: Input.Submitted) -> None:
        """Stop an Enter that follows the choice of a command while the palette closes."""
        if self._is_chosen or self._is_closing:
            message.stop()
            message.prevent_default()
