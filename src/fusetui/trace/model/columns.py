"""The Trace: columns with one row per slice, and the tracks that group the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Integers,
    Kinds,
    Rows,
    prefix_sums,
)
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role
from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Report

MAX_EPOCH_NS = 1 << 62  # later is no time


class Track(msgspec.Struct, frozen=True):
    """Slices that nest perfectly: the rows [first_row, end_row) of the trace."""

    layer: Layer
    # of GPU layers the number of the device: `args.device`, else the pid of the file
    pid: Id
    tid: Id
    label: str
    subrow: int  # more than 0: overlap others of the thread or stream without nesting
    first_row: int
    end_row: int

    @property
    def rows(self) -> slice:
        """The rows of the trace that the track has."""
        return slice(self.first_row, self.end_row)

    def __len__(self) -> int:
        """The number of slices on the track."""
        return self.end_row - self.first_row


class Trace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Arrays of shape [slices], rows sorted by (track, start, -duration, file order).

    Times are int64 nanoseconds as in the file; some writers count from an epoch, others
    from a time of their own. Every track is a contiguous range of rows, a parent comes
    before its children, and a subtree is a contiguous range. -1 means none.
    """

    report: Report
    # top-level keys of the file: deviceProperties, distributedInfo, ...
    keys: dict[str, Any]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    tracks: tuple[Track, ...]
    start: Int64s
    dur: Int64s
    name: Int32s
    cat: Int32s
    role: Kinds  # a Role, from the category
    track: Int32s
    parent: Int32s
    end_row: Int32s
    depth: Int32s
    correlation: Int64s
    external_id: Int64s
    launch: Int32s  # of a GPU event: the row of its launch call
    op: Int32s  # innermost CPU op around a CPU row; for a GPU event, around its launch
    order: Int64s  # index in traceEvents
    elements: Events

    def __len__(self) -> int:
        """The number of rows: the slices of the file, and those taken from a capture."""
        return len(self.start)

    @cached_property
    def end(self) -> Int64s:
        """The end of each slice in ns."""
        return self.start + self.dur

    @cached_property
    def gpu_rows(self) -> Rows:
        """The rows of all kernels, memory copies and memory fills, ascending."""
        return self.rows_of(*GPU_ROLES)

    @cached_property
    def launch_rows(self) -> Int32s:
        """For each of `gpu_rows` the row of its launch call; if there is none that of
        its CPU op; else -1."""
        launch = self.launch[self.gpu_rows]
        return np.where(launch != NO_ROW, launch, self.op[self.gpu_rows])

    @cached_property
    def launch_index(self) -> LaunchIndex:
        """The GPU events in order of `launch_rows`, with prefix sums of their time."""
        order = np.argsort(self.launch_rows, kind="stable")
        rows = self.gpu_rows[order]
        is_kernel = self.role[rows] == Role.KERNEL
        return LaunchIndex(
            launch=self.launch_rows[order],
            rows=rows,
            ns=prefix_sums(self.dur[rows]),
            kernels=prefix_sums(is_kernel).astype(np.int32),
        )

    @cached_property
    def begin_ns(self) -> int:
        """The earliest start of all slices of the file itself, in ns; 0 in an empty
        trace."""
        return int(self.start[: self.recorded()].min()) if self.recorded() else 0

    @cached_property
    def end_ns(self) -> int:
        """The latest end of all slices of the file itself, in ns; 0 in an empty trace."""
        return int(self.end[: self.recorded()].max()) if self.recorded() else 0

    @cached_property
    def span_ns(self) -> int:
        """From the first start to the last end of the slices of the file itself,
        without those that the profiler wrote about itself: exporters of one profile
        place them differently. In a file without other slices, the span of those; 0 in
        an empty trace."""
        recorded_roles = self.role[: self.recorded()]
        of_program = np.flatnonzero(recorded_roles != Role.PROFILER)
        if not len(of_program):
            return self.end_ns - self.begin_ns
        first_start = self.start[of_program].min()
        last_end = self.end[of_program].max()
        return int(last_end - first_start)

    @cached_property
    def process_of_track(self) -> Int32s:
        """For each track a number of its process or device, counted from 0 in the order
        of the tracks: tracks of the pids 7, 7 and 9 have 0, 0 and 1."""
        number_of_process: dict[Id, int] = {}
        numbers = []
        for track in self.tracks:
            new_number = len(number_of_process)
            numbers.append(number_of_process.setdefault(track.pid, new_number))
        return np.array(numbers, dtype=np.int32)

    @cached_property
    def thread_of_track(self) -> Int32s:
        """For each track a number of its thread or stream, counted from 0 in the order
        of the tracks. The tracks of all layers of a thread have the same number."""
        number_of_thread: dict[tuple[Id, Id], int] = {}
        numbers = []
        for track in self.tracks:
            thread = (track.pid, track.tid)
            new_number = len(number_of_thread)
            numbers.append(number_of_thread.setdefault(thread, new_number))
        return np.array(numbers, dtype=np.int32)

    def thread_of(self, rows: Integers) -> Int32s:
        """Return the index of the thread of each of some rows.

        Of a GPU event, the thread is its stream.
        """
        return self.thread_of_track[self.track[rows]]

    def process_of(self, rows: Integers) -> Int32s:
        """Return the index of the process of each of some rows.

        Of a GPU event, the process is its device.
        """
        return self.process_of_track[self.track[rows]]

    def first_track(self, thread: int) -> Track:
        """The first track of the thread or stream with this number."""
        return self.tracks[int(np.argmax(self.thread_of_track == thread))]

    @property
    def asked(self) -> Int32s:
        """Of a GPU event: the call that asked for it. This is `launch`, except for
        nodes of graphs that were joined with their capture (see joined.py)."""
        return self.launch

    @property
    def annotated(self) -> Int32s | None:
        """Of a node of an annotated graph: the row that stands for its annotation, or
        for having none; else -1. None: nothing is (see joined.py)."""
        return None

    @property
    def source_role(self) -> Kinds:
        """The role of each slice; for rows taken from a capture, the role that they
        have there."""
        return self.role

    @cached_property
    def reach_ns(self) -> tuple[int, int]:
        """The first start and the last end of all rows, also of those taken from a
        capture."""
        if not len(self):
            return 0, 0
        return int(self.start.min()), int(self.end.max())

    @property
    def epoch_ns(self) -> int:
        """The time at which the clock of the file began, in ns since 1970:
        baseTimeNanoseconds; 0 if it was not recorded."""
        base = self.keys.get("baseTimeNanoseconds")
        return base if type(base) is int and 0 <= base < MAX_EPOCH_NS else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that have to be said with every answer about this trace."""
        return ()

    def recorded(self) -> int:
        """The number of slices of the file itself, which come first."""
        return len(self)

    def rows_of(self, *roles: Role) -> Rows:
        """The rows that have one of these roles, ascending."""
        has_role = np.logical_or.reduce([self.role == role for role in roles])
        return np.flatnonzero(has_role)

    def rows_named(self, test: Callable[[str], object], *roles: Role) -> Rows:
        """Return the rows of some roles whose names pass a test, ascending.

        Args:
            test: The test. It sees each name once, however many rows have it.
            roles: The roles: `Role.KERNEL`.
        """
        is_used = self._names_of_roles[list(roles)].any(axis=0)
        passes = self._passing_names(np.flatnonzero(is_used), test)
        if not passes.any():
            return np.empty(0, dtype=np.intp)
        rows = np.flatnonzero(passes[self.name])
        return rows[np.isin(self.role[rows], roles)]

    @cached_property
    def _names_of_roles(self) -> Flags:
        """Whether slices of a role have a name: a table with a row for each role and a
        column for each name."""
        are_used = np.zeros((len(Role), len(self.names)), dtype=np.bool_)
        # one index into the table laid out flat, which is faster than two
        flat_index = self.role * np.intp(len(self.names)) + self.name
        are_used.reshape(-1)[flat_index] = True
        return are_used

    def _passing_names(self, numbers: Rows, test: Callable[[str], object]) -> Flags:
        """Tell of each name of the trace whether it is one of some and passes a test.

        Args:
            numbers: The numbers of the names to test.
            test: The test. It sees the first MAX_SEARCHED_CHARS characters of a name.
        """
        passes = np.zeros(len(self.names), dtype=np.bool_)
        for number in numbers.tolist():
            passes[number] = bool(test(self.names[number][:MAX_SEARCHED_CHARS]))
        return passes

    def matching(
        self, rows: NDArray[np.integer], test: Callable[[str], object]
    ) -> Flags:
        """Tell of each row whether its name passes a test.

        Args:
            rows: The rows.
            test: The test. It sees each name once, however many rows have it.
        """
        used_names = np.flatnonzero(np.bincount(self.name[rows]))
        passes = self._passing_names(used_names, test)
        are_matching: Flags = passes[self.name[rows]]
        return are_matching

    def named(self, test: Callable[[str], bool]) -> Flags:
        """Tell of each name of the trace whether it passes a test. There is one entry
        more at the end, False, which the number -1 for no name finds."""
        return np.array([*map(test, self.names), False])

    def name_of(self, row: int) -> str:
        """The name of the slice in a row."""
        return self.names[int(self.name[row])]

    def category_of(self, row: int) -> str:
        """The category of the slice in a row, as the file has it."""
        return self.categories[int(self.cat[row])]

    def args_of(self, row: int) -> dict[str, Any]:
        """Read the args of a slice from the file: {"grid": [8, 1, 1], ...}; {} if it has
        none, or the file cannot be read any more."""
        args = self.elements.element(int(self.order[row])).get("args")
        return args if isinstance(args, dict) else {}

    def track_of(self, row: int) -> Track:
        """The track that the slice in a row is on."""
        return self.tracks[int(self.track[row])]


class LaunchIndex(msgspec.Struct, frozen=True, eq=False):
    """One entry per GPU event, sorted by `launch`, then by row."""

    launch: Int32s  # the launch call, else the op that it belongs to, else -1
    rows: Rows
    ns: Int64s  # of the events before each, and of all; shape [n + 1]
    kernels: Int32s  # likewise, how many are kernels

    def within(self, first_row: int, end_row: int) -> slice:
        """Return the entries that were launched by the rows [first_row, end_row).

        If `launch` is [3, 5, 5, 9], the rows 4 to before 9 launched slice(1, 3).
        """
        rows = np.array([first_row, end_row], dtype=self.launch.dtype)
        first, end = self.launch.searchsorted(rows).tolist()
        return slice(first, end)
