"""What `y` copies: texts for the clipboard, made from names that may contain anything."""

from __future__ import annotations

from collections.abc import Iterable

from fusetui.text.cutting import clip
from fusetui.text.figures import count, plural
from fusetui.text.printable import printable
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.view import Side

MOST = 50_000  # characters; terminals drop much longer clipboard texts
COPIED = "copied"  # how the hint about a copied text begins
WORTH_SAYING = 1000  # characters of the text; no hint shows more


def slice_text(side: Side, row: int) -> str:
    """The full name of a slice, its start as on the ruler, and its duration; exact."""
    trace = side.trace
    start, dur = int(trace.start[row]) - side.origin, int(trace.dur[row])
    rest = f"   start {start} ns   duration {dur} ns"
    return clip(printable(trace.name_of(row)), MOST - len(rest)) + rest


def names_text(names: Iterable[str]) -> str:
    """Full names, one per line, each once."""
    return clip("\n".join(dict.fromkeys(printable(name) for name in names)), MOST)


def what_was_copied(text: str, noun: str = "name") -> str:
    """One sentence about a copied text, on one line; `noun`: what each of its lines is."""
    if not text:
        return "nothing is selected, so nothing was copied"
    lines = text.split("\n")
    cut = f" (the first {count(MOST)} characters)" if len(text) >= MOST else ""
    counted = f" {plural(len(lines), noun)}" if len(lines) > 1 else ""
    return f"{COPIED}{counted}{cut}: {narrow(lines[0][:WORTH_SAYING])}"
