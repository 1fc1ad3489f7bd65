"""What became of the findings of one trace in another: gone, new, or there on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.model import StepAccount, Why
from fusetui.analysis.why.recorded import needed_by
from fusetui.analysis.why.rule import LEAST_OF_BUSY, LEAST_SHARE, Rule
from fusetui.analysis.why.rules import all_rules
from fusetui.analysis.why.typical import CLASSES, totals
from fusetui.text.figures import duration, signed_duration

Status = Literal["gone", "new", "stays", "unknown"]
USUAL = 0.1, 0.9
"""The quantiles between which steps of one run usually lie."""

FEWEST = 3
"""Fewer steps do not show by how much steps differ."""

UNSURE = 0.75
"""Of the time: a difference that is told where that is not known."""


DOUBT = f"How much runs differ by themselves is not known: no side has {FEWEST} steps."


class Compared(msgspec.Struct, frozen=True):
    """A rule that finds time at stake in A or in B; ns, as means of the steps if `per_step`.

    None stands for a time that cannot be told, because of what is `missing` on that side, or
    because the rule only makes a note there.
    """

    rule: str
    status: Status
    a_ns: int | None
    b_ns: int | None
    differs: bool  # by what makes a finding, and more than steps of one run do
    per_step: bool
    missing: str | None = None
    record_with: str | None = None


class Noise(NamedTuple):
    """By how much the steps of one run usually differ."""

    length: float  # as a share of the median
    idle: float  # ns of a median step that are idle in one step, and not in another
    busy: float  # the same of any other class of the account


class Side(NamedTuple):
    """What a rule says of one trace; see Compared."""

    is_there: bool
    ns: int | None
    least: float  # ns that make a finding
    noise: float | None  # ns by which its mean may differ; None where that is not known
    lack: tuple[str, str] | None  # why it may be silent although it holds


def compared(a: Why, b: Why, steps: Sequence[Sequence[StepAccount]]) -> tuple[Compared, ...]:
    """Each rule that finds time at stake on either side, the largest difference first. `steps`: of
    both sides, where they are compared. Rules that only make notes are left out: nothing says by
    how much those changed."""
    costly = {one.rule for why in (a, b) for one in why.findings if one.at_stake_ns}
    noises = [_noise(each) for each in steps]
    found: list[Compared] = []
    for rule in all_rules():
        if rule.id in costly:
            per_step = bool(steps[0]) and not rule.once
            known = noises if per_step else (None, None)
            parts = [
                max(1, len(each) - why.left_out * rule.of_kernels) if per_step else 1
                for each, why in zip(steps, (a, b), strict=True)
            ]
            sides = _side(rule, a, b, parts[0], known[0]), _side(rule, b, a, parts[1], known[1])
            found.append(_compared(rule.id, *sides, per_step))
    return tuple(sorted(found, key=lambda one: -abs((one.b_ns or 0) - (one.a_ns or 0))))


def _side(rule: Rule, why: Why, other: Why, parts: int, noise: Noise | None) -> Side:
    found = [one for one in why.findings if one.rule == rule.id]
    span = sum(one.span_ns for one in why.devices)
    busy = sum(one.busy_ns for one in why.devices)
    least = min(LEAST_SHARE * span, LEAST_OF_BUSY * busy if rule.of_kernels else span) / parts
    lack = None if found else _lack(rule, why, other)
    ns = sum(one.at_stake_ns or 0 for one in found) + why.below.get(rule.id, 0)
    is_note = bool(found) and not any(one.at_stake_ns for one in found)
    known = None if lack or is_note else ns // parts
    own = noise and (noise.busy if rule.of_kernels else noise.idle)
    usual = hypot(noise.length * ns / parts, own) if noise and own is not None else None
    return Side(bool(found), known, least, usual, lack)


def _noise(steps: Sequence[StepAccount]) -> Noise | None:
    sums = [totals(step.devices) for step in steps]
    if len(sums) < FEWEST or not all(one["span"] for one in sums):
        return None
    spans = np.array([one["span"] for one in sums])
    shares = np.array([[one[name] for name in CLASSES] for one in sums]) / spans[:, None]
    usual, low, high = np.quantile(spans, (0.5, *USUAL))
    least, most = np.quantile(shares, USUAL, axis=0)
    *busy, idle = ((most - least) * usual).tolist()
    return Noise(float((high - low) / usual), idle, max(busy))


def _lack(rule: Rule, why: Why, other: Why) -> tuple[str, str] | None:
    """What the rule needs and lacks here; what both sides lack, the other one did without."""
    for one in why.cannot_tell:
        if one.rule == rule.id:
            return one.missing, one.record_with
    for what in needed_by(rule):
        if what in why.lacks and what not in other.lacks:
            return what, why.lacks[what]
    return None


def _compared(rule: str, a: Side, b: Side, per_step: bool) -> Compared:
    differs = _differs(a, b)
    status: Status = "stays"
    if a.lack or b.lack:
        status = "unknown"
    elif differs and not (a.is_there and b.is_there):
        status = "gone" if a.is_there else "new"
    missing, record_with = a.lack or b.lack or (None, None)
    return Compared(rule, status, a.ns, b.ns, differs, per_step, missing, record_with)


def _differs(a: Side, b: Side) -> bool:
    """By what makes a finding, and by more than steps do."""
    if a.ns is None or b.ns is None:
        return False
    known = [one.noise for one in (a, b) if one.noise is not None]
    usual = hypot(*known) if known else UNSURE * max(a.ns, b.ns)
    return abs(b.ns - a.ns) >= max(1, usual, min(a.least, b.least))


def finding_rows(found: Sequence[Compared]) -> list[tuple[str, ...]]:
    """What differs: the rule, `gone`, `new`, `less` or `more`, the times and their difference."""
    some = any(one.per_step for one in found)
    return [
        (
            one.rule if one.per_step or not some else f"{one.rule}, in all",
            one.status if one.status != "stays" else "less" if one.b_ns < one.a_ns else "more",
            duration(one.a_ns),
            duration(one.b_ns),
            signed_duration(one.b_ns - one.a_ns),
        )
        for one in found
        if one.differs and one.a_ns is not None and one.b_ns is not None
    ]


def below_rows(found: Sequence[Compared], is_sure: bool) -> list[str]:
    """What is said below these rows: what cannot be told, `Cannot tell in B, which lacks launch
    calls (ProfilerActivity.CUDA): host-bound.`, and how sure the rows are (see Versus)."""
    lacks: dict[str, list[str]] = {}
    for one in found:
        if one.missing:
            side = "A" if one.a_ns is None else "B"
            how = f" ({one.record_with})" if one.record_with else ""
            lacks.setdefault(f"in {side}, which lacks {one.missing}{how}", []).append(one.rule)
    doubts = [] if is_sure or not any(one.differs for one in found) else [DOUBT]
    return [*doubts, *(f"Cannot tell {lack}: {', '.join(rules)}." for lack, rules in lacks.items())]
