"""What memory costs: forward work done twice, memory that is reserved and never used,
and tensors that are copied, cast or transposed for other kernels to use."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.memory import MemoryPeak, memory_peaks
from fusetui.analysis.why.copy_kinds import CopyKind, copy_kinds
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import PAGEABLE, Host
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import Unawaited
from fusetui.analysis.why.needs import PROPERTIES
from fusetui.analysis.why.rule import (
    CannotTell,
    Claim,
    Rule,
    claimed_by,
    most_module,
    of_span,
    of_work,
    subject,
)
from fusetui.analysis.why.rules.fusion import fusable_run
from fusetui.text.figures import count, duration, percent, quantity
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_ids, device_properties, is_rocm
from fusetui.trace.model.arrays import Flags, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import without

CHECKPOINT = "CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint with use_reentrant=True; without, nothing names
it."""


@Rule(
    needs=("Python frames and modules",),
    remedy="As far as memory allows, checkpoint fewer modules{torch2:, or keep the results of "
    "their products: torch.utils.checkpoint.create_selective_checkpoint_contexts}.",
    of_kernels=True,
)
def recompute(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not len(kernels.origins.modules):
        if len(facts.trace.rows_named(lambda name: name == CHECKPOINT, Role.OP)):
            raise CannotTell("Python frames and modules", "with_stack=True")
        return
    again = kernels.credit.recompute & kernels.is_kernel
    taken = kernels.ns(again)
    if taken:
        yield Claim(
            text=f"{subject(int(again.sum()), 'kernel', 'run', ' of the forward pass')} once "
            f"more in the backward pass, for {of_span(facts, taken)}{most_module(kernels, again)}.",
            at_stake_ns=taken,
            wanted=kernels.without(again),
            kernels=again,
        )


NEARLY_FULL = 0.8  # of the memory of the device is reserved
UNUSED = 0.2  # of what is reserved was never allocated at once


@Rule(
    remedy="{segments:PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragments, and }"
    "torch.{intel:xpu|:cuda}.empty_cache() once between phases of different sizes.",
    thresholds={"nearly_full": NEARLY_FULL, "unused": UNUSED},
    reads=True,
)
def memory_headroom(facts: Facts) -> Iterator[Claim]:
    if facts.window:
        return
    found = memory_peaks(facts.trace)
    if not found.is_recorded:
        raise CannotTell("memory events", "profile_memory=True")
    if not found.peaks:
        raise CannotTell("memory events of the GPU with totals", "profile_memory=True")
    known = device_properties(facts.trace)
    chosen = {device.pid for device in facts.devices}
    for pid, peak in _devices(facts, found.peaks).items():
        size = known.get(pid, {}).get("totalGlobalMem")
        if type(size) is not int or not size:
            raise CannotTell("the size of the GPU's memory", PROPERTIES)
        unused = peak.reserved - peak.allocated
        is_wasted = (
            peak.reserved >= NEARLY_FULL * size and unused >= UNUSED * peak.reserved
        )
        if pid in chosen and is_wasted:
            yield Claim(
                text=f"torch reserves {quantity(peak.reserved, 'B')} of the {quantity(size, 'B')} "
                f"of GPU {pid}, but allocates no more than {quantity(peak.allocated, 'B')} at "
                f"once: {percent(unused, peak.reserved)} of it is fragments or left from an "
                "earlier phase."
            )


def _devices(facts: Facts, peaks: tuple[MemoryPeak, ...]) -> dict[Id, MemoryPeak]:
    """Whose memory each peak is. Memory events count the GPUs that a process sees; ROCm
    numbers those that run kernels differently: there one GPU and one peak have to be
    the same."""
    every = device_ids(facts.trace)
    if not is_rocm(facts.trace) and {peak.device for peak in peaks} <= set(every):
        return {peak.device: peak for peak in peaks}
    if len(every) == len(peaks) == 1:
        return {every[0]: peaks[0]}
    raise CannotTell("which GPU each memory event is about", "one GPU for each process")


TO_HOST = late(r"DtoH|DeviceToHost|Device -> Pageable|Device -> Host")
DEVICE_TO_DEVICE = late(r"DtoD|DeviceToDevice|Device -> Device")

LEAST_PART = 0.1  # of the time of all of them
CASTS = "Keep one dtype through a block"
COPIES = (
    "Keep tensors in the order in which they are read (.contiguous(), .clone(), reshape of a "
    "transposed tensor and index assignments copy them)"
)
JOINS = "Write into slices of one buffer instead of torch.cat"


@Rule(
    remedy=f"{CASTS}; {COPIES}; {JOINS}.",
    thresholds={"least_part": LEAST_PART},
    of_kernels=True,
)
def casts_and_copies(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    # PyTorch's own; conversions inside a library are part of its op.
    own = kernels.flags(
        lambda kernel: kernel.op == "copy" and kernel.family.startswith("aten")
    )
    within = _memcpy(kernels, DEVICE_TO_DEVICE)
    copies = own if _set_up(facts, within) else own | within
    at_stake = kernels.ns(copies)
    if at_stake:
        in_runs = copies & claimed_by(facts, fusable_run)
        all_there = bool((in_runs == copies).all())
        shared = kernels.ns(in_runs)
        kinds = copy_kinds(kernels)
        takes = "take" if int(copies.sum()) > 1 else "takes"
        there = f"; {duration(shared)} of it is in runs that fusable-run counts too"
        yield Claim(
            text=f"{_counted(kinds[copies])} {takes} {of_work(facts, at_stake)}"
            f"{_asked_by(facts, copies)}{there if shared and not all_there else ''}.",
            at_stake_ns=at_stake,
            wanted=kernels.without(copies),
            kernels=copies,
            remedy=_remedy(kernels, copies, kinds),
            part_of="fusable-run" if all_there else None,
        )
    yield from _pageable(facts)


_KIND_NAMES = {
    CopyKind.CAST: "cast",
    CopyKind.COPY: "copy",
    CopyKind.EITHER: "copy or cast",
    CopyKind.JOIN: "concatenation",
}
_KIND_PLURALS = {
    CopyKind.CAST: "casts",
    CopyKind.COPY: "copies",
    CopyKind.EITHER: "copies or casts",
    CopyKind.JOIN: "concatenations",
}


def _counted(kinds: NDArray[np.int8]) -> str:
    """`12 casts, 3 copies and 1 concatenation`."""
    parts = []
    for kind, name in _KIND_NAMES.items():
        number = int(np.count_nonzero(kinds == kind))
        if number:
            parts.append(
                f"{count(number)} {name if number == 1 else _KIND_PLURALS[kind]}"
            )
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _remedy(kernels: Kernels, copies: Flags, kinds: NDArray[np.int8]) -> str:
    """What helps against those that take a tenth of the time. What is unclear gets the
    advice for both."""
    least_ns = LEAST_PART * kernels.ns(copies)
    kinds_of_remedy = {
        CASTS: (CopyKind.CAST, CopyKind.EITHER),
        COPIES: (CopyKind.COPY, CopyKind.EITHER),
        JOINS: (CopyKind.JOIN,),
    }
    remedies = []
    for remedy, helped in kinds_of_remedy.items():
        if kernels.ns(copies & np.isin(kinds, helped)) >= least_ns:
            remedies.append(remedy)
    return f"{'; '.join(remedies)}."


def _memcpy(kernels: Kernels, kind: re.Pattern[str]) -> Flags:
    copies: Flags = kernels.trace.role[kernels.rows] == Role.MEMCPY
    return copies & kernels.trace.matching(kernels.rows, kind.search)


def _asked_by(facts: Facts, copies: Flags) -> str:
    """The op and the module with most of the time."""
    kernels, trace = facts.kernels, facts.trace
    known = copies & (trace.op[kernels.rows] >= 0)
    if not known.any():
        return ""
    names = trace.name[trace.op[kernels.rows[known]]]
    taken = np.bincount(names, kernels.effective_ns[known], len(trace.names))
    most = int(taken.argmax())
    if 2 * taken[most] <= kernels.ns(copies):
        return most_module(kernels, copies)
    text = f", most of it in {printable(trace.names[most][:80])}"
    return text + most_module(kernels, copies, ", and in ")


def _set_up(facts: Facts, copies: Flags) -> bool:
    """Where there are no steps, copies that all come before the first kernel set the
    program up: weights, inputs."""
    kernels = facts.kernels
    first_ns = kernels.start[kernels.is_kernel].min(initial=facts.end_ns)
    return not len(facts.spans) and bool((kernels.start[copies] < first_ns).all())


def _pageable(facts: Facts) -> Iterator[Claim]:
    """Copies between the GPU and memory that is not pinned, while no kernel runs."""
    kernels = facts.kernels
    copies = _memcpy(kernels, PAGEABLE)
    if _set_up(facts, copies):
        return
    at_stake = sum(
        without(
            kernels.cover(copies, device), kernels.cover(kernels.is_kernel, device)
        ).ns
        for device in kernels.devices
    )
    if at_stake:
        own = kernels.rows[copies]
        to_host = facts.trace.matching(own, TO_HOST.search)
        called = facts.trace.launch[own].astype(np.intp)
        waits = _waits_behind(facts, called[to_host])
        staying = int(np.count_nonzero(waits >= 0))
        yield Claim(
            text=f"{count(int(np.count_nonzero(copies)))} x copy between the GPU and pageable "
            f"memory: {of_work(facts, at_stake)} in which no kernel runs.{_staying(staying)}",
            at_stake_ns=at_stake,
            wanted=Unawaited(np.append(own, called[called >= 0])),
            kernels=copies,
            remedy="DataLoader(pin_memory=True) and .to(device, non_blocking=True); a copy to the "
            "host that does not block needs an event before its data is read. Do not call "
            ".pin_memory() inline: it costs a copy of its own.",
        )


def _waits_behind(facts: Facts, copying: Rows) -> Rows:
    """For each call that copies, -1 for none, the call that waits for the device which
    its thread makes next, before it launches anything; -1 for none."""
    trace = facts.trace
    launches = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    waits = np.flatnonzero(facts.accounts.kinds == Host.SYNC)
    calls = distinct(np.concatenate((launches[launches >= 0], waits)))
    thread = trace.thread_of_track[trace.track[calls]]
    order = np.lexsort((trace.start[calls], thread))
    calls, thread = calls[order], thread[order]
    place = np.full(len(trace) + 1, -1, dtype=np.intp)  # the last one for -1
    place[calls] = np.arange(len(calls))
    following = np.append(calls[1:], -1)
    is_same = np.append(thread[1:] == thread[:-1], False)
    is_wait = (following >= 0) & ~np.isin(following, launches)
    next_wait = np.where(is_same & is_wait, following, -1)
    found: Rows = np.append(next_wait, -1)[place[copying]]
    return found


def _staying(waits: int) -> str:
    """What is said of copies to the host that a wait follows."""
    if not waits:
        return ""
    if waits == 1:
        return (
            " A call that waits for the GPU is behind one of them, to the CPU: it stays, and "
            "waits for the work before the copy."
        )
    return (
        f" Calls that wait for the GPU are behind {count(waits)} of them, to the CPU: these stay, "
        "and wait for the work before the copies."
    )


UNFOLDS = late(r"im2col|flip_filter")
"""Steps of a convolution by matrix products or transforms: no memory format avoids
them."""


@Rule(
    remedy="model.to(memory_format=torch.channels_last), and the same for its inputs, if the "
    "convolutions want NHWC, as the fast ones of 16-bit types and TF32 do"
    "{amd:; on ROCm also PYTORCH_MIOPEN_SUGGEST_NHWC=1}.",
    of_kernels=True,
)
def layout_changes(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    libraries = {
        "cuDNN": kernels.flags(
            lambda one: (
                (one.op, one.family) == ("copy", "cudnn")
                and not UNFOLDS.search(one.name)
            )
        ),
        "MIOpen": kernels.flags(lambda one: (one.op, one.family) == ("copy", "miopen")),
    }
    for library, every in libraries.items():
        found = every & ~kernels.tried
        at_stake = kernels.ns(found)
        if at_stake:
            yield Claim(
                text=f"{subject(int(found.sum()), 'kernel', 'take', f' of {library}')} "
                f"{of_work(facts, at_stake)} to change the layout of tensors for convolutions"
                f"{most_module(kernels, found)}.",
                at_stake_ns=at_stake,
                wanted=kernels.without(found),
                kernels=found,
                why_likely="The other kernels may be slower in that layout.",
            )
