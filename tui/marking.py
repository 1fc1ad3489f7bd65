"""The commands that set a mark and go back to it."""

from __future__ import annotations

from fusetui.tui.letter_prompt import LetterPrompt
from fusetui.tui.part import Part

SET, GO = "set", "go"


class Marking(Part):
    """`m` and a letter sets a mark, `'` and the letter goes back to it."""

    def action_mark(self) -> None:
        if self._session.sides:
            self.query_one(LetterPrompt).ask(SET, "mark this place: a letter (Esc cancels)")

    def action_to_mark(self) -> None:
        if not self._session.bookmarks:
            self._say("hints", "no mark is set: m and a letter sets one")
            return
        letters = " ".join(sorted(self._session.bookmarks))
        self.query_one(LetterPrompt).ask(GO, f"go to the mark (Esc cancels): {letters}")

    def on_letter_prompt_given(self, message: LetterPrompt.Given) -> None:
        self.action_show(self._mode)
        if not message.letter:
            self._say("hints", "cancelled: a mark is a letter from a to z or A to Z")
        elif message.question == SET:
            self._set_mark(message.letter)
        else:
            self._go_to_mark(message.letter)

    def _set_mark(self, letter: str) -> None:
        self._session = self._session.with_bookmark(letter, self._active)
        self._say("hints", f"mark {letter} is set: ' and {letter} goes back to it")

    def _go_to_mark(self, letter: str) -> None:
        mark = self._session.bookmarks.get(letter)
        if mark is None:
            self._say("hints", f"there is no mark {letter}")
            return
        self._bring(self._session.at_bookmark(letter), mark.side)
        self._say("hints", f"at mark {letter}   u goes back")
