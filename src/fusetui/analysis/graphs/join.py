"""Joins the graph replays of a trace with the capture of their graphs: every replayed
kernel then has the op, the module, the Python frame and the shapes of the call that was
captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.graphs.captures import (
    Capture,
    CaptureSize,
    Nodes,
    bare_launches,
    captures,
    replays,
    size_of,
)
from fusetui.analysis.graphs.choose import (
    BY_KIND,
    Chosen,
    choose,
    counted,
    kernels_alone,
)
from fusetui.analysis.questions.server_steps import server_steps
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.joined import CERTAIN, LIKELY, Join, Joined
from fusetui.trace.read.elements import combined

KEPT = (Role.ANNOTATION, Role.PYTHON, Role.OP)
"""What is taken from a capture, where it contains a captured call, besides the
calls."""
NO_OPS = "The capture recorded no op around its calls: it says nothing about what was replayed."


def join(trace: Trace, there: Trace, found: bool = False) -> tuple[Trace, Join]:
    """The trace with what could be joined, and a record of that. If nothing could be,
    it is the same trace. `there` is the trace of the capture, which may be the trace
    itself; `found`: nobody named it."""
    before = _captured(trace)[0]
    own = [nodes for nodes in replays(trace) if before[nodes.rows[0]] < 0]
    whole, cut = captures(there)
    if whole and not any((there.op[one.calls] >= 0).any() for one in whole):
        chosen, refused = [], [NO_OPS]
    else:
        chosen = _chosen(trace, there, own, whole)
        _again_in_other_orders(trace, there, own, chosen, whole)
        problems = counted([one.problem for one in chosen if one.problem])
        refused = [*problems, *_remarks(trace, own, len(whole), cut)]
    pairs = []
    for nodes, one in zip(own, chosen, strict=False):
        if one.capture >= 0:
            pair = nodes, whole[one.capture]
            pairs.append(
                kernels_alone(trace, *pair, there) if one.kernels_only else pair
            )
    likely = list(dict.fromkeys(one.likely for one in chosen if one.likely))
    record = Join(
        path=there.report.path,
        replays=len(pairs),
        of_replays=len(own),
        kernels=sum(len(nodes) for nodes, _ in pairs),  # copies and sets too
        certainty=LIKELY if likely else CERTAIN,
        why_likely="; ".join(likely),
        refused=tuple(refused),
        found=found,
    )
    if not pairs:
        return trace, record
    rows = np.concatenate([nodes.rows for nodes, _ in pairs])
    calls = np.concatenate([capture.calls for _, capture in pairs])
    return graft(trace, there, rows, calls, record), record


def _again_in_other_orders(
    trace: Trace,
    there: Trace,
    own: list[Nodes],
    chosen: list[Chosen],
    whole: Sequence[Capture],
) -> None:
    """Tries again what does not fit: by time, if its nodes are numbered otherwise, and
    as the file has it, as on AMD devices times are sometimes wrong, while the file has
    the nodes in the order of the graph. There the names of all kernels must agree."""
    for column, by_kind in ((trace.start, True), (trace.order, False)):
        rest = [n for n, one in enumerate(chosen) if one.problem]
        again = []
        for nodes in (own[n] for n in rest):
            order = np.argsort(column[nodes.rows], kind="stable")
            again.append(replace(nodes, rows=nodes.rows[order], numbered=False))
        if all((again[at].rows == own[n].rows).all() for at, n in enumerate(rest)):
            continue
        found = _chosen(trace, there, again, whole)
        for at, n in enumerate(rest):
            if found[at].capture >= 0 and (by_kind or BY_KIND not in found[at].likely):
                own[n], chosen[n] = again[at], found[at]


def _chosen(
    trace: Trace, there: Trace, own: list[Nodes], whole: Sequence[Capture]
) -> list[Chosen]:
    if not own:
        return []
    steps = server_steps(trace)
    at = steps.steps.at(trace.start[[nodes.call for nodes in own]]).tolist()
    asked = [steps.asked[step] if step >= 0 else None for step in at]
    amounts = [
        CaptureSize(one.batch, one.new_tokens) if one else CaptureSize()
        for one in asked
    ]
    each = list(zip(at, amounts, strict=True))
    return choose(
        trace, there, own, whole, [size_of(there, one) for one in whole], each
    )


def _remarks(
    trace: Trace, own: Sequence[Nodes], whole: int, cut: int
) -> tuple[str, ...]:
    """What is missing, where nothing could be compared."""
    said = []
    if bare := bare_launches(trace):
        without = f"{plural(bare, 'graph launch')} recorded no kernels"
        said.append(f"{without}: the profiler did not trace graphs by node.")
    elif not own:
        said.append("The trace has no graph replay to join.")
    if not whole:
        why = f": {plural(cut, 'capture')} did not end in it." if cut else "."
        said.append(f"The capture has no stream capture from its begin to its end{why}")
    return tuple(said)


def graft(trace: Trace, there: Trace, nodes: Rows, calls: Rows, join: Join) -> Joined:
    """The trace with the op of each captured call for its node (see model/joined.py).
    `nodes`: GPU rows of the trace; `calls`: for each of them a row of `there`, the
    trace of the capture, which may be the same."""
    if there is not trace:
        taken = _around(there, np.unique(calls))
        place = np.full(len(there), -1, dtype=np.int32)
        place[taken] = len(trace) + np.arange(len(taken), dtype=np.int32)
        trace, calls = (
            _with_rows(trace, there, taken, place),
            place[calls].astype(np.intp),
        )
    captured, joins = _captured(trace)
    captured[nodes] = calls
    op = trace.op.copy()
    op[nodes] = trace.op[calls]
    joined = {
        "op": op,
        "roles": trace.source_role,
        "captured": captured,
        "joins": (*joins, join),
    }
    return Joined(**asdict(trace) | joined)


def _captured(trace: Trace) -> tuple[NDArray[np.int32], tuple[Join, ...]]:
    if isinstance(trace, Joined):
        return trace.captured.copy(), trace.joins
    return np.full(len(trace), -1, dtype=np.int32), ()


def _around(there: Trace, calls: Rows) -> Rows:
    """The calls, and all annotations, frames and ops of their threads that contain
    one's start."""
    chosen = np.zeros(len(there), dtype=np.bool_)
    chosen[calls] = True
    thread = there.thread_of_track[there.track]
    layer = np.array([track.layer in CPU_LAYERS for track in there.tracks])[there.track]
    kept = layer & np.isin(there.role, KEPT)
    for number in np.unique(thread[calls]).tolist():
        rows = np.flatnonzero(kept & (thread == number))
        times = np.sort(there.start[calls[thread[calls] == number]])
        first, last = np.searchsorted(times, (there.start[rows], there.end[rows]))
        chosen[rows[last > first]] = True
    return np.flatnonzero(chosen)


