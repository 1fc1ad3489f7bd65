"""Where the issuing thread was before each collective: annotations, ops and Python
functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fusetui.analysis.questions.chain import rows_between
from fusetui.analysis.questions.collectives import IssuedCollectives
from fusetui.analysis.ranks import model
from fusetui.trace.layout.steps import main_thread
from fusetui.trace.model.arrays import Int32s, Int64s, Rows, summed
from fusetui.trace.model.categories import STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace, Track

KIND_OF_LAYER = {
    Layer.ANNOTATIONS: "annotation",
    Layer.OPS: "op",
    Layer.PYTHON: "frame",
}
NO_THREAD = -1
MAX_NAME_CHARACTERS = 200


def places_before(
    trace: Trace, issued: IssuedCollectives, begin: Int64s
) -> model.Places:
    """Where the issuing thread spent the time before collectives: for each of them the
    annotations, ops and Python functions in which it was longest from `begin` to the
    issue of the collective.

    `begin`: of each collective, in ns of the trace. The result is only of the
    MAX_STRETCHES_WITH_PLACES collectives with the most time from there to their issue,
    and of these only of those whose thread was in any such place.
    """
    thread_of_collective = _threads(trace, issued)
    tracks_of_thread = _tracks_of_threads(trace)
    before: dict[int, model.PlacesBefore] = {}
    for number in _longest(issued.issued - begin):
        thread = int(thread_of_collective[number])
        times = _times_by_kind(
            trace,
            tracks_of_thread.get(thread, []),
            begin=int(begin[number]),
            end=int(issued.issued[number]),
        )
        if any(times.values()):
            before[number] = _with_most_time(times)
    return model.places_of(before)


def _longest(length_ns: Int64s) -> list[int]:
    """The numbers of the MAX_STRETCHES_WITH_PLACES longest of these, without those that
    are not longer than 0; ascending."""
    longest_first = np.argsort(-length_ns, kind="stable")
    longest = longest_first[: model.MAX_STRETCHES_WITH_PLACES]
    has_time = length_ns[longest] > 0
    return [*np.sort(longest[has_time]).tolist()]


def _with_most_time(times: Mapping[str, Counter[str]]) -> model.PlacesBefore:
    """The MAX_NAMES_OF_A_KIND names with the most time of each kind; and of each kind
    that has more names, the time of the next one, which is the longest that is left
    out. `times`: by kind, the ns of each name."""
    ns: dict[model.Place, int] = {}
    left_out_ns: dict[str, int] = {}
    for kind, ns_of_names in times.items():
        longest_first = ns_of_names.most_common()
        for name, name_ns in longest_first[: model.MAX_NAMES_OF_A_KIND]:
            ns[kind, name] = name_ns
        if len(longest_first) > model.MAX_NAMES_OF_A_KIND:
            _, next_ns = longest_first[model.MAX_NAMES_OF_A_KIND]
            left_out_ns[kind] = next_ns
    return model.PlacesBefore(ns=ns, left_out_ns=left_out_ns)


def _tracks_of_threads(trace: Trace) -> dict[int, list[Track]]:
    """By the number of a thread, its tracks of annotations, ops and Python frames."""
    tracks_of_thread: dict[int, list[Track]] = {}
    for number, track in enumerate(trace.tracks):
        if track.layer in KIND_OF_LAYER:
            thread = int(trace.thread_of_track[number])
            tracks_of_thread.setdefault(thread, []).append(track)
    return tracks_of_thread


def _threads(trace: Trace, issued: IssuedCollectives) -> Int32s:
    """The number of the thread that issued each collective; where that is not known,
    that of the main thread of the annotations, NO_THREAD without annotations."""
    annotations = trace.rows_of(Role.ANNOTATION)
    annotated_thread = NO_THREAD
    if len(annotations):
        first_of_main = main_thread(trace, annotations)[0]
        annotated_thread = int(trace.thread_of_track[trace.track[first_of_main]])
    thread = np.full(len(issued.issuer), annotated_thread, dtype=np.int32)
    is_known = issued.issuer >= 0
    calls = issued.issuer[is_known]
    thread[is_known] = trace.thread_of_track[trace.track[calls]]
    return thread


def _times_by_kind(
    trace: Trace, tracks: Sequence[Track], *, begin: int, end: int
) -> dict[str, Counter[str]]:
    """By the kind of slice, for how many ns of [begin, end) a slice of each name was
    the innermost one of its track. `tracks`: those of one thread."""
    times: dict[str, Counter[str]] = {}
    for track in tracks:
        of_kind = times.setdefault(KIND_OF_LAYER[track.layer], Counter())
        for name, ns in _times_on_track(trace, track, begin=begin, end=end):
            of_kind[name] += ns
    return times


def _times_on_track(
    trace: Trace, track: Track, *, begin: int, end: int
) -> Iterator[tuple[str, int]]:
    """The names on a track with the ns of [begin, end) in which a slice of that name
    was the innermost one, the longest first; without steps, and without names of which
    no slice ever was the innermost."""
    rows = _rows_touching(trace, track, begin=begin, end=end)
    if not len(rows):
        return
    self_ns = _self_times(trace, rows, begin=begin, end=end)
    names, place_of_name = np.unique(trace.name[rows], return_inverse=True)
    name_ns = summed(place_of_name, self_ns, len(names))
    for place in np.argsort(-name_ns, kind="stable").tolist():
        name = trace.names[int(names[place])][:MAX_NAME_CHARACTERS]
        if name_ns[place] > 0 and not name.startswith(STEP_PREFIX):
            yield name, int(name_ns[place])


def _self_times(trace: Trace, rows: Rows, *, begin: int, end: int) -> Int64s:
    """For how many ns of [begin, end) each of these rows, all that touch it of one
    track in ascending order, was the innermost one."""
    start_inside = np.maximum(trace.start[rows], begin)
    end_inside = np.minimum(trace.end[rows], end)
    inside_ns = end_inside - start_inside
    parent = trace.parent[rows]
    place_of_parent = np.searchsorted(rows, parent)
    # whether the parent is one of these rows
    nearest = np.minimum(place_of_parent, len(rows) - 1)
    has_parent = rows[nearest] == parent
    self_ns = inside_ns.copy()
    np.subtract.at(self_ns, place_of_parent[has_parent], inside_ns[has_parent])
    return self_ns


def _rows_touching(trace: Trace, track: Track, *, begin: int, end: int) -> Rows:
    """The rows of a track that overlap [begin, end), in ascending order."""
    first, last = rows_between(trace, track, [begin, end])
    outer: list[int] = []
    # What contains the begin: the slice before it, or its parents.
    row = first - 1
    while row >= track.first_row:
        outer.append(row)
        row = int(trace.parent[row])
    around = np.array(outer[::-1], dtype=np.intp)
    return np.concatenate((around[trace.end[around] > begin], np.arange(first, last)))
