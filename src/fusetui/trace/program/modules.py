"""Computes the cost of each module or annotation: forward and backward GPU time, CPU
time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    summed,
)
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
    """Return what each module and annotation of a trace cost, as a tree.

    Calls with one path are one row: with `Decoder_0` and `Decoder_1`, both containing
    `MLP_0`, the paths are `Decoder_*` and `Decoder_* > MLP_*`.

    Args:
        origins: The program of the trace.
        expanded: Whether indices are kept, so that each layer has rows of its own.
    """
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
    """Compute the figures of ModuleTime, each as a column with an entry per path.

    Args:
        origins: The program of the trace.
        paths: The paths of its regions.
        credit: The regions that all GPU events belong to.
    """
    trace = origins.trace
    regions = origins.regions
    indices = np.arange(len(regions))
    is_call = paths.counted & ~without_times(trace, regions.rows)
    cpu = cpu_ns(trace, regions)
    counted_cpu = np.where(paths.counted, cpu, 0)
    counted_cpu_self = np.where(paths.counted, regions.self_ns(cpu), 0)
    columns = gpu_figures(trace, credit, total=paths.total, own=paths.own)
    columns["count"] = paths.own(indices, is_call.astype(np.int64))
    columns["cpu_ns"] = paths.own(indices, counted_cpu)
    columns["cpu_self_ns"] = paths.own(indices, counted_cpu_self)
    return columns


Sums = Callable[[Rows, Int64s], Int64s]
"""Adds up amounts for each module or function. It takes the index of the span that each
amount belongs to (-1 for none), and the amounts."""


def gpu_figures(
    trace: Trace, credit: Credit, total: Sums, own: Sums
) -> dict[str, Int64s]:
    """Add up GPU time and kernels for each entry of a list of modules or functions.

    Args:
        trace: The trace.
        credit: The span that each of all GPU events belongs to.
        total: Adds up amounts for each entry, with those of entries inside it.
        own: Adds up amounts for each entry, without those.

    Returns:
        Columns with a value per entry, named as in ModuleTime.
    """
    rows = trace.gpu_rows
    span = credit.place
    dur = trace.dur[rows]
    kernels = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    return {
        "gpu_ns": total(span, dur),
        "gpu_self_ns": own(span, dur),
        "gpu_backward_ns": total(span, np.where(credit.backward, dur, 0)),
        "gpu_recompute_ns": total(span, np.where(credit.recompute, dur, 0)),
        "kernels": total(span, kernels),
        "kernels_self": own(span, kernels),
    }


def cpu_ns(trace: Trace, spans: Spans) -> Int64s:
    """Return the duration of each span in ns; 0 for one that was taken from the capture
    of a CUDA graph, which is another trace."""
    return np.where(trace.role[spans.rows] == Role.CAPTURED, 0, trace.dur[spans.rows])


def _preorder(paths: Paths, gpu: Int64s, cpu: Int64s) -> list[int]:
    """List the numbers of all paths as a tree is printed: a parent, then its children.

    Paths with the same parent come by GPU time, then by CPU time, the largest first.

    Args:
        paths: The paths.
        gpu: The GPU time of each path.
        cpu: The CPU time of each path.
    """
    largest_first = np.lexsort((np.arange(len(paths)), -cpu, -gpu)).tolist()
    parent = paths.parent.tolist()
    children = by_key(largest_first, parent.__getitem__)
    outermost = children.get(-1, [])

    order: list[int] = []
    stack = outermost[::-1]  # the next one is the last
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
    lacks_forward = credit.backward & (credit.forward_op == NO_ROW)
    return {
        Nowhere.NOT_LAUNCHED: is_unclaimed & ~is_launched,
        Nowhere.NO_FORWARD: is_unclaimed & is_launched & lacks_forward,
        Nowhere.OUTSIDE: is_unclaimed & is_launched & ~lacks_forward,
    }


def unclaimed(trace: Trace, credit: Credit) -> tuple[Unclaimed, ...]:
    """Add up the GPU events that belong to no part of the program, by the reason.

    Args:
        trace: The trace.
        credit: The span that each of all GPU events belongs to, or -1.

    Returns:
        A sum for each reason that has events: the launch was not recorded; it is
        backward work whose forward op was not recorded; it was launched outside.
    """
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
    """The sum of the durations of all GPU events in ns; time in which several run
    counts several times."""
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
        """The number of distinct paths."""
        return len(self.label)

    def name(self, number: int) -> str:
        """The last label of the path with this number."""
        return self.labels[int(self.label[number])]

    def text(self, number: int) -> str:
        """Return a path as text, its outermost label first: `Decoder_* > MLP_*`."""
        names = []
        while number >= 0:
            names.append(self.name(number))
            number = int(self.parent[number])
        return BETWEEN.join(reversed(names))

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Add up amounts for each path, without what belongs to paths inside it.

        Args:
            places: The index of the region that each amount belongs to; -1 for none.
            amounts: The amounts.
        """
        known = places >= 0
        return summed(self.of_place[places[known]], amounts[known], len(self))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """Add up amounts for each path, with what belongs to paths inside it.

        The arguments are those of `own`. Amounts of 10 in `Decoder_* > MLP_*` and of 5
        in `Decoder_*` itself give 10 and 15.
        """
        total = self.own(places, amounts)
        deepest = int(self.level.max(initial=0))
        for level in range(deepest, 0, -1):
            paths = np.flatnonzero(self.level == level)
            np.add.at(total, self.parent[paths], total[paths])
        return total


