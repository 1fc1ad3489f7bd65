"""Adapt remedies to the devices and the program of a trace.

A *remedy* is one line that says what to try against a finding. It names only settings
that the devices and the program of the trace have: a part in braces is for some traces
only. `{nvidia:A|amd:B|:C}` becomes the first of its texts whose tag holds for the
trace, C where none does, and nothing if there is no C.

| tag | holds |
|---|---|
| nvidia, amd, intel | for devices of this vendor; none of them where nothing tells |
| compile | if torch.compile has a code generator for the device |
| graphs | if besides there are graphs: torch.cuda.graph |
| pdl | on Hopper and later: programmatic dependent launch |
| torch2 | unless the trace comes from a version of torch before 2.0 |
| segments | for devices of NVIDIA, likewise: expandable_segments |
| training | if there is backward work or an optimizer, or no op was recorded |
| scaler | in training, unless before torch 2.0: torch.amp.GradScaler |
| serving | in steps of vLLM and SGLang |
| nsys | for what Nsight Systems recorded, also where it was converted since |
"""

from __future__ import annotations

import re

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.versions import is_before_torch_2
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import (
    device_names,
    device_properties,
    gpu_activity,
    is_rocm,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

PART = lazy_pattern(r"\{([^{}]*)\}")
"""Matches a part of a remedy in braces."""
BACKWARD = lazy_pattern(
    r"[Bb]ackward|_bwd_|dgrad|wgrad|Optimizer\.(?:step|zero_grad)|autograd::engine"
)
"""Matches names of backward work and of optimizers, which only training has."""

HIP = lazy_pattern(r"hip[A-Z]")
"""Matches the beginning of the names of HIP's calls."""
CUDA = lazy_pattern(r"cu(?:da)?[A-Z]")
"""Matches the beginning of the names of CUDA's calls."""
TRITON = 7
"""The major compute capability from which on there is Triton."""
HOPPER = 9
"""The major compute capability from which on there is PDL."""


def choose_remedy_words(remedy: str, tags: frozenset[str]) -> str:
    """Choose the words of a remedy for a trace, by the tags that hold for it.

    A remedy may have parts in braces, each with alternatives like
    `{tag:text|tag:text|:text}`. Such a part becomes the text of the first alternative
    whose tag holds. An empty tag always holds, and a part without such an alternative
    becomes "".
    """

    def text_for_tags(part: re.Match[str]) -> str:
        for alternative in part[1].split("|"):
            tag, _, text = alternative.partition(":")
            if not tag or tag in tags:
                return text
        return ""

    return PART.sub(text_for_tags, remedy)


def find_tags(facts: Facts) -> frozenset[str]:
    """Find the tags that hold for a trace, such as `nvidia`, `training` or `torch2`.

    Remedies use them to name only what helps on these devices and with this version of
    torch. The table at the head of this file explains each tag.
    """
    trace = facts.trace
    vendor = _find_vendor(trace)
    is_nvidia = vendor == "nvidia"
    has_torch_2 = not is_before_torch_2(trace)
    capability = _find_lowest_capability(trace)
    compiles = has_torch_2 and (not is_nvidia or capability >= TRITON)
    is_training = _is_training(trace)

    holds_for_trace = {
        "compile": compiles,
        "graphs": compiles and vendor != "intel",
        "pdl": is_nvidia and capability >= HOPPER,
        "torch2": has_torch_2,
        "segments": has_torch_2 and is_nvidia,
        "training": is_training,
        "scaler": is_training and has_torch_2,
        "serving": facts.steps.are_of_server,
        "nsys": trace.report.writer == "nsys",
    }
    tags = {tag for tag, holds in holds_for_trace.items() if holds}
    if vendor:
        tags.add(vendor)

    return frozenset(tags)


def _find_vendor(trace: Trace) -> str:
    """Return who made the devices: `nvidia`, `amd` or `intel`; "" if nothing tells.

    The names of the devices and of the calls tell.
    """
    names = " ".join(device_names(trace))
    if gpu_activity(trace) == "ProfilerActivity.XPU" or "Intel" in names:
        return "intel"
    if is_rocm(trace) or "AMD" in names or _has_call(trace, HIP):
        return "amd"
    if names or _has_call(trace, CUDA):
        return "nvidia"

    return ""


def _find_lowest_capability(trace: Trace) -> int:
    """Return the lowest major compute capability of all devices.

    It is HOPPER if none is known.
    """
    majors = []
    for properties in device_properties(trace).values():
        major = properties.get("computeMajor")
        if isinstance(major, int):
            majors.append(major)

    return min(majors, default=HOPPER)


def _is_training(trace: Trace) -> bool:
    """Whether there is backward work or an optimizer, or no op was recorded."""
    rows = trace.rows_named(BACKWARD.search, Role.OP, Role.ANNOTATION, Role.KERNEL)
    return len(rows) > 0 or not (trace.role == Role.OP).any()


def _has_call(trace: Trace, pattern: re.Pattern[str]) -> bool:
    """Whether the name of any runtime call begins with a match of a pattern."""
    return bool(len(trace.rows_named(pattern.match, Role.CALL)))
