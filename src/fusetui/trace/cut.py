"""Writes a part of a trace to a new file, which any reader of the whole trace can open.

Kept is what runs in the window, the GPU event before and after it, and of GPU events
their launch calls with all that encloses them, even before the window. GPU events stay
whole; CPU slices and annotations that reach beyond what is kept are clipped to it.
Counters, flows and instants stay if they lie in the same time, names of processes and
threads always. What is not clipped stays as it is written, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.convert import document, replace_invalid_utf8
from fusetui.trace.layout.steps import CLIPPED, clipped_before
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    last_at_or_before,
)
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.events import Stretch, Text, first_elements
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text, micros
from fusetui.trace.read.events import decode_raw, phase_of
from fusetui.trace.read.times import exact_nanoseconds
from fusetui.trace.scrub.values import Digits, write

# How far from a window its neighbors are looked for: ten times its length, or a second.
MAX_DISTANCE_IN_WINDOWS = 10
MIN_DISTANCE_NS = 1_000_000_000
PAIRED = frozenset("BEbeSFnT")
"""Phases of slices that are written as several events: they are written as one (ph
X)."""


class Excerpt(msgspec.Struct, frozen=True, eq=False):
    """What is kept of a trace. Times are ns of the file."""

    begin_ns: int  # of the window
    end_ns: int
    first_ns: int  # of what is kept
    last_ns: int
    rows: Rows  # of the slices that are kept
    clipped: Flags  # which of them; shape [rows]


class Head(msgspec.Struct, gc=False):
    """What decides whether an element is kept."""

    ph: str = ""
    cat: Any = ""
    ts: msgspec.Raw = msgspec.Raw(b"")


decode_heads = msgspec.json.Decoder(list[Head]).decode


def part_of(trace: Trace, begin_ns: int, end_ns: int) -> Excerpt:
    """Choose the slices that a part of a trace has.

    These are the GPU events that run in the window; the last one before it and the
    first one after it on each device; CPU slices that run in the time up to these; the
    launch calls of all these GPU events, and everything around these calls.

    Args:
        trace: The trace.
        begin_ns: The begin of the window in ns of the file.
        end_ns: Its end.
    """
    recorded = trace.recorded()
    start = trace.start[:recorded]
    end = trace.end[:recorded]
    is_on_gpu = np.zeros(recorded, dtype=np.bool_)
    is_on_gpu[trace.gpu_rows] = True

    is_kept = is_on_gpu & _runs_in(start, end, begin_ns, end_ns)
    neighbors = _neighbors(trace, begin_ns, end_ns)
    is_kept[neighbors] = True
    # CPU slices up to the neighbors tell why the GPU was idle there.
    since_ns = min([begin_ns, *end[neighbors].tolist()])
    until_ns = max([end_ns, *start[neighbors].tolist()])
    is_kept |= ~is_on_gpu & _runs_in(start, end, since_ns, until_ns)
    kept_on_gpu = trace.gpu_rows[is_kept[trace.gpu_rows]]
    launching = _launching_rows(trace, kept_on_gpu)
    _keep_enclosing(trace, launching[~is_kept[launching]], is_kept)

    # Launches and GPU events stay whole, so the part is as long as they reach.
    gpu_starts = start[kept_on_gpu].tolist()
    first_ns = min([since_ns, *start[launching].tolist(), *gpu_starts])
    last_ns = max([until_ns, *end[kept_on_gpu].tolist()])
    rows = np.flatnonzero(is_kept)
    reaches_beyond = (start[rows] < first_ns) | (end[rows] > last_ns)
    return Excerpt(
        begin_ns=begin_ns,
        end_ns=end_ns,
        first_ns=first_ns,
        last_ns=last_ns,
        rows=rows,
        clipped=~is_on_gpu[rows] & reaches_beyond,
    )


def _runs_in(start: Int64s, end: Int64s, begin_ns: int, end_ns: int) -> Flags:
    """Tell of each slice whether it runs between two times.

    Between 10 and 20, the slices [5, 11] and [19, 30] run, [5, 10] and [20, 30] do not.
    One without a duration runs at 10, but not at 20.
    """
    is_instant = (start == end) & (start >= begin_ns)
    runs: Flags = (start < end_ns) & ((end > begin_ns) | is_instant)
    return runs


def _launching_rows(trace: Trace, gpu: Rows) -> Rows:
    """Return the distinct launch calls of GPU events, ascending; the CPU op of an event
    whose launch call was not recorded."""
    calls = trace.launch[gpu]
    call_or_op = np.where(calls != NO_ROW, calls, trace.op[gpu])
    launching: Rows = distinct(call_or_op[call_or_op != NO_ROW]).astype(np.intp)
    return launching


def farthest(begin_ns: int, end_ns: int) -> int:
    """Return how far from a window its neighbors may be, in ns: ten times the length of
    the window, but at least a second."""
    return max(MAX_DISTANCE_IN_WINDOWS * (end_ns - begin_ns), MIN_DISTANCE_NS)


def _neighbors(trace: Trace, begin_ns: int, end_ns: int) -> list[int]:
    """Return the last GPU event before a window and the first one after it, of each
    device.

    They tell how long a device was idle at the borders. Events that are further away
    than `farthest` are left out.

    Args:
        trace: The trace.
        begin_ns: The begin of the window in ns of the file.
        end_ns: Its end.
    """
    max_distance_ns = farthest(begin_ns, end_ns)
    gpu = trace.gpu_rows
    device = trace.process_of_track[trace.track[gpu]]
    neighbors = []
    for number in distinct(device).tolist():
        rows = gpu[device == number]
        ns_before = begin_ns - trace.end[rows]  # negative for one that ends later
        ns_after = trace.start[rows] - end_ns
        before = rows[(ns_before >= 0) & (ns_before <= max_distance_ns)]
        after = rows[(ns_after >= 0) & (ns_after <= max_distance_ns)]
        if len(before):
            last = np.argmax(trace.end[before])
            neighbors.append(int(before[last]))
        if len(after):
            first = np.argmin(trace.start[after])
            neighbors.append(int(after[first]))
    return neighbors


def _keep_enclosing(trace: Trace, rows: Rows, is_kept: Flags) -> None:
    """Mark rows as kept, and all slices of their threads that contain them.

    Args:
        trace: The trace.
        rows: Rows of CPU threads.
        is_kept: A flag for each row of the trace, which is changed.
    """
    thread = trace.thread_of_track[trace.track[rows]]
    for number, track in enumerate(trace.tracks):
        of_thread = rows[thread == trace.thread_of_track[number]]
        if not len(of_thread) or not len(track):
            continue
        # The slice of the track that has begun last, and its ancestors, are all that
        # can contain a row.
        begun = last_at_or_before(trace.start[track.rows], trace.start[of_thread])
        candidate = np.where(begun >= 0, track.first_row + begun, NO_ROW)
        while (candidate != NO_ROW).any():
            encloses = trace.end[candidate] >= trace.end[of_thread]
            encloses &= candidate != NO_ROW
            is_kept[candidate[encloses]] = True
            candidate = np.where(candidate != NO_ROW, trace.parent[candidate], NO_ROW)
    is_kept[rows] = True


def clipped_annotations(trace: Trace, part: Excerpt) -> list[tuple[str, str]]:
    """Return the begin and the end, in the part, of the annotations that it cuts.

    Those that an earlier cut has listed come first. The part lists them under its key
    CLIPPED (see layout/steps.py), as texts in ns: [("1000", "5000")].
    """
    rows = part.rows[part.clipped]
    rows = rows[trace.role[rows] == Role.ANNOTATION]
    start = trace.start[rows].clip(part.first_ns)
    end = trace.end[rows].clip(max=part.last_ns)
    times = [
        (str(begin_ns), str(end_ns))
        for begin_ns, end_ns in zip(start.tolist(), end.tolist(), strict=True)
    ]
    return [*clipped_before(trace), *times]


def texts_of(
    trace: Trace, part: Excerpt, keys: Mapping[str, Any], progress: Progress = silent
) -> Iterator[bytes]:
    """Yield the text of the part in pieces. `keys` are added to the top-level keys of
    the trace, and so is CLIPPED. Raises CannotReadError if the file cannot be read any
    more."""
    keys = {**trace.keys, CLIPPED: clipped_annotations(trace, part), **keys}
    return document(keys, _texts_of_stretches(trace, part, progress))


class _KeptSlices(NamedTuple):
    """The slices of one stretch that are kept, in the order of the file; arrays of
    shape [slices]."""

    rows: Rows  # of the trace
    elements: Int64s  # index of each in the stretch
    is_clipped: Flags

    def only(self, which: Flags) -> _KeptSlices:
        """The slices whose flag is set."""
        return _KeptSlices(
            rows=self.rows[which],
            elements=self.elements[which],
            is_clipped=self.is_clipped[which],
        )


def _texts_of_stretches(
    trace: Trace, part: Excerpt, progress: Progress
) -> Iterator[bytes]:
    """Yield the text of what is kept of each stretch of the file.

    A stretch of which everything is kept unchanged is copied as it is; one of which
    nothing can be kept is not read.

    Raises CannotReadError if the file has changed since the trace was read.
    """
    events = trace.elements.own
    first_of_stretch = first_elements(events.stretches)
    kept_of_stretch = _divide_kept_slices(trace, part, first_of_stretch)
    slice_counts = _count_slices_of_stretches(trace, first_of_stretch).tolist()
    for number, stretch in enumerate(events.stretches):
        kept = kept_of_stretch[number]
        slice_count = slice_counts[number]
        keeps_slices_unchanged = (
            len(kept.rows) == slice_count and not kept.is_clipped.any()
        )
        has_others = slice_count < stretch.events
        if keeps_slices_unchanged and _has_all_others(part, stretch):
            text = _read_stretch(events.text, stretch)
            without_brackets = bytes(text[1:-1])
            yield replace_invalid_utf8(without_brackets)
        elif len(kept.rows) or (has_others and _may_have_others(part, stretch)):
            first = int(first_of_stretch[number])
            yield _write_stretch(trace, part, stretch, first, kept)
        progress(number + 1, len(events.stretches))
    if problem := events.text.problem():
        raise CannotReadError(f"{problem}.")


def _divide_kept_slices(
    trace: Trace, part: Excerpt, first_of_stretch: Int64s
) -> list[_KeptSlices]:
    """Return the kept slices of each stretch of the file.

    Args:
        trace: The trace.
        part: What is kept of it.
        first_of_stretch: What `first_elements` returns for its stretches.
    """
    element_of_kept = trace.order[part.rows]  # index in traceEvents
    in_file_order = np.argsort(element_of_kept, kind="stable")
    rows = part.rows[in_file_order]
    elements = element_of_kept[in_file_order]
    is_clipped = part.clipped[in_file_order]
    bounds = np.searchsorted(elements, first_of_stretch).tolist()
    divided = []
    for first, (begin, end) in zip(first_of_stretch, pairwise(bounds), strict=False):
        kept = _KeptSlices(
            rows=rows[begin:end],
            elements=elements[begin:end] - first,
            is_clipped=is_clipped[begin:end],
        )
        divided.append(kept)
    return divided


def _count_slices_of_stretches(trace: Trace, first_of_stretch: Int64s) -> Int64s:
    """Count the slices that each stretch has in the whole trace.

    Args:
        trace: The trace.
        first_of_stretch: What `first_elements` returns for its stretches.
    """
    elements = trace.order[: trace.recorded()]
    stretch_of_slice = last_at_or_before(first_of_stretch, elements)
    stretch_count = len(first_of_stretch) - 1  # the last number is that of all elements
    return np.bincount(stretch_of_slice, minlength=stretch_count)


def _has_all_others(part: Excerpt, stretch: Stretch) -> bool:
    """Whether all events of a stretch that are not slices lie in the part."""
    before_ns, after_ns = stretch.reach
    return part.first_ns <= before_ns and after_ns <= part.last_ns


def _may_have_others(part: Excerpt, stretch: Stretch) -> bool:
    """Whether some events of a stretch that are not slices may lie in the part."""
    before_ns, after_ns = stretch.reach
    return before_ns < part.last_ns and after_ns > part.first_ns


def _write_stretch(
    trace: Trace, part: Excerpt, stretch: Stretch, first: int, kept: _KeptSlices
) -> bytes:
    """Return the texts of what is kept of a stretch, with commas between them.

    They are in the order of the file. Slices that are clipped or were written as two
    events are written anew, everything else is copied.

    Args:
        trace: The trace.
        part: What is kept of it.
        stretch: The stretch.
        first: The index in traceEvents of its first element.
        kept: The slices of the stretch that are kept.
    """
    text = _read_stretch(trace.elements.own.text, stretch)
    heads: list[Head] = []
    with suppress(*UNDECODABLE):  # it is damaged, or has unusual types
        heads = decode_heads(text)
    if stretch.places is not None or len(heads) != stretch.events:
        texts = _rewrite_slices(trace, part, kept)
        texts |= _keep_others_one_by_one(trace, part, stretch, first, slices=texts)
        return _join_elements(texts)

    phases = [phase_of(head.ph, head.cat) for head in heads]
    phases_of_kept = [phases[element] for element in kept.elements.tolist()]
    is_pair = np.array([phase != "X" for phase in phases_of_kept], np.bool_)
    is_rewritten = kept.is_clipped | is_pair
    unchanged_slices = kept.elements[~is_rewritten].tolist()
    texts = _copy_elements(
        text, [*unchanged_slices, *_kept_others(part, heads, phases)]
    )
    texts |= _rewrite_slices(trace, part, kept.only(is_rewritten))
    return _join_elements(texts)


def _copy_elements(
    text: bytes | bytearray, elements: Sequence[int]
) -> dict[int, bytes]:
    """The texts of some elements of a JSON list, by their index in it."""
    if not elements:
        return {}  # without decoding the list
    raw = decode_raw(text)
    return {element: replace_invalid_utf8(bytes(raw[element])) for element in elements}


def _kept_others(
    part: Excerpt, heads: Sequence[Head], phases: Sequence[str]
) -> list[int]:
    """Return the elements of a stretch that are kept and are no slices, by their
    number.

    These are names of processes and threads (phase M), and counters, flows and instant
    events whose time is in the part.

    Args:
        part: What is kept of the trace.
        heads: The beginning of each element.
        phases: The phase of each element.
    """
    kept = []
    for number, (phase, head) in enumerate(zip(phases, heads, strict=True)):
        if phase == "X" or phase in PAIRED:
            continue
        if phase == "M" or _is_inside(bytes(head.ts), part):
            kept.append(number)
    return kept


def _join_elements(texts: Mapping[int, bytes]) -> bytes:
    """The texts of elements in the order of their numbers, with commas between them."""
    return b",\n".join(texts[number] for number in sorted(texts))


def _rewrite_slices(trace: Trace, part: Excerpt, kept: _KeptSlices) -> dict[int, bytes]:
    """The texts of slices as one event each, by the index of the element in the
    stretch."""
    elements = kept.elements.tolist()
    rows = kept.rows.tolist()
    return {
        element: _rewrite_slice(trace, part, row)
        for element, row in zip(elements, rows, strict=True)
    }


def _read_stretch(text: Text, stretch: Stretch) -> bytearray:
    """The bytes of a stretch as a JSON list. Raises CannotReadError if the file cannot
    be read any more."""
    try:
        return list_text(text, stretch)
    except (OSError, TraceError) as error:
        raise CannotReadError(f"{text.problem() or error}.") from None


def _is_inside(time: bytes, part: Excerpt) -> bool:
    """Whether a time in microseconds, as it is written, lies in the kept part. False if
    it is not a number."""
    with suppress(ValueError, OverflowError):
        return part.first_ns <= exact_nanoseconds(time) < part.last_ns
    return False


def _keep_others_one_by_one(
    trace: Trace, part: Excerpt, stretch: Stretch, first: int, slices: dict[int, bytes]
) -> dict[int, bytes]:
    """Return the texts of what is kept of a damaged stretch, slices aside.

    Each element is read by itself; what cannot be read is left out. The stretch may
    also be one with fields of unusual types.

    Args:
        trace: The trace.
        part: What is kept of it.
        stretch: The stretch.
        first: The index in traceEvents of its first element.
        slices: The elements that are slices, by their number in the stretch.

    Returns:
        Texts by the number of the element in the stretch.
    """
    texts = {}
    for number in range(stretch.events):
        if number in slices:
            continue
        element = trace.elements.own.element(first + number)
        written_phase = element.get("ph")
        if not isinstance(written_phase, str):
            continue
        phase = phase_of(written_phase, element.get("cat"))
        if phase in ("X", "") or phase in PAIRED:
            continue
        time = str(element.get("ts")).encode(errors="replace")
        if phase == "M" or _is_inside(time, part):
            texts[number] = write(element).encode()
    return texts


def _rewrite_slice(trace: Trace, part: Excerpt, row: int) -> bytes:
    """Return a slice as the text of one event (ph X), clipped to the part.

    GPU events are not clipped. The event keeps all fields that it has in the file.
    """
    start = int(trace.start[row])
    end = int(trace.end[row])
    if trace.role[row] not in GPU_ROLES:
        start = max(start, part.first_ns)
        end = min(end, part.last_ns)
    element = trace.elements.own.element(int(trace.order[row]))
    track = trace.track_of(row)
    from_trace = {"pid": track.pid, "tid": track.tid, "name": trace.name_of(row)}
    event = from_trace | element  # what the element has itself counts more
    event["ph"] = "X"
    event["ts"] = _format_micros(start)
    event["dur"] = _format_micros(max(end - start, 0))
    return write(event).encode()


def _format_micros(ns: int) -> Digits:
    """Return a time as JSON has it: 1500 ns as 1.500, in microseconds."""
    return Digits(micros(ns).decode())
