"""Work that takes longer than the device needs for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Flags
from fusetui.analysis.why.rule import Claim, Rule, share_of_work
from fusetui.analysis.why.rules import alignment, few_blocks, no_tensor_cores, unfused_attention
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.roofline.row import Job
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable

NEAR = 0.75  # of what is attainable
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "attention", "softmax", "norm")
MULTIPLE = 64  # what tiles of products divide into
NHWC = re.compile(r"nhwc", re.IGNORECASE)
LIBRARIES = (
    "a newer {nvidia:cuBLAS or cuDNN|amd:hipBLASLt or MIOpen|intel:oneDNN|:library}"
    '{compile:, or torch.compile(mode="max-autotune"), which measures several kernels}'
)
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
        remedy=_remedy(facts, far),
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


def _remedy(facts: Facts, far: Flags) -> str:
    """What there is for the kinds of work of the claim: no sizes and layouts that it has."""
    kernels, names = facts.kernels, facts.trace.names
    numbers = np.unique(kernels.job_numbers[far]).tolist()
    amounts = [kernels.jobs.distinct[number].amount for number in numbers]
    kinds = {amount.kind for amount in amounts}
    sides = [side for one in amounts if one.kind == "matmul" for side in (one.m, one.n, one.k)]
    is_conv = far & (kernels.of_jobs(lambda job: float(job.amount.kind == "conv")) == 1)
    layouts = np.unique(facts.trace.name[kernels.rows[is_conv]]).tolist()
    ways = {
        f"sizes that are multiples of {MULTIPLE}": any(side and side % MULTIPLE for side in sides),
        "the memory format channels_last": any(not NHWC.search(names[name]) for name in layouts),
        "another backend of attention (torch.nn.attention.sdpa_kernel)": "attention" in kinds,
        "contiguous inputs": bool(kinds & {"softmax", "norm"}),
        LIBRARIES: bool(kinds & {"matmul", "conv"}),
    }
    text = ", ".join(way for way, fits in ways.items() if fits)
    return f"{text[0].upper()}{text[1:]}."


RULE = Rule(
    id="far-from-peak",
    title="Kernels far from the peak",
    question="Do products, convolutions, attention, softmax or normalization take longer than the "
    "device needs for their work?",
    needs="Shapes, kernel names and a device of the table of peaks.",
    formula="The effective duration of such kernels of 10 us or more that reach less than three "
    "quarters of their bound (see the ceiling) while nothing else runs, minus that bound.",
    remedy="Other sizes or layouts (multiples of 64, contiguous inputs, channels_last), another "
    f"backend of attention (torch.nn.attention.sdpa_kernel), {LIBRARIES}.",
    thresholds={"near": NEAR, "shortest_ns": SHORTEST_NS},
    find=find,
    of_kernels=True,
    silent="What alignment, few-blocks, no-tensor-cores or unfused-attention claims is left to "
    "them: they name the cause. Data that fits into the cache has no bound.",
)
