"""Lists of words as they are written in these files."""

from __future__ import annotations


def listed(words: str) -> frozenset[str]:
    """Words separated by whitespace."""
    return frozenset(words.split())
