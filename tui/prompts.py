"""The input line at the bottom, for a name to search for or a command."""

from __future__ import annotations

from textual import events
from textual.suggester import SuggestFromList
from textual.widgets import Input

from fusetui.tui.state.command_line import EXAMPLES, VERBS
from fusetui.tui.state.prompts import Prompt

COMPLETION = SuggestFromList([f"{verb} " for verb in VERBS if len(verb) > 1])
PLACEHOLDERS = {
    Prompt.SEARCH: "family:gemm dur>50us   Enter: the first, Esc closes",
    Prompt.COMMAND: "  ".join((*EXAMPLES, "Esc closes")),
}


class PromptInput(Input):
    """Shown while the state asks for a text. Enter submits it; Tab completes a command."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor_blink = False  # nothing is sent while nobody types

    def ask(self, prompt: Prompt) -> None:
        """Empties the line and focuses it."""
        self.placeholder = PLACEHOLDERS[prompt]
        self.suggester = COMPLETION if prompt is Prompt.COMMAND else None
        self.display, self.value = True, ""
        self.focus()

    def close(self) -> None:
        self.display = False

    def on_key(self, event: events.Key) -> None:
        if event.key == "tab":
            event.stop()
            self.action_end()
            self.action_cursor_right()
