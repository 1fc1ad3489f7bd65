"""A line at the bottom that waits for one letter."""

from __future__ import annotations

from textual import events
from textual.message import Message

from fusetui.tui.details import Said
from fusetui.tui.pane import Pane


class LetterPrompt(Pane, can_focus=True):
    """While it has the focus, every key goes to it: a letter answers, all else cancels."""

    class Given(Message):
        """The answer to a question; "" when it was cancelled."""

        def __init__(self, question: str, letter: str) -> None:
            super().__init__()
            self.question = question
            self.letter = letter

    def __init__(self) -> None:
        super().__init__(name="letter")
        self._question = ""

    def ask(self, question: str, text: str) -> None:
        """Show a text and wait; `question` comes back with the letter."""
        self._question = question
        self.display = True
        self.say([Said(" " + text)])
        self.focus()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        letter = event.character or ""
        self._answer(letter if letter.isascii() and letter.isalpha() else "")

    def on_blur(self) -> None:
        self._answer("")

    def _answer(self, letter: str) -> None:
        if self._question:
            self.post_message(self.Given(self._question, letter))
        self._question = ""
        self.display = False
