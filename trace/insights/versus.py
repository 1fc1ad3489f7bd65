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


class Versus(msgspec.Struct, frozen=True):
    """Two traces. The four classes of `change` add up to its first row, the span, and the reasons
    after them to idle, on each side."""

    a: Why
    b: Why
    of: str  # what is compared: the median step of each, or the span of its devices
    change: tuple[Change, ...]


def versus(a: Why, b: Why) -> Versus:
    """Compares the median steps if those of both sides hold the work, else the spans."""
    both = steps_tell(a) and steps_tell(b)
    sides = [totals(median_step(one.steps).devices if both else one.devices) for one in (a, b)]
    before, after = sides
    change = tuple(
        Change(name, before[name], after[name])
        for name in ("span", *CLASSES, *IDLE)
        if before[name] or after[name]
    )
    return Versus(a, b, "median step" if both else "span", change)


def steps_tell(found: Why) -> bool:
    """Whether the steps, by time, hold at least half of the work of the devices. A step that only
    launches work that runs after it says nothing about the GPU."""
    if found.about or not found.steps:
        return False
    whole = sum(one.busy_ns for one in found.devices)
    inside = sum(one.busy_ns for step in found.steps for one in step.devices)
    return 0 < whole <= 2 * inside


def median_step(steps: Sequence[StepAccount]) -> StepAccount:
    """The step of median length, the shorter one of the middle two; of at least one."""
    return sorted(steps, key=lambda step: (step.dur_ns, step.start_ns))[(len(steps) - 1) // 2]


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
