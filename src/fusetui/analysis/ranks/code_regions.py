"""The code that the issuing thread of a rank ran before each collective.

A *region* is an annotation, an op or a Python function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fusetui.analysis.questions.chain import find_rows_starting_between
from fusetui.analysis.questions.collectives import IssuedCollectives
from fusetui.analysis.ranks import model
from fusetui.trace.layout.steps import main_thread
from fusetui.trace.model.arrays import NO_ROW, Int32s, Int64s, Rows
from fusetui.trace.model.categories import STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.sorted_arrays import is_in, positions_of

KIND_OF_LAYER = {
    Layer.ANNOTATIONS: "annotation",
    Layer.OPS: "op",
    Layer.PYTHON: "frame",
}
NO_THREAD = -1
MAX_NAME_CHARACTERS = 200


def measure_regions_before_collectives(
    trace: Trace, issued: IssuedCollectives, begin: Int64s
) -> model.PackedRegions:
    """Measure in which regions the issuing thread spent the time before collectives.

    Args:
        trace: The trace.
        issued: The collectives.
        begin: For each collective when the time before it begins, in ns of the trace.
            It ends with the issue of the collective.

    Returns:
        The regions in which the thread was longest. They are kept only for the
        MAX_STRETCHES_WITH_REGIONS collectives with the most time before them.
    """
    thread_of_collective = _find_issuing_threads(trace, issued)
    tracks_of_thread = _find_tracks_of_threads(trace)
    length_ns = issued.issued - begin
    before: dict[int, model.RegionTimes] = {}
    for collective in _choose_longest(length_ns):
        thread = int(thread_of_collective[collective])
        times = _measure_times_by_kind(
            trace,
            tracks_of_thread.get(thread, []),
            begin=int(begin[collective]),
            end=int(issued.issued[collective]),
        )
        has_any_region = any(times.values())
        if has_any_region:
            before[collective] = _keep_most_time(times)
    return model.pack_regions(before)


def _choose_longest(length_ns: Int64s) -> list[int]:
    """Choose the MAX_STRETCHES_WITH_REGIONS longest lengths, and return their indices,
    ascending.

    Lengths of 0 and below are left out: if at most 2 were kept, lengths of 5, 0, 9 and
    7 ns would give the indices 2 and 3.
    """
    longest_first = np.argsort(-length_ns, kind="stable")
    longest = longest_first[: model.MAX_STRETCHES_WITH_REGIONS]
    chosen = longest[length_ns[longest] > 0]
    return sorted(chosen.tolist())


def _keep_most_time(times: Mapping[str, Counter[str]]) -> model.RegionTimes:
    """Keep the MAX_NAMES_OF_A_KIND names with the most time of each kind.

    Of a kind with more names, the time of the longest name that is left out is kept
    too.

    Args:
        times: For each kind of region, such as "op", the ns of each name.
    """
    kept_ns: dict[model.CodeRegion, int] = {}
    left_out_ns: dict[str, int] = {}
    for kind, ns_of_names in times.items():
        longest_first = ns_of_names.most_common()
        for position, (name, ns) in enumerate(longest_first):
            if position < model.MAX_NAMES_OF_A_KIND:
                kept_ns[kind, name] = ns
            else:  # the first one that is left out is the longest of these
                left_out_ns[kind] = ns
                break
    return model.RegionTimes(ns=kept_ns, left_out_ns=left_out_ns)


def _find_tracks_of_threads(trace: Trace) -> dict[int, list[Track]]:
    """Find the tracks of annotations, ops and Python frames of each thread, by its
    index."""
    tracks_of_thread: dict[int, list[Track]] = {}
    for index, track in enumerate(trace.tracks):
        if track.layer in KIND_OF_LAYER:
            thread = int(trace.thread_of_track[index])
            tracks_of_thread.setdefault(thread, []).append(track)
    return tracks_of_thread


def _find_issuing_threads(trace: Trace, issued: IssuedCollectives) -> Int32s:
    """Find the thread that issued each collective.

    Where that is unknown, it is the main thread of the annotations.

    Returns:
        The index of a thread per collective; NO_THREAD where it is unknown and the
        trace has no annotations.
    """
    default_thread = NO_THREAD
    annotations = trace.rows_of(Role.ANNOTATION)
    if len(annotations):
        annotations_of_main = main_thread(trace, annotations)
        track_of_main = trace.track[annotations_of_main[0]]
        default_thread = int(trace.thread_of_track[track_of_main])

    has_issuer = issued.issuer != NO_ROW
    thread_of_issuer = trace.thread_of_track[trace.track[issued.issuer]]
    return np.where(has_issuer, thread_of_issuer, default_thread).astype(np.int32)


def _measure_times_by_kind(
    trace: Trace, tracks: Sequence[Track], *, begin: int, end: int
) -> dict[str, Counter[str]]:
    """Measure how long slices of each name were the innermost ones of their track.

    Args:
        trace: The trace.
        tracks: The tracks of one thread: those of annotations, ops and Python frames.
        begin: Where the window begins, in ns.
        end: Where it ends.

    Returns:
        For each kind of region, such as "op", the ns of each name.
    """
    times: dict[str, Counter[str]] = {}
    for track in tracks:
        kind = KIND_OF_LAYER[track.layer]
        ns_of_names = times.setdefault(kind, Counter())
        for name, ns in _measure_times_on_track(trace, track, begin=begin, end=end):
            ns_of_names[name] += ns
    return times


def _measure_times_on_track(
    trace: Trace, track: Track, *, begin: int, end: int
) -> Iterator[tuple[str, int]]:
    """Yield the names on a track with the ns in which they were innermost.

    Steps are left out, and so are names that never were the innermost.

    Args:
        trace: The trace.
        track: The track.
        begin: Where the window begins, in ns.
        end: Where it ends.

    Yields:
        A name and its ns, the longest first.
    """
    rows = _find_overlapping_rows(trace, track, begin=begin, end=end)
    if not len(rows):
        return
    self_ns = _measure_self_times(trace, rows, begin=begin, end=end)
    names = grouped(trace.name[rows])
    ns_of_names = names.sums(self_ns)

    for index in np.argsort(-ns_of_names, kind="stable").tolist():
        ns = int(ns_of_names[index])
        name = trace.names[names.keys[index]][:MAX_NAME_CHARACTERS]
        if ns > 0 and not name.startswith(STEP_PREFIX):
            yield name, ns


def _measure_self_times(trace: Trace, rows: Rows, *, begin: int, end: int) -> Int64s:
    """Measure for how long each row was the innermost one within a window.

    E.g. a slice of 10 ns with a child of 4 ns was the innermost one for 6 ns.

    Args:
        trace: The trace.
        rows: All rows of one track that touch the window, ascending.
        begin: Where the window begins, in ns.
        end: Where it ends.

    Returns:
        ns for each of `rows`.
    """
    start_inside = np.maximum(trace.start[rows], begin)
    end_inside = np.minimum(trace.end[rows], end)
    inside_ns = end_inside - start_inside

    # A child takes its time from its parent, if that is one of these rows.
    parent = trace.parent[rows]
    has_parent = is_in(rows, parent)
    parent_index = positions_of(rows, parent[has_parent])
    self_ns = inside_ns.copy()
    np.subtract.at(self_ns, parent_index, inside_ns[has_parent])
    return self_ns


def _find_overlapping_rows(trace: Trace, track: Track, *, begin: int, end: int) -> Rows:
    """Return the rows of a track that overlap the window [begin, end), ascending."""
    started_inside = find_rows_starting_between(
        trace, track, begin_ns=begin, end_ns=end
    )
    rows_inside = np.arange(started_inside.start, started_inside.stop)

    # What still runs at `begin` is the row before the window, or one of its parents.
    still_running: list[int] = []
    row = started_inside.start - 1
    while row >= track.first_row:
        if trace.end[row] > begin:
            still_running.append(row)
        row = int(trace.parent[row])
    still_running.reverse()
    return np.concatenate((np.array(still_running, dtype=np.intp), rows_inside))
