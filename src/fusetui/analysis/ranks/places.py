"""What the issuing thread of a rank was doing before each collective."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import Found
from fusetui.analysis.ranks.model import MOST_PLACES, Place
from fusetui.trace.layout.steps import main_thread
from fusetui.trace.model.categories import STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace, Track

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]

KINDS = {Layer.ANNOTATIONS: "annotation", Layer.OPS: "op", Layer.PYTHON: "frame"}
MOST_NAMES = 5  # of each kind, those with the most time


def places_before(trace: Trace, found: Found, begin: Int64s) -> tuple[Place, ...]:
    """The slices in which the issuing thread was longest, from `begin` until the collective was
    issued; of the longest stretches."""
    length = found.issued - begin
    longest = np.argsort(-length, kind="stable")[:MOST_PLACES]
    wanted = np.sort(longest[length[longest] > 0])
    threads = _threads(trace, found)
    by_thread: dict[int, list[Track]] = {}
    for number, track in enumerate(trace.tracks):
        if track.layer in KINDS:
            by_thread.setdefault(int(trace.thread_of_track[number]), []).append(track)
    return tuple(
        place
        for number in wanted.tolist()
        for track in by_thread.get(int(threads[number]), ())
        for place in _on_track(trace, track, number, int(begin[number]), int(found.issued[number]))
    )


def _threads(trace: Trace, found: Found) -> NDArray[np.int32]:
    """The thread that issued each; where that is not known, the one with most annotations."""
    marks = trace.rows_of(Role.ANNOTATION)
    usual = -1
    if len(marks):
        usual = int(trace.thread_of_track[trace.track[main_thread(trace, marks)[0]]])
    known = found.host >= 0
    thread = np.full(len(found.host), usual, dtype=np.int32)
    thread[known] = trace.thread_of_track[trace.track[found.host[known]]]
    return thread


def _on_track(trace: Trace, track: Track, number: int, begin: int, end: int) -> Iterator[Place]:
    rows = _touching(trace, track, begin, end)
    if not len(rows):
        return
    inside = np.minimum(trace.end[rows], end) - np.maximum(trace.start[rows], begin)
    alone = inside.copy()
    place = np.searchsorted(rows, trace.parent[rows])
    nested = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == trace.parent[rows])
    np.subtract.at(alone, place[nested], inside[nested])
    names, which = np.unique(trace.name[rows], return_inverse=True)
    ns = np.zeros(len(names), dtype=np.int64)
    np.add.at(ns, which, alone)
    for at in np.argsort(-ns, kind="stable")[:MOST_NAMES].tolist():
        name = trace.names[int(names[at])][:200]
        if ns[at] > 0 and not name.startswith(STEP_PREFIX):
            yield Place(number, KINDS[track.layer], name, int(ns[at]))


def _touching(trace: Trace, track: Track, begin: int, end: int) -> Rows:
    """The rows of a track that overlap [begin, end), in their order."""
    start = trace.start[track.rows]
    first, last = np.searchsorted(start, (begin, end)).tolist()
    rows = np.arange(track.first_row + first, track.first_row + last)
    outer: list[int] = []
    row = track.first_row + first - 1
    while row >= track.first_row:  # what contains the begin: the slice before it, or its parents
        outer.append(row)
        row = int(trace.parent[row])
    around = np.array(outer[::-1], dtype=np.intp)
    found = np.concatenate((around[trace.end[around] > begin], rows))
    return found
