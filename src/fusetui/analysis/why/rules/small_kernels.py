"""Most kernels are so short that starting them costs as much as running them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Flags, Idle
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_span
from fusetui.analysis.why.rules.slow_launches import SLOW_NS
from fusetui.text.figures import duration, percent, plural

SHORT_NS = 5_000
LEAST_COUNT = 0.5  # of all kernels
FEWEST = 20  # kernels
LEAST_TIME = 0.1  # of the span: the short kernels, and the gaps between two of them

REPLAYED = (
    "Graphs launch them already, so what is left is to fuse them: pointwise work with itself"
    "{compile: (torch.compile)} or with the products beside it."
)
"""The remedy where graphs launch most of the GPU's work."""


def find(facts: Facts) -> Iterator[Claim]:
    trace, kernels = facts.trace, facts.kernel_rows
    is_short = np.zeros(len(trace) + 1, dtype=np.bool_)  # the last one for a gap without an event
    is_short[kernels] = trace.dur[kernels] < SHORT_NS
    short = np.flatnonzero(is_short)
    if len(kernels) < FEWEST or len(short) < LEAST_COUNT * len(kernels):
        return
    between = sum(_between_ns(facts, idle, is_short) for idle in facts.idle)
    together = int(trace.dur[short].sum()) + between
    if together >= LEAST_TIME * facts.span_ns:
        yield Claim(
            text=f"{percent(len(short), len(kernels))} of the {plural(len(kernels), 'kernel')} are "
            f"shorter than {duration(SHORT_NS)}: with the gaps between them, they take "
            f"{duration(together)} ({share_of_span(facts, together)}).",
            at_stake_ns=None,
            rows=the_most(short, trace.dur[short]),
            remedy=REPLAYED if facts.is_replayed else None,
        )


def _between_ns(facts: Facts, idle: Idle, is_short: Flags) -> int:
    """The total of the gaps between two short kernels, except those of slow launch calls."""
    slow = (idle.launch >= 0) & (facts.trace.dur[idle.launch] > SLOW_NS)
    both = is_short[idle.event] & is_short[idle.before]
    return int((idle.end - idle.begin)[both & ~slow].sum())


RULE = Rule(
    id="small-kernels",
    title="Many small kernels",
    question="Are the kernels so short that starting them costs as much as running them?",
    needs="GPU events.",
    formula="None: how much fusing would save depends on what can be fused.",
    remedy="{compile:torch.compile fuses|:Fused layers replace} pointwise work{training:; foreach "
    "and fused optimizers replace many launches}.",
    thresholds={"short_ns": SHORT_NS, "least_count": LEAST_COUNT, "least_time": LEAST_TIME},
    find=find,
    of_kernels=True,
    silent="Gaps that end with a launch call of more than 100 us are not counted: see "
    "slow-launches.",
)
