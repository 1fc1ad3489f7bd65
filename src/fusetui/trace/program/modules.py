"""What each module or annotation cost: forward and backward GPU time, CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.joined import without_times
from fusetui.trace.program.origin import Credit, Nowhere, Origins, hosts_of
from fusetui.trace.program.regions import Spans, is_module, label_of

MODULE, ANNOTATION = "module", "annotation"


class ModuleTime(msgspec.Struct, frozen=True):
    """All calls of one path. `gpu_ns`, `kernels` and `cpu_ns` include everything
    inside; `self` is what belongs to no module further inside."""

    module: str
    path: str
    kind: str  # module or annotation
    level: int  # depth in the tree
    count: int  # calls; 0 where annotations of graphs alone name it
    gpu_ns: int  # the durations of GPU events, including backward work
    gpu_self_ns: int
    gpu_backward_ns: int  # of gpu_ns
    # of gpu_ns: forward work that the backward pass did once more
    gpu_recompute_ns: int
    kernels: int
    kernels_self: int
    cpu_ns: int
    cpu_self_ns: int


class Unclaimed(msgspec.Struct, frozen=True):
    """GPU events that belong to nothing in the list, and why."""

    why: Nowhere
    gpu_ns: int
    kernels: int


class Modules(msgspec.Struct, frozen=True):
    """`modules`: each after its parent, largest GPU time first, then CPU time. The
    `gpu_self_ns` of all and the `gpu_ns` of `none` add up to `gpu_ns`."""

    modules: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # the durations of all GPU events


def module_times(found: Origins, expanded: bool = False) -> Modules:
    """The tree of modules; with `expanded`, each index has its own path."""
    trace = found.trace
    paths = paths_of(trace, found.regions, expanded)
    credit = found.credit(found.regions, trace.gpu_rows)
    columns = _columns(found, paths, credit)
    kinds = np.zeros(len(paths), dtype=np.bool_)
    kinds[paths.of_place] = trace.named(is_module)[trace.name[found.regions.rows]]
    times = [
        ModuleTime(
            module=paths.name(number),
            path=paths.text(number),
            kind=MODULE if kinds[number] else ANNOTATION,
            level=int(paths.level[number]),
            **{name: int(column[number]) for name, column in columns.items()},
        )
        for number in _preorder(paths, columns["gpu_ns"], columns["cpu_ns"])
    ]
    return Modules(tuple(times), *unclaimed(trace, credit))


def _columns(found: Origins, paths: Paths, credit: Credit) -> dict[str, Int64s]:
    """The figures of ModuleTime, each of shape [paths]."""
    trace, regions, counted = found.trace, found.regions, paths.counted
    calls = counted & ~without_times(trace, regions.rows)
    every, cpu = np.arange(len(regions)), cpu_ns(trace, regions)
    return {
        "count": paths.own(every, calls.astype(np.int64)),
        **gpu_figures(trace, credit, paths.total, paths.own),
        "cpu_ns": paths.own(every, np.where(counted, cpu, 0)),
        "cpu_self_ns": paths.own(every, np.where(counted, regions.self_ns(cpu), 0)),
    }


Sums = Callable[[Rows, Int64s], Int64s]
"""Amounts, which belong to some places, by what is listed; -1 belongs to none."""


def gpu_figures(
    trace: Trace, credit: Credit, total: Sums, own: Sums
) -> dict[str, Int64s]:
    """Of what is listed: the GPU time and the kernels of it, with what is inside and
    without."""
    rows, place = trace.gpu_rows, credit.place
    dur, kernel = trace.dur[rows], (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return {
        "gpu_ns": total(place, dur),
        "gpu_self_ns": own(place, dur),
        "gpu_backward_ns": total(place, np.where(credit.backward, dur, 0)),
        "gpu_recompute_ns": total(place, np.where(credit.recompute, dur, 0)),
        "kernels": total(place, kernel),
        "kernels_self": own(place, kernel),
    }


def cpu_ns(trace: Trace, spans: Spans) -> Int64s:
    """How long each took; the CPU time of what was captured is of another trace."""
    return np.where(trace.role[spans.rows] == Role.CAPTURED, 0, trace.dur[spans.rows])


def _preorder(paths: Paths, gpu: Int64s, cpu: Int64s) -> list[int]:
    """Each path before its children, largest first."""
    by_time = np.lexsort((np.arange(len(paths)), -cpu, -gpu)).tolist()
    inside = by_key(by_time, paths.parent.tolist().__getitem__)
    order: list[int] = []
    waiting = inside.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += inside.get(order[-1], [])[::-1]
    return order


def unclaimed(trace: Trace, credit: Credit) -> tuple[tuple[Unclaimed, ...], int]:
    """The GPU events without a credit, by reason, and the durations of all GPU
    events."""
    rows = trace.gpu_rows
    dur, kernel = trace.dur[rows], trace.role[rows] == Role.KERNEL
    missing, unlinked = credit.place < 0, hosts_of(trace, rows) < 0
    lost = credit.backward & (credit.forward_op < 0)
    groups = (
        (Nowhere.NOT_LAUNCHED, missing & unlinked),
        (Nowhere.NO_FORWARD, missing & ~unlinked & lost),
        (Nowhere.OUTSIDE, missing & ~unlinked & ~lost),
    )
    found = tuple(
        Unclaimed(why, int(dur[here].sum()), int((here & kernel).sum()))
        for why, here in groups
        if here.any()
    )
    return found, int(dur.sum())


MOST_LEVELS = 64
"""Regions nested more deeply than this count for the innermost region of these
levels."""
BETWEEN = " > "


class Paths(msgspec.Struct, frozen=True, eq=False):
    """The tree of paths; arrays of shape [paths], each after its parent."""

    labels: tuple[str, ...]
    label: Int64s  # index into labels
    parent: Rows  # -1: none
    level: Rows  # 0: outermost
    of_place: Rows  # for each region its path; shape [regions]
    counted: Flags  # for each region, whether it is within the tree's levels

    def __len__(self) -> int:
        return len(self.label)

    def name(self, number: int) -> str:
        return self.labels[int(self.label[number])]

    def text(self, number: int) -> str:
        """The labels, outermost first."""
        parts = []
        while number >= 0:
            parts.append(self.name(number))
            number = int(self.parent[number])
        return BETWEEN.join(reversed(parts))

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by the path of the region that each belongs to; -1 belongs to
        none."""
        known = places >= 0
        return summed(self.of_place[places[known]], amounts[known], len(self))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """The same with those of all paths inside each."""
        total = self.own(places, amounts)
        for level in range(int(self.level.max(initial=0)), 0, -1):
            here = np.flatnonzero(self.level == level)
            np.add.at(total, self.parent[here], total[here])
        return total


