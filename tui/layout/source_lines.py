"""The lines of the source of a slice, as the overlay keeps them."""

from __future__ import annotations

from typing import Literal

import msgspec

Language = Literal["", "python", "cpp"]
Look = Literal["heading", "plain", "faint", "code"]


class ShownLine(msgspec.Struct, frozen=True):
    """A line of the overlay; `number` is that of a line of code, 0 for none."""

    text: str
    look: Look = "plain"
    language: Language = ""
    number: int = 0
    is_marked: bool = False


class SourceShown(msgspec.Struct, frozen=True, eq=False):
    """An overlay: the lines, and which of them begin a section."""

    title: str
    lines: tuple[ShownLine, ...]
    sections: tuple[int, ...]

    def next_section(self, line: int) -> int:
        """The line of the section after this line; the first after the last."""
        for section in self.sections:
            if section > line:
                return section
        return self.sections[0] if self.sections else 0
