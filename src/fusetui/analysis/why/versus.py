"""Compare two traces by the classes of the breakdown, and by their findings.

A finding is gone, new, or there on both sides.
"""

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
    DeviceAccount,
    StepAccount,
    Why,
    add_up_accounts,
    do_steps_hold_work,
    find_median_step,
    select_working_steps,
)
from fusetui.analysis.why.rule import MIN_SHARE_OF_BUSY_TIME, MIN_SHARE_OF_SPAN, Rule
from fusetui.trace.model.arrays import Floats, Int64s

Status = Literal["gone", "new", "stays", "unknown"]
USUAL: Final = (0.1, 0.9)
"""The quantiles between which steps of one run usually lie."""
MIN_STEPS_TO_COMPARE: Final = 3
"""Fewer steps do not show by how much steps differ."""
MIN_SHARE_WITHOUT_NOISE: Final = 0.75
"""The share of a time by which it must differ where the noise of steps is not known."""


class Compared(msgspec.Struct, frozen=True):
    """A rule with a finding in A or in B; times in ns, per step if `per_step`.

    A time is None if it is not known: data is `missing` on that side, or the rule only
    makes a note there.
    """

    rule: str
    status: Status
    a_ns: int | None
    b_ns: int | None
    # Whether it differs by what makes a finding, and by more than steps of one run do.
    differs: bool
    per_step: bool
    missing: str | None = None
    record_with: str | None = None


class Change(msgspec.Struct, frozen=True):
    """The time of one class on both sides, summed over devices; in ns."""

    name: str = msgspec.field(name="class")
    a_ns: int
    b_ns: int


class Moved(msgspec.Struct, frozen=True):
    """The GPU time of one module or one library of kernels on both sides; in ns."""

    name: str
    a_ns: int
    b_ns: int


class Versus(msgspec.Struct, frozen=True):
    """The comparison of two traces.

    On each side, the four classes of `change` add up to its first row, the span, and
    the reasons after them to idle. `modules` and `families` have what differs, the
    largest change first: means of all steps where steps are compared, else sums of
    all that was asked about.
    """

    a: Why
    b: Why
    # What is compared: the median step of each side, or the span of its devices.
    change_of: str
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]  # by path, without the time of modules further inside
    families: tuple[Moved, ...]  # by library of kernels
    findings: tuple[Compared, ...]
    # Whether enough steps are compared to know how much they differ by themselves.
    is_sure: bool


def versus(a: Why, b: Why) -> Versus:
    """Compare two traces.

    The median steps are compared if those of both sides hold the work, else the spans.
    """
    by_step = do_steps_hold_work(a) and do_steps_hold_work(b)
    if by_step:
        devices_a = find_median_step(a.steps).devices
        devices_b = find_median_step(b.steps).devices
    else:
        devices_a = a.devices
        devices_b = b.devices

    # Means are over all steps; only steps with work show by how much steps differ.
    step_count_a = len(a.steps) if by_step else 1
    step_count_b = len(b.steps) if by_step else 1
    working_steps_a = select_working_steps(a.steps) if by_step else ()
    working_steps_b = select_working_steps(b.steps) if by_step else ()
    most_working_steps = max(len(working_steps_a), len(working_steps_b))

    return Versus(
        a=a,
        b=b,
        change_of="median step" if by_step else "span",
        change=_list_changes(devices_a, devices_b),
        modules=_rank_changes(
            _get_module_times(a), _get_module_times(b), step_count_a, step_count_b
        ),
        families=_rank_changes(a._families, b._families, step_count_a, step_count_b),
        findings=compare_findings(a, b, working_steps_a, working_steps_b),
        is_sure=most_working_steps >= MIN_STEPS_TO_COMPARE,
    )


def _list_changes(
    devices_a: Sequence[DeviceAccount], devices_b: Sequence[DeviceAccount]
) -> tuple[Change, ...]:
    """Return the total time and its parts on both sides, A and B.

    The parts are the classes of time, such as compute, and the reasons for idle time.
    Times are added up over the devices of a side. A part that neither side has is left
    out.
    """
    a_ns = add_up_accounts(devices_a)
    b_ns = add_up_accounts(devices_b)

    changes = []
    for name in ("span", *CLASSES, *IDLE):
        if a_ns[name] or b_ns[name]:
            changes.append(Change(name=name, a_ns=a_ns[name], b_ns=b_ns[name]))

    return tuple(changes)


def _get_module_times(why: Why) -> dict[str, int]:
    """Return the GPU time of each module without modules inside it, by its path."""
    return {module.path: module.gpu_self_ns for module in why.modules or ()}


