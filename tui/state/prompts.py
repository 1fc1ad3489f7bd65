"""What the last line asks for: a text to search for, a command, or the letter of a mark."""

from __future__ import annotations

from enum import Enum


class Prompt(Enum):
    """A question to the user. Where a letter is asked for, any key answers it."""

    SEARCH = "search names"
    COMMAND = "command"
    SET_MARK = "mark this place: a letter (Esc cancels)"
    GO_TO_MARK = "go to the mark (Esc cancels)"

    @property
    def is_letter(self) -> bool:
        return self in (Prompt.SET_MARK, Prompt.GO_TO_MARK)
