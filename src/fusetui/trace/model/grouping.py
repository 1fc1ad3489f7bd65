"""Groups items by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items of each key, in their order; keys in the order of their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
