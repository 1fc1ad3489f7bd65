"""Kernels that are slower while communication runs beside them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Int64s
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_work
from fusetui.text.figures import count, duration, percent
from fusetui.trace.model.categories import Role

FEWEST = 5  # of a kernel alone, and beside communication


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not kernels.communicates.any():
        return
    work = (facts.trace.role[kernels.rows] == Role.KERNEL) & ~kernels.communicates
    beside = work & kernels.beside(kernels.communicates)
    alone = work & kernels.alone
    job = np.where(beside | alone, kernels.job_numbers, -1)
    usual = _usual(job, alone, beside, kernels.effective_ns)
    measured = beside & (job >= 0) & (usual[job] > 0)
    if not measured.any():
        return
    rows, usual_ns = kernels.rows[measured], usual[job[measured]]
    slower = kernels.effective_ns[measured] - usual_ns
    at_stake = int(slower.sum())
    if at_stake > 0:
        yield Claim(
            text=f"{count(len(rows))} kernels beside communication take {duration(at_stake)} "
            f"({share_of_work(facts, at_stake)}) longer than the same ones alone, which is "
            f"{percent(at_stake, int(usual_ns.sum()))} more.",
            at_stake_ns=at_stake,
            rows=the_most(rows, slower),
        )


def _usual(job: Int64s, alone: Int64s, beside: Int64s, ns: Int64s) -> Int64s:
    """The median time alone of each job with enough kernels of both sorts, else 0; a last one for
    no job."""
    jobs = int(job.max(initial=-1)) + 1
    often = [np.bincount(job[which & (job >= 0)], minlength=jobs) for which in (alone, beside)]
    found = np.zeros(jobs + 1, dtype=np.int64)
    places = np.flatnonzero(alone & (job >= 0))
    order = places[np.lexsort((ns[places], job[places]))]
    first = np.searchsorted(job[order], np.arange(jobs))
    enough = np.flatnonzero((often[0] >= FEWEST) & (often[1] >= FEWEST))
    found[enough] = ns[order[first[enough] + often[0][enough] // 2]]
    return found


RULE = Rule(
    id="overlap-tax",
    title="The cost of overlap",
    question="Are kernels slower while communication runs beside them?",
    needs="Communication kernels, and shapes to know which kernels do the same work.",
    formula="For kernels with the same name and shapes, at least five alone and five beside "
    "communication: the effective durations of the latter, minus the median alone for each.",
    remedy="Fewer SMs for communication{nvidia: (NCCL_MAX_CTAS, NCCL_MIN_CTAS)|amd: "
    "(NCCL_MAX_NCHANNELS)}, copy engines instead of kernels, or communication beside work that is "
    "bound by arithmetic, not memory. The overlap may still pay: compare this with the time that "
    "it hides.",
    thresholds={"fewest": FEWEST},
    find=find,
    of_kernels=True,
)
