"""The sentences of `memory`: findings, and why memory ran out."""

from __future__ import annotations

import re
from collections.abc import Callable

from fusetui.analysis.memory.categories import CATEGORIES
from fusetui.analysis.memory.findings import Helps, MemoryFinding, Rule
from fusetui.analysis.memory.oom import Inactive, OutOfMemory
from fusetui.analysis.questions.memory import find_memory_peaks
from fusetui.text.figures import count, plural, size
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace

PLACE = re.compile(r"(?:.*/)?([^/]+/[^/]+\.py:\d+ .*)", re.DOTALL)
"""A place in the code; its group begins with the folder of the file."""

MORE = (
    "GPU sizes are those of allocator blocks (rounded up). A memory snapshot also has stacks, allocation "
    "kinds, segments and the cause of an out-of-memory error. docs/memory.md explains how to record "
    "one."
)
"""What a trace does not have; shown below its memory."""

EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def explain_no_events(trace: Trace) -> str:
    """Return what a trace without usable memory events lacks, as the end of a sentence."""
    if find_memory_peaks(trace).is_recorded:
        return (
            "no memory events with addresses and totals (newer torch versions record "
            "them)"
        )
    return "no memory events (profile_memory=True records them)"


def short_place(place: str) -> str:
    """Return a place in the code with one folder only, or a category in words.

    >>> short_place("/home/a/model/layers.py:12 forward")
    'model/layers.py:12 forward'
    """
    if place in CATEGORIES:
        return place.replace("_", " ")
    in_code = PLACE.fullmatch(place)
    return printable(in_code[1] if in_code else place)


def describe_finding(finding: MemoryFinding) -> str:
    """Return the claim of a finding about memory, in sentences with its figures."""
    return CLAIMS[finding.rule](finding)


def _describe_leak(finding: MemoryFinding) -> str:
    """Return sentences about memory of one stack that grows in most of the last steps."""
    code_place = _main_place(finding)
    growth_size = size(finding.each_bytes or 0)
    return (
        f"Memory kept by one stack in {code_place} grew in {finding.count or 0} of the last "
        f"{finding.of_count or 0} steps, by {growth_size} on average. After the last step it kept "
        f"{size(finding.bytes)} allocated since the recording began."
    )


def _describe_unneeded_peak(finding: MemoryFinding) -> str:
    """Return sentences about gradients of a finished step that are part of the peak."""
    gradients = plural(finding.count or 0, "gradient")
    take = "takes" if finding.count == 1 else "take"
    return (
        f"{gradients} of a finished step {take} {_describe_part_of_peak(finding)}. The peak would be "
        f"{_format_saving(finding)} lower without them."
    )


def _describe_optimizer_state(finding: MemoryFinding) -> str:
    return f"Optimizer state takes {_describe_part_of_peak(finding)}."


def _describe_activations(finding: MemoryFinding) -> str:
    """Return sentences about activations that are a large part of the peak, and what
    checkpointing would gain at most."""
    return (
        f"Activations take {_describe_part_of_peak(finding)}. Checkpointing would lower the peak by at "
        f"most {_format_saving(finding)}."
    )


def _describe_graph_pools(finding: MemoryFinding) -> str:
    """Return sentences about private memory pools of CUDA graphs, and what sharing one
    would save at most."""
    pools = plural(finding.count or 0, "private pool")
    return (
        f"{pools} (of CUDA or HIP graphs) reserve {size(finding.bytes)}. Sharing one would save "
        f"at most {_format_saving(finding)}."
    )


def _describe_fragmentation(finding: MemoryFinding) -> str:
    """Return sentences about inactive memory between live blocks: how much there is,
    its largest piece, and what keeps it if memory ran out."""
    reserved = size(finding.of_bytes)
    largest = size(finding.each_bytes or 0)
    if finding.inactive is None:
        return (
            f"{size(finding.bytes)} of the {reserved} reserved is in inactive pieces between live "
            f"blocks; the largest has {largest}."
        )
    ran_out = (
        f"{_describe_inactive(finding.inactive)}, of the {reserved} reserved when memory ran out. The "
        f"largest usable piece has {largest}."
    )
    if not finding.places:
        return ran_out
    code_place = _main_place(finding)
    return f"{ran_out} {code_place} keeps the segment with most of it."


def _main_place(finding: MemoryFinding) -> str:
    """Return the place in the code that a finding is mostly about, or "" if it is
    unknown."""
    return short_place(finding.places[0]) if finding.places else ""


def _describe_part_of_peak(finding: MemoryFinding) -> str:
    return f"{size(finding.bytes)} of the {size(finding.of_bytes)} at the peak"


def _format_saving(finding: MemoryFinding) -> str:
    return size(finding.at_stake_bytes or 0)


