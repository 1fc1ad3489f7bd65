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
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.patterns import late
from fusetui.trace.layout.devices import device_numbers
from fusetui.trace.layout.nesting import arrange
from fusetui.trace.model.arrays import Int32s, Int64s, Kinds, Rows, each, in_threads
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
from fusetui.trace.model.intervals import as_one, overlapping, rows_of, small_ones
from fusetui.trace.model.raw import Label, Raw, Thread

THREAD_NAME = late(r"thread (-?\w+) \((.*)\)\Z", re.DOTALL)
GENERIC = ("python", "python3", "pt_main_thread")
FEW = 1 << 15  # tracks whose numbers fit into 16 bits, which sort in linear time
# outer first, on a tie
RANKS = {Role.ANNOTATION: 0, Role.PYTHON: 1, Role.OP: 2, Role.CALL: 3}


class Layout(msgspec.Struct, frozen=True, eq=False):
    """`order` sorts the raw rows; `track` (shape [slices], sorted) and `tracks` place
    them."""

    order: Rows
    start: Int64s  # of the sorted rows, like all below
    dur: Int64s
    track: Int32s
    role: Kinds
    tracks: tuple[Track, ...]
    bounds: Rows  # where the rows of each track begin, then their number


def lay_out(raw: Raw) -> Layout:
    """Assigns every slice to a track and sorts the rows."""
    roles = _roles(raw)
    keys, group = _groups(raw, roles)
    rank = np.array([RANKS.get(Role(r), 9) for r in range(len(Role))], np.int8)[roles]
    order = _sorted(group.astype(np.int16) if len(keys) < FEW else group, raw, rank)
    columns: dict[str, NDArray[Any]] = {"group": group, "role": roles}
    columns |= {"start": raw.start, "dur": raw.dur}
    takes = {name: partial(column.take, order) for name, column in columns.items()}
    group, roles, start, dur = each(takes, len(order)).values()
    subrow = _subrows(keys, group, start, dur, roles)
    if subrow.any():
        again = np.lexsort((subrow, group))
        order, subrow, group, roles = (
            order[again],
            subrow[again],
            group[again],
            roles[again],
        )
        start, dur = start[again], dur[again]
    depth = int(subrow.max(initial=0)) + 1
    present, track = small_unique(
        group if depth == 1 else group.astype(np.int64) * depth + subrow
    )
    bounds = np.searchsorted(track, np.arange(len(present) + 1))
    tracks = tuple(
        replace(
            keys[number // depth], subrow=number % depth, first_row=first, end_row=last
        )
        for number, (first, last) in zip(
            present.tolist(), pairwise(bounds.tolist()), strict=True
        )
    )
    return Layout(order, start, dur, track, roles, tracks, bounds)


def _sorted(
    group: NDArray[np.int16] | Int32s, raw: Raw, rank: NDArray[np.int8]
) -> Rows:
    """The raw rows by (group, start, -duration, rank, External id, file order).

    Files are nearly sorted by start, but not by duration, so durations are compared
    only among equal starts. Of two ops with equal starts and durations, the outer one
    was entered first and has the smaller External id, wherever it is in the file.
    """
    order = np.lexsort((raw.start, group))
    start, key = raw.start[order], group[order]
    equal = (start[1:] == start[:-1]) & (key[1:] == key[:-1])
    if not equal.any():
        return order
    run = np.cumsum(np.concatenate(([True], ~equal)))
    among = np.flatnonzero(
        np.concatenate((equal, [False])) | np.concatenate(([False], equal))
    )
    rows = order[among]
    order[among] = rows[
        np.lexsort((raw.external_id[rows], rank[rows], -raw.dur[rows], run[among]))
    ]
    return order


def _roles(raw: Raw) -> Kinds:
    """Roles by category, except that some files record annotations as operators (see
    NO_OPS)."""
    by_category = [role(category) for category in raw.categories]
    roles = np.array(by_category or [Role.OTHER], dtype=np.uint8)[raw.category]
    noted = np.array([name.startswith(NO_OPS) for name in raw.names] or [False])[
        raw.name
    ]
    _add_legacy_roles(raw, roles)
    roles[noted & (roles == Role.OP)] = Role.ANNOTATION
    return roles


def _add_legacy_roles(raw: Raw, roles: Kinds) -> None:
    """Gives slices without a category their role where the process tells it; see
    LEGACY_CPU."""
    uncategorized = np.array([not category for category in raw.categories] or [True])[
        raw.category
    ]
    pids = [pid for pid, _, _ in raw.threads]
    on_cpu = (
        np.array([pid == LEGACY_CPU for pid in pids] or [False])[raw.thread]
        & uncategorized
    )
    on_gpu = (
        np.array([pid == LEGACY_GPU for pid in pids] or [False])[raw.thread]
        & uncategorized
    )
    roles[on_cpu] = Role.OP
    is_name_of_op = np.zeros(max(1, len(raw.names)), dtype=np.bool_)
    is_name_of_op[raw.name[on_cpu]] = True
    roles[on_gpu] = np.where(
        is_name_of_op[raw.name[on_gpu]], Role.GPU_ANNOTATION, Role.KERNEL
    )


def _groups(raw: Raw, roles: Kinds) -> tuple[list[Track], Int32s]:
    """Tracks without sub-rows, in screen order, their rows unknown, and the track of
    each raw row. Lanes that differ only in whether an event says its device are one
    track."""
    layer_of = np.array(
        [LAYER_ORDER.index(LAYERS[Role(r)]) for r in range(len(Role))], np.int32
    )
    key = raw.thread.astype(np.int64) * len(LAYER_ORDER) + layer_of[roles]
    present, group = small_unique(key)
    begins = np.full(len(raw.threads), np.iinfo(np.int64).max)
    np.minimum.at(begins, raw.thread, raw.start)
    layers = [LAYER_ORDER[n % len(LAYER_ORDER)] for n in present.tolist()]
    threads = present // len(LAYER_ORDER)
    lanes = [raw.threads[n] for n in threads.tolist()]
    number, naming = device_numbers(layers, lanes), Naming(raw.labels)
    keys: list[Track] = []
    for layer, (pid, tid, device) in zip(layers, lanes, strict=True):
        own = number(pid, device) if layer in GPU_LAYERS else pid
        keys.append(Track(layer, own, tid, naming.label(layer, pid, tid, own), 0, 0, 0))
    place_of = {
        k: _place(k, begin)
        for k, begin in zip(keys, begins[threads].tolist(), strict=True)
    }
    ranking = sorted(place_of, key=place_of.__getitem__)
    place = {key: number for number, key in enumerate(ranking)}
    return ranking, np.array([place[key] for key in keys], dtype=np.int32)[group]


def _place(track: Track, begins: int) -> tuple[object, ...]:
    pid, tid, layer = track.pid, track.tid, LAYER_ORDER.index(track.layer)
    if track.layer in GPU_LAYERS:
        return (1, _number(pid), str(pid), _number(tid), str(tid), layer)
    return (0 if track.layer in CPU_LAYERS else 2, begins, str(pid), str(tid), layer)


def _number(value: Id) -> int:
    digits = re.search(r"-?[0-9]{1,18}", str(value))
    return int(digits[0]) if digits else -1


def _subrows(
    keys: Sequence[Track], group: Int32s, start: Int64s, dur: Int64s, roles: Kinds
) -> Int32s:
    """The sub-row of each sorted row."""
    call, end = roles == Role.CALL, start + dur
    bounds = np.searchsorted(group, np.arange(len(keys) + 1))
    flat = np.array([key.layer is Layer.STREAM for key in keys], dtype=np.bool_)
    tangled = overlapping(bounds, start, end)
    subrow = np.zeros(len(start), dtype=np.int32)
    for kind in (True, False):
        small = small_ones(bounds, tangled[flat[tangled] == kind])
        if len(small):
            rows, begins = rows_of(bounds, small)
            subrow[rows] = arrange(
                *as_one(begins, start[rows], end[rows]), call[rows], kind
            )
            tangled = np.setdiff1d(tangled, small, assume_unique=True)
    slices = [slice(int(bounds[n]), int(bounds[n + 1])) for n in tangled]

    def arranged(number: int) -> Int32s:
        here = slices[number]
        return arrange(start[here], end[here], call[here], bool(flat[tangled[number]]))

    found = in_threads(arranged, [here.stop - here.start for here in slices])
    for here, part in zip(slices, found, strict=True):
        subrow[here] = part
    return subrow


def small_unique(keys: Int64s | Int32s) -> tuple[Rows, Int32s]:
    """The distinct keys, sorted, and the index of each key among them; for small keys
    >= 0."""
    present = np.flatnonzero(np.bincount(keys))
    place = np.empty(int(present[-1]) + 1 if len(present) else 0, dtype=np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    return present, place[keys]


class Naming:
    """The labels of a file, looked up one track at a time."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._threads: dict[Thread, str] = {}
        self._processes: dict[Id, str] = {}
        for label in labels:
            if label.kind == "thread_name" and label.value:
                # `thread 7 (pt_autograd_0)` says more than `thread 7 (python3)`, and
                # that more than `thread 7`.
                known, new = (
                    self._threads.get((label.pid, label.tid), ""),
                    str(label.value),
                )
                found = THREAD_NAME.match(known)
                is_generic = found and found[2] in GENERIC and not known.startswith(new)
                self._threads[label.pid, label.tid] = (
                    new if not known or is_generic else known
                )
            elif label.kind == "process_labels" and label.value:
                self._processes.setdefault(label.pid, str(label.value))

    def label(self, layer: Layer, pid: Id, tid: Id, device: Id) -> str:
        """`device` is the number of the device, of GPU layers."""
        name = self._threads.get((pid, tid), "").strip()
        if layer in GPU_LAYERS:
            known = self._processes.get(pid, "")
            own = known if device == pid or known != device_label(pid) else ""
            return f"{own or device_label(device)} {name or stream_label(tid)}"
        found = THREAD_NAME.match(name)
        if found:
            return f"{found[2]} {found[1]}"
        return name or (
            f"thread {tid}" if isinstance(tid, int) else str(tid or "events")
        )
