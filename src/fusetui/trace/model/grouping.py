"""Groups items by a key: Python objects, or elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s, Rows, begins_runs

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items of each key, in their order; keys in the order of their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


class Groups(NamedTuple):
    """Elements of an array, sorted so that those with equal keys lie side by side.

    An *element* is given by its index in the array. The elements of group n are
    `order[begin[n]]` and the `counts[n] - 1` after it.
    """

    keys: NDArray[Any]
    """The key of each group, ascending; shape [groups]."""
    order: Rows
    """All elements, one group after the other; shape [elements]."""
    begin: Rows
    """Where each group begins in `order`; shape [groups]."""
    counts: Int64s
    """How many elements each group has; at least 1. Shape [groups]."""

    @property
    def first(self) -> Rows:
        """The first element of each group."""
        return self.order[self.begin]

    def members(self) -> Iterator[Rows]:
        """Yield the elements of each group."""
        for begin, count in zip(self.begin.tolist(), self.counts.tolist(), strict=True):
            yield self.order[begin : begin + count]


def grouped(keys: NDArray[Any], then_by: NDArray[Any] | None = None) -> Groups:
    """Group the elements of arrays by their keys.

    >>> groups = grouped(np.array([7, 5, 7]), then_by=np.array([30, 10, 20]))
    >>> groups.keys.tolist(), groups.order.tolist(), groups.counts.tolist()
    ([5, 7], [1, 2, 0], [1, 2])

    Args:
        keys: The key of each element.
        then_by: What the elements of a group are sorted by; without it, and where it is
            equal, they keep their order. Same shape as `keys`.
    """
    if then_by is None:
        order = np.argsort(keys, kind="stable")
    else:
        order = np.lexsort((then_by, keys))  # the last one counts first

    keys_in_order = keys[order]
    begin = np.flatnonzero(begins_runs(keys_in_order))
    end = np.append(begin[1:], len(order))
    return Groups(
        keys=keys_in_order[begin],
        order=order,
        begin=begin,
        counts=(end - begin)[: len(begin)],
    )
