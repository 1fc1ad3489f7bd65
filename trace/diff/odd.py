"""What only some steps do: work that the others lack, and kernels that took long only once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.diff.groups import Group
from fusetui.trace.diff.instances import LONG_RUN, closest
from fusetui.trace.diff.items import Items
from fusetui.trace.diff.lcs import match
from fusetui.trace.diff.model import ONLY, Kind, Row
from fusetui.trace.diff.odd_piece import Piece
from fusetui.trace.diff.odd_rows import piece_rows
from fusetui.trace.diff.statistics import FLOOR_NS, FLOOR_PERCENT, resolution
from fusetui.trace.questions.busy import any_busy_ns
from fusetui.trace.text.figures import change

Int64s = NDArray[np.int64]

SHARP = 4
"""A step is odd when it is this many times as far from the others as they are from each other."""

COMMON = 99
"""And SHARP times as far as this percentile of the differences of all kernels in the other
steps."""

SHOWN = 5
"""At most this many such kernels are reported."""

Key = tuple[int, bool, int]  # the step, whether it is missing, the number of the op and the kernel


class Once(msgspec.Struct, frozen=True):
    """What took a different time in one step than in all others used.

    `paired`: in the other steps the two sides vary alike, as two copies of one recording do, so
    this step is not a usual one.
    """

    step: int
    row: Row
    paired: bool


def rows(a: Items, b: Items) -> list[Row]:
    """Rows that are not part of a usual step, each naming its step.

    What is odd on both sides alike (in the same step, if they have equally many) is no change.
    """
    same_steps = len(a.work.windows) == len(b.work.windows)
    found = [_by_key(odd, same_steps) for odd in (_odd(a, b), _odd(b, a))]
    changed: list[Row] = []
    for side, (mine, other) in enumerate((found, found[::-1])):
        left = [p for key, members in mine.items() for p in members[len(other.get(key, ())) :]]
        changed += piece_rows((a, b)[side], left, "AB"[side])
    return changed


def once(a: Items, b: Items, groups: Sequence[Group]) -> list[Once]:
    """Kernels and idle time that changed in one step only, if both sides have equally many
    steps."""
    if len(a.work.windows) != len(b.work.windows):
        return []
    return [*_kernels_once(a, b, groups), *_idle_once(a, b)]


def _odd(items: Items, twin: Items) -> Iterator[Piece]:
    """What differs in each step with unusual work. Missing work is assumed to take as long as in
    the same step of the other side, or else as in the usual steps."""
    work = items.work
    keys = items.keys_of(work.of_window(items.window))
    for step in np.setdiff1d(np.arange(len(work.windows)), items.alike).tolist():
        span = work.of_window(step)
        other, times = items.keys_of(span), work.ns[span].tolist()
        pairs = match(keys, other)
        usual = _times_in(items, twin, step)
        lacking = _unpaired(keys, usual, other, times, {i for i, _ in pairs})
        more = _unpaired(other, times, keys, usual, {j for _, j in pairs})
        words, mine = items.every[span], items.exact
        elsewhere = Counter(words[more].tolist()) & Counter(mine[lacking].tolist())
        for item in _without(lacking, mine, elsewhere):
            yield Piece(step, True, items.rows[item], usual[item], int(mine[item]))
        for place in _without(more, words, elsewhere):
            yield Piece(step, False, int(work.row[span][place]), times[place], int(words[place]))


def _times_in(items: Items, twin: Items, step: int) -> list[int]:
    """The time that each item would take in a step: its time in that step of the other side, if
    that does the same work."""
    same = len(items.work.windows) == len(twin.work.windows) and step in twin.alike
    if same and np.array_equal(items.exact, twin.exact):
        times: list[int] = twin.samples[twin.alike.tolist().index(step)].tolist()
        return times
    return items.times


def _without(places: list[int], words: Int64s, elsewhere: Counter[int]) -> list[int]:
    """The places that remain once this many of each word are explained by a move within the
    step."""
    less = elsewhere.copy()
    left = []
    for place in places:
        word = int(words[place])
        if less[word]:
            less[word] -= 1
        else:
            left.append(place)
    return left


def _unpaired(
    keys: Int64s, times: list[int], others: Int64s, other_times: list[int], paired: set[int]
) -> list[int]:
    """What has no partner; of a repeated kernel, those whose times no partner is close to."""
    left = [n for n in range(len(keys)) if n not in paired]
    for key in {int(keys[n]) for n in left}:
        mine, other = np.flatnonzero(keys == key), np.flatnonzero(others == key)
        if len(other) < len(mine) <= LONG_RUN:
            few, many = [other_times[n] for n in other], [times[n] for n in mine]
            left = [n for n in left if int(keys[n]) != key]
            left += np.delete(mine, closest(few, many)).tolist()
    return sorted(left)


def _by_key(found: Iterator[Piece], same_steps: bool) -> dict[Key, list[Piece]]:
    pieces: defaultdict[Key, list[Piece]] = defaultdict(list)
    for piece in found:
        pieces[piece.step if same_steps else -1, piece.missing, piece.word].append(piece)
    return pieces


def _kernels_once(a: Items, b: Items, groups: Sequence[Group]) -> list[Once]:
    """Kernels that took more or less time in one step of one side than in all others."""
    pairs = [(g.a[0], g.b[0]) for g in groups if len(g.a) == len(g.b) == 1]
    steps, of_a, of_b = np.intersect1d(a.alike, b.alike, return_indices=True)
    if not pairs or len(steps) < 3:
        return []
    one, other = np.array(pairs, dtype=np.intp).T
    before, after = a.samples[np.ix_(of_a, one)], b.samples[np.ix_(of_b, other)]
    apart, step, paired = _outliers(before, after)
    floor = np.maximum(np.maximum(before, after).max(axis=0) * FLOOR_PERCENT // 100, FLOOR_NS)
    tick = max(resolution(a.samples), resolution(b.samples))
    away = np.sort(np.abs(after - before - np.median(after - before, axis=0)), axis=0)[:-1]
    least = max(tick, SHARP * int(np.percentile(away, COMMON)))
    far = np.flatnonzero(apart > np.maximum(floor, least))
    far = far[np.argsort(-apart[far], kind="stable")][:SHOWN]
    return [
        Once(
            number,
            _slow(a, b, pairs[n], number, int(before[place, n]), int(after[place, n])),
            bool(paired[n]),
        )
        for n in far.tolist()
        for place in [int(step[n])]
        for number in [int(steps[place])]
    ]


def _outliers(before: Int64s, after: Int64s) -> tuple[Int64s, NDArray[np.intp], NDArray[np.bool_]]:
    """Per column, of samples [steps, columns]: how far the two sides are apart in the step in which
    they are farthest apart; 0 where other steps are nearly as far apart, or vary as much on one
    side. Also that step, and whether the two sides vary alike in the other steps."""
    differences = after - before
    away = np.abs(differences - np.median(differences, axis=0).astype(np.int64))
    step = away.argmax(axis=0)
    ordered = np.sort(away, axis=0)
    others = np.arange(len(away))[:, None] != step
    varies = [
        np.ptp(np.where(others, side, np.median(side, axis=0)), axis=0) for side in (before, after)
    ]
    followed = 100 * ordered[-2] <= np.maximum(*varies)  # one side varies with the other
    sharp = ordered[-1] > SHARP * ordered[-2]
    sharp &= followed | (ordered[-1] > np.maximum(*varies))
    return np.where(sharp, ordered[-1], 0), step, followed


def _slow(a: Items, b: Items, pair: tuple[int, int], step: int, a_ns: int, b_ns: int) -> Row:
    i, j = pair
    number = b.work.windows.number_of(step)
    return Row(
        kind=Kind.FASTER if b_ns < a_ns else Kind.SLOWER,
        op=a.op_names[i],
        a=(a.names[i],),
        b=(b.names[j],),
        a_ns=a_ns,
        b_ns=b_ns,
        a_count=1,
        b_count=1,
        why=f"{ONLY} {number}: {change(a_ns, b_ns)} time",
        a_rows=(a.row_in(i, step),),
        b_rows=(b.row_in(j, step),),
        counts=False,
        a_median_ns=a.medians[i],
        b_median_ns=b.medians[j],
    )


def _idle_once(a: Items, b: Items) -> list[Once]:
    """Idle time of one step that no other step of the same work has."""
    steps = np.intersect1d(a.alike, b.alike)
    if len(steps) < 3:
        return []
    before, after = _idle(a)[steps], _idle(b)[steps]
    apart, place, paired = _outliers(before[:, None], after[:, None])
    number, least = int(steps[place[0]]), int(np.median(a.work.windows.dur)) // 100
    a_ns, b_ns = int(before[place[0]]), int(after[place[0]])
    if apart[0] <= least or abs(b_ns - a_ns) <= least:
        return []
    why = f"{ONLY} {b.work.windows.number_of(number)}"
    kind = Kind.ADDED if b_ns > a_ns else Kind.REMOVED
    row = Row(kind, "idle", ("idle",), ("idle",), a_ns, b_ns, 0, 0, why, counts=False)
    return [Once(number, row, bool(paired[0]))]


def _idle(items: Items) -> Int64s:
    work = items.work
    rows = work.trace.gpu_rows if work.gpu else work.row
    windows = work.windows
    found: Int64s = windows.dur - any_busy_ns(work.trace, rows, windows.start, windows.end)
    return found
