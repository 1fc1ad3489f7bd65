"""The same work takes longer in some steps than in others."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.spread import percentile
from fusetui.analysis.why.evidence import the_most
from fusetui.analysis.why.facts import Facts, Int64s, Rows
from fusetui.analysis.why.rule import Claim, Rule
from fusetui.analysis.why.wording import share_of_work
from fusetui.gpu.roofline.many import distinct_rows
from fusetui.gpu.roofline.row import Job
from fusetui.text.figures import duration, plural

VARIES = 1.3  # p90 / p10
FEWEST = 5  # steps
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "elementwise")
"""Work that shapes alone determine: not attention, whose lengths may vary within its tensors."""


class Alike(msgspec.Struct, frozen=True, eq=False):
    """Launches of the same work at the same place of their steps, one group after the other.

    `first` and `count` are of shape [groups], the others [launches], sorted by `ns` in a group.
    """

    places: Rows  # in the rows of Kernels
    ns: Int64s
    first: Rows
    count: Int64s


def find(facts: Facts) -> Iterator[Claim]:
    alike = _alike(facts)
    if alike is None:
        return
    low, middle, high = (
        percentile(alike.ns, alike.first, alike.count, share) for share in (10, 50, 90)
    )
    varies = (high >= VARIES * low) & (low >= SHORTEST_NS)
    slower = np.maximum(alike.ns - np.repeat(middle, alike.count), 0)
    slower[~np.repeat(varies, alike.count)] = 0
    at_stake = int(slower.sum())
    if at_stake:
        rows, number = facts.kernels.rows[alike.places], int(varies.sum())
        yield Claim(
            text=f"{plural(number, 'kernel')} of a step, alone on the device, "
            f"{'varies' if number == 1 else 'vary'} from step to step by more than a factor of "
            f"{VARIES} (p90 / p10): what took longer than the median adds up to "
            f"{duration(at_stake)} ({share_of_work(facts, at_stake)}).",
            at_stake_ns=at_stake,
            rows=the_most(rows[slower > 0], slower[slower > 0]),
            why_likely="Data may decide how long a kernel takes.",
        )


def _alike(facts: Facts) -> Alike | None:
    """None where there are too few steps, or no such work."""
    kernels, spans = facts.kernels, facts.spans
    if len(spans) < FEWEST:
        return None
    launch = kernels.trace.launch[kernels.rows]
    step = np.where(launch >= 0, spans.at(kernels.trace.start[launch]), -1)
    plain = kernels.of_jobs(_is_plain) == 1
    places = np.flatnonzero((step >= 0) & plain & kernels.alone & ~kernels.communicates)
    if not len(places):
        return None
    job, step = kernels.job_numbers[places], step[places]
    within = _count_within(job, step, kernels.start[places])
    _, group = distinct_rows((job, within))
    ns = kernels.effective_ns[places]
    order = np.lexsort((ns, group))
    count = np.bincount(group)
    enough = count >= FEWEST
    kept = order[enough[group[order]]]
    counts = count[enough].astype(np.int64)
    first = np.cumsum(counts) - counts
    return Alike(places[kept], ns[kept], first, counts) if len(kept) else None


def _count_within(job: Int64s, step: Rows, start: Int64s) -> NDArray[np.int64]:
    """Of each launch, how many of the same job the same step launched before it."""
    order = np.lexsort((start, step, job))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(job[order]) != 0) | (np.diff(step[order]) != 0)
    at = np.arange(len(order))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return found


def _is_plain(job: Job) -> float:
    return float(job.amount.kind in KINDS)


RULE = Rule(
    id="unsteady",
    title="Kernels that vary from step to step",
    question="Does the same work take longer in some steps than in others?",
    needs="Steps, shapes and launch calls.",
    formula="Of products, convolutions and pointwise kernels with the same name and shapes at the "
    "same place of at least five steps, alone on the device and of 10 us or more, whose p90 is 1.3 "
    "times their p10 or more: what each takes longer than the median of its place.",
    remedy="Look at clocks and temperature {nvidia:(nvidia-smi -q -d PERFORMANCE,CLOCK) "
    "|amd:(amd-smi metric) }and at other work on the device; lock the clocks to compare "
    "measurements.",
    thresholds={"varies": VARIES, "fewest": FEWEST, "shortest_ns": SHORTEST_NS},
    find=find,
    of_kernels=True,
    silent="Attention, communication and grouped products are not compared: how much they do "
    "depends on data.",
)
