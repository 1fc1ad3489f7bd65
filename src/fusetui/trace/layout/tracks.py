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
    Kinds,
    Rows,
    each,
    in_threads,
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
    """Where every slice is. Arrays have shape [slices], in the order of the Trace, by
    (track, start, -duration)."""

    order: Rows  # the index of each row in the raw columns
    start: Int64s
    dur: Int64s
    track: Int32s
    role: Kinds
    tracks: tuple[Track, ...]
    bounds: Rows  # where the rows of each track begin, then their number


class SortedSlices(NamedTuple):
    """Slices by (group, start, -duration); arrays of shape [slices]. A group is the
    number of a track before it is divided into sub-rows."""

    order: Rows  # the index of each in the raw columns
    group: Int32s
    role: Kinds
    start: Int64s
    dur: Int64s

    def reordered(self, places: Rows) -> SortedSlices:
        """The slices at these places, in this order."""
        return SortedSlices(
            order=self.order[places],
            group=self.group[places],
            role=self.role[places],
            start=self.start[places],
            dur=self.dur[places],
        )


def lay_out(raw: Raw) -> Layout:
    """Assigns every slice to a track and sorts the rows."""
    roles = _roles(raw)
    groups, group = _groups(raw, roles)
    slices = _sorted(raw, roles, groups, group)
    subrow = _subrows(groups, slices)
    if subrow.any():
        by_track = np.lexsort((subrow, slices.group))
        slices = slices.reordered(by_track)
        subrow = subrow[by_track]
    subrows_of_group = int(subrow.max(initial=0)) + 1
    if subrows_of_group == 1:
        track_key = slices.group
    else:
        track_key = slices.group.astype(np.int64) * subrows_of_group + subrow
    track_keys, track = small_unique(track_key)
    bounds = np.searchsorted(track, np.arange(len(track_keys) + 1))
    return Layout(
        order=slices.order,
        start=slices.start,
        dur=slices.dur,
        track=track,
        role=slices.role,
        tracks=_tracks(groups, track_keys, subrows_of_group, bounds),
        bounds=bounds,
    )


def _tracks(
    groups: Sequence[Track], track_keys: Rows, subrows_of_group: int, bounds: Rows
) -> tuple[Track, ...]:
    """The tracks with their sub-rows and rows. The key of a track is the number of its
    group times `subrows_of_group`, plus its sub-row; track n has the rows
    [bounds[n], bounds[n + 1])."""
    tracks = []
    row_ranges = pairwise(bounds.tolist())
    for key, (first_row, end_row) in zip(track_keys.tolist(), row_ranges, strict=True):
        group, subrow = divmod(key, subrows_of_group)
        track = replace(
            groups[group], subrow=subrow, first_row=first_row, end_row=end_row
        )
        tracks.append(track)
    return tuple(tracks)


def _sorted(
    raw: Raw, roles: Kinds, groups: Sequence[Track], group: Int32s
) -> SortedSlices:
    """The slices by (group, start, -duration, nesting rank, External id, file order).

    `roles` and `group` have the order of the file.
    """
    if len(groups) < MAX_TRACKS_IN_16_BITS:
        order = _order(raw, roles, group.astype(np.int16))
    else:
        order = _order(raw, roles, group)
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


def _order(raw: Raw, roles: Kinds, group: NDArray[np.int16] | Int32s) -> Rows:
    """The indices that sort the slices; see `_sorted`.

    Files are nearly sorted by start, but not by duration, so durations are compared
    only among equal starts. Of two ops with equal starts and durations, the outer one
    was entered first and has the smaller External id, wherever it is in the file.
    """
    order = np.lexsort((raw.start, group))
    start = raw.start[order]
    group = group[order]
    is_as_before = (start[1:] == start[:-1]) & (group[1:] == group[:-1])
    if not is_as_before.any():
        return order
    is_like_last = np.concatenate(([False], is_as_before))
    is_like_next = np.concatenate((is_as_before, [False]))
    run = np.cumsum(~is_like_last)  # of slices with equal group and start
    tied_places = np.flatnonzero(is_like_last | is_like_next)
    tied = order[tied_places]
    by_rank = np.lexsort(
        (
            raw.external_id[tied],
            _nesting_ranks()[roles[tied]],
            -raw.dur[tied],
            run[tied_places],  # the first key of the order, as lexsort has it
        )
    )
    order[tied_places] = tied[by_rank]
    return order


def _nesting_ranks() -> NDArray[np.int8]:
    """The nesting rank of each role; shape [roles]."""
    ranks = [NESTING_RANKS.get(role, LAST_NESTING_RANK) for role in Role]
    return np.array(ranks, np.int8)


def _roles(raw: Raw) -> Kinds:
    """The role of each slice in file order, by its category; except that some files
    record annotations as operators (see NO_OPS)."""
    role_of_category = [role(category) for category in raw.categories]
    roles = np.array(role_of_category, dtype=np.uint8)[raw.category]
    _add_legacy_roles(raw, roles)
    names_no_op = _flags([name.startswith(NO_OPS) for name in raw.names])
    is_op = roles == Role.OP
    is_no_op = names_no_op[raw.name]
    roles[is_op & is_no_op] = Role.ANNOTATION
    return roles


