"""Pieces of work that belong together, and what is still open while rules look for them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.names import helps, part
from fusetui.analysis.diff.ops import known_as
from fusetui.analysis.diff.sequences import Pair


class Group(msgspec.Struct, frozen=True):
    """Items of A, and the items of B that do the same work; one side is empty when nothing does.

    `why` is the evidence where the names alone do not give it.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    why: str = ""
    together: bool = False  # matched as a whole: which item does the work of which is unknown
    named: str = ""  # what to call it, where the names of its ops would say less


class Board:
    """Two aligned lanes: pairs, what is open in the gaps between them, and the groups found so far.

    Sides are 0 for A and 1 for B, so that a rule for fusions finds splits with the sides swapped.
    Pair n lies between the gaps n and n + 1.
    """

    def __init__(self, a: Items, b: Items, lanes: Lanes) -> None:
        self.items = (a, b)
        self.ranges = (lanes.a, lanes.b)
        self.pairs: list[Pair | None] = list(lanes.pairs)
        self.gaps: list[tuple[list[int], list[int]]] = [
            (list(of_a), list(of_b)) for of_a, of_b in lanes.gaps()
        ]
        self.groups: list[Group] = []
        self._known_as: dict[tuple[int, int], frozenset[str]] = {}

    def claim(self, side: int, many: Iterable[int], one: int, gap: int, why: str) -> None:
        """Groups open items of `side` (in gaps near `gap`) with one open item of the other, unless
        one side has main work and the other only what helps such work."""
        many = tuple(sorted(many))
        if not self._fit((many, (one,)) if side == 0 else ((one,), many)):
            return
        self.add(side, many, one, why)
        self.gaps[gap][1 - side].remove(one)
        wanted = set(many)
        for near in range(max(0, gap - REACH), min(len(self.gaps), gap + REACH + 1)):
            open_items = self.gaps[near][side]
            if not wanted.isdisjoint(open_items):
                open_items[:] = [item for item in open_items if item not in wanted]

    def claim_both(
        self, of_a: Iterable[int], of_b: Iterable[int], why: str, together: bool = False
    ) -> None:
        """Groups items of both sides, open ones or those of a pair that was taken apart. Where one
        side has main work and the other only what helps such work, the helpers are one group, and
        each main kernel stays alone."""
        sides = tuple(sorted(of_a)), tuple(sorted(of_b))
        for side, wanted in enumerate(map(set, sides)):
            for gap in self.gaps:
                if not wanted.isdisjoint(gap[side]):
                    gap[side][:] = [item for item in gap[side] if item not in wanted]
        if not self._fit(sides):
            alone = [
                [i for i in members if not self._helps(n, i)] for n, members in enumerate(sides)
            ]
            self.groups += [Group((i,), ()) for i in alone[0]]
            self.groups += [Group((), (j,)) for j in alone[1]]
            sides = self._helpers(0, sides[0]), self._helpers(1, sides[1])
        if any(sides):
            self.groups.append(Group(*sides, why if all(sides) else "", together))

    def _fit(self, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
        names = [{self.items[n].names[i] for i in members} for n, members in enumerate(sides)]
        main = [any(part(name) == "main" for name in of_side) for of_side in names]
        only = [all(helps(name) or part(name) == "elementwise" for name in side) for side in names]
        return not ((main[0] and only[1]) or (main[1] and only[0]))

    def _helpers(self, side: int, members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(item for item in members if self._helps(side, item))

    def _helps(self, side: int, item: int) -> bool:
        return helps(self.items[side].names[item])

    def add(self, side: int, many: tuple[int, ...], one: int, why: str) -> None:
        self.groups.append(Group(many, (one,), why) if side == 0 else Group((one,), many, why))

    def is_compute(self, side: int, item: int) -> bool:
        """Neither a copy nor a set."""
        return self.items[side].computes[item]

    def known_as(self, side: int, item: int) -> frozenset[str]:
        """Every name under which a compiler may list this work."""
        if (side, item) not in self._known_as:
            self._known_as[side, item] = known_as(self.items[side], item)
        return self._known_as[side, item]

    def finish(self) -> list[Group]:
        """All groups: those found, the pairs left, and each open item by itself."""
        self.groups += [Group((pair[0],), (pair[1],)) for pair in self.pairs if pair is not None]
        self.groups += [Group((i,), ()) for of_a, _ in self.gaps for i in of_a]
        self.groups += [Group((), (j,)) for _, of_b in self.gaps for j in of_b]
        return self.groups


REACH = 4
"""A fused kernel looks for the ops that its name lists this many gaps before and after its own."""
