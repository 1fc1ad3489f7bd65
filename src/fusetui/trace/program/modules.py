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
from fusetui.trace.program.origin import Credit, Nowhere, Origins, launching_calls
from fusetui.trace.program.regions import Spans, is_module, label_of

MODULE, ANNOTATION = "module", "annotation"


class ModuleTime(msgspec.Struct, frozen=True):
    """All calls of one path. `gpu_ns`, `kernels` and `cpu_ns` include everything
    inside; `self` leaves out modules inside it."""

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
    """GPU events outside all rows of the list, and the reason."""

    why: Nowhere
    gpu_ns: int
    kernels: int


class Modules(msgspec.Struct, frozen=True):
    """`modules`: each after its parent, largest GPU time first, then CPU time. The
    `gpu_self_ns` of all and the `gpu_ns` of `none` add up to `gpu_ns`."""

    modules: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # the durations of all GPU events


def module_times(origins: Origins, expanded: bool = False) -> Modules:
    """The tree of modules; with `expanded`, each index has its own path."""
    trace = origins.trace
    regions = origins.regions
    paths = paths_of(trace, regions, expanded)
    credit = origins.credit(regions, trace.gpu_rows)
    columns = _columns(origins, paths, credit)
    is_module_path = np.zeros(len(paths), dtype=np.bool_)
    is_module_path[paths.of_place] = trace.named(is_module)[trace.name[regions.rows]]
    times = []
    for number in _preorder(paths, columns["gpu_ns"], columns["cpu_ns"]):
        figures = {name: int(column[number]) for name, column in columns.items()}
        times.append(
            ModuleTime(
                module=paths.name(number),
                path=paths.text(number),
                kind=MODULE if is_module_path[number] else ANNOTATION,
                level=int(paths.level[number]),
                **figures,
            )
        )
    return Modules(
        modules=tuple(times),
        none=unclaimed(trace, credit),
        gpu_ns=all_gpu_ns(trace),
    )


def _columns(origins: Origins, paths: Paths, credit: Credit) -> dict[str, Int64s]:
    """The figures of ModuleTime, each of shape [paths]."""
    trace = origins.trace
    regions = origins.regions
    places = np.arange(len(regions))
    is_call = paths.counted & ~without_times(trace, regions.rows)
    cpu = cpu_ns(trace, regions)
    counted_cpu = np.where(paths.counted, cpu, 0)
    counted_cpu_self = np.where(paths.counted, regions.self_ns(cpu), 0)
    columns = gpu_figures(trace, credit, total=paths.total, own=paths.own)
    columns["count"] = paths.own(places, is_call.astype(np.int64))
    columns["cpu_ns"] = paths.own(places, counted_cpu)
    columns["cpu_self_ns"] = paths.own(places, counted_cpu_self)
    return columns


Sums = Callable[[Rows, Int64s], Int64s]
"""Amounts, which belong to some places, by what is listed; -1 belongs to none."""


def gpu_figures(
    trace: Trace, credit: Credit, total: Sums, own: Sums
) -> dict[str, Int64s]:
    """Of what is listed: the GPU time and the kernels of it, with what is inside and
    without. `credit` is that of all GPU rows."""
    rows = trace.gpu_rows
    place = credit.place
    dur = trace.dur[rows]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return {
        "gpu_ns": total(place, dur),
        "gpu_self_ns": own(place, dur),
        "gpu_backward_ns": total(place, np.where(credit.backward, dur, 0)),
        "gpu_recompute_ns": total(place, np.where(credit.recompute, dur, 0)),
        "kernels": total(place, kernels),
        "kernels_self": own(place, kernels),
    }


def cpu_ns(trace: Trace, spans: Spans) -> Int64s:
    """How long each took; the CPU time of what was captured is of another trace."""
    return np.where(trace.role[spans.rows] == Role.CAPTURED, 0, trace.dur[spans.rows])


def _preorder(paths: Paths, gpu: Int64s, cpu: Int64s) -> list[int]:
    """The numbers of all paths, each before its children, largest first."""
    largest_first = np.lexsort((np.arange(len(paths)), -cpu, -gpu)).tolist()
    parent = paths.parent.tolist()
    children = by_key(largest_first, parent.__getitem__)  # -1: the outermost ones
    order: list[int] = []
    stack = children.get(-1, [])[::-1]
    while stack:
        number = stack.pop()
        order.append(number)
        stack += children.get(number, [])[::-1]
    return order


def unclaimed_by_reason(
    trace: Trace, rows: Rows, credit: Credit
) -> dict[Nowhere, Flags]:
    """For each reason, which of some GPU rows have no place because of it. `credit` is
    that of these rows."""
    is_unclaimed = credit.place < 0
    is_launched = launching_calls(trace, rows) >= 0
    lacks_forward = credit.backward & (credit.forward_op < 0)
    return {
        Nowhere.NOT_LAUNCHED: is_unclaimed & ~is_launched,
        Nowhere.NO_FORWARD: is_unclaimed & is_launched & lacks_forward,
        Nowhere.OUTSIDE: is_unclaimed & is_launched & ~lacks_forward,
    }