def paths_of(trace: Trace, regions: Spans, expanded: bool = False) -> Paths:
    """The paths of regions; with `expanded`, their indices distinguish them."""
    labels, label = _labels(trace, regions, expanded)
    of_place = np.full(len(regions), -1, dtype=np.intp)
    label_of_path, parent, level = [], [], []
    size = 0
    for depth in range(min(int(regions.depth.max(initial=-1)) + 1, MOST_LEVELS)):
        here = np.flatnonzero(regions.depth == depth)
        over = of_place[regions.parent[here]] if depth else np.full(len(here), -1)
        keys, path = np.unique(over * len(labels) + label[here], return_inverse=True)
        of_place[here] = size + path
        size += len(keys)
        label_of_path.append(keys % len(labels))
        parent.append(keys // len(labels))
        level.append(np.full(len(keys), depth))
    counted = regions.depth < MOST_LEVELS
    over = np.where(counted, np.arange(len(regions)), regions.parent)
    # those beyond the last level count for the one around them
    while not counted[over].all():
        over = over[over]
    whole = [
        np.concatenate((np.zeros(0, np.intp), *p))
        for p in (label_of_path, parent, level)
    ]
    return Paths(labels, whole[0], whole[1], whole[2], of_place[over], counted)


def _labels(
    trace: Trace, regions: Spans, expanded: bool
) -> tuple[tuple[str, ...], Rows]:
    """The distinct labels, and the number of each region's label."""
    numbers: dict[str, int] = {}
    names = trace.name[regions.rows]
    of_name = np.zeros(len(trace.names) + 1, dtype=np.intp)
    for name in np.flatnonzero(np.bincount(names)).tolist():
        of_name[name] = numbers.setdefault(
            label_of(trace.names[name], expanded), len(numbers)
        )
    return tuple(numbers), of_name[names]


def longest_calls(found: Origins) -> Mapping[str, int]:
    """For each path, as in `ModuleTime.path`, the row of its longest call."""
    paths, regions = paths_of(found.trace, found.regions), found.regions
    by_length = np.argsort(found.trace.dur[regions.rows], kind="stable")
    row = np.full(len(paths), -1, dtype=np.intp)
    # the last one assigned is kept
    row[paths.of_place[by_length]] = regions.rows[by_length]
    return {paths.text(number): int(row[number]) for number in range(len(paths))}
