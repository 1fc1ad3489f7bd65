"""Rules about the cost of memory.

They report forward work that is done twice, memory that is reserved and never used, and
tensors that are copied, cast or transposed for other kernels to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.memory import MemoryPeak, find_memory_peaks
from fusetui.analysis.why.copy_kinds import CopyKind, classify_copies
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import AsyncCalls
from fusetui.analysis.why.needs import PROPERTIES
from fusetui.analysis.why.rule import (
    CannotTellError,
    Claim,
    Rule,
    find_claimed_kernels,
    format_share_of_span,
    format_share_of_work,
    format_subject,
    name_dominant_module,
)
from fusetui.analysis.why.rules.fusion import fusable_run
from fusetui.analysis.why.thread_activity import PAGEABLE, ThreadActivity
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, percent, plural, quantity
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_ids, device_properties, is_rocm
from fusetui.trace.model.arrays import NO_ROW, Flags, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import without

CHECKPOINT: Final = "CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint with use_reentrant=True.

Without that option, nothing names a checkpoint.
"""


@Rule(
    needs=("Python frames and modules",),
    remedy="If memory allows, checkpoint fewer modules{torch2:, or keep the results "
    "of their matrix products with "
    "torch.utils.checkpoint.create_selective_checkpoint_contexts}.",
    of_kernels=True,
)
def recompute(facts: Facts) -> Iterator[Claim]:
    """Report the time of kernels that repeat the forward pass in the backward pass.

    Without recorded modules, nothing tells which kernels these are.

    Raises:
        CannotTellError: There are no modules, and an op shows that something is
            checkpointed.
    """
    kernels = facts.kernels
    has_modules = len(kernels.origins.modules) > 0
    if not has_modules:
        checkpoints = facts.trace.rows_named(lambda name: name == CHECKPOINT, Role.OP)
        if len(checkpoints):
            raise CannotTellError("Python frames and modules", "with_stack=True")
        return

    is_repeated = kernels.credit.recompute & kernels.is_kernel
    taken_ns = kernels.add_up_ns(is_repeated)
    if taken_ns:
        kernel_count = int(is_repeated.sum())
        runs = format_subject(kernel_count, "kernel", "run", " of the forward pass")

        yield Claim(
            text=f"{runs} once more in the backward pass, for {format_share_of_span(facts, taken_ns)}"
            f"{name_dominant_module(kernels, is_repeated)}.",
            at_stake_ns=taken_ns,
            wanted=kernels.make_removal(is_repeated),
            kernels=is_repeated,
        )


MIN_SHARE_RESERVED: Final = 0.8
"""From this share of the memory of the device on, reserved memory fills it."""
MIN_SHARE_UNUSED: Final = 0.2
"""From this share of the reserved memory on, what was never allocated at once is much.
"""


@Rule(
    remedy="{segments:Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation, and call |:Call }torch.{intel:xpu|:cuda}.empty_cache() "
    "once between phases of different sizes.",
    thresholds={"nearly_full": MIN_SHARE_RESERVED, "unused": MIN_SHARE_UNUSED},
    reads=True,
)
def memory_headroom(facts: Facts) -> Iterator[Claim]:
    """Note each GPU of which torch reserves nearly all memory without using it.

    Much of the reserved memory is never allocated at once. Only a whole trace is looked
    at.

    Raises:
        CannotTellError: There are no memory events of a GPU whose size is known.
    """
    if facts.window:
        return

    memory = find_memory_peaks(facts.trace)
    if not memory.is_recorded:
        raise CannotTellError("memory events", "profile_memory=True")
    if not memory.peaks:
        raise CannotTellError(
            "memory events of the GPU with totals", "profile_memory=True"
        )

    selected_pids = {device.pid for device in facts.devices}
    for pid, peak in _match_peaks_to_devices(facts.trace, memory.peaks).items():
        size = _get_memory_bytes(facts.trace, pid)
        unused = peak.reserved - peak.allocated
        is_nearly_full = peak.reserved >= MIN_SHARE_RESERVED * size
        is_wasted = is_nearly_full and unused >= MIN_SHARE_UNUSED * peak.reserved
        if pid in selected_pids and is_wasted:
            yield Claim(
                text=f"torch reserves {quantity(peak.reserved, 'B')} of the "
                f"{quantity(size, 'B')} of GPU {pid}, but allocates no more than "
                f"{quantity(peak.allocated, 'B')} at once. "
                f"{percent(unused, peak.reserved)} of the reserved memory is "
                "fragmented or left over from an earlier phase."
            )


