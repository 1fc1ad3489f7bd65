"""The step that stands for all, and sums over devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusetui.analysis.why.model import DeviceAccount, StepAccount, Why

CLASSES = ("compute", "exposed_comm", "exposed_copy", "idle")


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