def _with_rows(
    trace: Trace, there: Trace, taken: Rows, place: NDArray[np.int32]
) -> Joined:
    """The rows `taken` of another trace after those of this one; `place`: where each
    row goes."""
    names, name = _numbered(trace.names, there.names, there.name[taken])
    categories, cat = _numbered(trace.categories, there.categories, there.cat[taken])
    tracks, track = _tracks(trace, there, taken)
    shift = trace.begin_ns - int(there.start[taken].min())
    before = np.concatenate(([0], np.cumsum(place >= 0)))
    events = sum(stretch.events for stretch in trace.elements.stretches)
    more: dict[str, Any] = {
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
    for field, column in more.items():
        own = getattr(trace, field)
        more[field] = np.concatenate((own, column)).astype(own.dtype)
    captured, joins = _captured(trace)
    more |= {
        **{"names": names, "categories": categories, "tracks": tracks, "joins": joins},
        "elements": combined(trace.elements, there.elements),
        "captured": np.append(captured, np.full(len(taken), -1, dtype=np.int32)),
        "roles": np.append(trace.source_role, there.source_role[taken]),
    }
    return Joined(**asdict(trace) | more)


def _placed(place: NDArray[np.int32], rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rows of the capture as rows of the joined trace; -1 for what was not taken."""
    return np.where(rows >= 0, place[rows], np.int32(-1))


def _numbered(
    own: tuple[str, ...], others: Sequence[str], numbers: NDArray[np.int32]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Numbers of other names as numbers of our names, to which the new ones are
    added."""
    used, which = np.unique(numbers, return_inverse=True)
    known = {name: number for number, name in enumerate(own)}
    ours = [known.setdefault(others[number], len(known)) for number in used.tolist()]
    return tuple(known), np.array(ours, dtype=np.int32)[which.reshape(-1)]


def _tracks(
    trace: Trace, there: Trace, taken: Rows
) -> tuple[tuple[Track, ...], NDArray[np.int32]]:
    """Our tracks and those of the rows taken, and for each of these the number of its
    track."""
    used, first, which = np.unique(
        there.track[taken], return_index=True, return_inverse=True
    )
    ends = np.append(first[1:], len(taken))
    number = len(_captured(trace)[1]) + 1
    tracks = list(trace.tracks)
    for own, *bounds in zip(used.tolist(), first.tolist(), ends.tolist(), strict=True):
        old, (begin, end) = there.tracks[own], (len(trace) + bound for bound in bounds)
        pid, label = f"capture {number} {old.pid}", f"captured on {old.label}"
        more = {"pid": pid, "label": label, "first_row": begin, "end_row": end}
        tracks.append(replace(old, layer=Layer.CAPTURED, **more))
    return tuple(tracks), (len(trace.tracks) + which.reshape(-1)).astype(np.int32)
