"""Steps with unusual work: which items they have, what they lack, and what is new."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.blocks import runs
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.lcs import match
from fusetui.analysis.diff.nearest import closest, is_feasible, is_like

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]


class OddStep(msgspec.Struct, frozen=True, eq=False):
    """A step whose work is not that of the usual ones; `lacking` are items, `more` its own pieces.

    `place` is of each item among the pieces of the step, -1 for those that it lacks; `usual` is the
    time (ns) that each item would take in it.
    """

    number: int
    lacking: list[int]
    more: list[int]
    place: Rows
    usual: list[int]

    def gap_of(self, item: int) -> int:
        """How many items that the step has come before it."""
        return int((self.place[:item] >= 0).sum())

    def gap_before(self, place: int) -> int:
        """The same for one of its own pieces."""
        return int(((self.place >= 0) & (self.place < place)).sum())

    def unmoved(self, words: Int64s, own: Int64s, ns: Int64s) -> tuple[list[int], list[int]]:
        """What it lacks and what is new, less what only runs at another place: the same kernel
        under the same op that takes about as long. `words` are of items, `own` of its pieces."""
        lacking, more = list(self.lacking), list(self.more)
        for item in self.lacking:
            same = [p for p in more if own[p] == words[item] and is_like(ns[p], self.usual[item])]
            if same:
                more.remove(min(same, key=lambda p: abs(int(ns[p]) - self.usual[item])))
                lacking.remove(item)
        return lacking, more


def odd_steps(items: Items, twin: Items) -> Iterator[OddStep]:
    """Those of one side; `twin` is the other one."""
    work = items.work
    keys = items.keys_of(work.of_window(items.window))
    for step in np.setdiff1d(np.arange(len(work.windows)), items.alike).tolist():
        span = work.of_window(step)
        other, times = items.keys_of(span), work.ns[span].tolist()
        pairs = match(keys, other)
        usual = _times_in(items, twin, step)
        lacking = _unpaired(keys, usual, other, times, {i for i, _ in pairs})
        more = _unpaired(other, times, keys, usual, {j for _, j in pairs})
        yield OddStep(step, lacking, more, _places(keys, other, lacking, more), usual)


def rows_of(items: Items, twin: Items) -> Rows:
    """The row of each item in every step, -1 where a step lacks it; shape [steps, items]."""
    work = items.work
    found = np.full((len(work.windows), len(items)), -1, dtype=np.intp)
    for step in items.alike.tolist():
        found[step] = work.row[work.of_window(step)]
    for odd in odd_steps(items, twin):
        rows = work.row[work.of_window(odd.number)]
        found[odd.number] = np.where(odd.place >= 0, rows[odd.place], -1)
    return found


def _places(keys: Int64s, other: Int64s, lacking: list[int], more: list[int]) -> Rows:
    """In order among what is the same kernel under the same op on the same lane."""
    found = np.full(len(keys), -1, dtype=np.intp)
    left, theirs = (
        np.setdiff1d(np.arange(len(of)), gone) for of, gone in ((keys, lacking), (other, more))
    )
    left = left[np.argsort(keys[left], kind="stable")]
    theirs = theirs[np.argsort(other[theirs], kind="stable")]
    if np.array_equal(keys[left], other[theirs]):
        found[left] = theirs
    return found


def _times_in(items: Items, twin: Items, step: int) -> list[int]:
    """The time that each item would take in a step: its time in that step of the other side, if
    that does the same work."""
    same = len(items.work.windows) == len(twin.work.windows) and step in twin.alike
    if same and np.array_equal(items.exact, twin.exact):
        times: list[int] = twin.samples[twin.alike.tolist().index(step)].tolist()
        return times
    return items.times


def _unpaired(
    keys: Int64s, times: list[int], others: Int64s, other_times: list[int], paired: set[int]
) -> list[int]:
    """What has no partner; of a repeated kernel that may be any of several, those whose times no
    partner is close to."""
    left = [n for n in range(len(keys)) if n not in paired]
    loose = _loose(keys, left)
    sure = np.setdiff1d(left, loose)
    for key in {int(keys[n]) for n in loose}:
        mine, other = np.flatnonzero(keys == key), np.flatnonzero(others == key)
        mine = np.setdiff1d(mine, sure)
        if len(other) < len(mine) and is_feasible(len(other), len(mine)):
            few, many = [other_times[n] for n in other], [times[n] for n in mine]
            left = [n for n in left if int(keys[n]) != key or n in sure]
            left += np.delete(mine, closest(few, many)).tolist()
    return sorted(left)


def _loose(keys: Int64s, left: list[int]) -> list[int]:
    """Of what has no partner: the stretches that would say the same one place earlier or later."""
    found: list[int] = []
    for first, last in runs(np.array(left, dtype=np.intp)) if left else ():
        earlier = first > 0 and keys[first - 1] == keys[last]
        later = last + 1 < len(keys) and keys[last + 1] == keys[first]
        found += range(first, last + 1) if earlier or later else ()
    return found