class _PathsOfDepth(NamedTuple):
    """Some paths; the columns are those of Paths."""

    label: Rows
    parent: Rows
    level: Rows


_NO_PATHS = _PathsOfDepth(
    label=np.zeros(0, np.intp), parent=np.zeros(0, np.intp), level=np.zeros(0, np.intp)
)


def paths_of(trace: Trace, regions: Spans, expanded: bool = False) -> Paths:
    """Give each region a path: its own label after those of the regions around it.

    Regions with the same labels around them and the same label share a path. A region
    that is nested MAX_LEVELS deep or deeper has the path of the innermost region around
    it that is not.

    Args:
        trace: The trace.
        regions: Its module calls and annotations.
        expanded: Whether labels keep their indices: `MLP_3` instead of `MLP_*`.
    """
    labels, label_of_region = _labels(trace, regions, expanded)
    path_of_region = np.full(len(regions), -1, dtype=np.intp)
    new_paths = [_NO_PATHS]
    path_count = 0
    depth_count = int(regions.depth.max(initial=-1)) + 1
    for depth in range(min(depth_count, MAX_LEVELS)):
        at_depth = np.flatnonzero(regions.depth == depth)
        label = label_of_region[at_depth]
        if depth == 0:
            path_above = np.full(len(at_depth), -1)
        else:
            path_above = path_of_region[regions.parent[at_depth]]

        # Each combination of a path above and a label that occurs is a path.
        first_with_path, number_at_depth = distinct_rows([path_above, label])
        path_of_region[at_depth] = path_count + number_at_depth
        path_count += len(first_with_path)
        new_paths.append(
            _PathsOfDepth(
                label=label[first_with_path],
                parent=path_above[first_with_path],
                level=np.full(len(first_with_path), depth),
            )
        )
    return Paths(
        labels=labels,
        label=np.concatenate([paths.label for paths in new_paths]),
        parent=np.concatenate([paths.parent for paths in new_paths]),
        level=np.concatenate([paths.level for paths in new_paths]),
        of_place=path_of_region[_regions_within_levels(regions)],
        counted=regions.depth < MAX_LEVELS,
    )


def _regions_within_levels(regions: Spans) -> Rows:
    """Return for each region the index of the one that it counts for.

    It is the region itself, or if it is nested MAX_LEVELS deep or deeper, the innermost
    one around it that is not.
    """
    is_within = regions.depth < MAX_LEVELS
    itself = np.arange(len(regions))
    innermost = np.where(is_within, itself, regions.parent)
    while not is_within[innermost].all():
        innermost = innermost[innermost]  # doubles how far it has climbed
    return innermost


def _labels(
    trace: Trace, regions: Spans, expanded: bool
) -> tuple[tuple[str, ...], Rows]:
    """Return the distinct labels of regions, and the index of each region's label.

    Regions named `nn.Module: MLP_0` and `nn.Module: MLP_1` give ("MLP_*",) and [0, 0];
    `expanded` gives ("MLP_0", "MLP_1") and [0, 1].
    """
    number_of_label: dict[str, int] = {}
    name_of_region = trace.name[regions.rows]
    label_of_name = np.zeros(len(trace.names), dtype=np.intp)
    for name in distinct(name_of_region).tolist():
        label = label_of(trace.names[name], expanded)
        label_of_name[name] = number_of_label.setdefault(label, len(number_of_label))
    return tuple(number_of_label), label_of_name[name_of_region]


def longest_calls(origins: Origins) -> Mapping[str, int]:
    """Return the row of the longest call of each path: {"Decoder_* > MLP_*": 812}.

    Of several calls that take equally long, it is the last one.
    """
    regions = origins.regions
    paths = paths_of(origins.trace, regions)
    dur = origins.trace.dur[regions.rows]
    shortest_first = np.argsort(dur, kind="stable")
    row_of_path = np.full(len(paths), -1, dtype=np.intp)
    # Longer calls overwrite shorter ones: numpy keeps the last one that is assigned.
    path_of_call = paths.of_place[shortest_first]
    row_of_path[path_of_call] = regions.rows[shortest_first]
    rows = row_of_path.tolist()
    return {paths.text(path): row for path, row in enumerate(rows)}
