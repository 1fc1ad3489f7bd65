"""Parts of a name: which characters mean what. All records are built here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from fusetui.gpu.kernel_names.model import KernelName, Part
from fusetui.gpu.kernel_names.text import safe


def build(name: str, family: str, short: str, parts: Iterable[Part], **fields: Any) -> KernelName:
    """A record whose parts are sorted and do not overlap, and whose short text is safe."""
    return KernelName(name=name, short=safe(short), family=family, parts=ordered(parts), **fields)


def ordered(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts by position; of two that overlap, the one that starts first is kept."""
    found = sorted(parts)
    last = 0
    for start, end, _ in found:
        if not last <= start < end:
            return _apart(found)
        last = end
    return tuple(found)


def _apart(parts: list[Part]) -> tuple[Part, ...]:
    """The sorted parts that are not empty and do not overlap an earlier one."""
    kept: list[Part] = []
    last = 0
    for part in parts:
        start, end, _ = part
        if last <= start < end:
            kept.append(part)
            last = end
    return tuple(kept)


def explain(match: re.Match[str], meanings: Mapping[str, str]) -> list[Part]:
    """A part for each group that took part in the match; `{}` in a meaning is the group's text.

    >>> explain(re.compile("(?P<m>[0-9]+)x").match("64x"), {"m": "tile of {} rows"})
    [(0, 2, 'tile of 64 rows')]
    """
    parts: list[Part] = []
    places, indices, name = match.regs, match.re.groupindex, match.string
    for group, meaning in meanings.items():
        start, end = places[indices[group]]
        if end > start:
            parts.append((start, end, _filled(meaning, name[start:end])))
    return parts


@lru_cache(maxsize=4096)
def _filled(meaning: str, text: str) -> str:
    return meaning.format(text)


def tokens(name: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The words between underscores in name[start:end], with their positions."""
    for word in name[start:end].split("_"):
        if word:
            yield start, start + len(word), word
        start += len(word) + 1


def explain_tokens(
    name: str, start: int, end: int, meaning: Callable[[str], str | None]
) -> list[Part]:
    """A part for each word of name[start:end] for which `meaning` returns a text."""
    return [
        (first, last, text)
        for first, last, word in tokens(name, start, end)
        if (text := meaning(word)) is not None
    ]
