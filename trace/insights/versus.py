"""What changed from one trace to another, by the classes of the account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from fusetui.trace.insights.gaps import IDLE
from fusetui.trace.insights.model import DeviceAccount, StepAccount, Why

CLASSES = ("compute", "exposed_comm", "exposed_copy", "idle")


class Change(msgspec.Struct, frozen=True):
    """One class on both sides, summed over devices; ns."""

    name: str = msgspec.field(name="class")
    a_ns: int
    b_ns: int


class Moved(msgspec.Struct, frozen=True):
    """GPU time of one module or one family of kernels on both sides; ns."""

    name: str
    a_ns: int
    b_ns: int


class Versus(msgspec.Struct, frozen=True):
    """Two traces. The four classes of `change` add up to its first row, the span, and the reasons
    after them to idle, on each side.

    `modules` (the GPU time of nothing further inside, by path) and `families` have what differs,
    the largest change first: means of all steps where steps are compared, else of all that was
    asked about.
    """

    a: Why
    b: Why
    of: str  # what is compared: the median step of each, or the span of its devices
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]
    families: tuple[Moved, ...]


def versus(a: Why, b: Why) -> Versus:
    """Compares the median steps if those of both sides hold the work, else the spans."""
    both = steps_tell(a) and steps_tell(b)
    counts = [len(one.steps) if both else 1 for one in (a, b)]
    sides = [totals(median_step(one.steps).devices if both else one.devices) for one in (a, b)]
    before, after = sides
    change = tuple(
        Change(name, before[name], after[name])
        for name in ("span", *CLASSES, *IDLE)
        if before[name] or after[name]
    )
    return Versus(
        a=a,
        b=b,
        of="median step" if both else "span",
        change=change,
        modules=_moved(_module_ns(a), _module_ns(b), counts),
        families=_moved(a.families, b.families, counts),
    )


def _module_ns(found: Why) -> dict[str, int]:
    modules = found.modules.modules if found.modules else ()
    return {one.path: one.gpu_self_ns for one in modules}


def _moved(a: dict[str, int], b: dict[str, int], counts: Sequence[int]) -> tuple[Moved, ...]:
    """What differs of the means over so many steps, rounded down."""
    names = dict.fromkeys((*a, *b))
    every = (Moved(n, a.get(n, 0) // counts[0], b.get(n, 0) // counts[1]) for n in names)
    moved = [one for one in every if one.a_ns != one.b_ns]
    return tuple(sorted(moved, key=lambda one: -abs(one.b_ns - one.a_ns)))


def steps_tell(found: Why) -> bool:
    """Whether the steps, by time, hold at least half of the work of the devices. A step that only
    launches work that runs after it says nothing about the GPU."""
    if found.about or not found.steps:
        return False
    whole = sum(one.busy_ns for one in found.devices)
    inside = sum(one.busy_ns for step in found.steps for one in step.devices)
    return 0 < whole <= 2 * inside


def median_step(steps: Sequence[StepAccount]) -> StepAccount:
    """The working step of median length, the shorter one of the middle two; of at least one."""
    ordered = sorted(working(steps), key=lambda step: (step.dur_ns, step.start_ns))
    return ordered[(len(ordered) - 1) // 2]


def working(steps: Sequence[StepAccount]) -> Sequence[StepAccount]:
    """The steps in which a device ran, or all if none did: recording often ends early in a step."""
    return [step for step in steps if any(one.busy_ns for one in step.devices)] or steps


def totals(devices: Sequence[DeviceAccount]) -> Counter[str]:
    """Classes, what is hidden, and the reasons of idle time by name, summed over devices; ns."""
    found: Counter[str] = Counter()
    for one in devices:
        found["span"] += one.span_ns
        found["compute"] += one.compute_ns
        found["exposed_comm"] += one.exposed_comm_ns
        found["exposed_copy"] += one.exposed_copy_ns
        found["idle"] += one.idle_ns
        found["hidden_comm"] += one.hidden_comm_ns
        found["hidden_copy"] += one.hidden_copy_ns
        found.update(one.idle)
    return found
