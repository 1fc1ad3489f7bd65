"""What changed from one trace to another, by the classes of the account, and what
became of the findings: gone, new, or there on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import Literal, NamedTuple

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
USUAL = 0.1, 0.9  # the quantiles between which steps of one run usually lie

FEWEST = 3  # fewer steps do not show by how much steps differ

UNSURE = 0.75  # of the time: a difference that is told where that is not known


class Compared(msgspec.Struct, frozen=True):
    """A rule that finds time at stake in A or in B; ns, as means of the steps if
    `per_step`.

    None stands for a time that cannot be told, because of what is `missing` on that
    side, or because the rule only makes a note there.
    """

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
    """GPU time of one module or one family of kernels on both sides; ns."""

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
    both = steps_tell(a) and steps_tell(b)
    counts = [len(one.steps) if both else 1 for one in (a, b)]
    before, after = (
        totals(median_step(one.steps).devices if both else one.devices)
        for one in (a, b)
    )
    steps = [working(one.steps) if both else () for one in (a, b)]
    paths, others = (
        {m.path: m.gpu_self_ns for m in side.modules or ()} for side in (a, b)
    )
    known = [name for name in ("span", *CLASSES, *IDLE) if before[name] or after[name]]
    return Versus(
        a=a,
        b=b,
        change_of="median step" if both else "span",
        change=tuple(Change(name, before[name], after[name]) for name in known),
        modules=_moved(paths, others, counts),
        families=_moved(a.families, b.families, counts),
        findings=compared(a, b, steps),
        is_sure=max(map(len, steps)) >= FEWEST,
    )


def _moved(
    a: dict[str, int], b: dict[str, int], counts: Sequence[int]
) -> tuple[Moved, ...]:
    """What differs of the means over so many steps, rounded down."""
    names = dict.fromkeys((*a, *b))
    every = (
        Moved(n, a.get(n, 0) // counts[0], b.get(n, 0) // counts[1]) for n in names
    )
    moved = [one for one in every if one.a_ns != one.b_ns]
    return tuple(sorted(moved, key=lambda one: -abs(one.b_ns - one.a_ns)))


StepNoise = tuple[float, float, float]
"""By how much steps differ in length, as a share of the median; in idle time, in ns of
a median step; and in any other class of the account, likewise."""


class RuleSide(NamedTuple):
    """What a rule says of one trace; see Compared."""

    is_there: bool
    ns: int | None
    least: float  # ns that make a finding
    noise: float | None  # ns by which its mean may differ; None where that is not known
    lack: tuple[str, str] | None  # why it may be silent although it holds


def compared(
    a: Why, b: Why, steps: Sequence[Sequence[StepAccount]]
) -> tuple[Compared, ...]:
    """Each rule that finds time at stake on either side, the largest difference first.
    `steps`: of both sides, where they are compared. Rules that only make notes are left
    out: nothing says by how much those changed."""
    costly = {one.rule for why in (a, b) for one in why.findings if one.at_stake_ns}
    noises = [(len(each), _noise(each)) for each in steps]
    found: list[Compared] = []
    for rule in RULES:
        if rule.id in costly:
            per_step = bool(steps[0]) and not rule.once
            each = noises if per_step else ((0, None), (0, None))
            one, other = _side(rule, a, b, *each[0]), _side(rule, b, a, *each[1])
            found.append(_compared(rule.id, one, other, per_step))
    return tuple(sorted(found, key=lambda one: -abs((one.b_ns or 0) - (one.a_ns or 0))))


def _side(
    rule: Rule, why: Why, other: Why, steps: int, noise: StepNoise | None
) -> RuleSide:
    """`steps`: how many are compared."""
    parts = max(1, steps - why.left_out * rule.of_kernels)
    found = [one for one in why.findings if one.rule == rule.id]
    span = sum(one.span_ns for one in why.devices)
    busy = sum(one.busy_ns for one in why.devices)
    least = (
        min(LEAST_SHARE * span, LEAST_OF_BUSY * busy if rule.of_kernels else span)
        / parts
    )
    told = [
        (one.missing, one.record_with) for one in why.cannot_tell if one.rule == rule.id
    ]
    # What both sides lack, the other one did without.
    lacks = [
        what for what in rule.needs if what in why.lacks and what not in other.lacks
    ]
    told += [(what, why.lacks[what]) for what in lacks]
    lack = told[0] if told and not found else None
    ns = sum(one.at_stake_ns or 0 for one in found) + why.below.get(rule.id, 0)
    is_note = bool(found) and not any(one.at_stake_ns for one in found)
    known = None if lack or is_note else ns // parts
    usual = hypot(noise[0] * ns / parts, noise[1 + rule.of_kernels]) if noise else None
    return RuleSide(bool(found), known, least, usual, lack)


def _noise(steps: Sequence[StepAccount]) -> StepNoise | None:
    sums = [totals(step.devices) for step in steps]
    if len(sums) < FEWEST or not all(one["span"] for one in sums):
        return None
    spans = np.array([one["span"] for one in sums])
    shares = (
        np.array([[one[name] for name in CLASSES] for one in sums]) / spans[:, None]
    )
    usual, low, high = np.quantile(spans, (0.5, *USUAL))
    least, most = np.quantile(shares, USUAL, axis=0)
    *busy, idle = ((most - least) * usual).tolist()
    return float((high - low) / usual), idle, max(busy)


def _compared(rule: str, a: RuleSide, b: RuleSide, per_step: bool) -> Compared:
    differs = False
    # by what makes a finding, and more than steps do
    if a.ns is not None and b.ns is not None:
        noises = [one.noise for one in (a, b) if one.noise is not None]
        usual = hypot(*noises) if noises else UNSURE * max(a.ns, b.ns)
        differs = abs(b.ns - a.ns) >= max(1, usual, min(a.least, b.least))
    status: Status = "stays"
    if a.lack or b.lack:
        status = "unknown"
    elif differs and not (a.is_there and b.is_there):
        status = "gone" if a.is_there else "new"
    missing, record_with = a.lack or b.lack or (None, None)
    return Compared(rule, status, a.ns, b.ns, differs, per_step, missing, record_with)
