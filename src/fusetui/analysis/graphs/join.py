"""Joins the graph replays of a trace with the capture of their graphs: every replayed
kernel then has the op, the module, the Python frame and the shapes of the call that was
captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.graphs.captures import (
    Capture,
    Captures,
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
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.joined import CERTAIN, LIKELY, Join, Joined
from fusetui.trace.read.elements import combined

_TAKEN_ROLES: Final = (Role.ANNOTATION, Role.PYTHON, Role.OP)
"""What is taken from a capture, where it contains a captured call, besides the
calls."""

NO_OPS: Final = "The capture recorded no op around its calls: it says nothing about what was replayed."


class _Pair(NamedTuple):
    """A replay and its capture, as many nodes as calls."""

    nodes: Nodes
    capture: Capture


def join(trace: Trace, capture_trace: Trace, found: bool = False) -> tuple[Trace, Join]:
    """The trace with the ops of the captured calls for the nodes of its replays, and a
    record of what was joined and why some was not. If nothing was, it is the same
    trace. `capture_trace`: in which the graphs were captured, which may be the trace
    itself; `found`: no user named it."""
    open_replays = _open_replays(trace)
    captured = captures(capture_trace)
    choices, refused = _chosen(trace, capture_trace, open_replays, captured)
    pairs = _pairs(trace, capture_trace, open_replays, choices, captured)
    doubts = list(dict.fromkeys(choice.likely for choice in choices if choice.likely))
    record = Join(
        path=capture_trace.report.path,
        replays=len(pairs),
        of_replays=len(open_replays),
        kernels=sum(len(pair.nodes) for pair in pairs),  # copies and sets too
        certainty=LIKELY if doubts else CERTAIN,
        why_likely="; ".join(doubts),
        refused=tuple(refused),
        found=found,
    )
    if not pairs:
        return trace, record
    rows = np.concatenate([pair.nodes.rows for pair in pairs])
    calls = np.concatenate([pair.capture.calls for pair in pairs])
    return graft(trace, capture_trace, rows, calls, record), record


def _open_replays(trace: Trace) -> list[Nodes]:
    """The replays that were not joined before."""
    captured_call, _ = _captured(trace)
    return [nodes for nodes in replays(trace) if captured_call[nodes.rows[0]] < 0]


def _chosen(
    trace: Trace, capture_trace: Trace, open_replays: list[Nodes], captured: Captures
) -> tuple[list[Chosen], list[str]]:
    """The choice of each replay, and sentences about what is not joined or missing. No
    choices at all where captures have no op. Nodes of replays that fit in another order
    are replaced in `open_replays`, in place."""
    if captured.complete and not _has_ops(capture_trace, captured):
        return [], [NO_OPS]
    choices = _choices(trace, capture_trace, open_replays, captured.complete)
    _choose_in_other_orders(
        trace, capture_trace, open_replays, choices, captured.complete
    )
    problems = [choice.problem for choice in choices if choice.problem]
    return choices, [*counted(problems), *_remarks(trace, open_replays, captured)]


def _pairs(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    choices: list[Chosen],
    captured: Captures,
) -> list[_Pair]:
    """The replays that have a capture, each with that; without copies and sets where
    only kernels agree."""
    pairs = []
    # there may be no choices at all
    for nodes, choice in zip(open_replays, choices, strict=False):
        if choice.capture < 0:
            continue
        capture = captured.complete[choice.capture]
        if choice.kernels_only:
            nodes, capture = kernels_alone(trace, nodes, capture, capture_trace)
        pairs.append(_Pair(nodes, capture))
    return pairs


def _has_ops(capture_trace: Trace, captured: Captures) -> bool:
    """Whether any captured call has an op around it."""
    return any(
        (capture_trace.op[capture.calls] >= 0).any() for capture in captured.complete
    )


def _choose_in_other_orders(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    choices: list[Chosen],
    complete: Sequence[Capture],
) -> None:
    """Tries the replays that fit no capture again with their nodes in another order,
    and where they then fit replaces them in `open_replays` and their `choices`, in
    place. The orders are that of time, as nodes may be numbered otherwise, and that of
    the file: on AMD devices times are sometimes wrong, while the file has the nodes in
    the order of the graph. With the latter the names of all kernels must agree."""
    for column, may_go_by_kind in ((trace.start, True), (trace.order, False)):
        refused = [n for n, choice in enumerate(choices) if choice.problem]
        reordered = [_sorted_by(column, open_replays[n]) for n in refused]
        is_new_order = any(
            (nodes.rows != open_replays[n].rows).any()
            for n, nodes in zip(refused, reordered, strict=True)
        )
        if not is_new_order:
            continue
        new_choices = _choices(trace, capture_trace, reordered, complete)
        for n, nodes, choice in zip(refused, reordered, new_choices, strict=True):
            is_certain_enough = may_go_by_kind or BY_KIND not in choice.likely
            if choice.capture >= 0 and is_certain_enough:
                open_replays[n] = nodes
                choices[n] = choice


def _sorted_by(column: Int64s, nodes: Nodes) -> Nodes:
    """A replay with its nodes in the order of a column of the trace."""
    order = np.argsort(column[nodes.rows], kind="stable")
    return replace(nodes, rows=nodes.rows[order], numbered=False)


def _choices(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    complete: Sequence[Capture],
) -> list[Chosen]:
    """For each replay the choice among the `complete` captures, with the help of what
    was asked of the step of the server in which it ran."""
    if not open_replays:
        return []
    server = server_steps(trace)
    calls = [nodes.call for nodes in open_replays]
    steps_of_replays = []
    for step in server.steps.at(trace.start[calls]).tolist():
        asked = server.asked[step] if step >= 0 else None
        size = CaptureSize()
        if asked is not None:
            size = CaptureSize(requests=asked.batch, tokens=asked.new_tokens)
        steps_of_replays.append((step, size))
    sizes = [size_of(capture_trace, capture) for capture in complete]
    return choose(trace, capture_trace, open_replays, complete, sizes, steps_of_replays)


def _remarks(
    trace: Trace, open_replays: Sequence[Nodes], captured: Captures
) -> list[str]:
    """Sentences about what a join lacks; [] if nothing is missing: kernels of graph
    launches in the trace, or else its replays; and in the capture stream captures that
    it holds from their begin to their end (`Captures.complete`)."""
    remarks = []
    launches_without_kernels = bare_launches(trace)
    if launches_without_kernels:
        launches = plural(launches_without_kernels, "graph launch")
        remarks.append(
            f"{launches} recorded no kernels: the profiler did not trace graphs by node."
        )
    elif not open_replays:
        remarks.append("The trace has no graph replay to join.")
    has_whole_captures = len(captured.complete) > 0
    if not has_whole_captures:
        why = "."
        if captured.without_end:
            cut = plural(captured.without_end, "capture")
            why = f": {cut} did not end in it."
        remarks.append(
            f"The capture has no stream capture from its begin to its end{why}"
        )
    return remarks


def graft(
    trace: Trace, capture_trace: Trace, nodes: Rows, calls: Rows, join: Join
) -> Joined:
    """The trace with the op of each captured call for its node (see model/joined.py).
    `nodes`: GPU rows of the trace; `calls`: for each of them a row of `capture_trace`, the
    trace of the capture, which may be the same."""
    if capture_trace is not trace:
        taken = _rows_around(capture_trace, np.unique(calls))
        new_row = np.full(len(capture_trace), -1, dtype=np.int32)
        new_row[taken] = len(trace) + np.arange(len(taken), dtype=np.int32)
        trace = _with_rows(trace, capture_trace, taken, new_row)
        calls = new_row[calls].astype(np.intp)
    captured, joins = _captured(trace)
    captured[nodes] = calls
    op = trace.op.copy()
    op[nodes] = trace.op[calls]
    columns = asdict(trace)
    columns["op"] = op
    columns["roles"] = trace.source_role
    columns["captured"] = captured
    columns["joins"] = (*joins, join)
    return Joined(**columns)


def _captured(trace: Trace) -> tuple[NDArray[np.int32], tuple[Join, ...]]:
    """For each row that of its captured call, -1 for none; and what was joined
    before."""
    if isinstance(trace, Joined):
        return trace.captured.copy(), trace.joins
    return np.full(len(trace), -1, dtype=np.int32), ()


def _rows_around(capture_trace: Trace, calls: Rows) -> Rows:
    """The calls, and all annotations, frames and ops of their threads that contain the
    start of one of them; rows in ascending order."""
    is_taken = np.zeros(len(capture_trace), dtype=np.bool_)
    is_taken[calls] = True
    thread = capture_trace.thread_of_track[capture_trace.track]
    may_contain = _may_contain_calls(capture_trace)
    for number in np.unique(thread[calls]).tolist():
        rows = np.flatnonzero(may_contain & (thread == number))
        calls_of_thread = calls[thread[calls] == number]
        call_starts = np.sort(capture_trace.start[calls_of_thread])
        first_inside = call_starts.searchsorted(capture_trace.start[rows])
        after_last_inside = call_starts.searchsorted(capture_trace.end[rows])
        is_taken[rows[after_last_inside > first_inside]] = True
    return np.flatnonzero(is_taken)


def _may_contain_calls(capture_trace: Trace) -> Flags:
    """Which rows are annotations, frames and ops of CPU threads; shape [slices]."""
    is_cpu_track = np.array(
        [track.layer in CPU_LAYERS for track in capture_trace.tracks]
    )
    is_taken_role = np.isin(capture_trace.role, _TAKEN_ROLES)
    may_contain: Flags = is_cpu_track[capture_trace.track] & is_taken_role
    return may_contain


def _with_rows(
    trace: Trace, capture_trace: Trace, taken: Rows, new_row: NDArray[np.int32]
) -> Joined:
    """The trace with the rows `taken` (ascending) of the trace of the capture after its
    own, as rows on tracks of their own, shifted so that the first begins where the
    trace does. `new_row`: for each row of `capture_trace` the row that it becomes, -1
    for none."""
    names, name = _renumbered(
        trace.names, capture_trace.names, capture_trace.name[taken]
    )
    categories, cat = _renumbered(
        trace.categories, capture_trace.categories, capture_trace.cat[taken]
    )
    tracks, track = _tracks(trace, capture_trace, taken)
    added = _added_columns(trace, capture_trace, taken, new_row)
    added |= {"name": name, "cat": cat, "track": track}
    columns: dict[str, Any] = asdict(trace)
    for field, values in added.items():
        column = getattr(trace, field)
        columns[field] = np.concatenate((column, values)).astype(column.dtype)
    captured, joins = _captured(trace)
    no_call = np.full(len(taken), -1, dtype=np.int32)
    columns["names"] = names
    columns["categories"] = categories
    columns["tracks"] = tracks
    columns["joins"] = joins
    columns["elements"] = combined(trace.elements, capture_trace.elements)
    columns["captured"] = np.append(captured, no_call)
    columns["roles"] = np.append(trace.source_role, capture_trace.source_role[taken])
    return Joined(**columns)


def _added_columns(
    trace: Trace, capture_trace: Trace, taken: Rows, new_row: NDArray[np.int32]
) -> dict[str, Any]:
    """The columns of the rows that are taken, as those of the joined trace; without
    those that are numbered anew (names, categories, tracks)."""
    number = len(taken)
    shift_ns = trace.begin_ns - int(capture_trace.start[taken].min())
    taken_before = np.concatenate(([0], np.cumsum(new_row >= 0)))
    events_before = sum(stretch.events for stretch in trace.elements.stretches)
    no_id = np.zeros(number, dtype=np.int64)
    return {
        "start": capture_trace.start[taken] + shift_ns,
        "dur": capture_trace.dur[taken],
        "role": np.full(number, Role.CAPTURED, dtype=np.uint8),
        "parent": _moved_rows(new_row, capture_trace.parent[taken]),
        "end_row": len(trace) + taken_before[capture_trace.end_row[taken]],
        "depth": capture_trace.depth[taken],
        "correlation": no_id,
        "external_id": no_id,
        "launch": np.full(number, -1, dtype=np.int32),
        "op": _moved_rows(new_row, capture_trace.op[taken]),
        "order": capture_trace.order[taken] + events_before,
    }


def _moved_rows(
    new_row: NDArray[np.int32], rows: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Rows of the capture as rows of the joined trace; -1 for what was not taken."""
    return np.where(rows >= 0, new_row[rows], np.int32(-1))