def _get_memory_bytes(trace: Trace, pid: Id) -> int:
    """Return how much memory a GPU has.

    Raises:
        CannotTellError: It is not recorded.
    """
    size = device_properties(trace).get(pid, {}).get("totalGlobalMem")
    if type(size) is not int or not size:
        raise CannotTellError("the size of the GPU's memory", PROPERTIES)
    return size


def _match_peaks_to_devices(
    trace: Trace, peaks: tuple[MemoryPeak, ...]
) -> dict[Id, MemoryPeak]:
    """Return the memory peak of each GPU, by the process id that the trace gives to the
    GPU.

    Memory events number the GPUs that a process sees. ROCm numbers the GPUs that run
    kernels differently. The two can then be matched only if there is one GPU and one
    peak.

    Raises:
        CannotTellError: It is not known to which GPU a peak belongs.
    """
    all_ids = device_ids(trace)
    # find_memory_peaks has one peak for each index of a GPU.
    peak_of_index: dict[Id, MemoryPeak] = {peak.device: peak for peak in peaks}
    if not is_rocm(trace) and peak_of_index.keys() <= set(all_ids):
        return peak_of_index

    if len(all_ids) == 1 and len(peaks) == 1:
        return {all_ids[0]: peaks[0]}

    raise CannotTellError("the GPU of each memory event", "one GPU per process")


TO_HOST: Final = lazy_pattern(r"DtoH|DeviceToHost|Device -> Pageable")
"""Matches copies from the device to the host."""
DEVICE_TO_DEVICE: Final = lazy_pattern(r"DtoD|DeviceToDevice|Device -> Device")
"""Matches copies within a device or between two."""

MIN_SHARE_OF_COPIES: Final = 0.1
"""A remedy is given for a kind of copies with at least this share of their time."""
CASTS: Final = "Use one dtype throughout each block"
"""The remedy against casts."""
MAX_NAME_CHARACTERS: Final = 80
COPIES: Final = (
    "Keep tensors in the layout in which they are read. Avoid .contiguous(), "
    ".clone(), reshaping transposed tensors and indexed assignment, all of which copy"
)
"""The remedy against copies."""
JOINS: Final = "Write into slices of one buffer instead of calling torch.cat"
"""The remedy against concatenations."""


@Rule(
    remedy=f"{CASTS}. {COPIES}. {JOINS}.",
    thresholds={"least_part": MIN_SHARE_OF_COPIES},
    of_kernels=True,
)
def casts_and_copies(facts: Facts) -> Iterator[Claim]:
    """Report the copies and casts of torch on the GPU, and copies of pageable memory.

    At stake is their time. Either is reported only where there are some.
    """
    kernels = facts.kernels
    copies = kernels.match_names(_is_copy_of_torch)
    within_device = _select_memcpys(kernels, DEVICE_TO_DEVICE)
    if not _do_copies_set_up(facts, within_device):
        copies |= within_device

    if kernels.add_up_ns(copies):
        yield _claim_about_copies(facts, copies)

    yield from _report_pageable_copies(facts)


def _claim_about_copies(facts: Facts, copies: Flags) -> Claim:
    """Claim the time of some copies and casts on the GPU.

    It is part of fusable-run if that rule claims all of them.
    """
    kernels = facts.kernels
    at_stake_ns = kernels.add_up_ns(copies)
    kinds = classify_copies(kernels)

    in_runs = copies & find_claimed_kernels(facts, fusable_run)
    are_all_in_runs = bool((in_runs == copies).all())
    shared_ns = kernels.add_up_ns(in_runs)
    shared = ""
    if shared_ns and not are_all_in_runs:
        shared = f"; the fusable-run finding also counts {duration(shared_ns)} of this"

    takes = "take" if int(copies.sum()) > 1 else "takes"
    return Claim(
        text=f"{_count_copy_kinds(kinds[copies])} {takes} {format_share_of_work(facts, at_stake_ns)}"
        f"{_name_launching_op(facts, copies)}{shared}.",
        at_stake_ns=at_stake_ns,
        wanted=kernels.make_removal(copies),
        kernels=copies,
        remedy=_choose_copies_remedy(kernels, copies, kinds),
        part_of="fusable-run" if are_all_in_runs else None,
    )


def _is_copy_of_torch(kernel: KernelName) -> bool:
    """Whether a kernel is a copy or cast that torch itself makes, by its name.

    Conversions inside a library are part of its op.
    """
    return kernel.op == "copy" and kernel.family.startswith("aten")


