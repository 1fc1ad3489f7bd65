"""The words on the screen that need an explanation, with their meanings of words.txt;
docs/glossary.md has the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

SEPARATOR = ": "


@cache
def read_screen_words() -> tuple[tuple[str, str], ...]:
    """Return the words that stand on the screen with their meanings, in the order of
    the pages. They are read from words.txt, one on each line."""
    path = Path(__file__).with_name("words.txt")
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        word, _, meaning = line.partition(SEPARATOR)
        words.append((word, meaning))
    return tuple(words)
