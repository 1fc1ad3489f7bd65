"""Things by a key that several have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def by_key(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """In the order of the first of each key, and as they came within it."""
    found: dict[K, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found
