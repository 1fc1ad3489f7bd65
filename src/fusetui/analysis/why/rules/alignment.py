"""Matrix products of tensors whose rows do not begin at multiples of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Flags
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, Rule, is_worth, share_of_work
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, plural

UNALIGNED = 2  # elements per load or fewer: below 16 bytes for every type
WIDE = ("fp64", "c64", "c128")
PLAIN = "_simt_"
"""CUTLASS builds products of wide types, and those on plain cores, for one element at a time only:
their names say align1 however the tensors are aligned."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    unaligned = kernels.flags(is_unaligned)
    taken = int(kernels.effective_ns[unaligned].sum())
    if not taken:
        return
    number = int(np.count_nonzero(unaligned))
    text = (
        f"{plural(number, 'matrix product')} {'takes' if number == 1 else 'take'} "
        f"{duration(taken)} "
        f"({share_of_work(facts, taken)}) in kernels for tensors that are not aligned to 16 bytes"
        f"{_shape(kernels, unaligned)}"
    )
    at_stake = kernels.bounded.at_stake_ns[unaligned]
    if (kernels.bounded.bound_ns[unaligned] >= 0).any():
        yield Claim(
            text=f"{text}; at the attainable rate they would take an estimated "
            f"{duration(int(at_stake.sum()))} less.",
            at_stake_ns=int(at_stake.sum()),
            rows=kernels.heaviest(unaligned),
            why_likely="The alignment may not be the only reason that they are slow.",
        )
    elif is_worth(facts, taken, of_kernels=True):
        yield Claim(text=f"{text}.", at_stake_ns=None, rows=kernels.heaviest(unaligned))


def claimed(facts: Facts) -> Flags:
    """The kernels of the claim with a figure, if that is worth a look."""
    kernels = facts.kernels
    found = kernels.flags(is_unaligned)
    return found & is_worth(facts, int(kernels.bounded.at_stake_ns[found].sum()), of_kernels=True)


def is_unaligned(kernel: KernelName) -> bool:
    """Its name says how few elements it loads at a time, and kernels of its kind can load more."""
    few = kernel.op == "gemm" and kernel.align is not None and kernel.align <= UNALIGNED
    return few and kernel.dtype_acc not in WIDE and PLAIN not in kernel.name


def _shape(kernels: Kernels, which: Flags) -> str:
    """The product that takes longest."""
    row = kernels.heaviest(which)[0]
    amount = kernels.amount_of(row)
    if amount is None or not (amount.m and amount.n and amount.k):
        return ""
    shape = f"{count(amount.m)} x {count(amount.k)} by {count(amount.k)} x {count(amount.n)}"
    batch = f"{count(amount.batch)} times " if amount.batch and amount.batch > 1 else ""
    return f", most of all {batch}{shape}"


RULE = Rule(
    id="alignment",
    title="Products of unaligned tensors",
    question="Do matrix products fall back to kernels that load one or two elements at a time?",
    needs="Kernel names; shapes and a known device for the figure.",
    formula="The effective duration of GEMMs whose name says align1 or align2, less their bound "
    "(see the ceiling), where that is known.",
    remedy="Pad sizes to multiples of 8 (16-bit types) or 4 (float32): the vocabulary, the length "
    "of the sequence, the width of a layer.",
    thresholds={"unaligned": UNALIGNED},
    find=find,
    of_kernels=True,
    silent="Kernels whose names do not tell the alignment are not counted, nor are products on "
    "plain cores and of float64, which always load one element at a time.",
)
