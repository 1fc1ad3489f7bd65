"""Work that takes longer than the device needs for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.idle import Flags
from fusetui.trace.insights.rule import Claim, Rule
from fusetui.trace.insights.rules import alignment, few_blocks, no_tensor_cores, unfused_attention
from fusetui.trace.insights.wording import share_of_work
from fusetui.trace.kernel_names import short_name
from fusetui.trace.roofline.row import Job
from fusetui.trace.text.figures import count, duration, percent, plural
from fusetui.trace.text.printable import printable

NEAR = 0.75  # of what is attainable
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "attention", "softmax", "norm")
CLAIMED = (alignment, few_blocks, no_tensor_cores, unfused_attention)
"""Rules that name the cause: what they claim is theirs."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not (kernels.bounded.bound_ns >= 0).any():
        return
    far = far_of(facts)
    taken, least = (int(ns[far].sum()) for ns in (kernels.effective_ns, kernels.bounded.bound_ns))
    if not taken:
        return
    number = int(np.count_nonzero(far))
    one = number == 1
    yield Claim(
        text=f"{plural(number, 'kernel')} {'takes' if one else 'take'} {duration(taken)} "
        f"({share_of_work(facts, taken)}) and {'reaches' if one else 'reach'} an estimated "
        f"{percent(least, taken)} of what is attainable for {'its' if one else 'their'} shapes"
        f"{'' if one else _most(facts, far)}.",
        at_stake_ns=taken - least,
        rows=kernels.heaviest(far),
        why_likely="Less may be attainable for this shape than for the best one.",
    )


def far_of(facts: Facts) -> Flags:
    """The kernels of the claim."""
    kernels = facts.kernels
    bound, taken = kernels.bounded.bound_ns, kernels.effective_ns
    slow = (bound >= 0) & (NEAR * taken > bound) & (taken >= SHORTEST_NS)
    found: Flags = slow & (kernels.of_jobs(_counts) == 1) & kernels.alone
    for rule in CLAIMED:
        if found.any():
            found &= ~rule.claimed(facts)
    return found


def _counts(job: Job) -> float:
    return float(job.amount.kind in KINDS)


def _most(facts: Facts, far: Flags) -> str:
    """The kernel name with the most at stake."""
    kernels, trace = facts.kernels, facts.trace
    names, stake = trace.name[kernels.rows], kernels.bounded.at_stake_ns
    name = int(np.bincount(names[far], stake[far]).argmax())
    own = far & (names == name)
    taken, least = (int(ns[own].sum()) for ns in (kernels.effective_ns, kernels.bounded.bound_ns))
    return (
        f", most of all {count(int(np.count_nonzero(own)))} x "
        f"{printable(short_name(trace.names[name]))}, {duration(taken)} at {percent(least, taken)}"
    )


RULE = Rule(
    id="far-from-peak",
    title="Kernels far from the peak",
    question="Do products, convolutions, attention, softmax or normalization take longer than the "
    "device needs for their work?",
    needs="Shapes, kernel names and a device of the table of peaks.",
    formula="The effective duration of such kernels of 10 us or more that reach less than three "
    "quarters of their bound (see the ceiling) while nothing else runs, minus that bound.",
    remedy="Other shapes or layouts (multiples of 64, contiguous inputs, channels_last), a newer "
    "{nvidia:cuBLAS or cuDNN|amd:hipBLASLt or MIOpen|intel:oneDNN|:library}"
    '{compile:, or torch.compile(mode="max-autotune"), which measures several kernels}.',
    thresholds={"near": NEAR, "shortest_ns": SHORTEST_NS},
    find=find,
    of_kernels=True,
    silent="What alignment, few-blocks, no-tensor-cores or unfused-attention claims is left to "
    "them: they name the cause. Data that fits into the cache has no bound.",
)
