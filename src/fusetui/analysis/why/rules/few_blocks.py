"""Long kernels that have no block for many of the multiprocessors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Flags
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, Rule, is_worth, share_of_work
from fusetui.gpu.kernel_names import KernelName, short_name
from fusetui.text.figures import count, duration, plural
from fusetui.text.printable import printable

SHORTEST_NS = 20_000
FEW = 0.75  # blocks for each multiprocessor
LEAST_SHARE = 0.05  # of the time of all kernels
BUSY_MEMORY = 0.5  # of the bandwidth of the data sheet

LARGER = "Larger batches, or another implementation of this op, which divides its work further."
OF_WORK: Final[dict[str, Callable[[KernelName], object]]] = {
    "Larger batches; for products with a small output split-K or stream-K.": (
        lambda kernel: kernel.op in ("gemm", "conv")
    ),
    "Larger batches; for a batch norm with few channels channels_last, or another implementation "
    "of it.": lambda kernel: "batch_norm" in kernel.name or "BatchNorm" in kernel.name,
}
"""Remedies, and the kernels that they are for."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    few = _candidates(kernels)
    taken = int(kernels.effective_ns[few].sum())
    if not taken:
        return
    at_stake = _at_stake(kernels, few)
    number = int(np.count_nonzero(few))
    yield Claim(
        text=f"{plural(number, 'kernel')} {'leaves' if number == 1 else 'leave'} a quarter of the "
        f"multiprocessors or more without a block, with nothing beside them, for {duration(taken)} "
        f"({share_of_work(facts, taken)}): {_most(kernels, few)}. Spread over all of them, they "
        f"could save {duration(at_stake)} at most.",
        at_stake_ns=at_stake,
        rows=kernels.heaviest(few),
        remedy=_remedy(kernels, few),
        why_likely="What one block does may not be divisible.",
        is_little=not few_of(kernels).any(),
    )


def _most(kernels: Kernels, few: Flags) -> str:
    """`64 to 128 blocks on 304 in NAME`, of the name with the most time; `in 50 x NAME` if there
    are others."""
    names = kernels.trace.name[kernels.rows]
    name = int(np.bincount(names[few], kernels.effective_ns[few]).argmax())
    own = few & (names == name)
    least, most = int(kernels.blocks[own].min()), int(kernels.blocks[own].max())
    blocks = count(most) if least == most else f"{count(least)} to {count(most)}"
    times = "" if (own == few).all() else f"{count(int(np.count_nonzero(own)))} x "
    return (
        f"{blocks} blocks on {count(int(kernels.sms[own].max()))} in "
        f"{times}{printable(short_name(kernels.trace.names[name]))}"
    )


def _remedy(kernels: Kernels, few: Flags) -> str:
    """What helps for the sort of work that takes most of the time."""
    ns = {
        text: int(kernels.effective_ns[few & kernels.flags(matches)].sum())
        for text, matches in OF_WORK.items()
    }
    most = max(ns, key=lambda text: ns[text])
    return most if 2 * ns[most] > int(kernels.effective_ns[few].sum()) else LARGER


def claimed(facts: Facts) -> Flags:
    """The kernels of the claim, if it is worth a look."""
    kernels = facts.kernels
    found = few_of(kernels)
    return found & is_worth(facts, _at_stake(kernels, found), of_kernels=True)


def _at_stake(kernels: Kernels, few: Flags) -> int:
    idle = 1 - kernels.blocks[few] / kernels.sms[few]
    return int((kernels.effective_ns[few] * idle).sum())


def few_of(kernels: Kernels) -> Flags:
    """The kernels of the claim; none if they are too little together."""
    found = _candidates(kernels)
    everything = int(kernels.effective_ns[kernels.is_kernel].sum())
    return found & (int(kernels.effective_ns[found].sum()) >= LEAST_SHARE * everything)


def _candidates(kernels: Kernels) -> Flags:
    work = kernels.is_kernel & ~kernels.communicates & ~_by_memory(kernels)
    fits = (kernels.blocks > 0) & (kernels.blocks <= FEW * kernels.sms)
    found: Flags = work & fits & (kernels.effective_ns >= SHORTEST_NS) & kernels.alone
    return found


def _by_memory(kernels: Kernels) -> Flags:
    """Those that memory keeps busy: they move their bytes at half of its bandwidth or more."""
    least = kernels.of_jobs(lambda job: job.limits.memory_ns)
    bound = kernels.of_jobs(lambda job: float(job.limits.bound == "memory")) == 1
    found: Flags = bound & (BUSY_MEMORY * kernels.effective_ns <= np.nan_to_num(least))
    return found


RULE = Rule(
    id="few-blocks",
    title="Kernels that leave multiprocessors idle",
    question="Do long kernels run with fewer blocks than the device has multiprocessors?",
    needs="Launch configurations of kernels, and a device that says how many multiprocessors it "
    "has.",
    formula="Of kernels of at least 20 us that leave a quarter of the multiprocessors or more "
    "without a block, alone on the device, neither communication nor known to move their bytes at "
    "half of the bandwidth of the data sheet, and together at least 5 % of the kernels' time: the "
    "effective duration times the share of multiprocessors without a block.",
    remedy="Larger batches; split-K or stream-K for products with a small output; for a batch norm "
    "with few channels channels_last; else another implementation.",
    thresholds={
        "shortest_ns": SHORTEST_NS,
        "few": FEW,
        "least_share": LEAST_SHARE,
        "busy_memory": BUSY_MEMORY,
    },
    find=find,
    of_kernels=True,
    silent="Shorter kernels have little to do, however many blocks they have: see small-kernels.",
)
