"""What memory costs: forward work done twice, and memory that is reserved and never used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusetui.analysis.questions.memory import MemoryPeak, memory_peaks
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import CannotTell, Claim, most_module, of_span, rule, subject
from fusetui.text.figures import percent, quantity
from fusetui.trace.layout.devices import device_ids, device_properties, is_rocm
from fusetui.trace.model.categories import Role
from fusetui.trace.model.ids import Id

CHECKPOINT = "CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint with use_reentrant=True; without, nothing names it."""


@rule(
    "Python frames and modules",
    remedy="As far as memory allows, checkpoint fewer modules, or keep the results of their "
    "products: torch.utils.checkpoint.create_selective_checkpoint_contexts.",
    of_kernels=True,
)
def recompute(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not len(kernels.origins.modules):
        if len(facts.named(lambda name: name == CHECKPOINT, Role.OP)):
            raise CannotTell("Python frames and modules", "with_stack=True")
        return
    again = kernels.credit.recompute & kernels.is_kernel
    taken = kernels.ns(again)
    if not taken:
        return
    yield Claim(
        text=f"{subject(int(again.sum()), 'kernel', 'run', ' of the forward pass')} once "
        f"more in the backward pass, for {of_span(facts, taken)}{most_module(kernels, again)}.",
        at_stake_ns=taken,
        rows=kernels.heaviest(again),
    )


NEARLY_FULL = 0.8  # of the memory of the device is reserved
UNUSED = 0.2  # of what is reserved was never allocated at once


@rule(
    remedy="{nvidia:PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragments, and }"
    "torch.{intel:xpu|:cuda}.empty_cache() once between phases of different sizes.",
    thresholds={"nearly_full": NEARLY_FULL, "unused": UNUSED},
)
def memory_headroom(facts: Facts) -> Iterator[Claim]:
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
