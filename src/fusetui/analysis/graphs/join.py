"""Joins the graph replays of a trace with the captures of their graphs: every replayed
kernel then has the op, the module, the Python frame and the shapes of the captured
call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.graphs.captures import (
    Capture,
    Captures,
    CaptureSize,
    Nodes,
    captures,
    count_launches_without_events,
    determine_size,
    replays,
)
from fusetui.analysis.graphs.choose import (
    BY_KIND,
    CaptureChoice,
    ServerStep,
    choose_captures,
    describe_problems,
    remove_transfers,
)
from fusetui.analysis.questions.server_steps import find_server_steps
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    numbers_of_sized_groups,
    run_bounds,
    used_ids,
)
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.joined import CERTAIN, LIKELY, Join, Joined
from fusetui.trace.model.sorted_arrays import count_between
from fusetui.trace.read.elements import combined

_TAKEN_ROLES: Final = (Role.ANNOTATION, Role.PYTHON, Role.OP)
"""Slices of these roles are taken from a capture, besides the captured calls, if they
contain one of them."""

NO_OPS: Final = (
    "The capture recorded no ops around its calls, so it does not identify the "
    "replayed kernels."
)


class _MatchedReplay(NamedTuple):
    """A replay and its capture, which has as many calls as the replay has nodes."""

    nodes: Nodes
    capture: Capture


def join(trace: Trace, capture_trace: Trace, found: bool = False) -> tuple[Trace, Join]:
    """Join the graph replays of a trace with the capture of their graphs.

    Every joined kernel then has the op, the module, the Python frame and the shapes of
    the call that was captured.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace in which the graphs were captured. It may be the same.
        found: Whether `capture_trace` was found by a search, and not named by the user.

    Returns:
        The joined trace, or the same one if nothing was joined; and a record of what
        was joined, and why some was not.
    """
    open_replays = _find_unjoined_replays(trace)
    captured = captures(capture_trace)
    choices, refused = _choose_for_each_replay(
        trace, capture_trace, open_replays, captured
    )
    matched = _collect_matched_replays(
        trace, capture_trace, open_replays, choices, captured
    )

    doubts: dict[str, None] = {}  # an ordered set
    for choice in choices:
        if choice.likely:
            doubts[choice.likely] = None
    record = Join(
        path=capture_trace.report.path,
        replays=len(matched),
        of_replays=len(open_replays),
        kernels=sum(len(replay.nodes) for replay in matched),  # copies and sets too
        certainty=LIKELY if doubts else CERTAIN,
        why_likely="; ".join(doubts),
        refused=tuple(refused),
        found=found,
    )
    if not matched:
        return trace, record

    rows = np.concatenate([replay.nodes.rows for replay in matched])
    calls = np.concatenate([replay.capture.calls for replay in matched])
    joined = append_captured_calls(trace, capture_trace, rows, calls, record)
    return joined, record


def _find_unjoined_replays(trace: Trace) -> list[Nodes]:
    """Return the replays that were not joined before."""
    captured_call, _ = _read_earlier_joins(trace)
    unjoined = []
    for nodes in replays(trace):
        first_node = nodes.rows[0]
        if captured_call[first_node] == NO_ROW:
            unjoined.append(nodes)
    return unjoined


def _choose_for_each_replay(
    trace: Trace, capture_trace: Trace, open_replays: list[Nodes], captured: Captures
) -> tuple[list[CaptureChoice], list[str]]:
    """Choose for each graph replay the capture whose kernels and sizes fit it.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        open_replays: The replays that were not joined before. Those that fit only
            with their nodes in another order are replaced, in place.
        captured: The captures.

    Returns:
        A choice per replay, or none at all if the captures have no op; and
        sentences about what is not joined or missing.
    """
    if captured.complete and not _has_ops(capture_trace, captured):
        return [], [NO_OPS]

    choices = _choose_in_given_order(
        trace, capture_trace, open_replays, captured.complete
    )
    _choose_in_other_orders(
        trace, capture_trace, open_replays, choices, captured.complete
    )
    problems = [choice.problem for choice in choices if choice.problem]
    remarks = _describe_missing_parts(trace, open_replays, captured)
    return choices, [*describe_problems(problems), *remarks]


def _collect_matched_replays(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    choices: list[CaptureChoice],
    captured: Captures,
) -> list[_MatchedReplay]:
    """Return each replay for which a capture was chosen, together with that capture.

    Where only the kernels of both agree, copies and sets are left out of both.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        open_replays: The replays that were not joined before.
        choices: A choice for each replay; there may be no choices at all.
        captured: The captures to which the choices refer.
    """
    matched = []
    for index, choice in enumerate(choices):
        if choice.capture is None:
            continue
        nodes = open_replays[index]
        capture = captured.complete[choice.capture]
        if choice.kernels_only:
            nodes, capture = remove_transfers(trace, nodes, capture, capture_trace)
        matched.append(_MatchedReplay(nodes=nodes, capture=capture))
    return matched


def _has_ops(capture_trace: Trace, captured: Captures) -> bool:
    """Decide whether any captured call has an op around it."""
    for capture in captured.complete:
        has_op = capture_trace.op[capture.calls] != NO_ROW
        if has_op.any():
            return True
    return False


def _choose_in_other_orders(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    choices: list[CaptureChoice],
    complete: Sequence[Capture],
) -> None:
    """Try the replays that match no capture again, with their nodes in another order.

    The nodes are first sorted by time, as they may be numbered otherwise. Then they are
    taken as in the file: on AMD devices times are sometimes wrong, and the file has the
    order of the graph. In that case the names of all kernels must agree.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        open_replays: The replays. Those that then match are replaced, in place.
        choices: The choice of each replay, which is replaced likewise.
        complete: The captures that were recorded from begin to end.
    """
    in_order_of_time = (trace.start, False)
    in_order_of_file = (trace.order, True)
    for column, must_agree_by_name in (in_order_of_time, in_order_of_file):
        refused: list[int] = []
        reordered: list[Nodes] = []
        is_new_order = False
        for index, choice in enumerate(choices):
            if choice.problem:
                nodes = _sort_nodes_by(column, open_replays[index])
                refused.append(index)
                reordered.append(nodes)
                if (nodes.rows != open_replays[index].rows).any():
                    is_new_order = True
        if not is_new_order:
            continue

        new_choices = _choose_in_given_order(trace, capture_trace, reordered, complete)
        for index, nodes, choice in zip(refused, reordered, new_choices, strict=True):
            is_by_kind = BY_KIND in choice.likely
            is_acceptable = not (must_agree_by_name and is_by_kind)
            if choice.capture is not None and is_acceptable:
                open_replays[index] = nodes
                choices[index] = choice


def _sort_nodes_by(column: Int64s, nodes: Nodes) -> Nodes:
    """Sort the nodes of a replay by a column of the trace."""
    order = np.argsort(column[nodes.rows], kind="stable")
    return replace(nodes, rows=nodes.rows[order], numbered=False)


def _choose_in_given_order(
    trace: Trace,
    capture_trace: Trace,
    open_replays: list[Nodes],
    complete: Sequence[Capture],
) -> list[CaptureChoice]:
    """Choose a capture for each replay, comparing nodes in the order in which they are
    given.

    Of several captures that agree, the batch of the server's step in which a replay ran
    decides.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        open_replays: The replays.
        complete: The captures that were recorded from begin to end.
    """
    if not open_replays:
        return []

    server = find_server_steps(trace)
    call_starts = trace.start[[nodes.call for nodes in open_replays]]
    steps_of_replays = []
    for number in server.steps.at(call_starts).tolist():
        is_in_step = number >= 0
        requested = server.requested[number] if is_in_step else None
        size = CaptureSize()
        if requested is not None:
            size = CaptureSize(requests=requested.batch, tokens=requested.new_tokens)
        step = ServerStep(number=number if is_in_step else None, size=size)
        steps_of_replays.append(step)

    sizes = [determine_size(capture_trace, capture) for capture in complete]
    return choose_captures(
        trace, capture_trace, open_replays, complete, sizes, steps_of_replays
    )


def _describe_missing_parts(
    trace: Trace, open_replays: Sequence[Nodes], captured: Captures
) -> list[str]:
    """Say what the two traces lack for a join; [] if nothing is missing.

    The trace may lack the kernels of graph launches, or else replays. The other one may
    lack captures that are recorded from begin to end.
    """
    remarks = []
    launches_without_kernels = count_launches_without_events(trace)
    if launches_without_kernels:
        launches = plural(launches_without_kernels, "graph launch")
        remarks.append(
            f"{launches} recorded no kernels, because the profiler did not trace "
            "graph nodes."
        )
    elif not open_replays:
        remarks.append("The trace has no graph replays to join.")

    if captured.complete:
        return remarks
    if captured.without_end:
        cut_captures = plural(captured.without_end, "capture")
        remarks.append(
            "The capture contains no complete stream capture: "
            f"{cut_captures} did not end in it."
        )
    else:
        remarks.append("The capture contains no complete stream capture.")
    return remarks


def append_captured_calls(
    trace: Trace, capture_trace: Trace, nodes: Rows, calls: Rows, join: Join
) -> Joined:
    """Give nodes of replays the ops of the calls that were captured as these nodes.

    E.g. a replayed kernel, whose call was captured inside `aten::mm`, gets that op. The
    captured calls are appended to the trace, with all that is around them (see
    model/joined.py).

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures. It may be the same.
        nodes: GPU rows of `trace`.
        calls: For each of the nodes its captured call, a row of `capture_trace`.
        join: The record of this join, which is added to those of the trace.
    """
    if capture_trace is not trace:
        # Append the rows of the capture that are needed, and use their new numbers.
        taken = _find_rows_around(capture_trace, distinct(calls))
        new_row = np.full(len(capture_trace), NO_ROW, dtype=np.int32)
        new_row[taken] = len(trace) + np.arange(len(taken))
        trace = _append_rows(trace, capture_trace, taken, new_row)
        calls = new_row[calls].astype(np.intp)

    captured_call, earlier_joins = _read_earlier_joins(trace)
    captured_call[nodes] = calls
    op = trace.op.copy()
    op[nodes] = trace.op[calls]

    columns = asdict(trace)
    columns["op"] = op
    columns["roles"] = trace.source_role
    columns["captured"] = captured_call
    columns["joins"] = (*earlier_joins, join)
    return Joined(**columns)


def _read_earlier_joins(trace: Trace) -> tuple[NDArray[np.int32], tuple[Join, ...]]:
    """Return what was joined before.

    Returns:
        For each row of the trace the row of its captured call, NO_ROW for none; and the
        records of earlier joins.
    """
    if isinstance(trace, Joined):
        return trace.captured.copy(), trace.joins
    return np.full(len(trace), NO_ROW, dtype=np.int32), ()


def _find_rows_around(capture_trace: Trace, calls: Rows) -> Rows:
    """Return the captured calls together with the annotations, frames and ops around
    them.

    A slice is around a call if it is of the same thread and contains its start.

    Args:
        capture_trace: The trace of the capture.
        calls: The captured calls.

    Returns:
        Rows of the capture, ascending.
    """
    is_taken = np.zeros(len(capture_trace), dtype=np.bool_)
    is_taken[calls] = True
    may_contain = _mark_possible_containers(capture_trace)
    thread_of_row = capture_trace.thread_of_track[capture_trace.track]
    thread_of_call = thread_of_row[calls]

    for thread in distinct(thread_of_call).tolist():
        rows = np.flatnonzero(may_contain & (thread_of_row == thread))
        call_starts = np.sort(capture_trace.start[calls[thread_of_call == thread]])
        calls_inside = count_between(
            call_starts, capture_trace.start[rows], capture_trace.end[rows]
        )
        is_taken[rows[calls_inside > 0]] = True
    return np.flatnonzero(is_taken)


def _mark_possible_containers(capture_trace: Trace) -> Flags:
    """Flag the rows that are annotations, frames or ops of CPU threads."""
    is_cpu_track = [track.layer in CPU_LAYERS for track in capture_trace.tracks]
    is_on_cpu = np.array(is_cpu_track)[capture_trace.track]
    has_role = np.isin(capture_trace.role, _TAKEN_ROLES)
    return np.asarray(is_on_cpu & has_role)


def _append_rows(
    trace: Trace, capture_trace: Trace, taken: Rows, new_row: NDArray[np.int32]
) -> Joined:
    """Append rows of the capture to a trace, on tracks of their own.

    They are shifted in time so that the first of them begins where the trace does.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        taken: The rows of `capture_trace` to append, ascending.
        new_row: For each row of `capture_trace` the row that it becomes; NO_ROW for
            none.
    """
    names, name = _merge_names(
        trace.names, capture_trace.names, capture_trace.name[taken]
    )
    categories, cat = _merge_names(
        trace.categories, capture_trace.categories, capture_trace.cat[taken]
    )
    tracks, track = _merge_tracks(trace, capture_trace, taken)
    appended = _make_appended_columns(trace, capture_trace, taken, new_row)
    appended["name"] = name
    appended["cat"] = cat
    appended["track"] = track

    columns: dict[str, Any] = asdict(trace)
    for field, values in appended.items():
        column = columns[field]
        columns[field] = np.concatenate((column, values)).astype(column.dtype)

    captured_call, joins = _read_earlier_joins(trace)
    no_call = np.full(len(taken), NO_ROW, dtype=np.int32)
    columns["names"] = names
    columns["categories"] = categories
    columns["tracks"] = tracks
    columns["joins"] = joins
    columns["elements"] = combined(trace.elements, capture_trace.elements)
    columns["captured"] = np.append(captured_call, no_call)
    columns["roles"] = np.append(trace.source_role, capture_trace.source_role[taken])
    return Joined(**columns)


def _make_appended_columns(
    trace: Trace, capture_trace: Trace, taken: Rows, new_row: NDArray[np.int32]
) -> dict[str, Any]:
    """Return the columns of the rows that are appended to a trace.

    Names, categories and tracks are not among them, as they are merged with those of
    the trace. The arguments are those of `_append_rows`.
    """
    count = len(taken)
    shift_ns = trace.begin_ns - int(capture_trace.start[taken].min())
    events_before = sum(stretch.events for stretch in trace.elements.stretches)
    no_id = np.zeros(count, dtype=np.int64)

    # The end of a row's children: the rows of the trace, then the taken ones before it.
    end_row = capture_trace.end_row[taken]
    taken_before_end = np.searchsorted(taken, end_row)
    return {
        "start": capture_trace.start[taken] + shift_ns,
        "dur": capture_trace.dur[taken],
        "role": np.full(count, Role.CAPTURED, dtype=np.uint8),
        "parent": _convert_rows(new_row, capture_trace.parent[taken]),
        "end_row": len(trace) + taken_before_end,
        "depth": capture_trace.depth[taken],
        "correlation": no_id,
        "external_id": no_id,
        "launch": np.full(count, NO_ROW, dtype=np.int32),
        "op": _convert_rows(new_row, capture_trace.op[taken]),
        "order": capture_trace.order[taken] + events_before,
    }


def _convert_rows(
    new_row: NDArray[np.int32], rows: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Convert rows of the capture to rows of the joined trace.

    NO_ROW stays what it is, and a row that was not taken becomes NO_ROW.

    Args:
        new_row: For each row of the capture the row that it became; NO_ROW if it was
            not taken.
        rows: Rows of the capture, or NO_ROW.
    """
    converted = np.full(len(rows), NO_ROW, dtype=np.int32)
    is_row = rows != NO_ROW
    converted[is_row] = new_row[rows[is_row]]
    return converted


