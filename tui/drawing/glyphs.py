"""The characters used for drawing: one table for terminals with Unicode, one for ASCII."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace


class Glyphs(msgspec.Struct, frozen=True):
    """Every drawing character. `levels` goes from empty to full; `parts` are eighths of a cell."""

    levels: str
    parts: str
    full: str
    rule: str
    window: tuple[str, str, str]  # left end, middle, right end
    thumb: str  # of a scroll bar
    swatch: str  # before a name in a legend
    edge: str  # where a block begins beside another
    selected: str
    selected_cell: str
    ellipsis: str
    folded: str
    unfolded: str
    leaf: str
    chain: str
    underline: tuple[str, str, str, str]  # left end, middle, right end, alone
    letters: bool = False  # a block is filled with the letter of its kind: colors may be missing

    @property
    def top(self) -> int:
        """The level of a full cell."""
        return len(self.levels) - 1

    def bars(self, levels: Iterable[int]) -> str:
        """A character for each level."""
        return "".join(map(self.levels.__getitem__, levels))


_TABLE = """
    full █ #  rule ─ -  thumb ┃ !  swatch ■ #  edge ▏ |  selected ▸ >  selected_cell ◆ *
    ellipsis … ~  folded ▸ +  unfolded ▾ -  chain ‹ <
"""


def _glyphs(column: int, **others: Any) -> Glyphs:
    cells = _TABLE.split()
    return Glyphs(**{**dict(zip(cells[::3], cells[column::3], strict=True)), **others})


UNICODE = _glyphs(
    1,
    **{"levels": " ▁▂▃▄▅▆▇█", "parts": " ▏▎▍▌▋▊▉", "leaf": "·"},
    **{"window": ("├", "─", "┤"), "underline": ("└", "─", "┘", "╵")},
)
ASCII = _glyphs(
    2,
    **{"levels": " .:-=+*##", "parts": "    ####", "leaf": " ", "letters": True},
    **{"window": ("[", "-", "]"), "underline": ("`", "-", "'", "|")},
)
COLORLESS = replace(UNICODE, letters=True)


def glyphs_for(ascii_only: bool, colorless: bool = False) -> Glyphs:
    """`colorless`: there are no colors to tell what a slice does."""
    return ASCII if ascii_only else COLORLESS if colorless else UNICODE


def share_bar(part: int, whole: int, width: int, glyphs: Glyphs) -> str:
    """Fills the share of `width` cells that `part` is of the whole; a share above 0 is visible."""
    if part <= 0 or whole <= 0:
        return " " * width
    eighths = max(1, min(8 * width, round(8 * width * part / whole)))
    full, rest = divmod(eighths, 8)
    return (glyphs.full * full + glyphs.parts[rest]).ljust(width)[:width]
