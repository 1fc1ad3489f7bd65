"""What memory costs: forward work done twice, and memory that is reserved and never used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fusetui.analysis.questions.memory import MemoryPeak, memory_peaks
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import CannotTell, Claim, Rule, most_module, share_of_span
from fusetui.text.figures import duration, percent, plural, quantity
from fusetui.trace.layout.devices import device_ids, device_properties, is_rocm
from fusetui.trace.model.categories import Role
from fusetui.trace.model.ids import Id

CHECKPOINT = "CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint with use_reentrant=True; without, nothing names it."""


def _recompute(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not len(kernels.origins.modules):
        if len(facts.named(lambda name: name == CHECKPOINT, Role.OP)):
            raise CannotTell("Python frames and modules", "with_stack=True")
        return
    again = kernels.credit.recompute & kernels.is_kernel
    taken = int(kernels.effective_ns[again].sum())
    if not taken:
        return
    module = most_module(facts, kernels.module[again], kernels.effective_ns[again])
    number = int(np.count_nonzero(again))
    yield Claim(
        text=f"{plural(number, 'kernel')} of the forward pass {'runs' if number == 1 else 'run'} "
        f"once more in the backward pass, for {duration(taken)} ({share_of_span(facts, taken)})"
        f"{f', most of it in {module}' if module else ''}.",
        at_stake_ns=taken,
        rows=kernels.heaviest(again),
    )


RECOMPUTE = Rule(
    id="recompute",
    title="Forward work done twice",
    question="What does activation checkpointing cost?",
    needs="Stacks: the calls of modules that begin inside a backward op.",
    formula="The effective time of the kernels that such calls launch.",
    remedy="As far as memory allows, checkpoint fewer modules, or keep the results of their "
    "products: torch.utils.checkpoint.create_selective_checkpoint_contexts.",
    thresholds={},
    find=_recompute,
    of_kernels=True,
)


NEARLY_FULL = 0.8  # of the memory of the device is reserved
UNUSED = 0.2  # of what is reserved was never allocated at once


def _memory_headroom(facts: Facts) -> Iterator[Claim]:
    if not facts.is_whole:
        return
    found = memory_peaks(facts.trace)
    if not found.is_recorded:
        raise CannotTell("memory events", "profile_memory=True")
    if not found.peaks:
        raise CannotTell("memory events of the GPU with totals", "profile_memory=True")
    known = device_properties(facts.trace)
    chosen = {device.pid for device in facts.devices}
    for pid, peak in _devices(facts, found.peaks).items():
        size = _size(known.get(pid, {}))
        if not size:
            raise CannotTell(
                "the size of the GPU's memory", "deviceProperties, torch 1.12 or later"
            )
        if pid in chosen and _is_wasted(peak, size):
            yield Claim(
                text=f"torch reserves {quantity(peak.reserved, 'B')} of the "
                f"{quantity(size, 'B')} of GPU {pid}, but allocates no more than "
                f"{quantity(peak.allocated, 'B')} at once: "
                f"{percent(peak.reserved - peak.allocated, peak.reserved)} of it is fragments or "
                "left from an earlier phase.",
                at_stake_ns=None,
            )


def _devices(facts: Facts, peaks: tuple[MemoryPeak, ...]) -> dict[Id, MemoryPeak]:
    """Whose memory each peak is. Memory events count the GPUs that a process sees; ROCm numbers
    those that run kernels differently: there one GPU and one peak have to be the same."""
    every = device_ids(facts.trace)
    if not is_rocm(facts.trace) and {peak.device for peak in peaks} <= set(every):
        return {peak.device: peak for peak in peaks}
    if len(every) == len(peaks) == 1:
        return {every[0]: peaks[0]}
    raise CannotTell("which GPU each memory event is about", "one GPU for each process")


def _is_wasted(peak: MemoryPeak, size: int) -> bool:
    unused = peak.reserved - peak.allocated
    return peak.reserved >= NEARLY_FULL * size and unused >= UNUSED * peak.reserved


def _size(properties: dict[str, Any]) -> int:
    size = properties.get("totalGlobalMem")
    return size if type(size) is int else 0


MEMORY_HEADROOM = Rule(
    id="memory-headroom",
    title="Memory that is reserved and never used",
    question="Is the device nearly full although much of the reserved memory is never allocated?",
    needs="Memory events, and a device that says how much memory it has.",
    formula="None: it costs no time, but a larger batch may not fit.",
    remedy="{nvidia:PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragments, and }"
    "torch.{intel:xpu|:cuda}.empty_cache() once between phases of different sizes.",
    thresholds={"nearly_full": NEARLY_FULL, "unused": UNUSED},
    find=_memory_headroom,
    silent="While the device has memory to spare, what the allocator keeps does no harm.",
)


RULES = (RECOMPUTE, MEMORY_HEADROOM)