def _rank_changes(
    ns_a: dict[str, int], ns_b: dict[str, int], count_a: int, count_b: int
) -> tuple[Moved, ...]:
    """Return by name the means that differ, the largest change first.

    Args:
        ns_a: The sums over all steps of A, by name.
        ns_b: Likewise of B.
        count_a: How many steps A has. Means are rounded down.
        count_b: Likewise of B.
    """
    moved = []
    names = dict.fromkeys((*ns_a, *ns_b))  # each once, in order
    for name in names:
        mean_a = ns_a.get(name, 0) // count_a
        mean_b = ns_b.get(name, 0) // count_b
        if mean_a != mean_b:
            moved.append(Moved(name=name, a_ns=mean_a, b_ns=mean_b))

    return tuple(sorted(moved, key=_rank_by_change))


def _rank_by_change(moved: Moved) -> int:
    """Return the key that sorts changes of a time by their size, the largest first."""
    return -abs(moved.b_ns - moved.a_ns)


class StepNoise(NamedTuple):
    """By how much the steps of one trace differ."""

    length_share: float
    """In length, as a share of the median."""
    idle_ns: float
    """In idle time, in ns of a median step."""
    busy_ns: float
    """In the other class of the account that differs most, in ns of a median step."""

    def estimate_for_mean(self, rule: Rule, mean_ns: float) -> float:
        """Estimate by how much the mean time at stake of a rule may differ by chance,
        in ns.

        Two sources of chance are combined: steps differ in length, and in the share of
        the class of time that the rule is about.

        Args:
            rule: The rule.
            mean_ns: Its mean time at stake.
        """
        of_class_ns = self.busy_ns if rule.of_kernels else self.idle_ns
        of_length_ns = self.length_share * mean_ns
        return hypot(of_length_ns, of_class_ns)


class RuleSide(NamedTuple):
    """What a rule says of one trace; see Compared."""

    is_there: bool
    """Whether the rule has a finding."""
    ns: int | None
    """The time at stake, None if it is not known."""
    least_ns: float
    """The time that makes a finding."""
    noise_ns: float | None
    """By how much the mean may differ by chance; None where that is not known."""
    lack: Lack | None
    """Why the rule may be silent although it holds; None if nothing is missing."""


class Lack(NamedTuple):
    """What was not recorded, and what records it."""

    missing: str
    record_with: str


def compare_findings(
    a: Why, b: Why, steps_a: Sequence[StepAccount], steps_b: Sequence[StepAccount]
) -> tuple[Compared, ...]:
    """Compare what each rule says of both traces, the largest difference first.

    Only rules that find time at stake on either side count. Rules that only make notes
    are left out: nothing says by how much those changed.

    Args:
        steps_a: The steps of A that are compared; () where spans are compared.
        steps_b: Likewise of B.
    """
    with_time_at_stake = _find_rules_at_stake(a) | _find_rules_at_stake(b)
    noise_a = _measure_noise(steps_a)
    noise_b = _measure_noise(steps_b)

    comparisons: list[Compared] = []
    for rule in RULES:
        if rule.id not in with_time_at_stake:
            continue

        per_step = bool(steps_a) and not rule.once
        if per_step:
            side_a = _summarize_side(rule, a, b, len(steps_a), noise_a)
            side_b = _summarize_side(rule, b, a, len(steps_b), noise_b)
        else:
            side_a = _summarize_side(rule, a, b, steps=0, noise=None)
            side_b = _summarize_side(rule, b, a, steps=0, noise=None)

        comparisons.append(_compare_rule(rule.id, side_a, side_b, per_step))

    return tuple(sorted(comparisons, key=_rank_by_difference))


def _find_rules_at_stake(why: Why) -> set[str]:
    """Return the rules that find time at stake in a trace."""
    return {finding.rule for finding in why.findings if finding.at_stake_ns}


def _rank_by_difference(comparison: Compared) -> int:
    """Return the key that sorts comparisons of rules, the largest difference first.

    An unknown time counts as 0.
    """
    a_ns = comparison.a_ns or 0
    b_ns = comparison.b_ns or 0
    return -abs(b_ns - a_ns)


