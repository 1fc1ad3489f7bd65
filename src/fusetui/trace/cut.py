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
from typing import Any

import msgspec
import numpy as np

from fusetui.trace.convert import document, in_utf8
from fusetui.trace.layout.steps import CLIPPED, clipped_before
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.events import Stretch, Text
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
    """Times in ns of the file."""

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
    """The part between two times (ns of the file)."""
    recorded = trace.recorded()
    start = trace.start[:recorded]
    end = trace.end[:recorded]
    is_on_gpu = np.zeros(recorded, dtype=np.bool_)
    is_on_gpu[trace.gpu_rows] = True

    is_kept = is_on_gpu & _runs_in(start, end, begin_ns, end_ns)
    neighbors = _neighbors(trace, begin_ns, end_ns)
    is_kept[neighbors] = True
    # other slices up to the neighbors, which tell why the GPU was idle
    since_ns = min([begin_ns, *end[neighbors].tolist()])
    until_ns = max([end_ns, *start[neighbors].tolist()])
    is_kept |= ~is_on_gpu & _runs_in(start, end, since_ns, until_ns)
    kept_on_gpu = trace.gpu_rows[is_kept[trace.gpu_rows]]
    launching = _launching_rows(trace, kept_on_gpu)
    _keep_enclosing(trace, launching[~is_kept[launching]], is_kept)

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
    """Whether each slice runs between two times. One without a duration belongs to the
    time that it begins, not to the one that it ends."""
    is_instant = (start == end) & (start >= begin_ns)
    runs: Flags = (start < end_ns) & ((end > begin_ns) | is_instant)
    return runs


def _launching_rows(trace: Trace, gpu: Rows) -> Rows:
    """The distinct launch calls of GPU events or, where those are unknown, the CPU
    ops."""
    calls = trace.launch[gpu]
    rows = np.unique(np.where(calls >= 0, calls, trace.op[gpu]))
    return rows[rows >= 0].astype(np.intp)


def farthest(begin_ns: int, end_ns: int) -> int:
    """How far from a window (ns) its neighbors are looked for."""
    return max(MAX_DISTANCE_IN_WINDOWS * (end_ns - begin_ns), MIN_DISTANCE_NS)


def _neighbors(trace: Trace, begin_ns: int, end_ns: int) -> list[int]:
    """The rows of the last event before the window and the first after it, of each
    device: they tell why it was idle at the borders. Those further away than `farthest`
    are left out."""
    max_distance_ns = farthest(begin_ns, end_ns)
    gpu = trace.gpu_rows
    device = trace.process_of_track[trace.track[gpu]]
    neighbors = []
    for number in np.unique(device).tolist():
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
    """Marks these rows, and what encloses them on any track of their threads."""
    thread = trace.thread_of_track[trace.track[rows]]
    for number, track in enumerate(trace.tracks):
        of_thread = rows[thread == trace.thread_of_track[number]]
        if not len(of_thread) or not len(track):
            continue
        # The last slice of the track that begins no later than each row, and then what
        # that is in.
        starts = trace.start[track.rows]
        begun = np.searchsorted(starts, trace.start[of_thread], side="right")
        row = np.where(begun > 0, track.first_row + begun - 1, -1)
        while (row >= 0).any():
            encloses = (row >= 0) & (trace.end[row] >= trace.end[of_thread])
            is_kept[row[encloses]] = True
            row = np.where(row >= 0, trace.parent[row], -1)
    is_kept[rows] = True


def clipped_annotations(trace: Trace, part: Excerpt) -> list[tuple[str, str]]:
    """When those begin and end in the part, and those that were clipped before:
    steps.CLIPPED. Times are ns, as texts."""
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
    """The text of the part, in pieces, with these top-level keys and CLIPPED besides
    its own. Raises CannotReadError where the file cannot be read any more."""
    keys = {**trace.keys, CLIPPED: clipped_annotations(trace, part), **keys}
    return document(keys, _pieces(trace, part, progress))


def _pieces(trace: Trace, part: Excerpt, progress: Progress) -> Iterator[bytes]:
    """The text of what is kept of each stretch. Raises CannotReadError if the file has
    changed."""
    events = trace.elements.own
    event_counts = [stretch.events for stretch in events.stretches]
    first_events = np.cumsum([0, *event_counts])
    # The slices of the part by the stretch that holds them.
    order = trace.order[part.rows]
    by_order = np.argsort(order, kind="stable")
    bounds = np.searchsorted(order[by_order], first_events)
    slice_counts = _slices_of_stretches(trace, first_events)
    for number, stretch in enumerate(events.stretches):
        places = by_order[bounds[number] : bounds[number + 1]]
        has_all_slices = len(places) == slice_counts[number]
        is_unchanged = has_all_slices and not part.clipped[places].any()
        has_others = slice_counts[number] < stretch.events
        if is_unchanged and _has_all_others(part, stretch):
            yield in_utf8(bytes(_read(events.text, stretch)[1:-1]))
        elif len(places) or (has_others and _may_have_others(part, stretch)):
            first = int(first_events[number])
            yield _of_stretch(trace, part, stretch, first, places)
        progress(number + 1, len(event_counts))
    if problem := events.text.problem():
        raise CannotReadError(f"{problem}.")


