"""Groups items by a key: Python objects, or elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s, Rows, begins_runs, reduce_groups

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items grouped by their key, in their order. The keys are in the order of
    their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


class Groups(msgspec.Struct, frozen=True, eq=False):
    """Elements of a column, sorted so that those with equal keys lie side by side.

    An *element* is given by its index in the column. Group n has the elements
    `order[begins[n] : begins[n + 1]]`, of which there is at least one.
    """

    keys: NDArray[Any]
    """The key of each group, ascending; shape [groups]."""
    order: Rows
    """All elements, one group after the other; shape [elements]."""
    begins: Rows
    """Where each group begins in `order`, and the number of elements; shape [groups +
    1]."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> Int64s:
        """How many elements each group has."""
        counts: Int64s = np.diff(self.begins)
        return counts

    @property
    def first(self) -> Rows:
        """The first element of each group."""
        first: Rows = self.order[self.begins[:-1]]
        return first

    @property
    def upper_median(self) -> Rows:
        """The element in the middle of each group; of two, the later one."""
        middle: Rows = self.order[self.begins[:-1] + self.counts // 2]
        return middle

    def members(self, number: int) -> Rows:
        """Return the elements of the group with this index."""
        return self.order[self.begins[number] : self.begins[number + 1]]

    def members_of_each(self) -> Iterator[Rows]:
        """Yield the elements of each group."""
        for begin, end in pairwise(self.begins.tolist()):
            yield self.order[begin:end]

    def sums(self, amounts: NDArray[Any]) -> NDArray[Any]:
        """Add up the amounts of the elements of each group.

        Args:
            amounts: An amount for each element.
        """
        return reduce_groups(np.add, amounts[self.order], self.begins[:-1])


def grouped(keys: NDArray[Any], then_by: NDArray[Any] | None = None) -> Groups:
    """Group the elements of a column by equal keys.

    >>> groups = grouped(np.array([7, 5, 7]), then_by=np.array([30, 10, 20]))
    >>> groups.keys.tolist(), groups.order.tolist(), groups.begins.tolist()
    ([5, 7], [1, 2, 0], [0, 1, 3])

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
    first = np.flatnonzero(begins_runs(keys_in_order))
    return Groups(
        keys=keys_in_order[first], order=order, begins=np.append(first, len(keys))
    )
