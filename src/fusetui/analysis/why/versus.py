"""What changed from one trace to another, by the classes of the account, and what
became of the findings: gone, new, or there on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.engine import RULES
from fusetui.analysis.why.model import (
    CLASSES,
    IDLE,
    StepAccount,
    Why,
    median_step,
    steps_tell,
    totals,
    working,
)
from fusetui.analysis.why.rule import LEAST_OF_BUSY, LEAST_SHARE, Rule

Status = Literal["gone", "new", "stays", "unknown"]
USUAL: Final = (0.1, 0.9)
"""The quantiles between which steps of one run usually lie."""
FEWEST: Final = 3
"""Fewer steps do not show by how much steps differ."""
UNSURE: Final = 0.75
"""Of the time: a difference that is told where that is not known."""


class Compared(msgspec.Struct, frozen=True):
    """A rule with a finding in A or in B; ns, as means of the steps if `per_step`.

    None is an unknown time, because data is `missing` on that side, or because the
    rule only makes a note there."""

    rule: str
    status: Status
    a_ns: int | None
    b_ns: int | None
    differs: bool  # by what makes a finding, and more than steps of one run do
    per_step: bool
    missing: str | None = None
    record_with: str | None = None


class Change(msgspec.Struct, frozen=True):
    """One class on both sides, summed over devices; ns."""

    name: str = msgspec.field(name="class")
    a_ns: int
    b_ns: int


class Moved(msgspec.Struct, frozen=True):
    """GPU time of one module or one kind of kernel on both sides; ns."""

    name: str
    a_ns: int
    b_ns: int


class Versus(msgspec.Struct, frozen=True):
    """Two traces. The four classes of `change` add up to its first row, the span, and
    the reasons after them to idle, on each side. `modules` (the GPU time of nothing
    further inside, by path) and `families` have what differs, the largest change first:
    means of all steps where steps are compared, else of all that was asked about.
    `findings`: what became of them."""

    a: Why
    b: Why
    # what is compared: the median step of each, or the span of its devices
    change_of: str
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]
    families: tuple[Moved, ...]
    findings: tuple[Compared, ...]
    # enough steps are compared to know how much they differ by themselves
    is_sure: bool


def versus(a: Why, b: Why) -> Versus:
    """Compares the median steps if those of both sides hold the work, else the
    spans."""
    by_step = steps_tell(a) and steps_tell(b)
    steps_a = working(a.steps) if by_step else ()
    steps_b = working(b.steps) if by_step else ()
    before = totals(median_step(a.steps).devices if by_step else a.devices)
    after = totals(median_step(b.steps).devices if by_step else b.devices)
    names = [name for name in ("span", *CLASSES, *IDLE) if before[name] or after[name]]
    count_a = len(a.steps) if by_step else 1
    count_b = len(b.steps) if by_step else 1
    return Versus(
        a=a,
        b=b,
        change_of="median step" if by_step else "span",
        change=tuple(Change(name, before[name], after[name]) for name in names),
        modules=_moved(_module_ns(a), _module_ns(b), count_a, count_b),
        families=_moved(a._families, b._families, count_a, count_b),
        findings=compared(a, b, (steps_a, steps_b)),
        is_sure=max(len(steps_a), len(steps_b)) >= FEWEST,
    )


def _module_ns(why: Why) -> dict[str, int]:
    """The GPU time of nothing further inside, by the path of each module."""
    return {module.path: module.gpu_self_ns for module in why.modules or ()}


def _moved(
    ns_a: dict[str, int], ns_b: dict[str, int], count_a: int, count_b: int
) -> tuple[Moved, ...]:
    """What differs of the means over so many steps, rounded down; the largest change
    first."""
    moved = []
    for name in dict.fromkeys((*ns_a, *ns_b)):
        mean_a = ns_a.get(name, 0) // count_a
        mean_b = ns_b.get(name, 0) // count_b
        if mean_a != mean_b:
            moved.append(Moved(name=name, a_ns=mean_a, b_ns=mean_b))
    return tuple(sorted(moved, key=lambda change: -abs(change.b_ns - change.a_ns)))


class StepNoise(NamedTuple):
    """By how much steps differ."""

    length_share: float
    """In length, as a share of the median."""
    idle_ns: float
    """In idle time, in ns of a median step."""
    busy_ns: float
    """In the other class of the account that differs most, likewise."""


class RuleSide(NamedTuple):
    """What a rule says of one trace; see Compared."""

    is_there: bool
    ns: int | None
    least_ns: float
    """That make a finding."""
    noise_ns: float | None
    """By which its mean may differ; None where that is not known."""
    lack: Lack | None
    """Why it may be silent although it holds."""


class Lack(NamedTuple):
    """What was not recorded, and what records it."""

    missing: str
    record_with: str


def compared(
    a: Why, b: Why, steps: Sequence[Sequence[StepAccount]]
) -> tuple[Compared, ...]:
    """Each rule that finds time at stake on either side, the largest difference first.
    `steps`: of both sides, where they are compared. Rules that only make notes are left
    out: nothing says by how much those changed."""
    rules_at_stake = set()
    for why in (a, b):
        rules_at_stake |= {each.rule for each in why.findings if each.at_stake_ns}
    steps_a, steps_b = steps
    noise_a = _noise(steps_a)
    noise_b = _noise(steps_b)
    comparisons: list[Compared] = []
    for rule in RULES:
        if rule.id not in rules_at_stake:
            continue
        per_step = bool(steps_a) and not rule.once
        if per_step:
            side_a = _side(rule, a, b, len(steps_a), noise_a)
            side_b = _side(rule, b, a, len(steps_b), noise_b)
        else:
            side_a = _side(rule, a, b, 0, None)
            side_b = _side(rule, b, a, 0, None)
        comparisons.append(_compared(rule.id, side_a, side_b, per_step))
    return tuple(sorted(comparisons, key=_by_difference))


def _by_difference(comparison: Compared) -> int:
    return -abs((comparison.b_ns or 0) - (comparison.a_ns or 0))


def _side(
    rule: Rule, why: Why, other: Why, steps: int, noise: StepNoise | None
) -> RuleSide:
    """`steps`: how many are compared."""
    parts = max(1, steps - why._left_out * rule.of_kernels)
    findings = [each for each in why.findings if each.rule == rule.id]
    at_stake_ns = sum(each.at_stake_ns or 0 for each in findings)
    ns = at_stake_ns + why._below.get(rule.id, 0)
    lack = None if findings else _lack(rule, why, other)
    is_note = bool(findings) and not at_stake_ns
    noise_ns = None
    if noise is not None:
        of_class_ns = noise.busy_ns if rule.of_kernels else noise.idle_ns
        noise_ns = hypot(noise.length_share * ns / parts, of_class_ns)
    return RuleSide(
        is_there=bool(findings),
        ns=None if lack or is_note else ns // parts,
        least_ns=_least_ns(rule, why) / parts,
        noise_ns=noise_ns,
        lack=lack,
    )


def _least_ns(rule: Rule, why: Why) -> float:
    """What makes a finding of a rule about a trace."""
    least_ns = LEAST_SHARE * sum(device.span_ns for device in why.devices)
    if rule.of_kernels:
        busy_ns = sum(device.busy_ns for device in why.devices)
        return min(least_ns, LEAST_OF_BUSY * busy_ns)
    return least_ns


def _lack(rule: Rule, why: Why, other: Why) -> Lack | None:
    """The first thing that a rule lacks; what both sides lack, the other one did
    without."""
    for unknown in why.cannot_tell:
        if unknown.rule == rule.id:
            return Lack(unknown.missing, unknown.record_with)
    for what in rule.needs:
        if what in why._lacks and what not in other._lacks:
            return Lack(what, why._lacks[what])
    return None


def _noise(steps: Sequence[StepAccount]) -> StepNoise | None:
    """None where there are too few steps to tell."""
    sums = [totals(step.devices) for step in steps]
    if len(sums) < FEWEST or not all(total_ns["span"] for total_ns in sums):
        return None
    span_ns = np.array([total_ns["span"] for total_ns in sums])
    class_ns = np.array([[total_ns[name] for name in CLASSES] for total_ns in sums])
    shares = class_ns / span_ns[:, None]
    median_ns, low_ns, high_ns = np.quantile(span_ns, (0.5, *USUAL))
    low, high = np.quantile(shares, USUAL, axis=0)
    *busy_ns, idle_ns = ((high - low) * median_ns).tolist()
    return StepNoise(
        length_share=float((high_ns - low_ns) / median_ns),
        idle_ns=idle_ns,
        busy_ns=max(busy_ns),
    )


def _compared(rule: str, a: RuleSide, b: RuleSide, per_step: bool) -> Compared:
    differs = _differs(a, b)
    status: Status = "stays"
    if a.lack or b.lack:
        status = "unknown"
    elif differs and not (a.is_there and b.is_there):
        status = "gone" if a.is_there else "new"
    lack = a.lack or b.lack
    return Compared(
        rule=rule,
        status=status,
        a_ns=a.ns,
        b_ns=b.ns,
        differs=differs,
        per_step=per_step,
        missing=lack.missing if lack else None,
        record_with=lack.record_with if lack else None,
    )


def _differs(a: RuleSide, b: RuleSide) -> bool:
    """By what makes a finding, and more than steps do."""
    if a.ns is None or b.ns is None:
        return False
    noises = [side.noise_ns for side in (a, b) if side.noise_ns is not None]
    usual_ns = hypot(*noises) if noises else UNSURE * max(a.ns, b.ns)
    least_ns = max(1, usual_ns, min(a.least_ns, b.least_ns))
    return abs(b.ns - a.ns) >= least_ns
