"""What each module or annotation cost: forward and backward GPU time, CPU time."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.origin import Credit, Nowhere, Origins, hosts_of
from fusetui.trace.program.paths import Paths, paths_of
from fusetui.trace.program.regions import is_module
from fusetui.trace.program.spans import Spans

Int64s = NDArray[np.int64]
MODULE, ANNOTATION = "module", "annotation"


class ModuleTime(msgspec.Struct, frozen=True):
    """All calls of one path. `gpu_ns`, `kernels` and `cpu_ns` include everything inside; `self` is
    what belongs to no module further inside."""

    module: str
    path: str
    kind: str  # module or annotation
    level: int  # depth in the tree
    count: int  # calls
    gpu_ns: int  # the durations of GPU events, including backward work
    gpu_self_ns: int
    gpu_backward_ns: int  # of gpu_ns
    gpu_recompute_ns: int  # of gpu_ns: forward work that the backward pass did once more
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
    """`modules`: each after its parent, largest GPU time first, then CPU time. The `gpu_self_ns` of
    all and the `gpu_ns` of `none` add up to `gpu_ns`."""

    modules: tuple[ModuleTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int  # the durations of all GPU events


def module_times(found: Origins, expanded: bool = False) -> Modules:
    """The tree of modules; with `expanded`, each index has its own path."""
    trace, rows = found.trace, found.trace.gpu_rows
    paths = paths_of(trace, found.regions, expanded)
    credit = found.credit(found.regions, rows)
    dur = trace.dur[rows]
    columns = _columns(trace, found.regions, paths, credit, dur)
    order = _preorder(paths, columns["gpu_ns"], columns["cpu_ns"])
    kinds = _kinds(trace, found.regions, paths)
    times = [
        ModuleTime(
            module=paths.name(number),
            path=paths.text(number),
            kind=MODULE if kinds[number] else ANNOTATION,
            level=int(paths.level[number]),
            **{name: int(column[number]) for name, column in columns.items()},
        )
        for number in order
    ]
    return Modules(tuple(times), unclaimed(trace, credit, dur), int(dur.sum()))


def _columns(
    trace: Trace, regions: Spans, paths: Paths, credit: Credit, dur: Int64s
) -> dict[str, Int64s]:
    """The figures of ModuleTime, each of shape [paths]."""
    kernel = (trace.role[trace.gpu_rows] == Role.KERNEL).astype(np.int64)
    own = paths.sums(credit.place, dur)
    back = paths.sums(credit.place, np.where(credit.backward, dur, 0))
    again = paths.sums(credit.place, np.where(credit.recompute, dur, 0))
    kernels = paths.sums(credit.place, kernel)
    captured = trace.role[regions.rows] == Role.CAPTURED  # their CPU time is of another trace
    all_regions, cpu = np.arange(len(regions)), np.where(captured, 0, trace.dur[regions.rows])
    counted = paths.counted
    return {
        "count": paths.sums(all_regions, counted.astype(np.int64)),
        "gpu_ns": paths.with_inner(own),
        "gpu_self_ns": own,
        "gpu_backward_ns": paths.with_inner(back),
        "gpu_recompute_ns": paths.with_inner(again),
        "kernels": paths.with_inner(kernels),
        "kernels_self": kernels,
        "cpu_ns": paths.sums(all_regions, np.where(counted, cpu, 0)),
        "cpu_self_ns": paths.sums(all_regions, np.where(counted, regions.self_ns(cpu), 0)),
    }


def _kinds(trace: Trace, regions: Spans, paths: Paths) -> NDArray[np.bool_]:
    """For each path, whether it is one of modules."""
    kinds = np.zeros(len(paths), dtype=np.bool_)
    kinds[paths.of_place] = np.array([is_module(n) for n in trace.names] or [False])[
        trace.name[regions.rows]
    ]
    return kinds


def _preorder(paths: Paths, gpu: Int64s, cpu: Int64s) -> list[int]:
    """Each path before its children, largest first."""
    inside: dict[int, list[int]] = {}
    for number in np.lexsort((np.arange(len(paths)), -cpu, -gpu)).tolist():
        inside.setdefault(int(paths.parent[number]), []).append(number)
    order: list[int] = []
    waiting = inside.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += inside.get(order[-1], [])[::-1]
    return order


def unclaimed(trace: Trace, credit: Credit, dur: Int64s) -> tuple[Unclaimed, ...]:
    """The GPU events without a credit, by reason; `dur` as `trace.gpu_rows`."""
    rows = trace.gpu_rows
    kernel = trace.role[rows] == Role.KERNEL
    missing, unlinked = credit.place < 0, hosts_of(trace, rows) < 0
    lost = credit.backward & (credit.forward_op < 0)
    groups = (
        (Nowhere.NOT_LAUNCHED, missing & unlinked),
        (Nowhere.NO_FORWARD, missing & ~unlinked & lost),
        (Nowhere.OUTSIDE, missing & ~unlinked & ~lost),
    )
    return tuple(
        Unclaimed(why, int(dur[here].sum()), int((here & kernel).sum()))
        for why, here in groups
        if here.any()
    )
