"""The same kernel at the same place of each step takes longer in some of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, heaviest_rows
from fusetui.analysis.why.rule import Claim, Rule, share_of_work
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct_rows, ordinals
from fusetui.trace.model.quantiles import percentiles_of_runs

VARIES: Final = 1.3
"""p90 / p10."""
MIN_STEPS: Final = 5
SHORTEST_NS: Final = 10_000
"""The p10 of a kernel."""
_KINDS: Final = ("matmul", "conv", "elementwise")
"""Work that shapes alone determine: not attention, whose lengths may vary within its
tensors."""


@Rule(
    needs=("launch calls", "input shapes"),
    remedy="Look at clocks and temperature {nvidia:(nvidia-smi -q -d PERFORMANCE,CLOCK) "
    "|amd:(amd-smi metric) }and at other work on the device; lock the clocks to compare "
    "measurements.",
    thresholds={"varies": VARIES, "fewest": MIN_STEPS, "shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def unsteady(facts: Facts) -> Iterator[Claim]:
    """One claim about the kernels that vary by VARIES or more from step to step, for
    the same work at the same place of each step. At stake is what they took longer than
    their median, added up over the steps."""
    if len(facts.steps) < MIN_STEPS:
        return
    kernels = facts.kernels
    groups = _same_work(facts)
    variation = _variation(kernels, groups)
    at_stake_ns = int(variation.slower_ns.sum())
    if not at_stake_ns:
        return
    is_slower = variation.slower_ns > 0
    slower_rows = kernels.rows[groups.kernels[is_slower]]
    vary = "varies" if variation.groups == 1 else "vary"
    yield Claim(
        text=f"{plural(variation.groups, 'kernel')} of a step, alone on the device, "
        f"{vary} from step to step by more than a factor of "
        f"{VARIES} (p90 / p10): what took longer than the median adds up to "
        f"{share_of_work(facts, at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        rows=heaviest_rows(slower_rows, variation.slower_ns[is_slower]),
        why_likely="Data may decide how long a kernel takes.",
    )


class _Variation(NamedTuple):
    """How groups of the same work vary."""

    groups: int
    """How many vary by VARIES or more."""
    slower_ns: Int64s
    """How much longer each kernel of these took than the median of its group; 0 for
    others. Shape of SameWork.kernels."""


def _variation(kernels: Kernels, groups: SameWork) -> _Variation:
    """How these groups vary."""
    ns = kernels.effective_ns[groups.kernels]
    first = np.cumsum(groups.counts) - groups.counts
    p10 = percentiles_of_runs(ns, first, groups.counts, 10)
    p50 = percentiles_of_runs(ns, first, groups.counts, 50)
    p90 = percentiles_of_runs(ns, first, groups.counts, 90)
    varies = (p90 >= VARIES * p10) & (p10 >= SHORTEST_NS)
    median_ns = np.repeat(p50, groups.counts)
    slower_ns = np.maximum(ns - median_ns, 0)
    slower_ns[~np.repeat(varies, groups.counts)] = 0
    return _Variation(groups=int(varies.sum()), slower_ns=slower_ns)


class SameWork(msgspec.Struct, frozen=True, eq=False):
    """Groups of launches of the same work at the same place of their steps."""

    kernels: Rows
    """Places in Kernels: one group after the other, sorted by their time in each."""
    counts: Int64s
    """The size of each group."""


def _same_work(facts: Facts) -> SameWork:
    """The n-th launch of a job in a step is the same work as the n-th in the other steps:
    groups of such launches, of MIN_STEPS or more."""
    kernels = facts.kernels
    step = _launching_step(facts)
    is_compared = (step >= 0) & _has_fixed_work(kernels)
    is_compared &= kernels.alone & ~kernels.communicates
    places = np.flatnonzero(is_compared)
    job = kernels.job_indices[places]
    # how many of its job its step launched before it
    by_start = np.argsort(kernels.start[places], kind="stable")
    job_in_step = distinct_rows((job, step[places]))[1]
    nth_in_step = np.empty(len(places), dtype=np.int64)
    nth_in_step[by_start] = ordinals(job_in_step[by_start])

    group = distinct_rows((job, nth_in_step))[1]
    counts = np.bincount(group)
    is_large = counts >= MIN_STEPS
    by_group = np.lexsort((kernels.effective_ns[places], group))
    in_large_groups = by_group[is_large[group[by_group]]]
    return SameWork(
        kernels=places[in_large_groups], counts=counts[is_large].astype(np.int64)
    )


def _launching_step(facts: Facts) -> Rows:
    """The number of the step that launched each kernel, -1 for none; shape [kernels]."""
    trace = facts.trace
    launch = trace.launch[facts.kernels.rows]
    step_of_launch = facts.steps.at(trace.start[launch])
    return np.where(launch >= 0, step_of_launch, -1)


def _has_fixed_work(kernels: Kernels) -> Flags:
    """Which kernels do work that shapes alone determine; shape [kernels]."""
    is_fixed: Flags = (
        kernels.figures_of_jobs(lambda job: float(job.amount.kind in _KINDS)) == 1
    )
    return is_fixed