def _renumbered(
    ours: tuple[str, ...], theirs: Sequence[str], numbers: NDArray[np.int32]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Our names, and behind them those of theirs that `numbers` uses and we lack; and
    `numbers`, which are indices in `theirs`, as indices in all these."""
    used_numbers, place = np.unique(numbers, return_inverse=True)
    our_number = {name: number for number, name in enumerate(ours)}
    new_numbers = []
    for number in used_numbers.tolist():
        next_number = len(our_number)
        new_numbers.append(our_number.setdefault(theirs[number], next_number))
    renumbered = np.array(new_numbers, dtype=np.int32)[place.reshape(-1)]
    return tuple(our_number), renumbered


def _tracks(
    trace: Trace, capture_trace: Trace, taken: Rows
) -> tuple[tuple[Track, ...], NDArray[np.int32]]:
    """Our tracks and those of the rows taken, and for each of these the number of its
    track."""
    used_tracks, first, index = np.unique(
        capture_trace.track[taken], return_index=True, return_inverse=True
    )
    end = np.append(first[1:], len(taken))
    _, joins = _captured(trace)
    capture_number = len(joins) + 1
    tracks = list(trace.tracks)
    for number, first_taken, end_taken in zip(
        used_tracks.tolist(), first.tolist(), end.tolist(), strict=True
    ):
        track = capture_trace.tracks[number]
        captured_track = replace(
            track,
            layer=Layer.CAPTURED,
            pid=f"capture {capture_number} {track.pid}",
            label=f"captured on {track.label}",
            first_row=len(trace) + first_taken,
            end_row=len(trace) + end_taken,
        )
        tracks.append(captured_track)
    track_of_taken = (len(trace.tracks) + index.reshape(-1)).astype(np.int32)
    return tuple(tracks), track_of_taken