def _slices_of_stretches(trace: Trace, first_events: Int64s) -> Int64s:
    """How many slices each stretch has in the whole trace. `first_events` has the first
    event of each stretch, then the number of events."""
    orders = trace.order[: trace.recorded()]
    stretch_of_slice = np.searchsorted(first_events, orders, side="right") - 1
    return np.bincount(stretch_of_slice, minlength=len(first_events) - 1)


def _has_all_others(part: Excerpt, stretch: Stretch) -> bool:
    """Whether all events of a stretch that are no slices are in the part."""
    before_ns, after_ns = stretch.reach
    return part.first_ns <= before_ns and after_ns <= part.last_ns


def _may_have_others(part: Excerpt, stretch: Stretch) -> bool:
    """Whether some events of a stretch that are no slices may be in the part."""
    before_ns, after_ns = stretch.reach
    return before_ns < part.last_ns and after_ns > part.first_ns


def _of_stretch(
    trace: Trace, part: Excerpt, stretch: Stretch, first: int, places: Rows
) -> bytes:
    """The texts of what is kept of a stretch, in file order, with commas between them.

    `first`: the index of its first element in traceEvents; `places`: of its slices in
    `part`.
    """
    rows = part.rows[places]
    numbers = trace.order[rows] - first  # of the elements of the stretch
    listed = _read(trace.elements.own.text, stretch)
    heads: list[Head] = []
    with suppress(*UNDECODABLE):  # it is damaged, or has unusual types
        heads = decode_heads(listed)
    if stretch.places is not None or len(heads) != stretch.events:
        texts = _rewritten_each(trace, part, numbers, rows)
        texts |= _others_one_by_one(trace, part, stretch, first, slices=texts)
        return _joined(texts)

    phases = [phase_of(head.ph, head.cat) for head in heads]
    is_pair = np.array([phases[number] != "X" for number in numbers.tolist()], np.bool_)
    is_rewritten = part.clipped[places] | is_pair
    unchanged_slices = numbers[~is_rewritten].tolist()
    unchanged = [*unchanged_slices, *_kept_others(part, heads, phases)]
    texts = {}
    if unchanged:
        raw = decode_raw(listed)
        texts = {number: in_utf8(bytes(raw[number])) for number in unchanged}
    texts |= _rewritten_each(trace, part, numbers[is_rewritten], rows[is_rewritten])
    return _joined(texts)


def _kept_others(
    part: Excerpt, heads: Sequence[Head], phases: Sequence[str]
) -> list[int]:
    """The numbers of the elements that are no slices and are in the part: labels, and
    what happens within its times."""
    kept = []
    for number, (phase, head) in enumerate(zip(phases, heads, strict=True)):
        if phase == "X" or phase in PAIRED:
            continue
        if phase == "M" or _is_inside(bytes(head.ts), part):
            kept.append(number)
    return kept


def _joined(texts: Mapping[int, bytes]) -> bytes:
    """The texts of elements in the order of their numbers."""
    return b",\n".join(texts[number] for number in sorted(texts))


def _rewritten_each(
    trace: Trace, part: Excerpt, numbers: Int64s, rows: Rows
) -> dict[int, bytes]:
    """By the numbers of the elements, the texts of these slices as one event each."""
    return {
        number: _rewritten(trace, part, row)
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True)
    }


def _read(text: Text, stretch: Stretch) -> bytearray:
    """A stretch as a list. Raises CannotReadError."""
    try:
        return list_text(text, stretch)
    except (OSError, TraceError) as error:
        raise CannotReadError(f"{text.problem() or error}.") from None


def _is_inside(time: bytes, part: Excerpt) -> bool:
    """Whether a time, as written, lies in what is kept; not if it is none."""
    with suppress(ValueError, OverflowError):
        return part.first_ns <= exact_nanoseconds(time) < part.last_ns
    return False


def _others_one_by_one(
    trace: Trace, part: Excerpt, stretch: Stretch, first: int, slices: dict[int, bytes]
) -> dict[int, bytes]:
    """Of a damaged stretch, or one of unusual types: what is no slice, as it can be
    read."""
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


def _rewritten(trace: Trace, part: Excerpt, row: int) -> bytes:
    """A slice as one event; what is no GPU event is clipped."""
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
    event["ts"] = _digits(start)
    event["dur"] = _digits(max(end - start, 0))
    return write(event).encode()


def _digits(ns: int) -> Digits:
    return Digits(micros(ns).decode())
