"""The line at the bottom in which a command is typed."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input

from fusetui.tui.command_line import EXAMPLES, VERBS


class CommandBox(Input):
    """Enter gives the line, Tab completes a word, Escape closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", show=False),
        Binding("tab", "complete", "Complete", show=False),
    ]

    class Given(Message):
        """A line was typed; "" when the box was closed."""

        def __init__(self, line: str) -> None:
            super().__init__()
            self.line = line

    def __init__(self) -> None:
        completion = SuggestFromList([f"{verb} " for verb in VERBS if len(verb) > 1])
        super().__init__(
            placeholder="   ".join((*EXAMPLES, "Esc closes")), id="command", suggester=completion
        )

    def ask(self) -> None:
        self.display, self.value = True, ""
        self.focus()

    def action_close(self) -> None:
        self._give("")

    def action_complete(self) -> None:
        self.action_end()
        self.action_cursor_right()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        self._give(message.value)

    def _give(self, line: str) -> None:
        self.display = False
        self.post_message(self.Given(line))