def _add_legacy_roles(raw: Raw, roles: Kinds) -> None:
    """Sets the roles of slices without a category where the process tells them; see
    LEGACY_CPU. On the GPU, a slice with the name of an op is the time of that op."""
    names_no_category = _flags([not category for category in raw.categories])
    is_cpu_lane = _flags([pid == LEGACY_CPU for pid, _, _ in raw.threads])
    is_gpu_lane = _flags([pid == LEGACY_GPU for pid, _, _ in raw.threads])
    is_uncategorized = names_no_category[raw.category]
    is_on_cpu = is_uncategorized & is_cpu_lane[raw.thread]
    is_on_gpu = is_uncategorized & is_gpu_lane[raw.thread]
    roles[is_on_cpu] = Role.OP
    names_op = np.zeros(len(raw.names), dtype=np.bool_)
    names_op[raw.name[is_on_cpu]] = True
    is_time_of_op = names_op[raw.name[is_on_gpu]]
    roles[is_on_gpu] = np.where(is_time_of_op, Role.GPU_ANNOTATION, Role.KERNEL)


def _flags(values: list[bool]) -> Flags:
    """An array of flags, also of an empty list."""
    return np.array(values, dtype=np.bool_)


def _groups(raw: Raw, roles: Kinds) -> tuple[list[Track], Int32s]:
    """Tracks without sub-rows, in screen order, their rows unknown; and the index among
    them of each slice, in file order. Lanes that differ only in whether an event says
    its device are one track."""
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
    """The distinct tracks in screen order, and the index among them of each track.
    `first_start` (ns) has shape [tracks]; of equal tracks the last one counts."""
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
    """The track of each pair of a lane and a layer; equal ones are one track."""
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
    """What the screen order sorts tracks by: CPU threads by their first start (ns),
    then GPUs by device and stream, then the rest by their first start."""
    layer = LAYER_ORDER.index(track.layer)
    pid_text = str(track.pid)
    tid_text = str(track.tid)
    if track.layer in GPU_LAYERS:
        device = _number_in(track.pid)
        stream = _number_in(track.tid)
        return (1, device, pid_text, stream, tid_text, layer)
    section = 0 if track.layer in CPU_LAYERS else 2
    return (section, first_start, pid_text, tid_text, layer)


def _number_in(value: Id) -> int:
    """The first number of an id; -1 if it has none."""
    digits = re.search(r"-?[0-9]{1,18}", str(value))
    return int(digits[0]) if digits else -1


def _subrows(groups: Sequence[Track], slices: SortedSlices) -> Int32s:
    """The sub-row of each slice; shape [slices].

    Groups without overlapping slices have one sub-row. Of the others, the small ones
    are arranged together, as if they were one track; then each large one in a thread.
    """
    end = slices.start + slices.dur
    subrow = np.zeros(len(end), dtype=np.int32)
    bounds = np.searchsorted(slices.group, np.arange(len(groups) + 1))
    overlapping = overlapping_tracks(bounds, slices.start, end)
    is_stream = _flags([group.layer is Layer.STREAM for group in groups])
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
    """Sets the sub-rows of the slices of these groups, all at once; `flat`: see
    `arrange`. Group n has the slices [bounds[n], bounds[n + 1])."""
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
    """Sets the sub-rows of the slices of these groups, each in a thread of its own.
    `is_stream` has shape [all groups]."""
    row_ranges = [slice(int(bounds[n]), int(bounds[n + 1])) for n in groups]

    def arranged(number: int) -> Int32s:
        """The sub-rows of the slices of one group."""
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
    """The distinct keys, sorted, and the index of each key among them. Keys are not
    negative; time and memory grow with the largest."""
    occurrences = np.bincount(keys)  # up to the largest key
    distinct_keys = np.flatnonzero(occurrences)
    index_of_key = np.empty(len(occurrences), dtype=np.int32)
    index_of_key[distinct_keys] = np.arange(len(distinct_keys), dtype=np.int32)
    return distinct_keys, index_of_key[keys]


class Naming:
    """The labels of a file, looked up one track at a time."""

    def __init__(self, labels: Sequence[Label]) -> None:
        """The first label of a process counts; of a thread, see `_name_thread`."""
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
        """Keeps the name that says most: `thread 7 (pt_autograd_0)` says more than
        `thread 7 (python3)`, and that more than `thread 7`. Else the first."""
        known = self._threads.get(thread, "")
        if not known:
            self._threads[thread] = name
            return
        parts = THREAD_NAME.match(known)
        is_generic = parts is not None and parts[2] in GENERIC_NAMES
        if is_generic and not known.startswith(name):
            self._threads[thread] = name

    def label(self, layer: Layer, pid: Id, tid: Id, device: Id) -> str:
        """What a track is called: `pt_autograd_0 7` of a thread, `GPU 0 stream 7`.

        `pid` and `tid` are those of the file; `device` is the number of the device, of
        GPU layers.
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
        """The name of the process; but where that is `GPU 1`, as Kineto calls pid 1,
        and the device is another one, the device."""
        of_process = self._processes.get(pid, "")
        is_of_other_device = device != pid and of_process == device_label(pid)
        if not of_process or is_of_other_device:
            return device_label(device)
        return of_process
