"""Slices in file order -> tracks: which track each belongs to, its labels, and the row
order.

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
from fusetui.trace.model.raw import Label, Raw, Thread

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
        key = slices.group
    else:
        key = slices.group.astype(np.int64) * subrows_of_group + subrow
    track_keys, track = small_unique(key)
    bounds = np.searchsorted(track, np.arange(len(track_keys) + 1))
    tracks = []
    row_ranges = pairwise(bounds.tolist())
    for track_key, (first_row, end_row) in zip(
        track_keys.tolist(), row_ranges, strict=True
    ):
        number, subrow_of_track = divmod(track_key, subrows_of_group)
        tracks.append(
            replace(
                groups[number],
                subrow=subrow_of_track,
                first_row=first_row,
                end_row=end_row,
            )
        )
    return Layout(
        order=slices.order,
        start=slices.start,
        dur=slices.dur,
        track=track,
        role=slices.role,
        tracks=tuple(tracks),
        bounds=bounds,
    )


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
    among = np.flatnonzero(is_like_last | is_like_next)
    rows = order[among]
    rank_of_role = np.array(
        [NESTING_RANKS.get(role, LAST_NESTING_RANK) for role in Role], np.int8
    )
    keys = (
        raw.external_id[rows],
        rank_of_role[roles[rows]],
        -raw.dur[rows],
        run[among],
    )
    order[among] = rows[np.lexsort(keys)]
    return order


def _roles(raw: Raw) -> Kinds:
    """Roles by category, except that some files record annotations as operators (see
    NO_OPS)."""
    role_of_category = [role(category) for category in raw.categories]
    roles = np.array(role_of_category, dtype=np.uint8)[raw.category]
    _add_legacy_roles(raw, roles)
    names_no_op = _flags([name.startswith(NO_OPS) for name in raw.names])
    roles[names_no_op[raw.name] & (roles == Role.OP)] = Role.ANNOTATION
    return roles


def _add_legacy_roles(raw: Raw, roles: Kinds) -> None:
    """Sets the roles of slices without a category where the process tells them; see
    LEGACY_CPU."""
    is_uncategorized = _flags([not category for category in raw.categories])
    is_cpu_lane = _flags([pid == LEGACY_CPU for pid, _, _ in raw.threads])
    is_gpu_lane = _flags([pid == LEGACY_GPU for pid, _, _ in raw.threads])
    on_cpu = is_uncategorized[raw.category] & is_cpu_lane[raw.thread]
    on_gpu = is_uncategorized[raw.category] & is_gpu_lane[raw.thread]
    roles[on_cpu] = Role.OP
    is_name_of_op = np.zeros(len(raw.names), dtype=np.bool_)
    is_name_of_op[raw.name[on_cpu]] = True
    is_time_of_op = is_name_of_op[raw.name[on_gpu]]
    roles[on_gpu] = np.where(is_time_of_op, Role.GPU_ANNOTATION, Role.KERNEL)


def _flags(values: list[bool]) -> Flags:
    return np.array(values, dtype=np.bool_)


def _groups(raw: Raw, roles: Kinds) -> tuple[list[Track], Int32s]:
    """Tracks without sub-rows, in screen order, their rows unknown; and the index among
    them of each slice, in file order. Lanes that differ only in whether an event says
    its device are one track."""
    layer_of_role = np.array(
        [LAYER_ORDER.index(LAYERS[role]) for role in Role], np.int32
    )
    key = raw.thread.astype(np.int64) * len(LAYER_ORDER) + layer_of_role[roles]
    keys, key_of_slice = small_unique(key)
    begins = np.full(len(raw.threads), np.iinfo(np.int64).max)
    np.minimum.at(begins, raw.thread, raw.start)
    lane_numbers, layer_numbers = np.divmod(keys, len(LAYER_ORDER))
    lanes = [raw.threads[number] for number in lane_numbers.tolist()]
    layers = [LAYER_ORDER[number] for number in layer_numbers.tolist()]
    device_number = device_numbers(layers, lanes)
    naming = Naming(raw.labels)
    tracks: list[Track] = []  # of each key
    for layer, (pid, tid, device) in zip(layers, lanes, strict=True):
        owner = device_number(pid, device) if layer in GPU_LAYERS else pid
        label = naming.label(layer, pid, tid, owner)
        tracks.append(
            Track(
                layer=layer,
                pid=owner,
                tid=tid,
                label=label,
                subrow=0,
                first_row=0,
                end_row=0,
            )
        )
    sort_keys: dict[Track, tuple[object, ...]] = {}
    for track, begin in zip(tracks, begins[lane_numbers].tolist(), strict=True):
        sort_keys[track] = _sort_key(track, begin)
    in_order = sorted(sort_keys, key=sort_keys.__getitem__)
    place = {track: number for number, track in enumerate(in_order)}
    place_of_key = np.array([place[track] for track in tracks], dtype=np.int32)
    return in_order, place_of_key[key_of_slice]


def _sort_key(track: Track, begin: int) -> tuple[object, ...]:
    """What the screen order sorts tracks by; `begin`: the first start on the lane."""
    layer = LAYER_ORDER.index(track.layer)
    if track.layer in GPU_LAYERS:
        stream = (_number_in(track.tid), str(track.tid))
        return (1, _number_in(track.pid), str(track.pid), *stream, layer)
    section = 0 if track.layer in CPU_LAYERS else 2
    return (section, begin, str(track.pid), str(track.tid), layer)


def _number_in(value: Id) -> int:
    """The first number of an id; -1 if it has none."""
    digits = re.search(r"-?[0-9]{1,18}", str(value))
    return int(digits[0]) if digits else -1


def _subrows(groups: Sequence[Track], slices: SortedSlices) -> Int32s:
    """The sub-row of each slice; shape [slices]."""
    start = slices.start
    end = slices.start + slices.dur
    is_call = slices.role == Role.CALL
    bounds = np.searchsorted(slices.group, np.arange(len(groups) + 1))
    is_stream = np.array([group.layer is Layer.STREAM for group in groups], np.bool_)
    left = overlapping_tracks(
        bounds, start, end
    )  # groups that are still to be arranged
    subrow = np.zeros(len(start), dtype=np.int32)
    for flat in (True, False):
        small = small_tracks(bounds, left[is_stream[left] == flat])
        if len(small):
            rows, begins = rows_of_tracks(bounds, small)
            starts, ends = as_one_track(begins, start[rows], end[rows])
            subrow[rows] = arrange(starts, ends, is_call[rows], flat)
            left = np.setdiff1d(left, small, assume_unique=True)
    slices_of_left = [slice(int(bounds[n]), int(bounds[n + 1])) for n in left]

    def arranged(number: int) -> Int32s:
        here = slices_of_left[number]
        flat = bool(is_stream[left[number]])
        return arrange(start[here], end[here], is_call[here], flat)

    sizes = [here.stop - here.start for here in slices_of_left]
    subrows_of_left = in_threads(arranged, sizes)
    for here, subrows in zip(slices_of_left, subrows_of_left, strict=True):
        subrow[here] = subrows
    return subrow


def small_unique(keys: Int64s | Int32s) -> tuple[Rows, Int32s]:
    """The distinct keys, sorted, and the index of each key among them. Keys are not
    negative; time and memory grow with the largest."""
    distinct_keys = np.flatnonzero(np.bincount(keys))
    largest = int(distinct_keys[-1]) if len(distinct_keys) else -1
    place_of_key = np.empty(largest + 1, dtype=np.int32)
    place_of_key[distinct_keys] = np.arange(len(distinct_keys), dtype=np.int32)
    return distinct_keys, place_of_key[keys]


class Naming:
    """The labels of a file, looked up one track at a time."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._threads: dict[Thread, str] = {}
        self._processes: dict[Id, str] = {}
        for label in labels:
            if not label.value:
                continue
            if label.kind == "thread_name":
                self._name_thread((label.pid, label.tid), str(label.value))
            elif label.kind == "process_labels":
                self._processes.setdefault(label.pid, str(label.value))

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
