"""The rule unsteady: the same kernel takes longer in some steps than in others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, choose_heaviest_rows
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_work
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    distinct_rows,
    numbers_of_sized_groups,
    ordinals,
    prefix_sums,
)
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import NO_INTERVAL
from fusetui.trace.model.quantiles import percentiles_of_runs

MIN_RATIO_P90_TO_P10: Final = 1.3
"""A kernel varies from step to step from this ratio of p90 to p10 on."""
MIN_STEPS: Final = 5
"""Kernels are compared over at least this many steps."""
SHORTEST_NS: Final = 10_000
"""A kernel with a smaller p10 is not worth a look."""
_KINDS_FIXED_BY_SHAPES: Final = ("matmul", "conv", "elementwise")
"""The kinds of work that shapes alone determine.

Attention is none of them: its lengths may vary within its tensors.
"""


@Rule(
    needs=("launch calls", "input shapes"),
    remedy="Check the clocks and the temperature{nvidia: (nvidia-smi -q -d "
    "PERFORMANCE,CLOCK)|amd: (amd-smi metric)}, and other work on the device. "
    "Lock the clocks to compare measurements.",
    thresholds={
        "varies": MIN_RATIO_P90_TO_P10,
        "fewest": MIN_STEPS,
        "shortest_ns": SHORTEST_NS,
    },
    of_kernels=True,
)
def unsteady(facts: Facts) -> Iterator[Claim]:
    """Report kernels that vary by MIN_RATIO_P90_TO_P10 or more from step to step.

    They do the same work at the same position of each step. At stake is what they took
    longer than their median, added up over the steps.
    """
    if len(facts.steps) < MIN_STEPS:
        return

    kernels = facts.kernels
    groups = _group_same_work(facts)
    variation = _measure_variation(kernels, groups)
    at_stake_ns = int(variation.slower_ns.sum())
    if not at_stake_ns:
        return

    is_slower = variation.slower_ns > 0
    slower_rows = kernels.rows[groups.kernels[is_slower]]
    vary = "varies" if variation.groups == 1 else "vary"

    yield Claim(
        text=f"{plural(variation.groups, 'kernel')} of a step, alone on the device, "
        f"{vary} from step to step by more than a factor of {MIN_RATIO_P90_TO_P10} (p90 / "
        "p10). The time beyond the medians adds up to "
        f"{format_share_of_work(facts, at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(slower_rows, variation.slower_ns[is_slower]),
        why_likely="Kernel times may depend on the data.",
    )


class _Variation(NamedTuple):
    """How groups of the same work vary."""

    groups: int
    """How many groups vary by MIN_RATIO_P90_TO_P10 or more."""
    slower_ns: Int64s
    """How much longer each kernel of these took than the median of its group.

    It is 0 for kernels of other groups. Shape of SameWork.kernels.
    """


def _measure_variation(kernels: Kernels, groups: SameWork) -> _Variation:
    """Measure how much the runs of the same work vary in time.

    A group varies if its 90th percentile is MIN_RATIO_P90_TO_P10 times the 10th or
    more. Groups of very short kernels do not count. For each kernel of a group that
    varies, the time beyond the median of the group is lost.

    Args:
        groups: The kernels by group, in each group the shortest first.
    """
    ns = kernels.effective_ns[groups.kernels]
    first_of_group = prefix_sums(groups.counts)[:-1]
    p10_ns = percentiles_of_runs(ns, first_of_group, groups.counts, 10)
    median_ns = percentiles_of_runs(ns, first_of_group, groups.counts, 50)
    p90_ns = percentiles_of_runs(ns, first_of_group, groups.counts, 90)
    is_long = p10_ns >= SHORTEST_NS
    varies = is_long & (p90_ns >= MIN_RATIO_P90_TO_P10 * p10_ns)

    group_of_kernel = numbers_of_sized_groups(groups.counts)
    beyond_median_ns = np.maximum(ns - median_ns[group_of_kernel], 0)
    slower_ns = np.where(varies[group_of_kernel], beyond_median_ns, 0)
    return _Variation(groups=int(varies.sum()), slower_ns=slower_ns)


class SameWork(msgspec.Struct, frozen=True, eq=False):
    """Groups of launches of the same work at the same position of their steps."""

    kernels: Rows
    """Indices into Kernels: one group after the other, the shortest kernel of each
    first."""
    counts: Int64s
    """The size of each group."""


def _group_same_work(facts: Facts) -> SameWork:
    """Group the kernels that do the same work in different steps.

    The n-th launch of a job in one step is the same work as the n-th in any other step.
    A job is a kernel on inputs of given shapes. Only kernels count that run alone and
    whose work the shapes determine. Groups with fewer than MIN_STEPS kernels are left
    out.
    """
    kernels = facts.kernels
    step = _find_launching_steps(facts)
    has_fixed_work = kernels.match_jobs(
        lambda job: job.amount.kind in _KINDS_FIXED_BY_SHAPES
    )
    is_compared = (step != NO_INTERVAL) & has_fixed_work
    is_compared &= kernels.runs_alone & ~kernels.is_communication
    compared = np.flatnonzero(is_compared)

    job = kernels.job_indices[compared]
    nth_in_step = _count_earlier_launches(job, step[compared], kernels.start[compared])
    _, job_and_nth = distinct_rows((job, nth_in_step))
    groups = grouped(job_and_nth, then_by=kernels.effective_ns[compared])
    is_large = groups.counts >= MIN_STEPS
    is_in_large_group = np.repeat(is_large, groups.counts)

    return SameWork(
        kernels=compared[groups.order[is_in_large_group]],
        counts=groups.counts[is_large],
    )


def _count_earlier_launches(job: Int64s, step: Rows, start: Int64s) -> Int64s:
    """Count for each kernel how many of its job started in its step before it.

    >>> job, start = np.array([7, 7, 7]), np.array([30, 10, 50])
    >>> _count_earlier_launches(job, step=np.array([0, 0, 1]), start=start).tolist()
    [1, 0, 0]
    """
    _, job_in_step = distinct_rows((job, step))
    by_start = np.argsort(start, kind="stable")

    earlier_launches = np.empty(len(job), dtype=np.int64)
    earlier_launches[by_start] = ordinals(job_in_step[by_start])
    return earlier_launches


def _find_launching_steps(facts: Facts) -> Rows:
    """Return the index of the step that launched each kernel, NO_INTERVAL for none."""
    trace = facts.trace
    launch = trace.launch[facts.kernels.rows]
    step_of_launch = facts.steps.at(trace.start[launch])
    return np.where(launch != NO_ROW, step_of_launch, NO_INTERVAL)