def _summarize_side(
    rule: Rule, why: Why, other: Why, steps: int, noise: StepNoise | None
) -> RuleSide:
    """Summarize what a rule says of one trace.

    Args:
        rule: The rule.
        why: The answers about this trace.
        other: The answers about the other trace.
        steps: Over how many steps means are taken; 0 for sums of the whole trace.
        noise: By how much these steps differ, None if that is not known.
    """
    counted_steps = steps
    if rule.of_kernels:  # such rules leave out the first steps
        counted_steps -= why._left_out
    counted_steps = max(1, counted_steps)  # the whole trace counts as one

    findings = [finding for finding in why.findings if finding.rule == rule.id]
    is_there = bool(findings)
    at_stake_ns = sum(finding.at_stake_ns or 0 for finding in findings)
    total_ns = at_stake_ns + why._below.get(rule.id, 0)

    noise_ns = None
    if noise is not None:
        noise_ns = noise.estimate_for_mean(rule, total_ns / counted_steps)

    lack = None if is_there else _find_first_lack(rule, why, other)
    is_note = is_there and at_stake_ns == 0
    is_time_known = lack is None and not is_note
    return RuleSide(
        is_there=is_there,
        ns=total_ns // counted_steps if is_time_known else None,
        least_ns=_compute_least_ns(rule, why) / counted_steps,
        noise_ns=noise_ns,
        lack=lack,
    )


def _compute_least_ns(rule: Rule, why: Why) -> float:
    """Return the time at stake (ns) from which on a rule has a finding about a trace."""
    least_ns = MIN_SHARE_OF_SPAN * sum(device.span_ns for device in why.devices)
    if rule.of_kernels:
        busy_ns = sum(device.busy_ns for device in why.devices)
        return min(least_ns, MIN_SHARE_OF_BUSY_TIME * busy_ns)
    return least_ns


def _find_first_lack(rule: Rule, why: Why, other: Why) -> Lack | None:
    """Return the first thing that a rule lacks in a trace; None if it lacks nothing.

    What the rule reported as unknown comes first. After that comes what the rule needs
    and only this trace lacks. What both traces lack is no difference between them.

    Args:
        rule: The rule.
        why: The answers about the trace.
        other: The answers about the trace with which it is compared.
    """
    for unknown in why.cannot_tell:
        if unknown.rule == rule.id:
            return Lack(unknown.missing, unknown.record_with)

    for need in rule.needs:
        if need in why._lacks and need not in other._lacks:
            return Lack(need, why._lacks[need])

    return None


def _measure_noise(steps: Sequence[StepAccount]) -> StepNoise | None:
    """Measure by how much some steps differ from each other, between the quantiles
    USUAL.

    Both their lengths and the share of each class of time are measured.

    Returns:
        None if there are fewer than MIN_STEPS_TO_COMPARE steps, or if one has no span.
    """
    ns_of_steps = [add_up_accounts(step.devices) for step in steps]
    span_ns = np.array([ns_of_step["span"] for ns_of_step in ns_of_steps])
    if len(steps) < MIN_STEPS_TO_COMPARE or not span_ns.all():
        return None

    median_ns = float(np.quantile(span_ns, 0.5))
    length_range_ns = _measure_usual_range(span_ns)
    idle_range_ns = 0.0
    busy_range_ns = 0.0
    for name in CLASSES:
        class_ns = np.array([ns_of_step[name] for ns_of_step in ns_of_steps])
        range_ns = _measure_usual_range(class_ns / span_ns) * median_ns
        if name == "idle":
            idle_range_ns = range_ns
        else:
            busy_range_ns = max(busy_range_ns, range_ns)

    return StepNoise(
        length_share=length_range_ns / median_ns,
        idle_ns=idle_range_ns,
        busy_ns=busy_range_ns,
    )


def _measure_usual_range(values: Int64s | Floats) -> float:
    """Return how far apart the quantiles USUAL of some values are."""
    low, high = np.quantile(values, USUAL)
    return float(high - low)


def _compare_rule(rule: str, a: RuleSide, b: RuleSide, per_step: bool) -> Compared:
    """Decide whether a finding is gone, new, unknown or still there, from both sides.

    Args:
        rule: The name of the rule.
        a: What the rule says of trace A.
        b: What it says of trace B.
        per_step: Whether the times are means over steps, not sums.
    """
    differs = _do_times_differ(a, b)
    lack = a.lack or b.lack
    status: Status = "stays"
    if lack:
        status = "unknown"
    elif differs and not (a.is_there and b.is_there):
        status = "gone" if a.is_there else "new"

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


def _do_times_differ(a: RuleSide, b: RuleSide) -> bool:
    """Whether the times at stake differ by more than chance.

    They must differ by what makes a finding, and by more than steps of one run do
    (MIN_SHARE_WITHOUT_NOISE of the time where that is not known). False if a time is
    not known.
    """
    if a.ns is None or b.ns is None:
        return False

    if a.noise_ns is None and b.noise_ns is None:
        chance_ns = MIN_SHARE_WITHOUT_NOISE * max(a.ns, b.ns)
    else:
        chance_ns = hypot(a.noise_ns or 0, b.noise_ns or 0)

    finding_ns = min(a.least_ns, b.least_ns)
    least_ns = max(1, chance_ns, finding_ns)
    return abs(b.ns - a.ns) >= least_ns
