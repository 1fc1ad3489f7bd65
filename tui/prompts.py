"""The line at the bottom in which a person types: names to search for, or a command."""

from __future__ import annotations

from textual import events
from textual.suggester import SuggestFromList
from textual.widgets import Input

from fusetui.tui.state.command_line import EXAMPLES, VERBS
from fusetui.tui.state.prompts import Prompt

COMPLETION = SuggestFromList([f"{verb} " for verb in VERBS if len(verb) > 1])
PLACEHOLDERS = {
    Prompt.SEARCH: "search names",
    Prompt.COMMAND: "  ".join((*EXAMPLES, "Esc closes")),
}


class PromptInput(Input):
    """Shown while the state asks for a text. Enter submits it; Tab completes a command."""

    def ask(self, prompt: Prompt) -> None:
        """An empty line that has the keys."""
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
