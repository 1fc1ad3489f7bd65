"""Large matrix products that take far longer than the device needs for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.idle import Flags
from fusetui.trace.insights.kernels import Kernels
from fusetui.trace.insights.rule import Claim, Rule
from fusetui.trace.insights.rules.alignment import is_unaligned
from fusetui.trace.insights.wording import share_of_work
from fusetui.trace.roofline.row import Job
from fusetui.trace.text.figures import count, duration, percent

FAR = 2  # times the bound
TILE = 128 * 128  # elements of the output that an SM computes at a time, at the least


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not (kernels.bounded.bound_ns >= 0).any():
        return
    far = _far(kernels)
    taken, least = (int(ns[far].sum()) for ns in (kernels.effective_ns, kernels.bounded.bound_ns))
    if not taken:
        return
    yield Claim(
        text=f"{count(int(np.count_nonzero(far)))} x large matrix product: {duration(taken)} "
        f"({share_of_work(facts, taken)}) in kernels that reach {percent(least, taken)} of what is "
        "attainable for their shapes.",
        at_stake_ns=taken - least,
        rows=kernels.heaviest(far),
        part_of="alignment" if kernels.flags(is_unaligned)[far].mean() > 0.5 else None,
        why_likely="Less may be attainable for this shape than for the best one.",
    )


def _far(kernels: Kernels) -> Flags:
    bound = kernels.bounded.bound_ns
    slow = (bound >= 0) & (kernels.effective_ns >= FAR * bound)
    large: Flags = kernels.of_jobs(_fills_device) == 1
    return slow & large & kernels.alone


def _fills_device(job: Job) -> float | None:
    """1 for a product of at least one full wave."""
    amount, tiles = job.amount, job.tiles
    if amount.kind != "matmul":
        return None
    if tiles is not None and tiles.waves is not None:
        return float(tiles.waves >= 1)
    if tiles is None or tiles.sms is None or not (amount.m and amount.n):
        return None
    return float(amount.m * amount.n * (amount.batch or 1) >= TILE * tiles.sms)


RULE = Rule(
    id="far-from-peak",
    title="Large products far from the peak",
    question="Do matrix products that fill the device take more than twice as long as they need?",
    needs="Shapes, kernel names and a device of the table of peaks.",
    formula="The effective duration of GEMMs of at least one full wave that take more than twice "
    "their bound (see the ceiling) while nothing else runs, minus that bound.",
    remedy="Other shapes or layouts (multiples of 64, contiguous inputs), a newer cuBLAS or "
    'hipBLASLt, or torch.compile(mode="max-autotune"), which measures several kernels.',
    thresholds={"far": FAR},
    find=find,
    of_kernels=True,
)