_KIND_NAMES: Final = {
    CopyKind.CAST: "cast",
    CopyKind.COPY: "copy",
    CopyKind.EITHER: "copy or cast",
    CopyKind.JOIN: "concatenation",
}
_KIND_PLURALS: Final = {
    CopyKind.CAST: "casts",
    CopyKind.COPY: "copies",
    CopyKind.EITHER: "copies or casts",
    CopyKind.JOIN: "concatenations",
}


def _count_copy_kinds(kinds: NDArray[np.int8]) -> str:
    """Count the copies of each CopyKind: `12 casts, 3 copies and 1 concatenation`."""
    texts = []
    for kind, name in _KIND_NAMES.items():
        copy_count = int(np.count_nonzero(kinds == kind))
        if copy_count == 1:
            texts.append(f"1 {name}")
        elif copy_count:
            texts.append(f"{count(copy_count)} {_KIND_PLURALS[kind]}")

    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _choose_copies_remedy(
    kernels: Kernels, copies: Flags, kinds: NDArray[np.int8]
) -> str:
    """Choose what helps against the kinds of copies that take much of the time.

    Much is MIN_SHARE_OF_COPIES of the time of all copies, or more. A kernel that may be
    a copy or a cast counts for both kinds.

    Args:
        copies: True for the copies.
        kinds: The CopyKind of each event.
    """
    least_ns = MIN_SHARE_OF_COPIES * kernels.add_up_ns(copies)

    kinds_of_remedy = {
        CASTS: (CopyKind.CAST, CopyKind.EITHER),
        COPIES: (CopyKind.COPY, CopyKind.EITHER),
        JOINS: (CopyKind.JOIN,),
    }
    remedies = []
    for remedy, helped_kinds in kinds_of_remedy.items():
        if kernels.add_up_ns(copies & np.isin(kinds, helped_kinds)) >= least_ns:
            remedies.append(remedy)

    return f"{'. '.join(remedies)}."


def _select_memcpys(kernels: Kernels, kind: re.Pattern[str]) -> Flags:
    """Tell which GPU events are memory copies whose name matches a pattern."""
    copies: Flags = kernels.trace.role[kernels.rows] == Role.MEMCPY
    return copies & kernels.trace.matching(kernels.rows, kind.search)


def _name_launching_op(facts: Facts, copies: Flags) -> str:
    """Name the op and the kind of module with most of the time of some copies.

    The text is `, most of it in aten::clone, and in Attention`. It is "" without both.
    """
    kernels = facts.kernels
    trace = facts.trace
    op = trace.op[kernels.rows]
    has_op = copies & (op != NO_ROW)
    if not has_op.any():
        return ""

    ns_of_name = np.bincount(trace.name[op[has_op]], kernels.effective_ns[has_op])
    longest_name = int(ns_of_name.argmax())
    is_most = 2 * ns_of_name[longest_name] > kernels.add_up_ns(copies)
    if not is_most:
        return name_dominant_module(kernels, copies)

    name = printable(trace.names[longest_name][:MAX_NAME_CHARACTERS])
    return f", most of it in {name}{name_dominant_module(kernels, copies, ', and in ')}"


def _do_copies_set_up(facts: Facts, copies: Flags) -> bool:
    """Whether some copies only set the program up (weights, inputs).

    They do in a trace without steps, if all of them start before the first kernel.
    """
    if len(facts.steps):
        return False

    kernels = facts.kernels
    first_kernel_ns = kernels.start[kernels.is_kernel].min(initial=facts.end_ns)
    return bool((kernels.start[copies] < first_kernel_ns).all())


def _report_pageable_copies(facts: Facts) -> Iterator[Claim]:
    """Report copies between the GPU and memory that is not pinned.

    At stake is how long they run while no kernel does. Copies that only set the program
    up are left out.
    """
    kernels = facts.kernels
    trace = facts.trace
    copies = _select_memcpys(kernels, PAGEABLE)
    if _do_copies_set_up(facts, copies):
        return

    at_stake_ns = _measure_copies_alone(kernels, copies)
    if not at_stake_ns:
        return

    copy_rows = kernels.rows[copies]
    calls = trace.launch[copy_rows].astype(np.intp)
    known_calls = calls[calls != NO_ROW]
    is_to_host = trace.matching(copy_rows, TO_HOST.search)
    waits = _count_copies_before_waits(facts, calls[is_to_host])

    yield Claim(
        text="Copying between the GPU and pageable memory takes "
        f"{format_share_of_work(facts, at_stake_ns)} in {plural(len(copy_rows), 'transfer')} "
        f"while no kernel runs.{_describe_remaining_waits(waits)}",
        at_stake_ns=at_stake_ns,
        wanted=AsyncCalls(np.append(copy_rows, known_calls)),
        kernels=copies,
        remedy="Use DataLoader(pin_memory=True) and .to(device, non_blocking=True). "
        "Before reading the result of a non-blocking copy to the host, wait "
        "for an event. Do not call .pin_memory() in the loop, because each call makes "
        "another copy.",
    )


