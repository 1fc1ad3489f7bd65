"""The command palette of Textual, modified so that it closes only once, however fast
keys arrive."""

from __future__ import annotations

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.widgets import Input, OptionList

ID = "--command-palette"
"""The id that Textual's own palette has, so that its styles apply."""


class Palette(CommandPalette):
    """Ignores what arrives between the choice of a command and its last frame.

    Textual's palette handles another Enter meanwhile: it runs the command once more
    and closes whatever screen is below it, and the app fails if there is none.
    """

    _is_chosen = False
    _is_closing = False

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