def unclaimed(trace: Trace, credit: Credit) -> tuple[Unclaimed, ...]:
    """The GPU events without a place, by reason; reasons without events are left out.
    `credit` is that of all GPU rows."""
    rows = trace.gpu_rows
    dur = trace.dur[rows]
    is_kernel = trace.role[rows] == Role.KERNEL
    groups = []
    for why, which in unclaimed_by_reason(trace, rows, credit).items():
        if which.any():
            groups.append(
                Unclaimed(
                    why=why,
                    gpu_ns=int(dur[which].sum()),
                    kernels=int((which & is_kernel).sum()),
                )
            )
    return tuple(groups)


def all_gpu_ns(trace: Trace) -> int:
    """The sum of the durations of all GPU events."""
    return int(trace.dur[trace.gpu_rows].sum())


MAX_LEVELS = 64
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
        names = []
        while number >= 0:
            names.append(self.name(number))
            number = int(self.parent[number])
        return BETWEEN.join(reversed(names))

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by the path of the region that each belongs to; -1 belongs to
        none."""
        known = places >= 0
        return summed(self.of_place[places[known]], amounts[known], len(self))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by path, as `own`, each with those of all paths inside it."""
        total = self.own(places, amounts)
        deepest = int(self.level.max(initial=0))
        for level in range(deepest, 0, -1):
            paths = np.flatnonzero(self.level == level)
            np.add.at(total, self.parent[paths], total[paths])
        return total


def paths_of(trace: Trace, regions: Spans, expanded: bool = False) -> Paths:
    """The paths of regions; with `expanded`, their indices distinguish them."""
    labels, label_of_region = _labels(trace, regions, expanded)
    path_of_region = np.full(len(regions), -1, dtype=np.intp)
    label = [np.zeros(0, np.intp)]  # of the paths of each level, like those below
    parent = [np.zeros(0, np.intp)]
    level = [np.zeros(0, np.intp)]
    path_count = 0
    levels = int(regions.depth.max(initial=-1)) + 1
    for depth in range(min(levels, MAX_LEVELS)):
        places = np.flatnonzero(regions.depth == depth)
        if depth == 0:
            path_above = np.full(len(places), -1)
        else:
            path_above = path_of_region[regions.parent[places]]
        # regions with the same path above and the same label have one path
        key = path_above * len(labels) + label_of_region[places]
        keys, key_of_region = np.unique(key, return_inverse=True)
        path_of_region[places] = path_count + key_of_region
        path_count += len(keys)
        label.append(keys % len(labels))
        parent.append(keys // len(labels))
        level.append(np.full(len(keys), depth))
    return Paths(
        labels=labels,
        label=np.concatenate(label),
        parent=np.concatenate(parent),
        level=np.concatenate(level),
        of_place=path_of_region[_regions_within_levels(regions)],
        counted=regions.depth < MAX_LEVELS,
    )


def _regions_within_levels(regions: Spans) -> Rows:
    """For each region the innermost one that is, or contains, it and is within
    MAX_LEVELS."""
    is_within = regions.depth < MAX_LEVELS
    places = np.arange(len(regions))
    innermost = np.where(is_within, places, regions.parent)
    while not is_within[innermost].all():
        innermost = innermost[innermost]
    return innermost


def _labels(
    trace: Trace, regions: Spans, expanded: bool
) -> tuple[tuple[str, ...], Rows]:
    """The distinct labels, and the number of each region's label."""
    number_of_label: dict[str, int] = {}
    name_of_region = trace.name[regions.rows]
    label_of_name = np.zeros(len(trace.names), dtype=np.intp)
    for name in np.flatnonzero(np.bincount(name_of_region)).tolist():
        label = label_of(trace.names[name], expanded)
        label_of_name[name] = number_of_label.setdefault(label, len(number_of_label))
    return tuple(number_of_label), label_of_name[name_of_region]


def longest_calls(origins: Origins) -> Mapping[str, int]:
    """For each path, as in `ModuleTime.path`, the row of its longest call."""
    regions = origins.regions
    paths = paths_of(origins.trace, regions)
    dur = origins.trace.dur[regions.rows]
    shortest_first = np.argsort(dur, kind="stable")
    row_of_path = np.full(len(paths), -1, dtype=np.intp)
    # of several that are assigned to a path, the last one is kept
    path_of_call = paths.of_place[shortest_first]
    row_of_path[path_of_call] = regions.rows[shortest_first]
    rows = row_of_path.tolist()
    return {paths.text(path): row for path, row in enumerate(rows)}