CLAIMS: dict[Rule, Callable[[MemoryFinding], str]] = {
    "memory-leak": _describe_leak,
    "fragmentation": _describe_fragmentation,
    "peak-not-needed": _describe_unneeded_peak,
    "optimizer-state-large": _describe_optimizer_state,
    "activations-large": _describe_activations,
    "pool-per-graph": _describe_graph_pools,
}


def remedy(finding: MemoryFinding) -> str:
    """Return what to try against a finding, as a phrase without a full stop."""
    if finding.helps:
        return REMEDIES_OF_FRAGMENTATION[finding.helps]
    return REMEDIES[finding.rule]


REMEDIES: dict[Rule, str] = {
    "memory-leak": (
        "find what keeps it alive, such as a list of losses or outputs (store "
        "loss.item() instead) or a hook"
    ),
    "fragmentation": EXPANDABLE,
    "peak-not-needed": "call zero_grad(set_to_none=True) right after the step",
    "optimizer-state-large": (
        "use an optimizer with 8-bit state, or shard the state over ranks"
    ),
    "activations-large": (
        "use torch.utils.checkpoint on the layers with the most activations"
    ),
    "pool-per-graph": "use one pool (pool=) for graphs that never run at the same time",
}
REMEDIES_OF_FRAGMENTATION: dict[Helps, str] = {
    "expandable": f"set {EXPANDABLE}, which allocates memory page by page",
    "order": "allocate long-lived tensors first",
    "whole_segments": (
        "free the last blocks in such a segment, so that it can be released"
    ),
}
"""Where it is known what would have helped."""


def describe_oom(oom: OutOfMemory) -> str:
    """Return sentences about an out-of-memory error: what was requested, what was
    available, and why that was not enough."""
    where = f" in {short_place(oom.place)}" if oom.place else ""
    if oom.device_free_bytes is None:
        free = "an unknown amount"
    else:
        free = size(oom.device_free_bytes)
    return (
        f"Out of memory at event {count(oom.index)}{where}: {size(oom.asked_bytes)} requested, "
        f"{free} free on the device. {size(oom.reserved_bytes)} were reserved, of which "
        f"{size(oom.inactive_bytes)} inactive; the largest piece of its pool and stream has "
        f"{size(oom.largest_bytes)}. {_explain_oom(oom)}"
    )


def _explain_oom(oom: OutOfMemory) -> str:
    """Return sentences about the cause of an out-of-memory error: too much live memory,
    fragmentation, or unknown."""
    if oom.reason == "live":
        return (
            "Fragmentation is not the cause: free and inactive memory together are "
            "too small. Use less memory in this process or in others, which are "
            "not in the file."
        )
    if oom.reason == "fragmented":
        return (
            "Fragmentation is the cause: free and inactive memory together would be "
            f"enough, but no single usable piece is. {_describe_inactive(oom.inactive)}. "
            f"{_judge_expandable_segments(oom)}"
        )
    return f"The cause is inconclusive: {_explain_unknown_cause(oom)}."


def _explain_unknown_cause(oom: OutOfMemory) -> str:
    """Return why the cause of an out-of-memory error is not known, as a clause."""
    free_bytes = oom.device_free_bytes
    if free_bytes is None:
        return "the file does not record the free memory of the device"
    if oom.largest_bytes >= oom.asked_bytes:
        return "that piece was large enough, judging by its blocks"
    if free_bytes + oom.reserved_bytes < oom.asked_bytes:
        return "it is more than this process holds and the device has free together"
    if free_bytes < oom.asked_bytes:
        return "the sizes of blocks from before the recording are not in the file"
    return "enough was free on the device; the process may be limited to a part of it"


def _describe_inactive(inactive: Inactive) -> str:
    """Return where inactive memory is, as seen from the block that was requested.

    1 GB in its pool and on its stream, 2 GB on other streams are inactive
    """
    places = (
        (inactive.own_bytes, "in its pool and on its stream"),
        (inactive.other_streams_bytes, "on other streams"),
        (inactive.other_pools_bytes, "in other pools (as CUDA and HIP graphs have)"),
        (inactive.other_size_bytes, "in segments for blocks of another size"),
    )
    parts = [
        f"{size(size_bytes)} {where}" for size_bytes, where in places if size_bytes
    ]
    return f"{', '.join(parts)} are inactive"


def _judge_expandable_segments(oom: OutOfMemory) -> str:
    """Return whether expandable segments would have helped, since they release whole
    pages of 2 MB."""
    if oom.is_expandable:
        return "Segments are already expandable."
    if oom.expandable_would_fit is None:
        return (
            "It is unknown how much of it could have been released as whole 2 MB pages."
        )
    is_enough = "would" if oom.expandable_would_fit else "would not"
    return (
        f"Expandable segments could have released {size(oom.usable_bytes)} in 2 MB "
        f"pages, which {is_enough} have been enough with the free memory. The memory "
        "layout would have differed from the start."
    )
