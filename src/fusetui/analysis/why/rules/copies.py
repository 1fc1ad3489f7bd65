"""Tensors are copied, cast or transposed for other kernels to use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, most_module, of_work, rule, subject
from fusetui.analysis.why.rules.fusion import claimed_by_runs
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.categories import Role

DEVICE_TO_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device")
PAGEABLE = re.compile(r"Pageable")

LEAST_PART = 0.1  # of the time of all of them
CASTS = "Keep one dtype through a block"
COPIES = (
    "Keep tensors in the order in which they are read (.contiguous(), .clone(), reshape of a "
    "transposed tensor and index assignments copy them)"
)
JOINS = "Write into slices of one buffer instead of torch.cat"


@rule(
    remedy=f"{CASTS}; {COPIES}; {JOINS}.",
    thresholds={"least_part": LEAST_PART},
    of_kernels=True,
)
def casts_and_copies(facts: Facts) -> Iterator[Claim]:
    yield from _on_device(facts)
    yield from _pageable(facts)


def is_copy(kernel: KernelName) -> bool:
    """PyTorch's own copies, casts and concatenations; conversions inside a library are part of its
    op."""
    return kernel.op == "copy" and kernel.family.startswith("aten")


def _on_device(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    copies = kernels.flags(is_copy) | _memcpy(kernels, DEVICE_TO_DEVICE)
    at_stake = kernels.ns(copies)
    if not at_stake:
        return
    in_runs = copies & claimed_by_runs(facts)
    all_there = bool((in_runs == copies).all())
    shared = kernels.ns(in_runs)
    number = int(copies.sum())
    those = f"{count(number)} copies, casts and concatenations take"
    those = "1 copy, cast or concatenation takes" if number == 1 else those
    there = f"; {duration(shared)} of it is in runs that fusable-run counts too"
    yield Claim(
        text=f"{those} {of_work(facts, at_stake)}"
        f"{_asked_by(facts, copies)}{there if shared and not all_there else ''}.",
        at_stake_ns=at_stake,
        rows=kernels.heaviest(copies),
        remedy=_remedy(kernels, copies),
        part_of="fusable-run" if all_there else None,
    )


def _remedy(kernels: Kernels, copies: Flags) -> str:
    """What helps against those that take a tenth of the time. Some names do not tell whether they
    convert."""
    joins = kernels.flags(lambda kernel: "CatArray" in kernel.name)
    casts = kernels.flags(_casts)
    same = kernels.flags(lambda kernel: "nocast" in kernel.name) | ~kernels.is_kernel
    parts = {CASTS: ~joins & ~same, COPIES: ~joins & ~casts, JOINS: joins}
    ns = kernels.effective_ns
    told = [
        text
        for text, own in parts.items()
        if ns[copies & own].sum() >= LEAST_PART * ns[copies].sum()
    ]
    return f"{'; '.join(told)}."


def _casts(kernel: KernelName) -> bool:
    named = kernel.functor is not None and not kernel.functor.startswith("direct_copy")
    return named or "cast" in kernel.short.split()


def _memcpy(kernels: Kernels, kind: re.Pattern[str]) -> Flags:
    """The copies of memory whose name has a match."""
    trace = kernels.trace
    named = np.array([kind.search(name) is not None for name in trace.names] or [False])
    found: Flags = named[trace.name[kernels.rows]] & (trace.role[kernels.rows] == Role.MEMCPY)
    return found


def _asked_by(facts: Facts, copies: Flags) -> str:
    """The op and the module with most of the time."""
    kernels, trace = facts.kernels, facts.trace
    ns, op = kernels.effective_ns[copies], trace.op[kernels.rows[copies]]
    known = op >= 0
    if not known.any():
        return ""
    by_name = np.bincount(trace.name[op[known]], ns[known], len(trace.names))
    text = f", most of it in {printable(trace.names[int(by_name.argmax())][:80])}"
    return text + most_module(kernels, copies, ", and in ")


def _pageable(facts: Facts) -> Iterator[Claim]:
    """Copies between the GPU and memory that is not pinned, while no kernel runs. Where there are
    no steps, copies that all come before the first kernel set the program up: weights, inputs."""
    kernels, trace = facts.kernels, facts.trace
    copies = _memcpy(kernels, PAGEABLE)
    is_kernel = trace.role[kernels.rows] == Role.KERNEL
    first = kernels.start[is_kernel].min(initial=facts.end_ns)
    if not len(facts.spans) and (kernels.start[copies] < first).all():
        return
    at_stake = 0
    for device in np.unique(kernels.device[copies]).tolist():
        cover, hidden = kernels.cover(copies, device), kernels.cover(is_kernel, device)
        at_stake += int((cover.end - cover.start - hidden.within(*cover)).sum())
    if at_stake:
        yield Claim(
            text=f"{count(int(np.count_nonzero(copies)))} x copy between the GPU and "
            f"pageable memory: {of_work(facts, at_stake)} in which no "
            "kernel runs.",
            at_stake_ns=at_stake,
            rows=kernels.heaviest(copies),
            remedy="DataLoader(pin_memory=True) and .to(device, non_blocking=True); a copy to the "
            "host "
            "that does not block needs an event before its data is read. Do not call .pin_memory() "
            "inline: it costs a copy of its own.",
        )


LIBRARIES: Final = {"cudnn": "cuDNN", "miopen": "MIOpen"}


@rule(
    remedy="model.to(memory_format=torch.channels_last), and the same for its inputs, if the "
    "convolutions want NHWC, as the fast ones of 16-bit types and TF32 do"
    "{amd:; on ROCm also PYTORCH_MIOPEN_SUGGEST_NHWC=1}.",
    of_kernels=True,
)
def layout_changes(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    for family, library in LIBRARIES.items():
        found = kernels.flags(_of(family))
        at_stake = kernels.ns(found)
        if not at_stake:
            continue
        yield Claim(
            text=f"{subject(int(found.sum()), 'kernel', 'take', f' of {library}')} "
            f"{of_work(facts, at_stake)} to change the layout of tensors for convolutions"
            f"{most_module(kernels, found)}.",
            at_stake_ns=at_stake,
            rows=kernels.heaviest(found),
            why_likely="The other kernels may be slower in that layout.",
        )


def _of(family: str) -> Callable[[KernelName], bool]:
    return lambda kernel: kernel.op == "copy" and kernel.family == family
