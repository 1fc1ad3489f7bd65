"""Finds the ops whose work a fused kernel does: by its name, then by what surrounds it."""

from __future__ import annotations

from collections.abc import Iterable

from fusetui.analysis.diff.collectors import Collector, collector, is_library, words_of
from fusetui.analysis.diff.groups import REACH, Board
from fusetui.analysis.diff.names import work_class

Claims = dict[int, list[int]]  # the fused item -> the items whose work it does

APART = ("gemm", "conv", "conv backward", "attention", "comm")
"""Work that a pointwise or reduction kernel never does, whatever its name lists."""

_WIDE = 64
"""Gaps with more open items than this are divided among fused kernels greedily."""


def by_name(board: Board, side: int) -> None:
    """Items of `side` that a kernel of the other side names, in its own gap and then near it."""
    found: dict[int, tuple[int, Collector]] = {}
    claims: Claims = {}
    taken: set[int] = set()
    for gap in range(len(board.gaps)):
        here = _collectors(board, side, gap)
        if not here:
            continue
        found |= {one: (gap, kind) for one, kind in here}
        claims |= _divide(board, side, board.gaps[gap][side], here)
        taken.update(item for one, _ in here for item in claims[one])
    for one, (gap, kind) in found.items():
        near = _reach(board, side, one, gap, kind, claims[one], taken)
        claims[one] += near
        taken.update(near)
    for one, (gap, kind) in found.items():
        known = [board.known_as(side, item) & kind.ops for item in claims[one]]
        enough = len(known) >= kind.least and any(names & kind.core for names in known)
        if enough:
            board.claim(side, claims[one], one, gap, kind.says(_shortest(known)))


def _collectors(board: Board, side: int, gap: int) -> list[tuple[int, Collector]]:
    """The open items of the other side in a gap whose names say what they collect."""
    other = board.items[1 - side]
    found = []
    for one in board.gaps[gap][1 - side]:
        if board.is_compute(1 - side, one):
            kind = (
                collector(other.names[one])
                or collector(other.op_names[one])
                or _by_words(board, side, gap, other.names[one])
            )
            found += [(one, kind)] if kind is not None else []
    return found


def _by_words(board: Board, side: int, gap: int, kernel: str) -> Collector | None:
    """Which of the ops near it a hand-written kernel collects."""
    if is_library(kernel):
        return None
    stems = board.items[side].stems
    near = board.gaps[max(0, gap - REACH) : gap + REACH + 1]
    return words_of(kernel, frozenset(stems[item] for pair in near for item in pair[side][:_WIDE]))


def _divide(board: Board, side: int, many: list[int], ones: list[tuple[int, Collector]]) -> Claims:
    """Divides the open items of a gap among its fused kernels, in order: each gets one stretch.

    Of all divisions, the one that explains the most: one point for each item and one for each op
    named.
    """
    claims: Claims = {one: [] for one, _ in ones}
    if not many:
        return claims
    covers = [[_covers(board, side, item, kind) for item in many] for _, kind in ones]
    cuts = _cuts(covers) if len(many) <= _WIDE and len(ones) > 1 else _greedy(covers)
    for (one, _), names, first, last in zip(ones, covers, cuts, cuts[1:], strict=False):
        claims[one] = [many[n] for n in range(first, last) if names[n]]
    return claims


def _cuts(covers: list[list[frozenset[str]]]) -> list[int]:
    """The cuts that explain the most, by dynamic programming over the last cut."""
    size = len(covers[0])
    best: list[tuple[int, list[int]]]
    best = [(_worth(covers[0][:end]), [0, end]) for end in range(size + 1)]
    for names in covers[1:]:
        best = [
            max(
                (
                    (best[cut][0] + _worth(names[cut:end]), [*best[cut][1], end])
                    for cut in range(end + 1)
                ),
                key=lambda choice: choice[0],
            )
            for end in range(size + 1)
        ]
    return best[-1][1]


def _worth(names: list[frozenset[str]]) -> int:
    return sum(map(bool, names)) + len(frozenset().union(*names))


def _greedy(covers: list[list[frozenset[str]]]) -> list[int]:
    """Each fused kernel takes all items up to the first that only a later kernel names."""
    size = len(covers[0])
    cuts = [0]
    for number, names in enumerate(covers):
        later = covers[number + 1 :]
        cuts.append(
            next(
                (n for n in range(cuts[-1], size) if not names[n] and any(c[n] for c in later)),
                size,
            )
        )
    return cuts


def _covers(board: Board, side: int, item: int, kind: Collector) -> frozenset[str]:
    """The ops on a collector's list that this item may be; none if it cannot be part of the
    fusion."""
    items = board.items[side]
    if not board.is_compute(side, item):
        return frozenset()
    if not kind.gemms and work_class(items.op_names[item], items.names[item]) in APART:
        return frozenset()
    return board.known_as(side, item) & kind.ops


def _reach(
    board: Board,
    side: int,
    one: int,
    gap: int,
    kind: Collector,
    claimed: list[int],
    taken: set[int],
) -> list[int]:
    """For each op on the list that is still missing, the nearest open item in gaps around."""
    named = [_covers(board, side, item, kind) for item in claimed]
    missing = set() if kind.gemms and not kind.listed else set(kind.core).difference(*named)
    found: list[int] = []
    for near in _outwards(gap, len(board.gaps)):
        for item in _ordered(board.gaps[near][side], near < gap):
            names = _covers(board, side, item, kind) & missing if item not in taken else frozenset()
            if names:
                found.append(item)
                missing -= names
    return found


def _outwards(gap: int, size: int) -> Iterable[int]:
    """The gaps before, nearest first, then those after."""
    yield from range(gap - 1, max(-1, gap - REACH - 1), -1)
    yield from range(gap + 1, min(size, gap + REACH + 1))


def _ordered(items: list[int], backwards: bool) -> list[int]:
    return items[::-1] if backwards else items


def _shortest(known: Iterable[frozenset[str]]) -> list[str]:
    """One name for each item: of its aliases the one that reads best."""
    return [min(names, key=lambda name: (name.startswith("_"), len(name), name)) for names in known]