def _merge_names(
    names: tuple[str, ...],
    capture_names: Sequence[str],
    name_indices: NDArray[np.int32],
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Append names of the capture to those of a trace, each once.

    E.g. the names (a, b) and the indices 1, 1 into the capture's names (b, c) become
    the names (a, b, c) and the indices 2, 2.

    Args:
        names: The names of the trace.
        capture_names: The names of the capture.
        name_indices: Indices into `capture_names`; only these names are appended.

    Returns:
        All names, and the indices into them that stand for `name_indices`.
    """
    index_of_name = {name: index for index, name in enumerate(names)}
    merged_index = np.zeros(len(capture_names), dtype=np.int32)
    for capture_index in used_ids(name_indices):
        name = capture_names[capture_index]
        merged_index[capture_index] = index_of_name.setdefault(name, len(index_of_name))
    return tuple(index_of_name), merged_index[name_indices]


def _merge_tracks(
    trace: Trace, capture_trace: Trace, taken: Rows
) -> tuple[tuple[Track, ...], NDArray[np.int32]]:
    """Append the tracks of captured rows to the tracks of a trace.

    The appended tracks get a process of their own, so that captured calls are not mixed
    with recorded ones.

    Args:
        trace: The trace of the replays.
        capture_trace: The trace of the captures.
        taken: The rows of the capture that are appended, ascending.

    Returns:
        All tracks, and for each row of `taken` the index of its track.
    """
    _, earlier_joins = _read_earlier_joins(trace)
    capture_number = len(earlier_joins) + 1

    # Rows are sorted by track: each track has a run of them.
    track_of_taken = capture_trace.track[taken]
    bounds = run_bounds(track_of_taken)
    tracks = list(trace.tracks)
    for first, end in pairwise(bounds.tolist()):
        track = capture_trace.tracks[track_of_taken[first]]
        captured_track = replace(
            track,
            layer=Layer.CAPTURED,
            pid=f"capture {capture_number} {track.pid}",
            label=f"captured on {track.label}",
            first_row=len(trace) + first,
            end_row=len(trace) + end,
        )
        tracks.append(captured_track)

    appended_track = numbers_of_sized_groups(np.diff(bounds))
    return tuple(tracks), (len(trace.tracks) + appended_track).astype(np.int32)
