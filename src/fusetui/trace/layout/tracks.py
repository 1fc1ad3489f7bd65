"""Assigns slices in file order to tracks, with their labels and the row order.

A CPU thread has up to three layers (annotations, Python frames, ops with runtime
calls), because annotations cross Python frames; a GPU stream has its kernels and
copies, its annotations and its synchronizations. The order of tracks is: CPU threads by
first start, GPUs by device and stream, the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import device_numbers
from fusetui.trace.layout.nesting import arrange
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Integers,
    Kinds,
    Rows,
    begins_runs,
    each,
    ends_runs,
    group_numbers,
    in_threads,
    run_bounds,
)
from fusetui.trace.model.categories import (
    CPU_LAYERS,
    GPU_LAYERS,
    LAYER_ORDER,
    LAYERS,
    LEGACY_CPU,
    LEGACY_GPU,
    NO_OPS,
    Layer,
    Role,
    role,
)
from fusetui.trace.model.columns import Track
from fusetui.trace.model.ids import Id, device_label, stream_label
from fusetui.trace.model.intervals import (
    as_one_track,
    overlapping_tracks,
    rows_of_tracks,
    small_tracks,
)
from fusetui.trace.model.raw import Label, Lane, Raw, Thread

THREAD_NAME = lazy_pattern(r"thread (-?\w+) \((.*)\)\Z", re.DOTALL)
"""What torch calls a thread: `thread 7 (pt_autograd_0)`."""
GENERIC_NAMES = ("python", "python3", "pt_main_thread")
"""Names in brackets that say nothing about a thread."""
MAX_TRACKS_IN_16_BITS = 1 << 15
"""If there are fewer tracks, their numbers fit into 16 bits and sort in linear time."""

NESTING_RANKS = {Role.ANNOTATION: 0, Role.PYTHON: 1, Role.OP: 2, Role.CALL: 3}
"""Of slices with equal times, the one with the smaller rank contains the other."""
LAST_NESTING_RANK = 9  # of all other roles


class Layout(msgspec.Struct, frozen=True, eq=False):
    """The tracks, and columns with a row for each slice, sorted by track, then start,
    then descending duration."""

    order: Rows  # the index of the slice in the file
    start: Int64s  # ns
    dur: Int64s  # ns
    track: Int32s
    role: Kinds
    tracks: tuple[Track, ...]
    bounds: Rows  # track n has the rows [bounds[n], bounds[n + 1])


class SortedSlices(NamedTuple):
    """Columns with a row for each slice, sorted by group, then start, then descending
    duration. A group is a track before it is divided into sub-rows."""

    order: Rows  # the index of the slice in the file
    group: Int32s  # the number of its group
    role: Kinds
    start: Int64s  # ns
    dur: Int64s  # ns

    def reordered(self, rows: Rows) -> SortedSlices:
        """Return these rows in this order."""
        return SortedSlices(
            order=self.order[rows],
            group=self.group[rows],
            role=self.role[rows],
            start=self.start[rows],
            dur=self.dur[rows],
        )


def lay_out(raw: Raw) -> Layout:
    """Assign every slice to a track, and sort the slices by track.

    A track holds slices of one layer of one thread or stream that nest perfectly. What
    overlaps without nesting gets a further track of that layer, with a sub-row above 0.

    Args:
        raw: The slices as columns, in the order of the file.
    """
    roles = _assign_roles(raw)
    groups, group = _group_slices(raw, roles)
    slices = _sort_slices(raw, roles, len(groups), group)
    subrow = _assign_subrows(groups, slices)
    if subrow.any():
        by_track = np.lexsort((subrow, slices.group))
        slices = slices.reordered(by_track)
        subrow = subrow[by_track]

    # The slices of a group are neighbors, and among them those of a sub-row.
    bounds = run_bounds(slices.group, subrow)
    first_rows = bounds[:-1]
    numbers = np.arange(len(first_rows), dtype=np.int32)
    return Layout(
        order=slices.order,
        start=slices.start,
        dur=slices.dur,
        track=np.repeat(numbers, np.diff(bounds)),
        role=slices.role,
        tracks=_make_tracks(
            groups, slices.group[first_rows], subrow[first_rows], bounds
        ),
        bounds=bounds,
    )


def _make_tracks(
    groups: Sequence[Track],
    group_of_track: Integers,
    subrow_of_track: Integers,
    bounds: Rows,
) -> tuple[Track, ...]:
    """Make the tracks from their groups, with sub-rows and rows filled in.

    Args:
        groups: The tracks before they were divided into sub-rows.
        group_of_track: For each track the number of its group.
        subrow_of_track: For each track its sub-row.
        bounds: Track n has the rows [bounds[n], bounds[n + 1]).
    """
    columns = zip(
        group_of_track.tolist(),
        subrow_of_track.tolist(),
        pairwise(bounds.tolist()),
        strict=True,
    )
    tracks = []
    for group, subrow, (first_row, end_row) in columns:
        track = replace(
            groups[group], subrow=subrow, first_row=first_row, end_row=end_row
        )
        tracks.append(track)
    return tuple(tracks)


def _sort_slices(
    raw: Raw, roles: Kinds, group_count: int, group: Int32s
) -> SortedSlices:
    """Bring the slices into the order of the Trace, sub-rows aside.

    Args:
        raw: The slices in the order of the file.
        roles: The role of each of them.
        group_count: How many groups there are.
        group: The number of the group of each slice.
    """
    if group_count < MAX_TRACKS_IN_16_BITS:
        order = _sort_order(raw, roles, group.astype(np.int16))
    else:
        order = _sort_order(raw, roles, group)
    columns = each(
        {
            "group": lambda: group.take(order),
            "role": lambda: roles.take(order),
            "start": lambda: raw.start.take(order),
            "dur": lambda: raw.dur.take(order),
        },
        rows=len(order),
    )
    return SortedSlices(order=order, **columns)


def _sort_order(raw: Raw, roles: Kinds, group: NDArray[np.int16] | Int32s) -> Rows:
    """Return the indices that sort slices so that outer ones come before inner ones.

    The first of these that differs decides: the group, the start, the duration (longer
    ones first), the role (`NESTING_RANKS`), the External id, the place in the file. The
    profiler counts External ids up when it enters an op, so of two ops with the same
    times the outer one has the smaller id.

    Args:
        raw: The slices in the order of the file.
        roles: The role of each of them.
        group: The number of the group of each of them.
    """
    # Files are nearly sorted by start, which makes the first sort fast, but not by
    # duration. So the rest is only compared among slices that start together.
    order = np.lexsort((raw.start, group))
    sorted_groups = group[order]
    sorted_starts = raw.start[order]
    begins_tie = begins_runs(sorted_groups, sorted_starts)
    ends_tie = ends_runs(sorted_groups, sorted_starts)
    is_tied = ~(begins_tie & ends_tie)  # with at least one other slice
    if not is_tied.any():
        return order

    tie = group_numbers(begins_tie)
    tied = order[is_tied]
    outer_first = np.lexsort(  # the last key counts most
        (
            raw.external_id[tied],
            _nesting_ranks()[roles[tied]],
            -raw.dur[tied],
            tie[is_tied],
        )
    )
    order[is_tied] = tied[outer_first]
    return order


def _nesting_ranks() -> NDArray[np.int8]:
    """Return NESTING_RANKS as an array that a Role indexes."""
    ranks = [NESTING_RANKS.get(role, LAST_NESTING_RANK) for role in Role]
    return np.array(ranks, np.int8)


def _assign_roles(raw: Raw) -> Kinds:
    """Return the role of each slice (kernel, op, annotation, ...), in file order.

    The category of a slice decides it: `kernel` is a KERNEL, `cpu_op` an OP. Two kinds
    of files need more: those without categories (`_add_legacy_roles`), and those that
    write annotations such as ProfilerStep#1 as ops (the names in NO_OPS).
    """
    role_of_category = [role(category) for category in raw.categories]
    roles = np.array(role_of_category, dtype=np.uint8)[raw.category]
    _add_legacy_roles(raw, roles)
    names_no_op = _as_flags([name.startswith(NO_OPS) for name in raw.names])
    is_op = roles == Role.OP
    is_no_op = names_no_op[raw.name]
    roles[is_op & is_no_op] = Role.ANNOTATION
    return roles


def _add_legacy_roles(raw: Raw, roles: Kinds) -> None:
    """Set in place the roles of slices without a category, by their process.

    The old profiler of torch wrote no categories, but two processes: what is in
    LEGACY_CPU are ops. What is in LEGACY_GPU are kernels, except for slices with the
    name of an op, which say how long the GPU worked for it: GPU annotations.
    """
    names_no_category = _as_flags([not category for category in raw.categories])
    is_cpu_lane = _as_flags([pid == LEGACY_CPU for pid, _, _ in raw.threads])
    is_gpu_lane = _as_flags([pid == LEGACY_GPU for pid, _, _ in raw.threads])
    is_uncategorized = names_no_category[raw.category]
    is_on_cpu = is_uncategorized & is_cpu_lane[raw.thread]
    is_on_gpu = is_uncategorized & is_gpu_lane[raw.thread]
    roles[is_on_cpu] = Role.OP
    names_op = np.zeros(len(raw.names), dtype=np.bool_)
    names_op[raw.name[is_on_cpu]] = True
    is_time_of_op = names_op[raw.name[is_on_gpu]]
    roles[is_on_gpu] = np.where(is_time_of_op, Role.GPU_ANNOTATION, Role.KERNEL)


def _as_flags(values: list[bool]) -> Flags:
    """Return an array of flags. np.array alone makes floats of an empty list."""
    return np.array(values, dtype=np.bool_)


def _group_slices(raw: Raw, roles: Kinds) -> tuple[list[Track], Int32s]:
    """Divide the slices into tracks, without regard to overlaps.

    A lane of the file (pid, tid, device) has a track for each layer in which it has
    slices: a CPU thread with Python frames and ops has two. Lanes that differ only in
    whether their events say the device are one track.

    Args:
        raw: The slices in the order of the file.
        roles: The role of each of them, which decides its layer.

    Returns:
        The tracks in the order of the screen, not yet with rows; and for each slice, in
        the order of the file, the index of its track.
    """
    layer_numbers = [LAYER_ORDER.index(LAYERS[role]) for role in Role]
    layer_of_role = np.array(layer_numbers, np.int32)
    # one number for the lane and the layer of a slice
    key = raw.thread.astype(np.int64) * len(LAYER_ORDER) + layer_of_role[roles]
    keys, key_of_slice = small_unique(key)
    lanes, layers = np.divmod(keys, len(LAYER_ORDER))
    tracks = _tracks_of_lanes(
        raw,
        lanes=[raw.threads[lane] for lane in lanes.tolist()],
        layers=[LAYER_ORDER[layer] for layer in layers.tolist()],
    )
    first_start_of_lane = np.full(len(raw.threads), np.iinfo(np.int64).max)
    np.minimum.at(first_start_of_lane, raw.thread, raw.start)
    groups, group_of_key = _in_screen_order(tracks, first_start_of_lane[lanes])
    return groups, group_of_key[key_of_slice]


def _in_screen_order(
    tracks: Sequence[Track], first_start: Int64s
) -> tuple[list[Track], Int32s]:
    """Merge equal tracks, and sort them as the screen shows them.

    If track A starts at 20, B at 10 and A once more at 30, all on the CPU, the result
    is [B, A] and the indices [1, 0, 1].

    Args:
        tracks: The tracks, of which some may be equal.
        first_start: The start of the first slice of each in ns. Of equal tracks that of
            the last one counts.

    Returns:
        The distinct tracks in order, and the index among them of each given track.
    """
    sort_keys: dict[Track, tuple[object, ...]] = {}
    for track, start in zip(tracks, first_start.tolist(), strict=True):
        sort_keys[track] = _sort_key(track, start)
    in_order = sorted(sort_keys, key=sort_keys.__getitem__)
    index_of_track = {track: index for index, track in enumerate(in_order)}
    indices = [index_of_track[track] for track in tracks]
    return in_order, np.array(indices, dtype=np.int32)


def _tracks_of_lanes(
    raw: Raw, lanes: Sequence[Lane], layers: Sequence[Layer]
) -> list[Track]:
    """Make the track of each pair of a lane and a layer, not yet with rows.

    The pid of a track on a GPU is the number of the device, not the pid of the file.
    That can make the tracks of several pairs equal.

    Args:
        raw: The file, which has the names of processes and threads.
        lanes: The lane (pid, tid, device) of each pair.
        layers: The layer of each pair.
    """
    device_number = device_numbers(layers, lanes)
    naming = Naming(raw.labels)
    tracks: list[Track] = []
    for layer, (pid, tid, device) in zip(layers, lanes, strict=True):
        owner = device_number(pid, device) if layer in GPU_LAYERS else pid
        track = Track(
            layer=layer,
            pid=owner,
            tid=tid,
            label=naming.label(layer, pid, tid, owner),
            subrow=0,
            first_row=0,
            end_row=0,
        )
        tracks.append(track)
    return tracks


def _sort_key(track: Track, first_start: int) -> tuple[object, ...]:
    """Return what the order of the screen compares of a track.

    CPU threads come first, by the start of their first slice (ns). Then come GPUs by
    device and stream, so that stream 7 is before stream 13; then everything else by its
    first start.
    """
    layer = LAYER_ORDER.index(track.layer)
    pid_text = str(track.pid)
    tid_text = str(track.tid)
    if track.layer in GPU_LAYERS:
        device = _first_number_in(track.pid)
        stream = _first_number_in(track.tid)
        return (1, device, pid_text, stream, tid_text, layer)
    section = 0 if track.layer in CPU_LAYERS else 2
    return (section, first_start, pid_text, tid_text, layer)


def _first_number_in(value: Id) -> int:
    """Return the first number in an id: 7 for 7, 12 for "stream 12 (3)"; -1 for none."""
    digits = re.search(r"-?[0-9]{1,18}", str(value))
    return int(digits[0]) if digits else -1


def _assign_subrows(groups: Sequence[Track], slices: SortedSlices) -> Int32s:
    """Return the sub-row of each slice, 0 wherever the slices of a group nest.

    On a stream, kernels may not even nest: they run side by side, not in each other.

    Args:
        groups: The tracks before they are divided into sub-rows.
        slices: The slices, sorted by group.
    """
    end = slices.start + slices.dur
    subrow = np.zeros(len(end), dtype=np.int32)
    bounds = np.searchsorted(slices.group, np.arange(len(groups) + 1))
    overlapping = overlapping_tracks(bounds, slices.start, end)
    is_stream = _as_flags([group.layer is Layer.STREAM for group in groups])

    # Many small groups are arranged in one call, as if they were one track.
    small_streams = small_tracks(bounds, overlapping[is_stream[overlapping]])
    small_others = small_tracks(bounds, overlapping[~is_stream[overlapping]])
    _arrange_small(subrow, slices, bounds, small_streams, flat=True)
    _arrange_small(subrow, slices, bounds, small_others, flat=False)

    small = np.concatenate((small_streams, small_others))
    large = np.setdiff1d(overlapping, small, assume_unique=True)
    _arrange_large(subrow, slices, bounds, large, is_stream)
    return subrow


def _arrange_small(
    subrow: Int32s, slices: SortedSlices, bounds: Rows, groups: Rows, flat: bool
) -> None:
    """Set in place the sub-rows of the slices of some groups, in one call of `arrange`.

    Args:
        subrow: The sub-row of every slice, which is changed.
        slices: All slices.
        bounds: Group n has the slices [bounds[n], bounds[n + 1]).
        groups: The numbers of the groups. May be empty.
        flat: Whether slices of a sub-row may not nest.
    """
    if not len(groups):
        return
    rows, bounds_in_rows = rows_of_tracks(bounds, groups)
    start = slices.start[rows]
    end = start + slices.dur[rows]
    starts, ends = as_one_track(bounds_in_rows, start, end)
    is_call = slices.role[rows] == Role.CALL
    subrow[rows] = arrange(starts, ends, is_call, flat)


def _arrange_large(
    subrow: Int32s,
    slices: SortedSlices,
    bounds: Rows,
    groups: Rows,
    is_stream: Flags,
) -> None:
    """Set in place the sub-rows of the slices of some groups, with several threads.

    Args:
        subrow: The sub-row of every slice, which is changed.
        slices: All slices.
        bounds: Group n has the slices [bounds[n], bounds[n + 1]).
        groups: The numbers of the groups. May be empty.
        is_stream: Whether each of all groups is a stream, whose slices may not nest.
    """
    row_ranges = [slice(int(bounds[n]), int(bounds[n + 1])) for n in groups]

    def arranged(number: int) -> Int32s:
        """Return the sub-rows of the slices of the group `groups[number]`."""
        rows = row_ranges[number]
        start = slices.start[rows]
        end = start + slices.dur[rows]
        is_call = slices.role[rows] == Role.CALL
        return arrange(start, end, is_call, flat=bool(is_stream[groups[number]]))

    sizes = [rows.stop - rows.start for rows in row_ranges]
    subrows_of_groups = in_threads(arranged, sizes)
    for rows, subrows in zip(row_ranges, subrows_of_groups, strict=True):
        subrow[rows] = subrows


def small_unique(keys: Int64s | Int32s) -> tuple[Rows, Int32s]:
    """Find the distinct keys without sorting, where keys are small numbers.

    >>> small_unique(np.array([7, 2, 7]))
    (array([2, 7]), array([1, 0, 1], dtype=int32))

    Args:
        keys: Numbers from 0 on. Time and memory grow with the largest of them.

    Returns:
        The distinct keys, ascending; and the index among them of each key.
    """
    occurrences = np.bincount(keys)
    distinct_keys = np.flatnonzero(occurrences)
    index_of_key = np.empty(len(occurrences), dtype=np.int32)
    index_of_key[distinct_keys] = np.arange(len(distinct_keys), dtype=np.int32)
    return distinct_keys, index_of_key[keys]


class Naming:
    """The labels of a file, looked up one track at a time."""

    def __init__(self, labels: Sequence[Label]) -> None:
        """Collect the names.

        Args:
            labels: The metadata events of the file. Those of kind `thread_name` name a
                thread, `process_labels` a process; of several, `_name_thread` chooses,
                and the first of a process counts.
        """
        self._threads: dict[Thread, str] = {}
        self._processes: dict[Id, str] = {}
        for label in labels:
            if not label.value:
                continue
            text = str(label.value)
            if label.kind == "thread_name":
                self._name_thread((label.pid, label.tid), text)
            elif label.kind == "process_labels":
                self._processes.setdefault(label.pid, text)

    def _name_thread(self, thread: Thread, name: str) -> None:
        """Take a name of a thread, unless a known one says as much or more.

        `thread 7 (pt_autograd_0)` says more than `thread 7 (python3)`, one of
        GENERIC_NAMES, and that says more than its own beginning, `thread 7`. Else the
        first name stays.
        """
        known = self._threads.get(thread, "")
        if not known:
            self._threads[thread] = name
            return
        parts = THREAD_NAME.match(known)
        is_generic = parts is not None and parts[2] in GENERIC_NAMES
        if is_generic and not known.startswith(name):
            self._threads[thread] = name

    def label(self, layer: Layer, pid: Id, tid: Id, device: Id) -> str:
        """Return what a track is called.

        A CPU thread that the file names `thread 7 (pt_autograd_0)` is `pt_autograd_0
        7`; without a name it is `thread 7`. A stream without a name is `GPU 0 stream
        7`.

        Args:
            layer: The layer of the track.
            pid: The process as the file has it.
            tid: The thread or stream as the file has it.
            device: The number of the device; it counts for GPU layers only.
        """
        name = self._threads.get((pid, tid), "").strip()
        if layer in GPU_LAYERS:
            return f"{self._device_name(pid, device)} {name or stream_label(tid)}"
        parts = THREAD_NAME.match(name)
        if parts:
            return f"{parts[2]} {parts[1]}"
        if name:
            return name
        return f"thread {tid}" if isinstance(tid, int) else str(tid or "events")

    def _device_name(self, pid: Id, device: Id) -> str:
        """Return the name of a device: that of its process in the file, else `GPU 0`.

        Kineto calls the process 1 `GPU 1`, even if its work says that it is of device
        0. Such a name is not used.
        """
        name_of_process = self._processes.get(pid, "")
        is_of_other_device = device != pid and name_of_process == device_label(pid)
        if not name_of_process or is_of_other_device:
            return device_label(device)
        return name_of_process