def _measure_copies_alone(kernels: Kernels, copies: Flags) -> int:
    """Measure how long some copies run while no kernel does on their device, in ns.

    The times of the devices are added up.
    """
    alone_ns = 0
    for device in kernels.devices:
        copying = kernels.cover_events(copies, device)
        running = kernels.cover_events(kernels.is_kernel, device)
        alone_ns += without(copying, running).ns

    return alone_ns


def _count_copies_before_waits(facts: Facts, copying: Rows) -> int:
    """Count the copies after which their thread waits for the device before it launches.

    If such a copy did not block, the next call would wait instead.

    Args:
        copying: The calls that copy, as rows of the trace, in any order; -1 for an
            unknown call, which is not counted.
    """
    trace = facts.trace
    launches = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    launches = launches[launches != NO_ROW]
    waits = np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC)

    # Sort all these calls by thread, then by start, so that the next one is a neighbor.
    calls = distinct(np.concatenate((launches, waits)))
    thread = trace.thread_of(calls)
    by_thread = np.lexsort((trace.start[calls], thread))
    calls = calls[by_thread]
    thread = thread[by_thread]

    next_is_of_thread = thread[1:] == thread[:-1]
    next_is_wait = ~np.isin(calls[1:], launches)
    before_wait = calls[:-1][next_is_of_thread & next_is_wait]
    return int(np.count_nonzero(np.isin(copying, before_wait)))


def _describe_remaining_waits(waits: int) -> str:
    """Say that the waits for the GPU behind so many copies to the host would remain.

    The text is "" for 0.

    >>> _describe_remaining_waits(1)
    ' One transfer goes to the CPU, and the program then waits for the GPU. That wait would remain.'
    """
    if not waits:
        return ""
    if waits == 1:
        return (
            " One transfer goes to the CPU, and the program then waits for the GPU. "
            "That wait would remain."
        )
    return (
        f" {count(waits)} transfers go to the CPU, and the program then waits for the "
        "GPU. Those waits would remain."
    )


UNFOLDS: Final = lazy_pattern(r"im2col|flip_filter")
"""Matches steps of a convolution by matrix products or transforms.

No memory format avoids them.
"""


@Rule(
    remedy="Use model.to(memory_format=torch.channels_last) and convert the inputs "
    "likewise{amd:; on ROCm, also set PYTORCH_MIOPEN_SUGGEST_NHWC=1}. Fast "
    "16-bit and TF32 convolutions need NHWC.",
    of_kernels=True,
)
def layout_changes(facts: Facts) -> Iterator[Claim]:
    """Report kernels that change the layout of tensors for convolutions.

    There is a claim for each library. At stake is the time that these kernels take.
    """
    kernels = facts.kernels
    for library, changes_layout in _LAYOUT_KERNELS.items():
        changes = kernels.match_names(changes_layout) & ~kernels.is_trial
        at_stake_ns = kernels.add_up_ns(changes)
        if not at_stake_ns:
            continue

        kernel_count = int(changes.sum())
        takes = format_subject(kernel_count, "kernel", "take", f" of {library}")

        yield Claim(
            text=f"{takes} {format_share_of_work(facts, at_stake_ns)} to change tensor "
            f"layouts for convolutions{name_dominant_module(kernels, changes)}.",
            at_stake_ns=at_stake_ns,
            wanted=kernels.make_removal(changes),
            kernels=changes,
            why_likely="Other kernels may be slower in that layout.",
        )


def _changes_layout_in_cudnn(kernel: KernelName) -> bool:
    """Whether a kernel of cuDNN changes the layout of a tensor, by its name.

    Only what another memory format would avoid counts.
    """
    is_copy = kernel.op == "copy" and kernel.family == "cudnn"
    return is_copy and not UNFOLDS.search(kernel.name)


def _changes_layout_in_miopen(kernel: KernelName) -> bool:
    """Whether a kernel of MIOpen changes the layout of a tensor, by its name."""
    return kernel.op == "copy" and kernel.family == "miopen"


_LAYOUT_KERNELS: Final = {
    "cuDNN": _changes_layout_in_cudnn,
    "MIOpen": _changes_layout_in_miopen,
}
