"""What `memory` says in sentences: findings, and why memory ran out."""

from __future__ import annotations

import re

from fusetui.analysis.memory.categories import CATEGORIES
from fusetui.analysis.memory.findings import Helps, MemoryFinding, Rule
from fusetui.analysis.memory.oom import Inactive, OutOfMemory
from fusetui.analysis.questions.memory import memory_peaks
from fusetui.text.figures import count, plural, size
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace

# the folder, the file, the line
PLACE = re.compile(r"(?:.*/)?([^/]+/[^/]+\.py:\d+ .*)", re.DOTALL)
MORE = (
    "Sizes of a GPU are those of blocks, as the allocator rounds them. A snapshot would also tell "
    "the stack and the kind of each allocation, the segments, and why memory ran out: "
    "docs/memory.md says how to record one."
)
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def no_events(trace: Trace) -> str:
    """What a trace lacks whose memory events tell nothing, if it has any."""
    if memory_peaks(trace).is_recorded:
        return "no memory events with addresses and totals, which newer versions of torch write"
    return "no memory events: profile_memory=True adds them"


def short_place(place: str) -> str:
    """`/home/a/model/layers.py:12 forward` -> `model/layers.py:12 forward`."""
    if place in CATEGORIES:
        return place.replace("_", " ")
    found = PLACE.fullmatch(place)
    return printable(found[1] if found else place)


def finding_text(one: MemoryFinding) -> str:
    """The claim with its figures."""
    if one.rule == "fragmentation":
        return _fragmentation(one)
    return SAID[one.rule].format(
        place=short_place(one.places[0]) if one.places else "",
        count=one.count or 0,
        of_count=one.of_count or 0,
        each=size(one.each_bytes or 0),
        bytes=size(one.bytes),
        of=f"{size(one.bytes)} of the peak's {size(one.of_bytes)}",
        gradients=plural(one.count or 0, "gradient"),
        pools=plural(one.count or 0, "private pool"),
        at_stake=size(one.at_stake_bytes or 0),
    )


def remedy(one: MemoryFinding) -> str:
    """What to try."""
    return HELPS[one.helps] if one.helps else TRY[one.rule]


def oom_text(one: OutOfMemory) -> str:
    """What was asked for, what there was, and why that did not suffice."""
    where = f" in {short_place(one.place)}" if one.place else ""
    free = (
        "an unknown amount"
        if one.device_free_bytes is None
        else size(one.device_free_bytes)
    )
    return (
        f"Out of memory at event {count(one.index)}{where}: {size(one.asked_bytes)} asked for, "
        f"{free} free on the device, {size(one.reserved_bytes)} reserved, of which "
        f"{size(one.inactive_bytes)} inactive; the largest piece of its pool and stream has "
        f"{size(one.largest_bytes)}. {_why(one)}"
    )


def _why(one: OutOfMemory) -> str:
    if one.reason == "live":
        return (
            "What is free and what is inactive together are less than that, so pieces alone are "
            "not why: less would have to live, here or in other processes. What those hold is not "
            "in the file."
        )
    if one.reason == "fragmented":
        return (
            "What is free and what is inactive together would be enough, but no piece that could "
            f"serve it is: {_inactive(one.inactive)}. {_pages(one)}"
        )
    free, head = one.device_free_bytes, "Why cannot be told"
    if free is None:
        return f"{head}: the file does not say what was free on the device."
    if one.largest_bytes >= one.asked_bytes:
        return f"{head}: by its blocks, that piece was large enough."
    if free + one.reserved_bytes < one.asked_bytes:
        return f"{head}: it is more than this process holds and the device has free together."
    if free < one.asked_bytes:
        return f"{head}: how large blocks from before the recording were is not in the file."
    return f"{head}: so much was free on the device, as where a process may use a part of it only."


def _inactive(there: Inactive) -> str:
    """Where inactive bytes are, as seen from what was asked for."""
    parts = (
        (there.own_bytes, "in its pool and on its stream"),
        (there.other_streams_bytes, "on other streams"),
        (there.other_pools_bytes, "in other pools (as CUDA and HIP graphs have)"),
        (there.other_size_bytes, "in segments for blocks of another size"),
    )
    return (
        ", ".join(f"{size(part)} {where}" for part, where in parts if part)
        + " are inactive"
    )


def _pages(one: OutOfMemory) -> str:
    if one.is_expandable:
        return "Segments are expandable already."
    if one.expandable_would_fit is None:
        return (
            "How much of it whole pages of 2 MB could have given back cannot be told."
        )
    enough = "" if one.expandable_would_fit else "not "
    return (
        f"Whole pages of 2 MB of its pool and stream could have given back "
        f"{size(one.usable_bytes)}: with what was free, that would {enough}have been enough for it "
        "in such pages. A layout that was expandable from the start would be another one."
    )


def _fragmentation(one: MemoryFinding) -> str:
    if one.inactive:
        most = "The segment with most of that is kept by"
        keeps = f" {most} {short_place(one.places[0])}." if one.places else ""
        return (
            f"When memory ran out, of {size(one.of_bytes)} reserved {_inactive(one.inactive)}; the "
            f"largest piece that could have served has {size(one.each_bytes or 0)}.{keeps}"
        )
    return (
        f"{size(one.bytes)} of {size(one.of_bytes)} reserved are inactive, in pieces before "
        f"blocks that live: the largest one has {size(one.each_bytes or 0)}."
    )


SAID: dict[Rule, str] = {
    "memory-leak": "What one stack in {place} keeps grew in {count} of the last {of_count} steps, "
    "by {each} on average. After the last one it kept {bytes} of what was allocated since the "
    "recording began.",
    "peak-not-needed": "{of} are {gradients} of a step that was over. Without them the peak would "
    "be {at_stake} lower.",
    "optimizer-state-large": "{of} are state of the optimizer.",
    "activations-large": "{of} are activations. Checkpointing would lower the peak by {at_stake} "
    "at most.",
    "pool-per-graph": "{pools}, as CUDA and HIP graphs have, reserve {bytes}. Sharing one would "
    "save {at_stake} at most.",
}
TRY: dict[Rule, str] = {
    "memory-leak": "look for what keeps it: a list of losses or outputs (keep loss.item()), a hook",
    "fragmentation": EXPANDABLE,
    "peak-not-needed": "zero_grad(set_to_none=True) right after the step",
    "optimizer-state-large": "an optimizer whose state has 8 bits or is sharded over ranks",
    "activations-large": "torch.utils.checkpoint on the layers that hold most",
    "pool-per-graph": "capture graphs that never run at once with the pool of the first (pool=)",
}
HELPS: dict[Helps, str] = {
    "expandable": f"{EXPANDABLE}, which takes memory page by page",
    "order": "to allocate first what lives long",
    "whole_segments": "to free the last of what keeps such a segment, which can then be given back",
}
