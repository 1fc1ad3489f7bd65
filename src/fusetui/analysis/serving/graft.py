"""Adds the rows of a capture to the trace of its replays (see model/joined.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.combined import Combined
from fusetui.trace.model.joined import Join, Joined

Rows = NDArray[np.intp]
KEPT = (Role.ANNOTATION, Role.PYTHON, Role.OP)
"""What is taken from a capture, where it contains a captured call, besides the calls."""


def graft(trace: Trace, there: Trace, nodes: Rows, calls: Rows, join: Join) -> Joined:
    """The trace with the op of each captured call for its node. `nodes`: GPU rows of the trace;
    `calls`: for each of them a row of `there`, the trace of the capture, which may be the same."""
    if there is trace:
        return _linked(trace, nodes, calls, join)
    taken = _around(there, np.unique(calls))
    place = np.full(len(there), -1, dtype=np.int32)
    place[taken] = len(trace) + np.arange(len(taken), dtype=np.int32)
    return _linked(
        _with_rows(trace, there, taken, place), nodes, place[calls].astype(np.intp), join
    )


def _linked(trace: Trace, nodes: Rows, calls: Rows, join: Join) -> Joined:
    """The same rows; the nodes belong to the calls."""
    before, joins = _captured(trace)
    captured = before.copy()
    captured[nodes] = calls
    op = trace.op.copy()
    op[nodes] = trace.op[calls]
    fields = _fields(trace) | {"op": op}
    return Joined(**fields, captured=captured, roles=trace.source_role, joins=(*joins, join))


def _captured(trace: Trace) -> tuple[NDArray[np.int32], tuple[Join, ...]]:
    """What was joined before."""
    if isinstance(trace, Joined):
        return trace.captured, trace.joins
    return np.full(len(trace), -1, dtype=np.int32), ()


def _fields(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in Trace.__struct_fields__}


def _around(there: Trace, calls: Rows) -> Rows:
    """The calls, and all annotations, frames and ops of their threads in which one of them
    starts."""
    chosen = np.zeros(len(there), dtype=np.bool_)
    chosen[calls] = True
    thread = there.thread_of_track[there.track]
    for number in np.unique(thread[calls]).tolist():
        own = [
            np.arange(track.first_row, track.end_row)
            for track, its in zip(there.tracks, there.thread_of_track.tolist(), strict=True)
            if its == number and track.layer in CPU_LAYERS
        ]
        rows = np.concatenate(own)
        rows = rows[np.isin(there.role[rows], KEPT)]
        times = np.sort(there.start[calls[thread[calls] == number]])
        first = np.searchsorted(times, there.start[rows], side="left")
        last = np.searchsorted(times, there.end[rows], side="left")
        chosen[rows[last > first]] = True
    return np.flatnonzero(chosen)


def _with_rows(trace: Trace, there: Trace, taken: Rows, place: NDArray[np.int32]) -> Joined:
    """The rows `taken` of another trace after those of this one; `place`: where each row goes."""
    names, name = _numbered(trace.names, there.names, there.name[taken])
    categories, cat = _numbered(trace.categories, there.categories, there.cat[taken])
    tracks, track = _tracks(trace, there, taken)
    shift = trace.begin_ns - int(there.start[taken].min())
    before = np.concatenate(([0], np.cumsum(place >= 0)))
    events = sum(stretch.events for stretch in trace.elements.stretches)
    more: dict[str, NDArray[Any]] = {
        "start": there.start[taken] + shift,
        "dur": there.dur[taken],
        "name": name,
        "cat": cat,
        "role": np.full(len(taken), Role.CAPTURED, dtype=np.uint8),
        "track": track,
        "parent": _placed(place, there.parent[taken]),
        "end_row": len(trace) + before[there.end_row[taken]],
        "depth": there.depth[taken],
        "correlation": np.zeros(len(taken), dtype=np.int64),
        "external_id": np.zeros(len(taken), dtype=np.int64),
        "launch": np.full(len(taken), -1, dtype=np.int32),
        "op": _placed(place, there.op[taken]),
        "order": there.order[taken] + events,
    }
    columns = {
        field: np.concatenate((getattr(trace, field), column)).astype(getattr(trace, field).dtype)
        for field, column in more.items()
    }
    nothing = np.full(len(taken), -1, dtype=np.int32)
    captured, joins = _captured(trace)
    rest: dict[str, Any] = {"names": names, "categories": categories, "tracks": tracks}
    return Joined(
        **_fields(trace) | columns | rest | {"elements": Combined(trace.elements, there.elements)},
        captured=np.concatenate((captured, nothing)),
        roles=np.concatenate((trace.source_role, there.source_role[taken])),
        joins=joins,
    )


def _placed(place: NDArray[np.int32], rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rows of the capture as rows of the joined trace; -1 for what was not taken."""
    found: NDArray[np.int32] = np.where(rows >= 0, place[rows], np.int32(-1))
    return found


def _numbered(
    own: tuple[str, ...], others: Sequence[str], numbers: NDArray[np.int32]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Numbers of other names as numbers of our names, to which the new ones are added."""
    used, which = np.unique(numbers, return_inverse=True)
    known = {name: number for number, name in enumerate(own)}
    ours = [known.setdefault(others[number], len(known)) for number in used.tolist()]
    return tuple(known), np.array(ours, dtype=np.int32)[which.reshape(-1)]


def _tracks(trace: Trace, there: Trace, taken: Rows) -> tuple[tuple[Track, ...], NDArray[np.int32]]:
    """Our tracks and those of the rows taken, and for each of these the number of its track."""
    used, first, which = np.unique(there.track[taken], return_index=True, return_inverse=True)
    ends = np.append(first[1:], len(taken))
    number = len(_captured(trace)[1]) + 1
    tracks = []
    for own, begin, end in zip(used.tolist(), first.tolist(), ends.tolist(), strict=True):
        old = there.tracks[own]
        rows = {"first_row": len(trace) + begin, "end_row": len(trace) + end}
        pid = f"capture {number} {old.pid}"
        tracks.append(
            replace(old, layer=Layer.CAPTURED, pid=pid, label=f"captured on {old.label}", **rows)
        )
    found: NDArray[np.int32] = (len(trace.tracks) + which.reshape(-1)).astype(np.int32)
    return (*trace.tracks, *tracks), found
