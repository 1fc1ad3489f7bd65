"""A part of a trace as a trace of its own, which opens wherever the whole does.

Kept is what runs in the window, the GPU event before and after it, and of GPU events
their launch calls with all that encloses them, even before the window. GPU events stay
whole; CPU slices and annotations that reach beyond what is kept are clipped to it.
Counters, flows and instants stay if they lie in the same time, names of processes and
threads always. What is not clipped stays as it is written, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

FAR, FAR_NS = 10, 1_000_000_000  # times as long as the window, or a second
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
    length = trace.recorded()
    start, end = trace.start[:length], trace.end[:length]
    on_gpu = np.zeros(length, dtype=np.bool_)
    on_gpu[trace.gpu_rows] = True
    kept = on_gpu & _in(start, end, begin_ns, end_ns)
    neighbors = _neighbors(trace, begin_ns, end_ns)
    kept[neighbors] = True
    since = min([begin_ns, *end[neighbors].tolist()])
    until = max([end_ns, *start[neighbors].tolist()])
    kept |= ~on_gpu & _in(start, end, since, until)
    gpu = trace.gpu_rows[kept[trace.gpu_rows]]
    calls = trace.launch[gpu]
    hosts = np.unique(np.where(calls >= 0, calls, trace.op[gpu]))
    hosts = hosts[hosts >= 0].astype(np.intp)
    _keep_around(trace, hosts[~kept[hosts]], kept)
    first = min([since, *start[hosts].tolist(), *start[gpu].tolist()])
    last = max([until, *end[gpu].tolist()])
    rows = np.flatnonzero(kept)
    clipped = ~on_gpu[rows] & ((start[rows] < first) | (end[rows] > last))
    return Excerpt(begin_ns, end_ns, first, last, rows, clipped)


def _in(start: Int64s, end: Int64s, begin_ns: int, end_ns: int) -> Flags:
    empty = (start == end) & (start >= begin_ns)
    found: Flags = (start < end_ns) & ((end > begin_ns) | empty)
    return found


def farthest(begin_ns: int, end_ns: int) -> int:
    """How far from a window (ns) its neighbors are looked for."""
    return max(FAR * (end_ns - begin_ns), FAR_NS)


def _neighbors(trace: Trace, begin_ns: int, end_ns: int) -> list[int]:
    """Of each device the last event before the window and the first after it, which
    tell why it was idle at the borders; not where they are further away than
    `farthest`."""
    rows, found, most = trace.gpu_rows, [], farthest(begin_ns, end_ns)
    device = trace.process_of_track[trace.track[rows]]
    for number in np.unique(device).tolist():
        own = rows[device == number]
        before = own[(trace.end[own] <= begin_ns) & (trace.end[own] >= begin_ns - most)]
        after = own[(trace.start[own] >= end_ns) & (trace.start[own] <= end_ns + most)]
        if len(before):
            found.append(int(before[np.argmax(trace.end[before])]))
        if len(after):
            found.append(int(after[np.argmin(trace.start[after])]))
    return found


def _keep_around(trace: Trace, hosts: Rows, kept: Flags) -> None:
    """Marks these rows, and what encloses them on any track of their threads."""
    thread = trace.thread_of_track[trace.track[hosts]]
    for number, track in enumerate(trace.tracks):
        own = hosts[thread == trace.thread_of_track[number]]
        if not len(own) or not len(track):
            continue
        since = trace.start[track.rows].searchsorted(trace.start[own], side="right") - 1
        row = np.where(since >= 0, since + track.first_row, -1)
        while (row >= 0).any():
            around = (row >= 0) & (trace.end[row] >= trace.end[own])
            kept[row[around]] = True
            row = np.where(row >= 0, trace.parent[row], -1)
    kept[hosts] = True


def clipped_annotations(trace: Trace, part: Excerpt) -> list[tuple[str, str]]:
    """When those begin and end in the part, and those that were clipped before:
    steps.CLIPPED."""
    rows = part.rows[part.clipped]
    rows = rows[trace.role[rows] == Role.ANNOTATION]
    start, end = (
        trace.start[rows].clip(part.first_ns),
        trace.end[rows].clip(max=part.last_ns),
    )
    own = zip(map(str, start.tolist()), map(str, end.tolist()), strict=True)
    return [*clipped_before(trace), *own]


def texts_of(
    trace: Trace, part: Excerpt, keys: Mapping[str, Any], progress: Progress = silent
) -> Iterator[bytes]:
    """The text of the part, in pieces, with these top-level keys and CLIPPED besides
    its own. Raises CannotReadError where the file cannot be read any more."""
    keys = {**trace.keys, CLIPPED: clipped_annotations(trace, part), **keys}
    return document(keys, _pieces(trace, part, progress))


def _pieces(trace: Trace, part: Excerpt, progress: Progress) -> Iterator[bytes]:
    """What is kept of each stretch."""
    events = trace.elements.own
    order = trace.order[part.rows]
    by_order = np.argsort(order, kind="stable")
    firsts = np.cumsum([0, *(stretch.events for stretch in events.stretches)])
    bounds = order[by_order].searchsorted(firsts)
    holding = firsts.searchsorted(trace.order[: trace.recorded()], side="right") - 1
    slices = np.bincount(holding, minlength=len(events.stretches))
    for number, stretch in enumerate(events.stretches):
        places = by_order[bounds[number] : bounds[number + 1]]
        before, after = stretch.reach
        others = slices[number] < stretch.events
        is_whole = len(places) == slices[number] and not part.clipped[places].any()
        if is_whole and part.first_ns <= before and after <= part.last_ns:
            yield in_utf8(bytes(_read(events.text, stretch)[1:-1]))
        elif len(places) or (
            others and before < part.last_ns and after > part.first_ns
        ):
            yield _of_stretch(trace, part, stretch, int(firsts[number]), places)
        progress(number + 1, len(events.stretches))
    if problem := events.text.problem():
        raise CannotReadError(f"{problem}.")


def _of_stretch(
    trace: Trace, part: Excerpt, stretch: Stretch, first: int, places: Rows
) -> bytes:
    """The texts of what is kept of a stretch, in file order, with commas between them.
    `places`: of its slices in `part`."""
    rows, clipped = part.rows[places], part.clipped[places]
    numbers = trace.order[rows] - first
    listed, heads = _read(trace.elements.own.text, stretch), list[Head]()
    with suppress(*UNDECODABLE):  # it is damaged, or has unusual types
        heads = decode_heads(listed)
    if stretch.places is not None or len(heads) != stretch.events:
        found = _rewritten_each(trace, part, numbers, rows)
        found |= _others_one_by_one(trace, part, stretch, first, found)
        return b",\n".join(text for _, text in sorted(found.items()))
    phases = [phase_of(head.ph, head.cat) for head in heads]
    alone = [
        n for n, ph in enumerate(phases) if ph not in ("X", "M") and ph not in PAIRED
    ]
    as_written = [n for n in alone if _is_inside(bytes(heads[n].ts), part)]
    as_written += [n for n, ph in enumerate(phases) if ph == "M"]
    anew = clipped | np.array(
        [phases[n] != "X" for n in numbers.tolist()], dtype=np.bool_
    )
    as_written += numbers[~anew].tolist()
    texts = decode_raw(listed) if as_written else []
    found = {number: in_utf8(bytes(texts[number])) for number in as_written}
    found |= _rewritten_each(trace, part, numbers[anew], rows[anew])
    return b",\n".join(text for _, text in sorted(found.items()))


def _rewritten_each(
    trace: Trace, part: Excerpt, numbers: Int64s, rows: Rows
) -> dict[int, bytes]:
    each = zip(numbers.tolist(), rows.tolist(), strict=True)
    return {number: _rewritten(trace, part, row) for number, row in each}


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
    found = {}
    for number in range(stretch.events):
        if number in slices:
            continue
        element = trace.elements.own.element(first + number)
        phase = element.get("ph")
        if isinstance(phase, str):
            phase = phase_of(phase, element.get("cat"))
        is_other = isinstance(phase, str) and phase not in PAIRED | {"X", ""}
        time = str(element.get("ts")).encode(errors="replace")
        if is_other and (phase == "M" or _is_inside(time, part)):
            found[number] = write(element).encode()
    return found


def _rewritten(trace: Trace, part: Excerpt, row: int) -> bytes:
    """A slice as one event; what is no GPU event is clipped."""
    start, end = int(trace.start[row]), int(trace.end[row])
    if trace.role[row] not in GPU_ROLES:
        start, end = max(start, part.first_ns), min(end, part.last_ns)
    element = trace.elements.own.element(int(trace.order[row]))
    track = trace.track_of(row)
    known = {"pid": track.pid, "tid": track.tid, "name": trace.name_of(row), **element}
    times = {"ts": _digits(start), "dur": _digits(max(end - start, 0))}
    return write({**known, "ph": "X", **times}).encode()


def _digits(ns: int) -> Digits:
    return Digits(micros(ns).decode())
