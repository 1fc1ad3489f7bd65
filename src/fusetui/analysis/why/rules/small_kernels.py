"""Kernels so short or so many that starting them costs as much as running them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, of_span, rule
from fusetui.analysis.why.rules.launches import SLOW_NS
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, percent, plural
from fusetui.trace.model.arrays import Flags

SHORTER_NS = 5_000
LEAST_COUNT = 0.5  # of all kernels
FEWEST_KERNELS = 20  # kernels
LEAST_TIME = 0.1  # of the span: the short kernels, and the gaps between two of them

REPLAYED_ALREADY = (
    "Graphs launch them already, so what is left is to fuse them: pointwise work with itself"
    "{compile: (torch.compile)} or with the products beside it."
)
"""The remedy where graphs launch most of the GPU's work."""


@rule(
    remedy="{compile:torch.compile fuses|:Fused layers replace} pointwise work{training:; foreach "
    "and fused optimizers replace many launches}.",
    thresholds={"short_ns": SHORTER_NS, "least_count": LEAST_COUNT, "least_time": LEAST_TIME},
    of_kernels=True,
)
def small_kernels(facts: Facts) -> Iterator[Claim]:
    trace, kernels = facts.trace, facts.kernel_rows
    is_short = np.zeros(len(trace) + 1, dtype=np.bool_)  # the last one for a gap without an event
    is_short[kernels] = trace.dur[kernels] < SHORTER_NS
    short = np.flatnonzero(is_short)
    if len(kernels) < FEWEST_KERNELS or len(short) < LEAST_COUNT * len(kernels):
        return
    between = _between_ns(facts, is_short)
    together = int(trace.dur[short].sum()) + between
    if together >= LEAST_TIME * facts.span_ns:
        yield Claim(
            text=f"{percent(len(short), len(kernels))} of the {plural(len(kernels), 'kernel')} are "
            f"shorter than {duration(SHORTER_NS)}: with the gaps between them, they take "
            f"{of_span(facts, together)}.",
            at_stake_ns=None,
            rows=the_most(short, trace.dur[short]),
            remedy=REPLAYED_ALREADY if facts.is_replayed else None,
        )


def _between_ns(facts: Facts, is_short: Flags) -> int:
    """The total of the gaps between two short kernels, except those of slow launch calls."""
    idle = facts.idle
    slow = (idle.launch >= 0) & (facts.trace.dur[idle.launch] > SLOW_NS)
    both = is_short[idle.event] & is_short[idle.before]
    return int((idle.end - idle.begin)[both & ~slow].sum())


LONGEST_NS = 10_000


@rule(
    "launch calls",
    remedy="Fewer, larger kernels (fusion{compile:, torch.compile}){pdl:; on Hopper and later "
    "programmatic dependent launch hides the switch}.",
    thresholds={"longest_ns": LONGEST_NS},
    of_kernels=True,
)
def kernel_switches(facts: Facts) -> Iterator[Claim]:
    """Gaps that are short, and end with an event that was launched before they began."""
    idle, waited = facts.idle, facts.idle.ns("queued", "graph")
    short = (idle.end - idle.begin <= LONGEST_NS) & (idle.called <= idle.begin) & (waited > 0)
    at_stake, gaps = int(waited[short].sum()), int(np.count_nonzero(short))
    if at_stake:
        yield Claim(
            text=f"The GPU switches from kernel to kernel for {of_span(facts, at_stake)}: "
            f"{plural(gaps, 'gap')} of at most {duration(LONGEST_NS)}, "
            f"{duration(round(at_stake / gaps))} each on average, before work that was already "
            "queued.",
            at_stake_ns=at_stake,
            rows=the_most(idle.event[short], waited[short]),
        )


FEWEST = 50  # kernels in one step of an optimizer
SHORT_NS = 20_000  # on average
LEAST_SHARE = 0.02  # of the span: the kernels, and the gaps before them


@rule(
    "launch calls",
    "CPU ops",
    "annotations",
    remedy="optimizer(..., fused=True), or foreach=True if there is no fused one.",
    thresholds={"fewest": FEWEST, "short_ns": SHORT_NS, "least_share": LEAST_SHARE},
    of_kernels=True,
)
def optimizer_launches(facts: Facts) -> Iterator[Claim]:
    kernels, trace = facts.kernels, facts.trace
    inside = kernels.is_kernel & kernels.in_optimizer
    single = inside & ~kernels.flags(is_of_many)
    calls = len(np.unique(kernels.module[single]))
    number, taken = int(single.sum()), kernels.ns(single)
    if number < FEWEST * max(1, calls) or 2 * number < np.count_nonzero(inside):
        return
    before = np.zeros(len(trace), dtype=np.int64)
    before[facts.idle.event] = facts.idle.end - facts.idle.begin
    together = taken + int(before[kernels.rows[single]].sum())
    if taken <= SHORT_NS * number and together >= LEAST_SHARE * facts.span_ns:
        yield Claim(
            text=f"Each call of an optimizer launches {count(round(number / calls))} kernels of "
            f"{duration(round(taken / number))} on average, one parameter after another: with "
            f"the gaps before them, they take {of_span(facts, together)}, "
            f"{percent(together - taken, together)} of it idle.",
            at_stake_ns=None,
            rows=kernels.heaviest(single),
        )


def is_of_many(kernel: KernelName) -> bool:
    """A kernel of a foreach or fused optimizer works on many parameters."""
    return kernel.op in ("foreach", "optimizer") or "multi_tensor" in kernel.name
