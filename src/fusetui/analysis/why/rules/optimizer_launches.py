"""An optimizer that updates one parameter after another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule
from fusetui.analysis.why.wording import share_of_span
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, percent
from fusetui.trace.layout.steps import OPTIMIZER
from fusetui.trace.model.categories import Role

FEWEST = 50  # kernels in one step of an optimizer
SHORT_NS = 20_000  # on average
LEAST_SHARE = 0.02  # of the span: the kernels, and the gaps before them


def find(facts: Facts) -> Iterator[Claim]:
    kernels, trace = facts.kernels, facts.trace
    module = kernels.module
    names = np.array([name.startswith(OPTIMIZER) for name in trace.names] or [False])
    inside = (module >= 0) & names[trace.name[module]] & (trace.role[kernels.rows] == Role.KERNEL)
    single = inside & ~kernels.flags(is_of_many)
    calls = len(np.unique(module[single]))
    number, taken = int(np.count_nonzero(single)), int(kernels.effective_ns[single].sum())
    if number < FEWEST * max(1, calls) or 2 * number < np.count_nonzero(inside):
        return
    before = np.zeros(len(trace), dtype=np.int64)
    for idle in facts.idle:
        before[idle.event] += idle.end - idle.begin
    together = taken + int(before[kernels.rows[single]].sum())
    if taken <= SHORT_NS * number and together >= LEAST_SHARE * facts.span_ns:
        yield Claim(
            text=f"Each call of an optimizer launches {count(round(number / calls))} kernels of "
            f"{duration(round(taken / number))} on average, one parameter after another: with "
            f"the gaps before them, they take {duration(together)} "
            f"({share_of_span(facts, together)}), {percent(together - taken, together)} of it "
            "idle.",
            at_stake_ns=None,
            rows=kernels.heaviest(single),
        )


def is_of_many(kernel: KernelName) -> bool:
    """A kernel of a foreach or fused optimizer works on many parameters."""
    return kernel.op in ("foreach", "optimizer") or "multi_tensor" in kernel.name


RULE = Rule(
    id="optimizer-launches",
    title="An optimizer with many small kernels",
    question="Does the optimizer launch separate kernels for each parameter?",
    needs="Annotations (Optimizer.step) and launch calls or ops.",
    formula="None: a fused optimizer must still read and write all parameters.",
    remedy="optimizer(..., fused=True), or foreach=True if there is no fused one.",
    thresholds={"fewest": FEWEST, "short_ns": SHORT_NS, "least_share": LEAST_SHARE},
    find=find,
    of_kernels=True,
)
