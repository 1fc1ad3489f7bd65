"""The characters of the screen: one table for terminals with Unicode, one for ASCII."""

from __future__ import annotations

import msgspec


class Glyphs(msgspec.Struct, frozen=True):
    """Every drawing character. `levels` goes from empty to full; `parts` are eighths of a cell."""

    levels: str
    parts: str
    full: str
    rule: str
    window: tuple[str, str, str]  # left end, middle, right end
    edge: str  # where a block begins beside another
    selected: str
    selected_cell: str
    ellipsis: str
    folded: str
    unfolded: str
    leaf: str
    chain: str
    underline: tuple[str, str, str, str]  # left end, middle, right end, alone


UNICODE = Glyphs(
    levels=" ▁▂▃▄▅▆▇█",
    parts=" ▏▎▍▌▋▊▉",
    full="█",
    rule="─",
    window=("├", "─", "┤"),
    edge="▏",
    selected="▸",
    selected_cell="◆",
    ellipsis="…",
    folded="▸",
    unfolded="▾",
    leaf="·",
    chain="‹",
    underline=("└", "─", "┘", "╵"),
)

ASCII = Glyphs(
    levels=" .:-=+*##",
    parts="    ####",
    full="#",
    rule="-",
    window=("[", "-", "]"),
    edge="|",
    selected=">",
    selected_cell="*",
    ellipsis="~",
    folded="+",
    unfolded="-",
    leaf=" ",
    chain="<",
    underline=("`", "-", "'", "|"),
)


def glyphs_for(ascii_only: bool) -> Glyphs:
    return ASCII if ascii_only else UNICODE
