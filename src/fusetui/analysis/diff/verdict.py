"""Whether B is faster than A: the verdict of a diff, or why there is none."""

from __future__ import annotations

from fusetui.analysis.diff.model import Answer, Side, StepChange, Verdict
from fusetui.analysis.diff.statistics import FEW_STEPS
from fusetui.analysis.diff.turns import FEW_ROUNDS


def verdict(step: StepChange, a: Side, b: Side) -> Verdict:
    """Faster or slower when the interval of the ratio excludes 1, else no difference.

    There is no verdict between different devices, because that is no change of the program, nor
    with fewer than FEW_STEPS steps on a side.
    """
    reason = _reason(step, a, b)
    if reason:
        return Verdict(Answer.CANNOT_TELL, reason)
    if not step.shown:
        return Verdict(Answer.NO_DIFFERENCE)
    return Verdict(Answer.FASTER if (step.high or 0) < 1 else Answer.SLOWER)


def other_devices(a: Side, b: Side) -> str:
    """`A100 -> H100`; "" where both ran on the same, or a file does not say."""
    if not (a.items and b.items) or (a.gpu == b.gpu and not (a.devices and b.devices)):
        return ""
    before, after = _devices(a), _devices(b)
    return f"{before} -> {after}" if before != after else ""


def _devices(side: Side) -> str:
    if not side.gpu:
        return "CPU only"
    return ", ".join(side.devices) or "a GPU"


def _reason(step: StepChange, a: Side, b: Side) -> str:
    empty = [name for name, side in (("A", a), ("B", b)) if not side.items]
    if empty:
        return f"there is no work in the steps of {' and '.join(empty)}"
    if devices := other_devices(a, b):
        return f"the devices differ ({devices})"
    least = FEW_ROUNDS if step.turns else FEW_STEPS
    if min(a.steps, b.steps) < least:
        turns = " that take turns" if step.turns else ""
        return f"it takes at least {least} steps{turns} on each side (A has {a.steps}, B {b.steps})"
    return "" if step.low is not None else "the steps of a side take no time"
